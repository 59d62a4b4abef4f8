"""What happens to a journal at a start after a crash, and by hand.

Reading order: ``ending`` (where the journal ends; which damage is an unsynced tail), ``recovery``
(mend the end, load the state, replay), ``prefix`` (the beginning of a journal that grows),
``cutting`` (records of a copy that the group did not keep), ``kept`` (bytes that a cut removes),
``lost`` (records that a cut removes), ``repair`` (``ternmq journal repair``).

Invariants: damage below the durable mark stops the start; nothing is cut that a sync may have
covered.
"""
