"""What exists: topics, queues, groups, apps, sessions.

Reading order: ``catalog``, ``firsts`` (the oldest offset of each queue),
``levels`` (which level a pull tries first), ``filter`` (tags that a
group wants), ``apps``, ``sessions``, ``gone`` (names of what was deleted),
``stateobjects`` (how STATE stores all of them); ``alarms`` (those that are open).

Invariants: numbers are never used twice; only records change it.
"""
