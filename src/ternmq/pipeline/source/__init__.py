"""The tables of the pipeline as a source of Spark, where no jar of Delta can be had.

    spark.read.format("ternmq.table").option("tables", "/data/tables").load("trace")

Reading order: ``choosing`` (options, which files, how they are divided), ``reading`` (files to
batches), ``spark`` (Spark's calls).

Invariants: all tasks of a query read the files of one version of the table; no filter of a query is
taken over from Spark, which may keep it for the next query.
"""
