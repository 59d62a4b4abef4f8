"""Replay of archived messages into a topic.

Reading order: ``replay``, ``plan``, ``select`` and ``sql`` (which messages), ``spark``.
"""
