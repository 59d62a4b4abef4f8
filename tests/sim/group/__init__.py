"""A broker group of two or three brokers in one process: real cores, one heap, one seeded chance.

Entry point: ``python -m tests.sim.group``. Reading order: ``heap`` (events and tasks), ``machine``
(a disk, clocks, power, the life of a process), ``net``, ``store`` (the coordinator), ``copying``
and ``leading`` (the two roles), ``broker`` (what changes between them), ``oracle`` (what must
hold), ``nemesis`` (what goes wrong), ``rot`` (disks that damage bytes),
``case``.

The roles follow ``ternmq.server.node`` line by line where that is possible, with events in the
place of sockets and threads. What they decide is decided by the real cores:
``cluster.replication``, ``cluster.coordination``, ``journal``.
"""
