"""HTTP: the port of brokers and workers for probes, and the server for everybody else.

* ``port`` answers probes and scrapers; brokers and workers have one. Invariant: a peer gets one
  answer, within a bounded time; peers that send nothing keep no others out.
* ``api`` is the REST API, and ``front`` the process that serves it (``ternmq http``). It is a
  client of the broker as any other; a broker imports nothing of it.
"""
