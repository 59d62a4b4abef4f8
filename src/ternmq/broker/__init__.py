"""The broker's core: synchronous and deterministic.

Purpose: a command comes in with ``now``, is decided against the views, and becomes facts; the
``ledger`` appends these to the journal and applies them through the same table that the replay at
a start uses. Entry point: ``broker``.

Reading order, from the surface down; a room imports only rooms that are named below it:

* ``broker`` (what the core can be asked), ``start`` (how it is put together), ``standby`` (the
  views of a copy of another broker's journal), ``copyview`` (what is read of it), ``metrics``.
* ``upkeep`` (work between commands), ``query`` (questions).
* Decisions: ``checkback`` (transactions that the broker asks about), ``intake`` (sends),
  ``operation`` (operators, sessions), ``delivery`` (pulls, settles).
* ``ledger``: how a decision becomes a record and a record changes the views.
* Views: ``transaction``, ``schedule`` (rows that are due later), ``dedup``, ``catalog`` (what
  exists), ``group`` (progress of groups).
* ``gate`` (answers that wait for their records), ``clock``, ``containers``.

Invariants: nothing but ``ledger`` appends a record or applies a fact, and no part takes the whole
``Broker``; the same records give the same state; applying a record reads that record and the
object it names, nothing else; every reply carries the position it depends on and is released only
when that is committed; time, randomness and the disk are arguments; no set order reaches an effect;
every view has a cap and an expiry in broker time.
"""
