"""The append-only log.

Reading order: ``segment`` (the file), ``journal`` (where a record goes; group commit: one write,
then one sync for all), ``worker`` (the threads that sync and read), ``space`` (spare segments),
``scan`` (reading it through), ``readable`` (what a disk that fails can still read), ``pieces``
(reading it for followers), ``recent`` (the newest records in memory), ``retention`` (which segments
may go), ``copy_file`` (the file that says how far the copy of a journal is durable), ``checkpoint``
(records by which two journals are compared).

Invariants: a record is never changed; the durable mark moves only after a sync that returned.
"""
