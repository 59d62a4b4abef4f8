"""The primary of a broker group in its process: the journal goes to followers, answers wait.

Entry point: ``primary``, the shell of a ``Reign``. ``link`` is the connection of one follower.

Invariants: decisions are those of ``ternmq.cluster.replication``; a follower's connection has
budgets of its own, and none of a client's; a broker without a cluster imports nothing of this.
"""
