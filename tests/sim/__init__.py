"""The simulator: the real core on a simulated disk, under one clock and one seeded random.

A *workload* runs forward once; its disk keeps a log of every operation. Every prefix of the log is
a crash point, every draw of what had reached the medium there is a *crash image*, and each image is
opened with ``open_broker`` and judged. Reading order: ``disk``, ``medium`` (what a crash leaves),
``tape`` and ``reference`` (what the journal must mean), ``world``, ``producers``, ``consumers``,
``operators``, ``replays``, ``failed``, ``numbers`` (who acts),
``checks``, ``crash`` (which images), ``workloads``, ``__main__``.

Invariants: nothing here reads a clock or an unseeded random; the same seed gives the same event log
under any ``PYTHONHASHSEED``; a run whose planned paths did not fire is inconclusive, and fails.
"""
