"""Tests, and tools that only tests need.

The tools: ``python -m tests.sim``, ``tests.mutants``, ``tests.rows``, ``tests.docs_check``.

A unit test of one module mirrors its path: ``src/ternmq/journal/index/index.py`` is tested by
``tests/unit/journal/index/test_index.py``. Tests of several modules of a package, and its kit, are
in the package's folder, ``tests/unit/journal``.
"""
