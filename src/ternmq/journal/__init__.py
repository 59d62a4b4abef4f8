"""The one log: an append-only journal in fixed-size segments, its recovery, its index.

Purpose: keep records in the order of decisions, make them durable in groups, find them again after
any crash. Entry points: ``recovery.open_journal`` opens a data folder and replays it,
``journal.Journal`` appends. Reading order: ``disk`` (the port to the machine), ``journal`` with
``appender`` and ``space``, ``recovery``, ``state`` (sets of the views' state), then the index and
the reader. What recovery and state need of the broker are Protocols defined here; nothing here
imports the broker.

Invariants: called from one thread; no clock, the caller passes broker time; only ``disk`` touches
files and only ``sync_thread`` has a thread; what was answered is at or below the durable position;
any failed write or sync ends the journal (``JournalFailed``) and no descriptor is synced again
after it; nothing is ever deleted because a cache (index, state) is unreadable.
"""
