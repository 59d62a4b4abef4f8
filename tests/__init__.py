"""Tests, and tools that only tests need.

The tools: ``python -m tests.sim``, ``tests.mutants``, ``tests.rows``, ``tests.docs_check``.

A test file mirrors the path of what it tests: ``src/ternmq/journal/index.py`` is tested by
``tests/unit/journal/test_index.py``.
"""
