"""The records of the journal: a header and a body of one kind each.

Reading order: ``header``, ``messages``, ``facts`` (pulls, settles, ends), ``control`` (topics,
groups, apps, sessions), ``state`` with ``stateset`` (STATE), ``moved``, ``replay``,
``transactions``, ``checked``, ``schedule``, ``numbers``.

Invariant: each layout is stated above its codec, as in ``docs/format``.
"""
