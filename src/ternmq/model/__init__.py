"""The terms that every other package uses: numbers, names, specs, errors.

Purpose: one definition of each term (see ``ARCHITECTURE.md``), imported by all, importing nothing.
Reading order: ``types`` (positions, offsets, times), ``outcomes`` (of sends), ``marks`` (what an
answer waits for), ``errors`` (the tree of errors and their codes), then ``specs`` (topics and
groups) with ``assignments`` (which member owns which queues) and ``offline`` (clients that are
switched off);
``units``, ``words``, ``policies``, ``tag_filter``, ``header_filter``, ``printing``,
``secret`` and ``transaction_ids`` (how values are written for users); ``filter_tree`` (what a
header filter means); ``version``.

Invariants: nothing here does I/O or keeps state; times are integers of microseconds in broker time
and their names end in ``_us``; error codes are stable and never reused.
"""
