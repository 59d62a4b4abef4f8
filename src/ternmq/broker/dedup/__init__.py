"""Which messages were sent before.

Reading order: ``dedup`` (the window), ``producer`` (sequence numbers), ``table`` and ``runs``
(the window in memory), ``log`` and ``stateobjects`` (the window in STATE).

Invariants: an entry is forgotten by age or by number, oldest first; what is remembered is the same
after a restart.
"""
