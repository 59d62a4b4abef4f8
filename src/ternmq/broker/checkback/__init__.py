"""Transactions with check-back: a client opens them, and the broker asks if it does not decide.

Reading order: ``checking`` (the commands), ``found`` (which transaction a command names),
``preparing`` (rows, settles and cursor moves of a transaction), ``deciding`` (commit and roll back)
with ``outcomes`` (what becomes of rows that it settles), ``asking`` (questions to checkers, and
what happens without an answer), ``questions`` (what a question says, and who is asked).

Invariants: the first decision is the only one; a question leaves when its CHECKED record is
durable; nothing that a transaction holds is seen by others before its RESOLVED.
"""
