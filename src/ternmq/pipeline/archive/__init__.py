"""The archive: every message as a row.

Reading order: ``schema``, ``columns``, ``file``, ``ranges`` (which file holds which offsets),
``commit`` (exactly once), ``archive``, ``job`` with ``spark`` (large passes on executors);
``lookup`` with ``finding``; ``rewrite``, ``compaction``, ``compaction_job``, ``erase``,
``expiring``.

Invariant: each row of a queue is in the archive once, or not yet.
"""
