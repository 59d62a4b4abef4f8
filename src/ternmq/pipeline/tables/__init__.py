"""Tables in a folder of Parquet files with a Delta log.

Reading order: ``spec`` (what a table is), ``folder``, ``table`` with ``deltalog`` (its log) and
``datafile`` (its files), ``migration`` (tables of earlier versions), ``lock``; ``database`` (SQL
over files); ``numbers`` (columns as arrays); ``cleaning`` (files of writes that failed) and
``retention``.

Invariants: a commit is visible whole or not at all; only ``table`` and ``migration`` know the
library that writes the log.
"""
