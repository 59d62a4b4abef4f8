"""Questions about what the broker holds: they change nothing.

Reading order: ``held`` (what is asked: a broker that leads, or a copy), ``messages`` (look-ups,
ranges of a group, transactions), ``failed`` (which failed rows match a selection) with
``failedpiece`` and ``failuretimes``, ``listings`` (pages of topics, groups, members, sessions and
apps) with ``sight`` (which of them an app may see), ``ranges`` (what a pipeline reads),
``scheduled`` (messages that are not due yet), ``names`` (names that the journal still uses).

Invariants: no question walks all topics or groups at once; an app sees what its grants cover.
"""
