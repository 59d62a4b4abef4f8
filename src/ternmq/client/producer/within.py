"""Messages that are written down in a transaction of a database, instead of sent to the broker.

The client knows these ports only; ``ternmq.reliable`` has what is behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar, Token
from typing import Final, Protocol

from ternmq.client.content.message import Receipt
from ternmq.client.producer.outgoing import Outgoing
from ternmq.model.errors import InvalidRequest, NotThisDatabase, OutsideTransaction


class Place(Protocol):
    """A transaction that takes messages.

    Attributes:
        awaited: Its database is asked with ``await``: only ``write_awaited`` can be called.
    """

    awaited: bool

    def write(self, topic: str, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Write messages, all or none; return their receipts. Call it from the sender's thread.

        Their ``due_us`` and ``expiry_us`` are set; ``queue`` is a number or None.
        """

    async def write_awaited(self, topic: str, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Write messages, all or none, in the sender's own loop; return their receipts."""


class Store(Protocol):
    """Knows the transactions of one database. Callable from any thread."""

    def place_of(self, within: object) -> Place | None:
        """Return the transaction that an argument ``within`` means; None: not one of this database.

        Raises:
            OutsideTransaction: No transaction is open there, and none would be begun.
            NotThisDatabase: It belongs to another database.
            TernMQError: It belongs to this database, and cannot take messages.
        """

    def knows(self, within: object) -> bool:
        """Return whether a value is of a kind that ``place_of`` takes; no transaction begins."""

    def current(self) -> Place | None:
        """Return the transaction in which the caller is, where the database's library knows it.

        None: there is none. Blocks that are bound (``bind``) count before it.
        """

    def requires(self, topic: str) -> bool:
        """Return whether messages to a topic may be sent within a transaction only."""

    def strangeness(self, within: object) -> Exception:
        """Return the error for a value that means a transaction of no known database."""


Blocks = tuple[tuple[Store, object], ...]
"""Databases, and what the sends of a block are bound to there; the innermost block last."""
_blocks: Final[ContextVar[Blocks]] = ContextVar("ternmq.within", default=())


def bind(store: Store, within: object) -> Token[Blocks]:
    """Begin a block whose sends belong to a transaction of a database; ``unbind`` ends it."""
    return _blocks.set((*_blocks.get(), (store, within)))


def unbind(token: Token[Blocks]) -> None:
    """End a block, in the context in which it began."""
    _blocks.reset(token)


def bound(store: Store) -> object:
    """Return what the innermost block of a database is bound to; None: there is no block."""
    return _innermost([store])


class Stores:
    """The databases in which one client may write messages down. Callable from any thread."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: list[Store] = []  # changed in one step each, so that threads do not interfere

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Store]:
        return iter(self._all.copy())

    def add(self, store: Store) -> None:
        """Ask it, from now on, where a message goes."""
        self._all.append(store)

    def remove(self, store: Store) -> None:
        """Do not ask it any more."""
        if store in self._all:
            self._all.remove(store)

    def check(self, within: object) -> None:
        """Check an argument ``within`` that is used later; no transaction begins.

        Raises:
            InvalidRequest: It is nothing that has a transaction.
        """
        stores = self._all.copy()
        if within is None or within is False or any(one.knows(within) for one in stores):
            return
        raise _strangeness(stores, within)

    def place(self, topic: str, within: object) -> Place | None:
        """Return the transaction that a message belongs to; None: it is sent at once.

        Args:
            topic: Where it goes.
            within: What the caller gave; None: the block in which the caller is; False: at once.

        Raises:
            OutsideTransaction: The topic must be sent within a transaction, and there is none.
            NotThisDatabase: No outbox of this client is made for that database.
            InvalidRequest: It is nothing that has a transaction.
        """
        stores = self._all.copy()
        if within is None:
            within = _innermost(stores)
        if within is not None and within is not False:
            return _named(stores, within)
        if within is None:
            for store in stores:
                found = store.current()
                if found is not None:
                    return found
        for store in stores:
            if store.requires(topic):
                raise OutsideTransaction(
                    f"{topic!r} is sent within a transaction only (require= of the outbox), and "
                    "there is none here: nothing was sent"
                )
        return None


def _innermost(stores: Sequence[Store]) -> object:
    """Return what the innermost block of some databases is bound to; None: there is none."""
    return next((within for one, within in reversed(_blocks.get()) if one in stores), None)


def _named(stores: Sequence[Store], within: object) -> Place:
    """Return the transaction that a value means; raises as ``Stores.place``."""
    other: NotThisDatabase | None = None
    try:
        for store in stores:
            try:
                found = store.place_of(within)
            except NotThisDatabase as error:  # perhaps it is the next one's
                other = other or error
                continue
            if found is not None:
                return found
        if other is not None:
            raise other
    finally:
        del other  # see ``raising``
    raise _strangeness(stores, within)


def _strangeness(stores: Sequence[Store], within: object) -> Exception:
    """Return the error for a value that no store takes."""
    if stores:
        return stores[0].strangeness(within)
    return InvalidRequest(
        f"within= is a {type(within).__name__}, and needs an outbox of this client: "
        "ternmq.reliable.Outbox(client, engine); it has none, or it was closed"
    )
