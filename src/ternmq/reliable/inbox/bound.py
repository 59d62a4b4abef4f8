"""Binds what a handler sends to the transaction of its inbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ternmq.client.process.forking import watched
from ternmq.client.producer.within import bind, unbind
from ternmq.reliable.libraries.attached import ApplicationDatabase
from ternmq.reliable.outbox.outbox import Outbox


@contextmanager
def bound_to(within: object, database: ApplicationDatabase) -> Iterator[None]:
    """Bind the sends of a block to a transaction, in every outbox of that database.

    Which client sends does not matter: each has its own outboxes, and all of them know the
    transaction. A client without an outbox there sends at once.

    Args:
        within: The transaction; None: sends find it by themselves.
        database: Where it is.
    """
    with ExitStack() as stack:
        for outbox in watched(Outbox):
            if within is not None and database.is_same(outbox.database):
                stack.callback(unbind, bind(outbox, within))
        yield
