"""Messages as tables, kept beyond the journal: writing them, keeping them, looking them up.

One folder (or place in an object store) holds all tables. Each is Parquet files under a Delta log;
``table`` is the only module that knows how such a log is written, ``folder`` the only one that
touches files.

Reading order: ``folder``, ``table`` with ``files`` and ``log``, ``schemas`` (what the tables hold);
``columns``, ``archive_file`` and ``archive_files`` (messages become files), ``archive_commit``
(which of them belong to the table: the rule that makes it exactly once), ``archive`` (from a
broker, range by range), ``archive_job``; ``audit`` (what was sent against what is there: ``spans``,
``audit_runs``, ``audit_judge``, ``audit_missing``, ``audit_tiers``, ``audit_policy`` and
``audit_archive`` are functions; ``audit_schemas``, ``audit_tables`` and ``audit_job`` do the rest);
``compaction`` with ``compaction_job``, ``rewrite``, ``retention``, ``erase``, ``cleaning`` (what
becomes of files later); ``lookup`` with ``finding``.
The history of messages: ``journal_feed``, ``trace_schema``, ``trace_rows``, ``trace_known``,
``trace_fold`` and ``trace_life`` (pure: rows and events become rows), ``trace_queue`` (the files of
a queue), ``trace_pass`` (what is committed, in which order), ``trace_job``, ``trace_lookup``; made
of it ``stats_schema``, ``stats``, ``stats_job``, ``sketches``, ``deadletters``,
``deadletters_job``, ``report`` (``report_data``, ``report_plots``, ``report_seconds``,
``report_style``).
``replay_select`` with ``replay_sql``, ``replay_plan`` and ``replay`` (messages of the archive sent
again). ``job`` defines what a job is, ``jobs`` lists them, ``runner`` runs them, round by round;
``lock``, ``owner``, ``health``, ``status``.

None of this needs Spark: ``archive_spark``, ``audit_spark``, ``trace_spark``, ``replay_spark``,
``archive_batch`` and ``archive_worker`` only spread the same functions over workers.

Invariants: a row (topic, queue, offset) is in the archive once; a file is on the disk before a
commit names it; progress is reported to the broker only after the commit; a job can be run again
for any range, hour or request, with the same result.
"""
