"""The only shell of the broker: sockets, threads and clocks around the core, which decides all.

Entry point: ``app.Server``. Reading order:

* ``core`` (turns: commands, flush, answers, syncs, jobs) with ``sync_pace`` (where a sync runs).
* A peer: ``connection`` (its socket, its time limits), ``peer`` (its budgets), ``sessions`` (who is
  who, over connections), ``admission`` (who may connect).
* All peers: ``hub``.
* What all callers share, natives and others: ``desk``, ``ledgers`` (what an app may hold), ``late``
  (requests that come last in a turn) with ``fairqueue``, ``telling`` (pushes).
* Requests, which know callers by ``wire.port`` alone: ``commands`` puts the handlers together,
  ``dispatch`` (who may, and which handler), ``messages``, ``pulls``, ``reads``,
  ``journal_reads``, ``range_reads``, ``waits`` (what waits), ``rows`` (what a pull puts on the
  wire), ``settled`` (settles that are asked again), ``topic_commands``, ``client_commands``,
  ``return_commands`` (leases that go back), ``lookup_commands``, ``replay_commands``,
  ``transaction_commands``, ``bulk_commands``; ``control_commands`` is what they share,
  ``whole_lists`` answers clients without pages.
* What is measured: ``counters``, ``rates``, ``families``, ``metrics``, ``budget_metrics``,
  ``group_series``, ``exposition`` (Prometheus's text), ``health`` with ``http_port``.
* The process: ``admin_token``, ``audit``, ``fullness``, ``late_imports``, ``listening`` (whether it
  can), ``logs``, ``making`` (the disk that a new journal takes), ``own_process`` (threads and
  garbage), ``tls``, ``app``.

Invariants: one loop; nothing in it waits for the disk; no answer leaves before what it rests on is
committed; after a failed write or sync nothing leaves at all and the process ends.
"""
