"""Messages as tables, kept beyond the journal: what is written, by which rule, and looked up again.

One folder (or place in an object store) holds all tables. Each is Parquet files under a Delta log;
``table`` is the only module that knows how such a log is written, ``folder`` the only one that
touches files. Reading order: ``folder``, ``table``, ``schemas`` (what the tables hold);
``columns`` and ``archive_files`` (messages become files), ``archive_commit`` (which of them belong
to the table: the rule that makes it exactly once), ``archive`` (from a broker, range by range);
``audit`` (what was sent against what is there: ``spans``, ``audit_runs``, ``audit_judge``,
``audit_missing``, ``audit_tiers`` are functions; ``audit_tables`` and ``audit_job`` do the rest);
``compaction``, ``retention``, ``erase``, ``cleaning`` (what becomes of files later); ``lookup``.
What became of messages: ``trace_schema``, ``trace_fold`` and ``trace_life`` (pure: rows and events
become rows), ``trace_queue`` (the files of a queue), ``trace_pass`` (what is committed, in which
order), ``trace_job``; made of it ``stats``, ``sketches``, ``deadletters``, ``report``.
``replay_select`` and ``replay`` (messages of the archive sent again). ``job`` says what a job is,
``jobs`` which there are, ``runner`` runs them, round by round; ``lock``, ``health``, ``status``.

Spark is not needed for any of it: ``*_spark``, ``archive_batch`` and ``archive_worker`` only spread
the same functions over workers.

Invariants: a row (topic, queue, offset) is in the archive once; what a commit names is on the disk
before it; the broker is told how far the archive is only after the commit is; a job can be run
again for any range, hour or request, with the same result.
"""
