"""A broker of a broker group, as a process: roles, the follower's connection, the data folder.

Purpose: what ``app`` is for a broker that is alone. Entry point: ``node.Node``. Reading order:
``identity`` and ``folder`` (is this the right folder), ``restoring`` (a group that begins again),
``visitors`` (clients of a broker that does not lead), ``follower``, ``stream`` (its connection to
the primary), ``applying`` (the views while it follows), ``showing`` (who reads them),
``reigning``, ``sight`` (what is known from the coordinator), ``candidate`` (whether this broker may
lead), ``node``; what operators and clients see: ``outlook``, which uses ``figures``, ``probes``,
``reasons`` and ``routes``.

Invariants: decisions are in ``ternmq.cluster``, which does no I/O; a broker without a cluster
imports nothing of this.
"""
