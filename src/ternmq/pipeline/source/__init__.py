"""The tables of the pipeline as a source of Spark, where no jar of Delta can be had.

    spark.read.format("ternmq.table").option("tables", "/data/tables").load("trace")

Reading order: ``choosing`` (options, which files, how they are divided), ``reading`` (files to
batches), ``spark`` (Spark's calls).

Invariants: all tasks of a query read the files of one version of the table; a file is left out only
if none of its rows can pass the filters, which Spark applies again.
"""
