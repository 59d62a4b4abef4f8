"""Messages that come twice, and have their effect once.

Reading order: ``entry`` (what identifies a message), ``store`` (the port), ``table`` and ``sql``
(a row in the handler's own transaction), ``operating`` (what operators ask and remove), ``shards``
(several databases), ``claims``, ``memory`` and ``redis`` (stores without transactions),
``handlers`` (a handler's parameters), ``bound`` (its sends), ``idempotent`` (the decorator),
``inbox`` (what an application makes), ``stats``.

Invariants: first the id, then the effect; in a database both are one transaction, with the messages
that the handler sends; the loser of a race waits, and its handler does not run.
"""
