"""The journal: an append-only log in fixed-size segments, its recovery and its index.

Purpose: keep records in the order of decisions, make them durable in groups, find them again after
any crash. Entry points: ``recovery.open_journal`` opens a data folder and replays it,
``log.journal.Journal`` appends. What recovery and state need of the broker is defined here as
Protocols; nothing here imports the broker.

Reading order, from the machine up; a room imports only rooms that are named above it:

* ``disk`` (the port to the machine's files), ``log`` (appending, group commit, segments).
* ``cache``, ``index`` (where each message is stored), ``store`` (reading it).
* ``state`` (sets of the views' state), ``recovery`` (a start after a crash).
* ``mending`` (damaged bytes of a journal that is open: found, and replaced).
* ``copy`` (the copy of another broker's journal, which grows as that journal does).
* ``reader`` (reading from outside: other processes, and clients).

Invariants: called from one thread; no clock, the caller passes broker time; only ``disk`` touches
files and only ``log.worker`` has a thread; every reply sent depends only on positions at or below
the durable one; any failed write or sync ends the journal (``JournalFailed``) and no descriptor is
synced again after it; nothing is ever deleted because a cache (index, state) is unreadable.
"""
