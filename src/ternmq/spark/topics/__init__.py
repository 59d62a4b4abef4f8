"""Topics as tables.

Reading order: ``options`` with ``table`` (the table of options); reading: ``plan`` (from where to
where), ``admission`` (how much now, in how many tasks), ``filters``, ``decode``, ``fetch``,
``reading``, ``progress``; writing: ``columns``, ``rows_taken`` (checks by whole columns),
``stage``, ``writing``; ``source`` connects all this to Spark.

Invariants: a task yields exactly its range, or fails; rows become visible together, at the commit.
"""
