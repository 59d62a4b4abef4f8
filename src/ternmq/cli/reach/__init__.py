"""How a command reaches a broker.

Reading order: ``coordinators`` (of broker groups), ``contexts``, ``parameters`` (types of values),
``connection``, ``arguments`` (TOPIC and GROUP, and their completion), ``places`` (offsets, ranges,
QUEUE/OFFSET), ``finding`` and ``archived`` (messages that are only in the archive).
"""
