"""Transactions with check-back: what a client does inside one, and its checkers.

Read first ``transaction`` (the block), then ``steps`` (its requests), ``checking`` (offers and
questions), ``unfinished`` (what no checker is asked about), ``prepared`` (what a checker gets),
``decision``, ``start`` (what offers and openings wait for); ``batches`` makes the batches of
messages, also for ``client.transacting``; ``blocking`` has the objects for threads.

Invariant: a transaction whose step failed, or has an unknown outcome, is never committed.
"""
