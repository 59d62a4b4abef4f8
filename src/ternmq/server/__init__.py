"""The only shell of the broker: sockets, threads and clocks around the core, which decides all.

Entry point: ``app.Server``. Reading order: ``core`` (turns: commands, flush, answers, syncs, jobs),
``connection`` (bytes, budgets, time limits of one peer), ``dispatch`` (who may, and which handler),
``messages``, ``topic_commands``, ``lookup_commands`` and
``client_commands`` (the handlers), ``rows`` (what a pull puts on the wire),
``sessions`` (who is who, over connections), ``health`` (metrics, liveness), ``app``.

Invariants: one loop; nothing in it waits for the disk; no answer leaves before what it rests on is
committed; after a failed write or sync nothing leaves at all and the process ends.
"""
