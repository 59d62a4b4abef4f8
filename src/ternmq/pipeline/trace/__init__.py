"""The trace: what became of each message.

Reading order: ``schema``, ``rows``, ``life`` (what a fact does to a row), ``fold`` (all facts of a
queue), ``known``, ``blocks`` (files of a queue), ``sharing`` (files of many small queues),
``reach`` (which rows a fold reads), ``sharedfiles``, ``queue``, ``entries`` and ``entryfiles``
(scheduled messages), ``commits``, ``feed`` (pages of the journal), ``job``; for Spark ``cells``,
``folding``, ``spark``; ``lookup``.

Invariant: the same facts give the same rows, in however many passes they arrive.
"""
