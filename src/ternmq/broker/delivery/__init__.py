"""Decisions about what consumers get, and what becomes of it.

Reading order: ``pulls`` with ``plan`` (what a planner returns) and ``planner``; the group modes,
each with its planner: ``shared``, ``ordered``, ``locked`` (also for ``owned``), ``broadcast``;
their table: ``modes``, used by ``planning``; ``allowance`` (how many rows a session may have);
``scan`` (which rows of a batch pass a filter); ``expiry`` (rows that have expired)
with ``lifetimes`` (how pulls and sweeps use it); ``cursors`` (moves without a pull);
``parking`` (pulls that wait); ``settles`` with ``ages`` (when rows that fail were stored);
``leases`` (extending and ending them);
``replays`` (rows that a group gets again).

Invariants: a row is leased to one consumer at a time; rows above the durable mark are not handed
out; a settle that was answered is never undone.
"""
