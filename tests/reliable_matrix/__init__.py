"""The tests of ``ternmq.reliable`` with older libraries; see ``__main__``.

* ``results.json``: the last run with each set of libraries, and the commit.

Everyday runs have the newest ones. ``tests/unit/test_reliable_matrix.py`` sees to it that the
oldest versions that the extras in ``pyproject.toml`` promise are those of the set ``oldest``, and
that what is kept has passed.
"""
