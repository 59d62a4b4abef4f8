"""Work that the broker does between commands, in small pieces.

Reading order: ``upkeep`` (what runs when), ``ticks`` (timers that are due), ``statesets`` (when a
STATE set is written), ``fulfilling`` (scheduled rows that are due) with ``duebatches``,
``retention`` (removal of the oldest segment) with ``oldestsegment``, ``judging`` (may it go?),
``copied`` and ``owedcopies``, ``schedulecopies``, ``preparedcopies`` (what is copied before),
``pinned`` (what keeps that segment) and ``removal``; ``refreshing``; ``expiring`` (rows of groups
that nobody pulls); ``alarming`` (what needs a
person) with ``ownerwatch``.

Invariants: a piece of work ends within about a millisecond; what it changes is recorded first.
"""
