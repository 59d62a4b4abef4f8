"""The broker's core: synchronous and deterministic.

Purpose: a command comes in with ``now``, is decided against the views, becomes records, and these
are applied by the same code that replays them at start. Entry point: ``broker``. Reading order:
``broker``, ``catalog`` and ``queues`` (what exists), ``pulllog`` and ``delivery`` (who holds what),
``timers`` (what is due).

Invariants: the same records give the same state; applying a record reads that record and the
object it names, nothing else; every reply carries the position it depends on and is released only
when that is committed; time, randomness and the disk are arguments; no set order reaches an effect;
every view has a cap and an expiry in broker time.
"""
