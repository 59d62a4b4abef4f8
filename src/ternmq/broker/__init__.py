"""The broker's core: synchronous and deterministic.

Purpose: a command comes in with ``now``, is decided against the views, becomes records, and these
are applied by the same code that replays them at start. Entry point: ``broker``.

Reading order: ``broker`` (the surface); ``catalog``, ``sessions`` (what exists); ``sending``,
``dedup`` (what comes in); ``delivery`` with ``shared`` and ``ordered`` (who gets what);
``settling``, ``leases`` (what becomes of it); ``groupqueue`` with ``failurestore`` (how facts
change what a group holds); ``parking``, ``clients``, ``administration``, ``operating``,
``replaying``, ``ticking`` (the other commands, and time); ``views``, ``stateobjects``, ``shards``,
``admission`` (records, STATE, replay); ``moving``, ``upkeep`` (what the broker does by itself).

Invariants: the same records give the same state; applying a record reads that record and the
object it names, nothing else; every reply carries the position it depends on and is released only
when that is committed; time, randomness and the disk are arguments; no set order reaches an effect;
every view has a cap and an expiry in broker time.
"""
