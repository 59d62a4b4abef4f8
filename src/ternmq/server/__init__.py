"""The broker's shell: sockets, threads and clocks around the core, which makes all decisions.

Entry point: ``app.Server``. Reading order:

* ``core`` (turns: commands, flush, answers, syncs, jobs) with ``sync_pace`` (where a sync runs).
* A peer: ``connection`` (its socket, its time limits), ``peer`` (its budgets), ``sessions`` (which
  connections belong to which session), ``admission`` (limits on the number of connections).
* All peers: ``hub``.
* What all callers share, native connections and others: ``desk``, ``ledgers`` (what an app may
  hold), ``late`` (requests that come last in a turn) with ``fairqueue``, ``telling`` (pushes).
* Requests, which know callers through ``wire.port`` alone: ``commands`` (puts the handlers
  together), ``dispatch`` (calls the handlers), ``messages``, ``pulls``, ``reads``,
  ``journal_reads``, ``range_reads``, ``waits`` (parked requests), ``rows`` (the answer to a pull),
  ``settled`` (settles that are sent again), ``return_commands`` (leases that are returned);
  ``control_commands`` (base of the following), ``topic_commands``, ``client_commands``,
  ``lookup_commands``, ``replay_commands``, ``transaction_commands``, ``bulk_commands``;
  ``whole_lists`` (for clients that do not use pages).
* Metrics: ``counters``, ``rates``, ``families``, ``metrics``, ``budget_metrics``,
  ``group_series``, ``exposition`` (Prometheus's text), ``health`` with ``http_port``.
* The process: ``admin_token``, ``audit``, ``fullness``, ``late_imports``, ``listening`` (whether
  the address can be listened at), ``logs``, ``making`` (the disk space of a new journal),
  ``own_process`` (threads and garbage collection), ``tls``, ``app``.

Invariants: one loop; nothing in it waits for the disk (a short sync of a quick disk excepted, see
``sync_pace``); no answer leaves before the record that it depends on is committed; after a failed
write or sync nothing leaves at all and the process ends.
"""
