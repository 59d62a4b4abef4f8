"""Messages of a client that go into a transaction of a database: encoded as for a send."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from ternmq.client.connection.session import Session
from ternmq.client.content.broker_time import BrokerTime
from ternmq.client.content.delays import Due
from ternmq.client.content.lifetimes import Lifetime
from ternmq.client.content.message import Message, Queue, Receipt
from ternmq.client.content.validation import check_topic, priority_of
from ternmq.client.declaration.topic import Topic
from ternmq.client.handler.declarations import Declarations
from ternmq.client.handler.middleware import Outbound
from ternmq.client.producer.outgoing import Outgoing
from ternmq.client.producer.within import Place
from ternmq.client.sending import Sender, copy_of
from ternmq.model.errors import (
    ClientClosed,
    InvalidRequest,
    OrderingKeyRequired,
    TopicNotOrdered,
)

_AWAITED: Final = (
    "this database is asked with await: send with a client of ternmq.connect(), or give a session "
    "or connection that blocks"
)


@dataclass(slots=True, frozen=True)
class Defaults:
    """What counts for messages of one call that do not say it themselves; see ``send_many``."""

    queue: Queue | None = None
    due: Due | None = None
    priority: int = 0
    lifetime: Lifetime | None = None


_NONE: Final = Defaults()


@dataclass(slots=True, frozen=True)
class _Inside:
    """Messages inside the middlewares of sends."""

    topic: str
    items: Sequence[object]
    outbounds: Sequence[Outbound]

    def tell(self, receipts: Sequence[Receipt]) -> None:
        for outbound, receipt in zip(self.outbounds, receipts, strict=bool(self.outbounds)):
            outbound.receipt = receipt


class Writing:
    """Encodes messages and hands them to a transaction, inside the middlewares of sends.

    No network; callable from any thread, so that it runs where the transaction belongs.
    """

    def __init__(self, session: Session, sender: Sender, declarations: Declarations) -> None:
        self._session = session
        self._sender = sender
        self._declarations = declarations

    def place(self, topic: str | Topic, within: object) -> tuple[str, Place | None]:
        """Return a topic's name, and the transaction that a message to it belongs to; None: none.

        Raises as ``Stores.place``.
        """
        name = self._declarations.name_of(topic)
        return name, self._declarations.stores.place(name, within)

    def one(self, place: Place, topic: str, message: Message) -> Receipt:
        """Write a message; raises as ``many``."""
        return self.many(place, topic, [message], _NONE)[0]

    async def one_awaited(self, place: Place, topic: str, message: Message) -> Receipt:
        """Write a message; raises as ``many``."""
        return (await self.many_awaited(place, topic, [message], _NONE))[0]

    def defaults(
        self,
        queue: Queue | None,
        deliver_after: object,
        deliver_at: object,
        priority: object,
        expires_after: object,
    ) -> Defaults:
        """Return what counts for messages that do not say it themselves.

        Raises:
            DueTooFar, InvalidRequest: A value is not valid.
        """
        sender = self._sender
        due = sender.due(deliver_after, deliver_at)
        return Defaults(queue, due, priority_of(priority), sender.lifetime(expires_after))

    def many(
        self, place: Place, topic: str, items: Sequence[object], defaults: Defaults
    ) -> list[Receipt]:
        """Write messages, all or none.

        Raises:
            InvalidName, InvalidRequest, EncodeError, MessageTooLarge: Nothing was written.
            OrderingKeyRequired, TopicNotOrdered: Nothing was written: the topic is declared so.
            Exception: The database's own; what becomes of its transaction is the database's rule.
        """
        if place.awaited:
            raise InvalidRequest(_AWAITED)
        receipts: list[Receipt] = []
        with self._inside(topic, items) as inside:
            receipts = place.write(topic, self._encoded(inside, defaults))
            inside.tell(receipts)
        return receipts

    async def many_awaited(
        self, place: Place, topic: str, items: Sequence[object], defaults: Defaults
    ) -> list[Receipt]:
        """Write messages, all or none, in the caller's loop; raises as ``many``."""
        if not place.awaited:
            return self.many(place, topic, items, defaults)
        receipts: list[Receipt] = []
        with self._inside(topic, items) as inside:
            receipts = await place.write_awaited(topic, self._encoded(inside, defaults))
            inside.tell(receipts)
        return receipts

    @contextmanager
    def _inside(self, topic: str, items: Sequence[object]) -> Iterator[_Inside]:
        """Enter the middlewares of sends for each message; leave them in turn, the last first."""
        if self._session.closed:
            raise ClientClosed("the client is closed")
        check_topic(topic)
        if not self._declarations.middlewares.sends:
            yield _Inside(topic, items, ())
            return
        failure: BaseException | None = None
        with ExitStack() as stacks:
            outbounds = []
            for item in items:
                outbound = Outbound(topic, copy_of(item))
                stacks.push(self._declarations.middlewares.enter_sends(outbound))
                outbounds.append(outbound)
            try:
                yield _Inside(topic, [one.message for one in outbounds], outbounds)
            except BaseException as error:
                failure = error
                raise
        if failure is not None:  # a middleware caught it: a send returns a receipt, or fails
            try:
                raise failure
            finally:
                del failure  # see ``raising``

    def _encoded(self, inside: _Inside, given: Defaults) -> list[Outgoing]:
        messages = self._sender.all_encoded(
            inside.topic, inside.items, given.queue, given.due, given.priority, given.lifetime
        )
        broker_time = self._broker_time()
        declared = self._declarations.topics.get(inside.topic)
        for message in messages:
            if declared is not None:
                _check_order(declared, message)
            if callable(message.queue):
                raise InvalidRequest(
                    "within a transaction, queue= is a number: a function cannot be written down"
                )
            message.set_times(broker_time)
        return messages

    def _broker_time(self) -> BrokerTime:
        """Return the broker's clock; before the first connection, this machine's stands for it."""
        found = self._session.broker_time
        if found.known:
            return found
        guessed = BrokerTime()
        guessed.told(time.time_ns() // 1000, found.moment_us())
        return guessed


def _check_order(declared: Topic, message: Outgoing) -> None:
    """Check what the broker would refuse only after the commit.

    Raises:
        OrderingKeyRequired: The topic is declared as ordered, and the message has no key.
        TopicNotOrdered: It is declared as not ordered, nor to ignore keys, and the message has one.
    """
    if declared.ordered and not message.ordering_key:
        raise OrderingKeyRequired(f"topic {declared.name!r} is ordered: nothing was written")
    refuses = declared.ordered is False and declared.ignore_ordering_keys is False
    if refuses and message.ordering_key:
        raise TopicNotOrdered(
            f"topic {declared.name!r} is not ordered, and the message has an ordering key: nothing "
            "was written"
        )
