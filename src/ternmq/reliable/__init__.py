"""Sending and receiving together with the changes of an application's database.

Messages become rows of a transaction, and are sent after its commit::

    outbox = Outbox(client, engine)                    # `ternmq outbox prepare` makes the tables
    with Session(engine) as session, session.begin():
        session.add(order)
        client.send("orders", {"id": order.id}, within=session)

A message that comes twice has its effect once::

    inbox = Inbox(engine)

    @client.handler("orders", group="billing")
    @idempotent(inbox)
    def bill(order: dict[str, int], session: Session) -> None: ...

A function runs once a minute, in one of all processes that start it::

    @every(engine, "report", seconds=60)
    def report() -> None: ...

``Outbox.django`` and ``Inbox.django`` are for Django. Without a database: ``batch`` (many messages
as one), ``sequence`` and ``Steps`` (sessions of steps in order), ``Throttle`` (a limit on the rate
of sends), ``Ids`` and ``text_id`` (numbers and texts that are unique everywhere). ``collector``
reports to Prometheus, ``ddl`` returns the statements that make the tables.

For readers of the code: ``database`` (ports, tables, leases), ``libraries`` (SQLAlchemy, Django,
bare connections), ``ids`` (numbers and text ids that are unique everywhere), ``tasks`` (functions
that run once every so many seconds), ``outbox`` (messages as rows, sent after the transaction),
``inbox`` (messages that come twice have their effect once), ``modes`` (batch sessions, the messages
of orderly sessions, a limit on the rate of sends; without a database), ``steps`` (the consumer of
orderly sessions), ``surface`` (what needs SQLAlchemy), ``django`` (an app that makes the tables).

Reading order: ``database``, ``libraries``, ``ids``, ``tasks``, ``outbox``, ``inbox``, ``modes``,
``steps``.
Invariant: the package uses the client as applications do; ``import ternmq`` imports none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ternmq.client.content.items import Item, Items
from ternmq.reliable.ids import Ids, IdsStats, text_id
from ternmq.reliable.modes.batch import batch
from ternmq.reliable.modes.holders import BlockingHolder, Holder
from ternmq.reliable.modes.sequence import BlockingSequenceBlock, SequenceBlock, sequence
from ternmq.reliable.modes.throttle import Throttle

if TYPE_CHECKING:
    from ternmq.reliable.surface import (
        Inbox,
        InboxStats,
        Outbox,
        OutboxStats,
        SequenceStep,
        Step,
        Steps,
        StepsStats,
        Task,
        collector,
        ddl,
        every,
        idempotent,
    )

__all__ = [
    "Inbox", "InboxStats", "Outbox", "OutboxStats", "Step", "Task", "collector", "ddl", "every",
    "idempotent", "Ids", "IdsStats", "text_id", "batch", "Holder", "BlockingHolder", "Items",
    "Item", "Throttle", "sequence", "SequenceBlock", "BlockingSequenceBlock", "Steps",
    "StepsStats", "SequenceStep",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the names that can be imported, also those that are not imported yet.

    ``help`` uses all of them, so without SQLAlchemy those that need it are not among them.
    """
    try:
        from ternmq.reliable import surface  # noqa: F401
    except ModuleNotFoundError:
        return sorted(globals())
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of several kinds
    """Import what needs SQLAlchemy when it is first used.

    Raises:
        InvalidRequest: It is not installed.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ternmq.reliable.libraries.extras import installed

    with installed(f"ternmq.reliable.{name}"):
        from ternmq.reliable import surface
    return getattr(surface, name)
