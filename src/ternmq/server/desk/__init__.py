"""What all callers share: native connections and other doors.

Reading order: ``desk``, ``sessions`` (which callers belong to which session), ``accounts`` (what an
app may hold), ``late`` (requests that come last in a turn) with ``whole_lists`` (lists that
are made piece by piece, for clients that do not use pages), ``telling`` (pushes), ``routing``
(which brokers there are), ``checkers`` (who is asked about transactions), ``assigned`` (tells
members their queues), ``settled`` (settles that are sent again), ``first_use`` (topics that a send
makes).

Invariants: budgets are per app with fair shares; nothing here knows a socket.
"""
