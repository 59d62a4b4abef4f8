"""Tables in a folder of Parquet files with a Delta log.

Reading order: ``folder``, ``table`` with ``deltalog`` (its log) and ``datafile`` (its files),
``lock``; ``database`` (SQL over files); ``numbers`` (columns as arrays); ``cleaning`` (files of
writes that failed) and ``retention``.

Invariants: a commit is visible whole or not at all; only ``table`` knows the library that writes
the log.
"""
