"""The trace: what became of each message.

Reading order: ``schema``, ``rows``, ``life`` (what a fact does to a row), ``known``, ``queue``,
``fold`` (all facts of a pass), ``commits``, ``feed`` (pages of the journal), ``job``, ``spark``;
``lookup``.

Invariant: the same facts give the same rows, in however many passes they arrive.
"""
