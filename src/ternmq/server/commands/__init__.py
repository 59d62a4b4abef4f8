"""The handlers of the commands: they know callers through ``wire.port`` alone.

Reading order: ``commands`` (puts them together), ``dispatch`` (calls them); ``sends``, ``pulls``,
``reads``, ``journal_reads``, ``range_reads``, ``waits`` (requests that wait), ``rows`` (the answer
to a pull), ``returns`` (leases that are given back); ``control`` (base of the following),
``topics``, ``clients``, ``lookup``, ``failed``, ``replays``, ``transactions``, ``checked``
(transactions with check-back), ``scheduled``, ``holds``.

Invariant: no handler knows a connection, a frame or a socket.
"""
