"""Messages that are due later: which are pending, and in which order they come due.

Reading order: ``pending`` (what is scheduled, the horizon), ``topics`` (the order of one topic),
``rowpages`` (all pending rows by entry) with ``page`` and ``table`` (how they are stored),
``stateobjects`` (what is written to STATE).
``intake.scheduling`` decides what is stored here, ``upkeep.fulfilling`` makes messages of what is
due.

Invariant: a row is pending exactly if a SCHEDULED record holds it, or a RESOLVED names it in a due
part (the PREPARED holds it then), neither a MESSAGES record with FULFILS nor a CANCELLED names it,
and its topic exists.
"""
