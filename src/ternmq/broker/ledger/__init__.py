"""The only way for a fact into the broker: append it, then apply it.

Reading order: ``ledger``, ``views`` (the table: what each kind of record changes) with
``resolving`` and ``checks`` (its rows for transactions) and ``scheduling`` (those for scheduled
rows), ``factkinds`` (how facts become bytes), ``room`` (who is refused when the journal is full),
``copies`` (who is refused when copies are missing), ``wakes`` (parked pulls to try again),
``alarms`` (raised and cleared here), ``removed`` (what a removed segment leaves behind). STATE
objects: ``objects`` (the table), ``heldobjects``, ``viewobjects``; the other owners are in the
rooms of their data.

Invariants: a decision applies a record by the same function as the replay at a start; applying a
record reads that record and the object that it names, nothing else.
"""
