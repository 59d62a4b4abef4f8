"""Containers that never grow, shrink or sort in one long step; the port of STATE objects.

Reading order: ``tokens`` (parked requests by number), ``deadlines`` (a heap), ``sortedkeys``
(names in order), ``discarded`` (memory that is freed in pieces), ``stateobject`` (what the owner of
a type of STATE objects does).

Invariants: each operation takes about the same short time, however many entries there are; they
know nothing of messages.
"""
