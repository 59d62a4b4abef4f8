"""Metrics and health over HTTP.

Reading order: ``metrics``, ``budgets`` and ``groups`` (their families), ``health``.

Invariant: a scrape costs the loop a bounded time, however many groups there are.
"""
