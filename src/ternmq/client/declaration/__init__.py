"""Topics, sources and retry policies as an application declares them.

Reading order: ``topic``, ``policy``, ``source`` (what a consumer reads), ``instances`` (what the
consumers of one broadcast instance may state), ``changes`` (differences from what the broker has),
``contradictions`` (groups that every broker refuses), ``making`` (a topic at its first use),
``redeclaring`` (at a broker that lost its data).
"""
