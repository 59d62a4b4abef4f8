"""The audit: is every message that was sent accounted for?

Reading order: ``job``, ``tables`` and ``schema``, ``audit``, ``judge`` with ``policy``, ``stored``
(what was sent and stored), ``missing`` (names of what is missing), ``runs`` (facts by queue) with
``kept``, ``spans``, ``transactions`` (rows that are prepared first) and ``groups`` (what they
received), ``tiers`` (groups and the archive) with ``archive``, ``due`` (scheduled messages),
``spark``.

Invariants: a message is judged once its window has closed; a verdict names its evidence.
"""
