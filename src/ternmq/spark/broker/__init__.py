"""Brokers as Spark's tasks see them.

``connecting`` (which broker), ``values`` and ``offsets``, ``port`` (what is asked), ``bulk_port``
(asking a real broker).
"""
