"""Work that the broker does between commands, in small pieces.

Reading order: ``upkeep`` (what runs when), ``ticks`` (timers that are due), ``statesets`` (when a
STATE set is written), ``retention`` (removal of the oldest segment) with ``copied``, ``pinned``
(what keeps that segment) and ``removal``; ``refreshing``.

Invariants: a piece of work ends within about a millisecond; what it changes is recorded first.
"""
