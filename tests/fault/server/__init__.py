"""Faults on real broker processes, with real clients on real connections.

In reading order: ``broker`` (a ``ternmq serve`` as the tests handle it), ``client`` (one connection
that comes back: resumes its session, sends again what was not answered), ``desk``, ``consumer`` and
``load`` (producers and consumers of workload W on such connections), ``raw`` (peers that
misbehave), ``proxy`` (a network that cuts), ``ordered`` (consumer processes of an ordered
group), ``reviewing`` (histories of several processes put in one order, and checks besides the
verifier's).

Clients write a history as ``tests.fault.history`` describes it, and ``tests.fault.verify`` judges a
broker process by the same rules as the core alone.

``FAULT_CYCLES``: kills and power cuts in a row (default 4 and 2 here; 20 is what DUR-1 and DUR-4
say).
``FAULT_SECONDS`` (default 20): how long everybody is killed in ``test_chaos``.
``FAULT_LONG=1``: a backlog of four million messages instead of one; more delays and more kills.
"""
