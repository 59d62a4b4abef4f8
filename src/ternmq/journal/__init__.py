"""The journal: an append-only log in fixed-size segments, its recovery and its index.

Purpose: keep records in the order of decisions, make them durable in groups, find them again after
any crash. Entry points: ``recovery.open_journal`` opens a data folder and replays it,
``journal.Journal`` appends. What recovery and state need of the broker is defined here as
Protocols; nothing here imports the broker.

Reading order:

* The machine: ``disk`` (the port to it), ``real_disk``, ``memory_disk``, ``faulty_disk``,
  ``sync_thread``.
* Appending: ``segment``, ``journal``, ``appender``, ``space``. Removal: ``retention``.
* Opening: ``scan``, ``ending`` (where the journal ends), ``recovery``, ``state`` (sets of the
  views' state), ``repair``.
* The index: ``index``, ``index_feed``, ``index_open``, ``coverage``, ``batch_facts``, ``tail`` (the
  newest records), ``run`` and ``run_file`` (a run file), ``run_content``, ``run_jobs``,
  ``columns``, ``idx_file`` and ``idx_encode`` (the bytes of a run file), ``bloom``,
  ``bloom_build``, ``sums``, ``lookup``.
* Reading: ``store``, ``recent``, ``cold``; by other processes and clients: ``page``, ``page_scan``,
  ``reader``, ``names``.

Invariants: called from one thread; no clock, the caller passes broker time; only ``disk`` touches
files and only ``sync_thread`` has a thread; every reply sent depends only on positions at or below
the durable one; any failed write or sync ends the journal (``JournalFailed``) and no descriptor is
synced again after it; nothing is ever deleted because a cache (index, state) is unreadable.
"""
