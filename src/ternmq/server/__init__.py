"""The broker's shell: sockets, threads and clocks around the core, which makes all decisions.

Entry point: ``app.Server``. Reading order, from the bottom up; a room imports only rooms that are
named above it:

* ``telemetry`` (counters, logs, the audit), ``engine`` (the loop around the core).
* ``scrub`` (damaged bytes of the journal: found, and mended from another copy).
* ``desk`` (what all callers share), ``metrics`` (for operators, over HTTP).
* ``commands`` (the handlers; they know callers through ``wire.port`` alone).
* ``native`` (the door for the native protocol), ``replication`` (the journal goes to followers).
* ``process`` (token, TLS, disk, threads), ``reading`` (readers at a broker that follows).
* ``app`` puts them together. ``node`` is what stands in its place in a broker group: it leads, with
  ``app``, or follows.

Invariants: one loop; nothing in it waits for the disk (a short sync of a quick disk excepted, see
``sync_pace``); no answer leaves before the record that it depends on is committed; after a failed
write or sync nothing leaves at all and the process ends.
"""
