"""Ways to send: many items as one message, steps of one session, messages at a limited rate.

Reading order: ``filling`` (the items of a session, without I/O), ``holders`` (the blocks),
``batch`` (makes them), ``numbering`` (headers of an orderly session), ``sequence`` (sends its
messages), ``throttle`` (due times that keep a rate), ``options`` (arguments that are passed on to
``Client.send``), ``single`` (what blocks have in common).

Invariants: a batch session is one message, and once its send has begun, its name and its bytes do
not change; an exception in a block sends nothing; no two messages of a throttle have the same slot.
"""
