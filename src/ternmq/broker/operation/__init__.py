"""Decisions of operators and about sessions.

Reading order: ``administration`` (topics, groups, apps), ``clients`` (sessions) with ``drains``
(leases that a session gives back), ``membership`` (members of groups whose queues belong to
members) with ``assigner`` (which member owns which queue), ``broadcasting`` (broadcast instances
come and go), ``groups`` (reset, skip, retry now, give up), ``holds`` (what keeps the journal for a
pipeline).

Invariants: a command is refused as a whole or recorded as a whole.
"""
