"""What all callers share: native connections and other doors.

Reading order: ``desk``, ``sessions`` (which callers belong to which session), ``accounts`` (what an
app may hold), ``late`` (requests that come last in a turn), ``telling`` (pushes).

Invariants: budgets are per app with fair shares; nothing here knows a socket.
"""
