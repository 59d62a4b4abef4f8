"""What exists: topics, queues, groups, apps, sessions.

Reading order: ``catalog``, ``firsts`` (the oldest offset of each queue), ``levels`` (which level a
pull tries first), ``owners`` (whose each queue is, in groups with members), ``joined`` (all
groups with members), ``instances`` (broadcast instances), ``filter`` (the tags and headers that a
group wants), ``header_rows`` (what a header filter reads of a batch), ``apps``, ``sessions``,
``gone`` (names of what was deleted), ``numbers`` (which numbers of topics were given),
``stateobjects`` (how STATE stores all of them); ``alarms`` (those that are open).

Invariants: numbers are never used twice; only records change it.
"""
