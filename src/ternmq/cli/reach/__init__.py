"""How a command reaches a broker.

Reading order: ``contexts``, ``connection``, ``parameters`` (types of arguments,
and their completion), ``finding`` and ``archived`` (messages that are only in the archive).
"""
