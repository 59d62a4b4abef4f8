"""Containers that never grow, shrink or sort in one long step.

Reading order: ``tokens`` (parked requests by number), ``deadlines`` (a heap), ``sortedkeys``
(names in order).

Invariants: each operation takes about the same short time, however many entries there are; they
know nothing of messages.
"""
