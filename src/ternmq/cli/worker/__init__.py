"""``ternmq worker``.

Reading order: ``worker``, ``place`` (which broker), ``processes`` (several), ``sources``
(reloading), ``reports``, ``board``, ``health`` and ``metrics`` (the health port), ``logs``.
"""
