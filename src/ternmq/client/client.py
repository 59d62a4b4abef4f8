"""The client: one object through which an application uses a broker."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, overload

from ternmq.client.admin.admin import Admin
from ternmq.client.admin.deadletters import DeadLetters
from ternmq.client.admin.lookup import FoundMessage, Lookup
from ternmq.client.admin.replay import Replay, Replayed
from ternmq.client.admin.schedule import Schedule
from ternmq.client.connection.options import Options
from ternmq.client.connection.replica import From, ReplicaSession
from ternmq.client.connection.session import Session
from ternmq.client.connection.signals import Signals
from ternmq.client.connection.stats import ClientStats
from ternmq.client.consumer import reading
from ternmq.client.consumer.consumer import ConsumerEngine
from ternmq.client.consumer.consuming import Consumer
from ternmq.client.consumer.deliveries import Deliveries, Leased
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.keeper import Keeper
from ternmq.client.consumer.lease import Lease
from ternmq.client.consumer.membership import Memberships, OnAssigned
from ternmq.client.consumer.puller import Puller, give_back
from ternmq.client.consumer.settler import Settler
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.message import Message, Queue, Receipt
from ternmq.client.content.validation import (
    check_positive,
    check_topic,
    choose,
    drain_of,
    flag,
    priority_of,
    seconds_of,
    timeout_of,
    wait_of,
    whole,
)
from ternmq.client.declaration.changes import Change
from ternmq.client.declaration.making import Making
from ternmq.client.declaration.policy import RetryPolicy
from ternmq.client.declaration.source import Source, check_left
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.handler.declarations import Declarations
from ternmq.client.handler.depends import Provider
from ternmq.client.handler.middleware import Lifespan
from ternmq.client.handler.signature import Function
from ternmq.client.handler.unawaited import looked_after
from ternmq.client.numbers import NumberSource
from ternmq.client.prepared_ids import PreparedIds
from ternmq.client.process import pickling
from ternmq.client.process.forking import watch, watched
from ternmq.client.producer.heard import SentSoon
from ternmq.client.producer.producer import Producer
from ternmq.client.producer.reports import Reporter
from ternmq.client.sending import Sender, copied, items_of
from ternmq.client.serving import Serving
from ternmq.client.topology import Topology
from ternmq.client.transacting import Committed, Prepared, Transactions
from ternmq.client.transaction.batches import Batches
from ternmq.client.transaction.checking import Checking
from ternmq.client.transaction.decision import Decision
from ternmq.client.transaction.steps import outcome_of
from ternmq.client.transaction.transaction import Parts, Transaction
from ternmq.client.writing import Writing
from ternmq.model.errors import ClientClosed, UnsentMessages
from ternmq.model.specs import Mode, Start

F = TypeVar("F", bound=Function)
A = TypeVar("A", bound=OnAssigned)

_CLOSE_TIMEOUT: Final = 5.0
_HURRIED_TIMEOUT: Final = 0.5


@looked_after("client")
class Client(pickling.NotPickled):
    """A client of a broker, made by ``ternmq.connect``. It lives in one event loop of one process.

    Making it does no I/O, so handlers can be declared when a module is imported. ``await``,
    ``async with``, ``run()``, or the first use connects. It reconnects by itself, keeps its
    session, and sends again what was not answered.

    Attributes:
        admin: Manages topics, groups and apps, and shows the state of the broker.
        deadletters: Messages that failed for good.
        stores: Databases in which its messages may be written down; see ``ternmq.reliable``.
        writing: Writes messages into them.
    """

    _not_pickled = pickling.CLIENT

    def __init__(
        self,
        options: Options,
        codecs: Codecs | None = None,
        declarations: Declarations | None = None,
        *,
        served: bool = False,
        session: Session | None = None,
    ) -> None:
        self._served = served
        self._declarations = Declarations() if declarations is None else declarations
        self._options = options
        self._codecs = codecs or Codecs()
        session = Session(options, served=served) if session is None else session
        self._session = session
        self.admin = Admin(session)
        making = Making(session, self._declarations.topics, self.admin.redeclaring)
        self._producer = Producer(session, making)
        middlewares = self._declarations.middlewares
        self._sender = Sender(session, self._producer, self.codecs, middlewares, options.timeout)
        self.stores = self._declarations.stores
        self.writing = Writing(session, self._sender, self._declarations)
        batches = Batches(PreparedIds(), self._producer, session.broker_time)
        self._transactions = Transactions(session, batches, self._sender)
        self._settler = Settler(session)
        self._parts = Parts(session, self._sender, middlewares, batches, self._settler)
        parts = self._parts
        self._checking = Checking(
            session, self._declarations, self.codecs, parts.unfinished, parts.start
        )
        memberships = Memberships(session, self._declarations.on_assigned)
        self._puller = Puller(session, self._settler, making, memberships)
        self._keeper = Keeper(session, self._settler)
        self._reporter = Reporter(session, self._producer)
        session.members += [
            self._settler, self._settler.policies, self._producer, self._reporter, self._checking,
            memberships,
        ]  # fmt: skip
        self.serving = Serving(
            session, self._declarations, self.codecs, self.admin, self._puller, self._checking
        )
        self.numbers = NumberSource(session, making)
        self._lookup = Lookup(session, self.codecs)
        self._replica: ReplicaSession | None = None
        """The session for reads from a replica, once there was one."""
        self._schedule = Schedule(session)
        self._replay = Replay(session)
        self.deadletters = DeadLetters(session, self.codecs, self._send_redriven)
        watch(self)

    @property
    def options(self) -> Options:
        """Its settings; those of a client do not change."""
        return self._options

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._session.closed

    @property
    def codecs(self) -> Codecs:
        """How bodies are encoded and decoded; others can be registered."""
        return self._codecs

    def __repr__(self) -> str:
        return f"<Client of {self.options.url}, app {self.options.app!r}>"

    # -- start and end ----------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self.connect().__await__()

    async def connect(self) -> Self:
        """Connect. ``await client`` and ``async with client`` do the same.

        Raises:
            CannotConnect: There is no broker at the address.
            Unauthenticated: The broker does not accept app and token.
            ProducerGroupTaken: A checker was declared for a producer group of another app.
            Forbidden: A checker was declared, and the app may not produce to any topic.
        """
        await self._session.connect()
        if self._declarations.checkers:
            await self._checking.ready(self.options.timeout)
        return self

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except UnsentMessages:
            if error is None:
                raise  # else the block's own error is raised; each message was logged

    async def close(self, timeout: float | timedelta | None = None) -> None:
        """Send what waits, report what was settled to the broker, and leave. May be repeated.

        Transactions whose blocks have not ended are rolled back, except those that are left to
        their checkers (``on_error="check"``); such a block raises ``ClientClosed`` at its end.

        Args:
            timeout: Seconds to wait for sends; None: the client's ``timeout``. Before that, rolling
                back takes at most as long, and at most 5 s. After that,
                reporting settles and sends to the broker takes at most 5 s (sends: at most the
                client's ``timeout``), and leaving 3 s.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were not stored, or their outcome is unknown.
            ClientError: A handler of this client called it, and would wait for its own end.
        """
        if timeout is not None:
            timeout = seconds_of("timeout", timeout)
        self.serving.check_may_close()
        session = self._session
        if session.closed:
            return
        if not session.used or session.forked:
            session.closed = True
            return
        loop = session.bind()
        self._reporter.stop()
        serving = self.serving
        serving.hurry = hurry = serving.hurry or asyncio.Event()
        left = await serving.drain()
        await self._checking.close()
        session.closing()
        close_timeout = _HURRIED_TIMEOUT if hurry.is_set() else _CLOSE_TIMEOUT
        if timeout is None:
            timeout = _HURRIED_TIMEOUT if hurry.is_set() else self.options.timeout
        if session.link is not None:
            await self._parts.unfinished.close(min(timeout, close_timeout))
        await self._producer.drained(timeout)
        self._producer.give_up()
        until = loop.time() + close_timeout
        await self._settler.drained(close_timeout)
        if session.link is not None:
            await self._reporter.last(min(self.options.timeout, max(0.0, until - loop.time())))
        most = max(0.0, until - loop.time())
        await self._keeper.stop(most, left)
        if self._replica is not None:
            await self._replica.close()
        await session.close(leave=not left)
        self._settler.give_up()
        self._sender.raise_unsent()

    def stats(self) -> ClientStats:
        """Return counts of the client's work so far. No I/O; callable from any thread.

        A client has one connection, which everything shares; a second one while it holds messages
        whose leases need to be extended; and one for reads from a replica. They stay open while
        idle, and are opened again after they are lost.
        """
        producer, replica = self._producer.core, self._replica
        traffic = [self._session.traffic, self._keeper.traffic]
        links = [self._session.link is not None, self._keeper.connected]
        if replica is not None:
            traffic.append(replica.traffic)
            links.append(replica.link is not None)
        return ClientStats(
            connections_open=sum(links),
            connections_opened=sum([one.opened for one in traffic]),
            reconnects=sum([max(0, one.opened - 1) for one in traffic]),
            requests=sum([one.requests for one in traffic]),
            sends=producer.sent_count,
            batches=producer.batch_count,
            resends=producer.resent_count,
            stored=producer.stored_count,
            failed=producer.failed_count,
            bytes_sent=sum([one.bytes_sent for one in traffic]),
            bytes_received=sum([one.bytes_received for one in traffic]),
        )

    # -- sending ----------------------------------------------------------------------------------

    async def send(
        self,
        topic: str | Topic,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        id: str | None = None,  # noqa: A002
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
        timeout: float | timedelta | None = None,
        within: object = None,
    ) -> Receipt:
        """Send a message; returns when it is stored durably.

        Messages that several tasks send at the same time are sent and stored together.

        Args:
            topic: The topic.
            body: Bytes, str, or a value that a codec can encode.
            key: Text by which it can be looked up.
            ordering_key: On ordered topics: messages with the same ordering key are delivered one
                after the other. A topic that this message creates is ordered.
            tag: Its kind within the topic, for filters.
            headers: Properties.
            content_type: Type of the body; by default derived from the body's type.
            id: An id of the application's own: a second message with this id is not stored; its
                receipt is marked ``duplicate``. An empty text is refused.
            queue: Its queue: the number of a queue, or a function that takes the message (as a
                ``Message``) and the numbers of the topic's queues, and returns one of them; the
                function may be called again when the topic is changed. None: messages of one key
                share a queue, as long as the number of queues stays the same; without a key, each
                batch goes to the next queue. Ordered topics use the queue of the ordering key, and
                refuse others. On topics with levels, only the queues of its priority are used.
            deliver_after: Deliver it only after so many seconds, or a timedelta, of at most 731
                days; 0 or less: at once. The delay counts from this call, by the broker's clock;
                the message is late by a round trip at most. Its receipt has ``due_at`` and no
                offset; ``cancel`` cancels it before it is due.
            deliver_at: Deliver it only at this time, a datetime with a time zone; if the time is
                over, at once.
            priority: Its level, from 0 to one less than the topic's ``levels``; messages of a
                higher level are delivered first. Only topics with levels take one that is not 0.
            expires_after: Time after which it expires, in seconds or as a timedelta, more than 0:
                from then on, it is neither delivered for the first time nor retried. The time
                counts from this call, or from when the message is due if that is later, by the
                broker's clock. If the topic has such a time, too, the earlier end counts. None:
                only the time of the topic counts.
            timeout: Seconds in all; None: the client's ``timeout``.
            within: A transaction of a database: a session or connection of SQLAlchemy, a
                connection of ``sqlite3``, psycopg or PyMySQL, or an outbox. The message becomes a
                row of it and is sent after its commit; the receipt is ``pending``. It needs an
                outbox of this client: see ``ternmq.reliable``. None: the transaction of the block
                in which the caller is, if there is one; False: sent at once.

        Raises:
            InvalidName, EncodeError, MessageTooLarge: Nothing was sent.
            OutsideTransaction, NotThisDatabase: Nothing was sent or written; see ``within``.
            OrderingKeyRequired, TopicNotOrdered: Nothing was sent: an ordered topic needs an
                ordering key, and another topic accepts none.
            UnknownQueue: Nothing was sent: the topic does not have that queue.
            DueTooFar: Nothing was stored: it would be due in more than 731 days.
            InvalidRequest: Nothing was sent: another value is not valid.
            CannotConnect: Nothing was sent: there was no connection in time.
            BufferFull: Nothing was sent: the buffer stayed full, or had room only when too little
                time was left for an answer.
            SendTimeout: No answer came in time: it is not known whether it is stored.
            TernMQError: The broker refused it; nothing was stored.
        """
        if timeout is not None:
            timeout = timeout_of("timeout", timeout)
        if type(topic) is not str:
            topic = self._declarations.name_of(topic)
        place = None
        if within is not None or self.stores:
            place = self.stores.place(topic, within)
        if place is not None or self._declarations.middlewares.sends:
            given = copied(headers)
            message = Message(
                body, key, ordering_key, tag, given, content_type, id, queue, deliver_after,
                deliver_at, priority, expires_after,
            )  # fmt: skip
            if place is not None:
                return await self.writing.one_awaited(place, topic, message)
            return await self._sender.around(topic, message, timeout)
        producer = self._producer
        loop = self._session.bind()
        due = None
        if deliver_after is not None or deliver_at is not None:
            due = self._sender.due(deliver_after, deliver_at)
        lifetime = None if expires_after is None else self._sender.lifetime(expires_after, due)
        if producer.room.full:
            timeout = await self._sender.room(timeout)
        future: asyncio.Future[Receipt] = loop.create_future()
        outgoing = self._sender.outgoing(
            body, key, ordering_key, tag, headers, content_type, id, future, queue
        )
        if due is not None:
            outgoing.due = due
        if priority.__class__ is not int or priority:
            outgoing.priority = priority_of(priority)
        outgoing.lifetime = lifetime
        producer.put(topic, outgoing, timeout)
        try:
            return await future
        finally:
            del future, outgoing  # see ``raising``

    def send_soon(
        self,
        topic: str | Topic,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        id: str | None = None,  # noqa: A002
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
    ) -> asyncio.Future[Receipt]:
        """Send a message without waiting; the future returns its receipt. See ``send``.

        A failure of a future that is not awaited is logged, and ``flush`` or closing the client
        raises ``UnsentMessages``. In a block that is bound to a transaction the message is written
        at once, and the future is done; where the database is asked with ``await``, it cannot be
        written so (InvalidRequest).

        Raises:
            BufferFull: The buffer is full.
            InvalidName, InvalidRequest, EncodeError, MessageTooLarge: Nothing was sent.
            OrderingKeyRequired, TopicNotOrdered: Nothing was sent: an ordered topic needs an
                ordering key, and another topic accepts none.
        """
        if type(topic) is not str:
            topic = self._declarations.name_of(topic)
        producer = self._producer
        loop = self._session.bind()
        place = self.stores.place(topic, None) if self.stores else None
        if place is None:
            producer.room.refuse_when_full()
        if place is not None or self._declarations.middlewares.sends:
            given = copied(headers)
            message = Message(
                body, key, ordering_key, tag, given, content_type, id, queue, deliver_after,
                deliver_at, priority, expires_after,
            )  # fmt: skip
            if place is not None:
                done: asyncio.Future[Receipt] = loop.create_future()
                done.set_result(self.writing.one(place, topic, message))
                return done
            return self._sender.soon_around(topic, message)
        future: asyncio.Future[Receipt] = loop.create_future()
        outgoing = self._sender.outgoing(
            body, key, ordering_key, tag, headers, content_type, id, future, queue
        )
        if deliver_after is not None or deliver_at is not None:
            outgoing.due = self._sender.due(deliver_after, deliver_at)
        if priority.__class__ is not int or priority:
            outgoing.priority = priority_of(priority)
        if expires_after is not None:
            outgoing.lifetime = self._sender.lifetime(expires_after, outgoing.due)
        producer.put(topic, outgoing)
        return future

    def refused_soon(
        self, topic: str | Topic, message: Message, error: Exception, holder: SentSoon
    ) -> None:
        """Fail a message of another thread's ``send_soon``. Call it from the client's loop."""
        self._sender.refused_soon(topic, message, error, holder)

    def send_oneway(
        self,
        topic: str | Topic,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        queue: Queue | None = None,
        priority: int = 0,
    ) -> None:
        """Send a message that may be lost: the broker does not answer. See ``send``.

        It cannot have a due time: nobody could cancel it. It is never part of a transaction.

        Raises:
            BufferFull: The buffer is full.
            OutsideTransaction: The topic must be sent within a transaction.
            InvalidName, EncodeError, MessageTooLarge: Nothing was sent.
            OrderingKeyRequired, TopicNotOrdered: Nothing was sent: an ordered topic needs an
                ordering key, and another topic accepts none.
        """
        if type(topic) is not str:
            topic = self._declarations.name_of(topic)
        self._session.bind()
        if self.stores:
            self.stores.place(topic, False)
        self._producer.room.refuse_when_full()
        if self._declarations.middlewares.sends:
            given = copied(headers)
            message = Message(
                body, key, ordering_key, tag, given, content_type, None, queue, priority=priority
            )
            self._sender.oneway_around(topic, message)
            return
        outgoing = self._sender.outgoing(
            body, key, ordering_key, tag, headers, content_type, None, None, queue
        )
        if priority.__class__ is not int or priority:
            outgoing.priority = priority_of(priority)
        self._producer.put(topic, outgoing, one_way=True)

    @overload
    async def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
        return_errors: Literal[False] = False,
        within: object = None,
    ) -> list[Receipt]: ...

    @overload
    async def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
        return_errors: Literal[True],
        within: object = None,
    ) -> list[Receipt | Exception]: ...

    async def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
        return_errors: bool = False,
        within: object = None,
    ) -> list[Receipt] | list[Receipt | Exception]:
        """Send many messages; returns when the outcome of each is known.

        If a message cannot be sent, for whatever reason (its body is too large, or cannot be
        encoded, it lacks an ordering key, its id was used for another message), it is one of the
        failures, and the others are sent. If no broker can be reached, all messages are failures.

        Args:
            topic: The topic.
            messages: ``Message``, or bare bodies.
            queue: Queue of messages that do not name one; see ``send``.
            deliver_after: Delay of the messages that state none themselves; see ``send``. They all
                have the same due time.
            deliver_at: Likewise.
            priority: Priority of messages that state none themselves; see ``send``. Messages of
                different priorities are stored in batches of their own.
            expires_after: ``expires_after`` of messages that state none themselves; see ``send``.
            return_errors: Return an exception in the place of each message that was not stored,
                instead of raising.
            within: As for ``send``; then all messages are written, or none: the error of the first
                that cannot be is raised, whatever ``return_errors`` says.

        Raises:
            PartialSendError: Some, or all, were not stored, whatever the reason: ``receipts``,
                ``failures``.
            InvalidName, InvalidRequest, DueTooFar, ClientClosed: Nothing was sent.
            UnknownQueue: Nothing was sent: the topic does not have the queue that ``queue`` names.
        """
        topic = check_topic(self._declarations.name_of(topic))
        items = items_of(messages)
        flag("return_errors", return_errors)
        if not items:
            return []
        if within is not None or self.stores:
            place = self.stores.place(topic, within)
            if place is not None:
                given = self.writing.defaults(
                    queue, deliver_after, deliver_at, priority, expires_after
                )
                return await self.writing.many_awaited(place, topic, items, given)
        due = self._sender.due(deliver_after, deliver_at)
        level = priority_of(priority)
        lifetime = self._sender.lifetime(expires_after)
        many = await self._sender.many(topic, items, queue, due, level, lifetime)
        return many.outcomes() if return_errors else many.outcome()

    async def _send_redriven(
        self, topic: str, messages: Sequence[Message]
    ) -> Sequence[Receipt | Exception]:
        topic = check_topic(self._declarations.name_of(topic))
        return (await self._sender.many_as_given(topic, messages)).outcomes()

    async def flush(self, timeout: float | timedelta | None = None) -> None:
        """Wait until everything sent is answered.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were given up since the last flush, and no
                caller waited for them; or some are not answered within ``timeout`` seconds.
            ClientClosed: The client is closed.
        """
        if timeout is not None:
            timeout = seconds_of("timeout", timeout)
        if self._session.closed:
            raise ClientClosed("the client is closed")
        if not self._session.used:
            return
        self._session.here()
        await self._sender.flush(timeout)

    # -- transactions -----------------------------------------------------------------------------

    async def prepare(
        self,
        topic: str | Topic,
        messages: Iterable[object] | bytes,
        *,
        writer: str,
        batch_id: int,
        part: str = "",
        queue: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> list[Prepared]:
        """Store messages for a transaction, invisible to consumers; returns when all are durable.

        Args:
            topic: The topic.
            messages: As for ``send_many`` (without ids of the application's own); or the bytes of
                one encoded batch, which may be prepared again as they are. Messages with a delay
                are scheduled at the commit; if they are due by then, they are delivered at once.
            writer: Name of the writer, 1 to 128 bytes; it belongs to the app that used it first.
            batch_id: Number of the writer's transaction.
            part: The writer's name for the source of the messages, such as ``"3/0"``.
            queue: Queue of messages that do not name one; None: as for ``send``.
            timeout: Seconds in all for each batch; by default the client's ``timeout``.

        Raises:
            TransactionDecided: The transaction is committed: only the commit can be repeated.
            TransactionTooOld: It may have been committed.
            TransactionTooLarge, WriterTaken, TernMQError: The broker refused it.
            CannotConnect: There was no connection in time.
            ConnectionLost: No answer came in time. The commit drops batches that are stored and
                not listed.
        """
        topic = self._declarations.name_of(topic)
        return await self._transactions.prepare(
            topic,
            messages,
            writer=writer,
            batch_id=batch_id,
            part=part,
            queue=queue,
            timeout=timeout,
        )

    async def commit_prepared(
        self,
        writer: str,
        batch_id: int,
        prepared: Iterable[Prepared | int],
        *,
        digest: int,
        timeout: float | timedelta | None = None,
    ) -> Committed:
        """Turn prepared batches into messages, all at one moment; returns when that is durable.

        Repeating a commit does nothing and returns ``repeated``.

        Args:
            writer: As prepared.
            batch_id: As prepared.
            prepared: What ``prepare`` returned, or the ids, in the order in which the messages get
                their offsets. Prepared batches that are not listed are dropped.
            digest: 64 bits that identify this content, such as a hash of counts and checksums;
                repeating the commit requires the same digest.
            timeout: Seconds in all; by default the client's ``timeout``.

        Raises:
            TransactionConflict: It was committed with another digest.
            TransactionDecided: It was rolled back.
            TransactionTooOld: It may have been committed.
            UnknownTransaction: A listed batch is not part of it.
            ConnectionLost: No answer came in time: try again.
        """
        return await self._transactions.commit(
            writer, batch_id, prepared, digest=digest, timeout=timeout
        )

    async def abort_prepared(
        self, writer: str, batch_id: int, *, timeout: float | timedelta | None = None
    ) -> None:
        """Drop what was prepared; the batch id may be used again. Repeating it is allowed.

        With the right to manage everything, it also works on writers of other apps.

        Raises:
            TransactionDecided: It is committed, which is final.
            TransactionTooOld: It may have been committed.
            ConnectionLost: No answer came in time: try again.
        """
        await self._transactions.abort(writer, batch_id, timeout=timeout)

    def transaction(
        self,
        group: str,
        *,
        query_id: str = "",
        on_error: Literal["rollback", "check"] = "rollback",
        check_after: float | timedelta | None = None,
        timeout: float | timedelta | None = None,
    ) -> Transaction:
        """Return a transaction: messages that become visible together, or not at all.

        ::

            async with client.transaction("order-service", query_id="order-7") as tx:
                await tx.send("orders", order)
                await tx.send("stock", {"order": 7})
                await tx.ack(delivery)

        The end of the block commits; an exception rolls back. If this process dies in between, or
        its commit is lost, the broker asks the checkers of the producer group; see ``checker``. The
        first call in the block opens the transaction; a client with a checker must be connected
        then.

        Args:
            group: The producer group: the name under which this application has its checker.
            query_id: Your own id for the work that the transaction belongs to, such as an order
                number: at most 255 bytes, without control characters. The checker gets it.
            on_error: What an exception in the block does: ``rollback``, or ``check``, which leaves
                the decision to the checker, for work whose outcome is not certain then. An error
                of the transaction's own calls rolls back in any case, because the transaction is
                then incomplete.
            check_after: Time until the checker is asked first, 1 second to 1 hour; None: 60 s, or
                as the producer group says.
            timeout: Seconds in all for each call of the transaction; None: the client's
                ``timeout``.

        Raises:
            InvalidName, InvalidRequest: A value is not valid.
        """
        return Transaction(self._parts, group, query_id, on_error, check_after, timeout)

    async def transaction_outcome(self, id: str) -> Decision:  # noqa: A002
        """Return the decision about a transaction; ``UNKNOWN``: it is not decided yet.

        Args:
            id: Its id, ``tx.id`` or ``transaction_id`` of an ``OutcomeUnknown``.

        Raises:
            UnknownTransaction: There never was one, or its decision is no longer in the journal.
            ProducerGroupTaken: It belongs to another app.
            InvalidRequest: The id is not valid.
        """
        self._session.bind()
        return await outcome_of(self._session, id)

    def checker(self, group: str) -> Callable[[F], F]:
        """Declare the function that decides about transactions whose client is gone; a decorator.

        ::

            @client.checker("order-service")
            async def check(tx: ternmq.PreparedTransaction) -> ternmq.Decision:
                paid = await orders.is_paid(tx.query_id)
                return ternmq.Decision.COMMIT if paid else ternmq.Decision.ROLLBACK

        The broker asks while the client is connected; any use of the client connects it. ``run``
        offers the checker when the groups of all handlers are joined. The broker can ask about
        several transactions of the group at a time. If the function returns ``UNKNOWN`` or raises,
        the broker asks again later: at most 15 times, and for at most a day, unless the producer
        group says otherwise. A ``def`` runs in a thread and gets a
        ``ternmq.sync.PreparedTransaction``. While the block of a transaction runs in this client,
        the function is not called for it.

        Args:
            group: The producer group. It belongs to the app that uses it first; ``connect`` and
                ``run`` raise ``ProducerGroupTaken`` if that is another one.

        Raises:
            InvalidHandler: It cannot be called with a transaction; or there is one for the group.
            InvalidName: The name of the group is not valid.
        """

        def declare(function: F) -> F:
            self._declarations.add_checker(function, group)
            self.offer(group)
            return function

        return declare

    def offer(self, group: str) -> None:
        """Offer a checker that was declared while the client is connected. From any thread."""
        loop = self._session.known_loop
        if loop is not None and not self._session.forked:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._checking.offer, group)

    # -- receiving --------------------------------------------------------------------------------

    async def pull(
        self,
        topic: str | Topic,
        *,
        group: str | None = None,
        max_messages: int = 500,
        wait: float | timedelta = 10.0,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        broadcast: bool | None = None,
        instance: str | None = None,
    ) -> Deliveries:
        """Return messages for a group, at most ``max_messages``; waits until there is one.

        All messages of a call are from one queue. If the topic has several queues, the next call
        returns messages of another queue.

        Args:
            topic: The topic.
            group: The consumer group; it is created at first use. None: a broadcast instance.
            max_messages: Most messages that are returned.
            wait: Seconds to wait for the first.
            tags: Filter, such as ``paid || refunded``; None: the group's.
            filter: Header filter, such as ``region = 'eu' AND amount >= 100``; None: the group's.
                Messages have to pass both filters.
            mode: ``shared``, ``ordered``, ``queue_lock``, ``owned`` or ``exclusive``; None: the
                group's.
            start: Where a new group begins, ``earliest`` or ``latest``; None: the group's.
            broadcast: True: this process is a broadcast instance, which gets every message that is
                sent from now on; a message that fails is not retried. None: if no group is named,
                as the topic says.
            instance: Name of the broadcast instance; the broker keeps its place for 7 days after it
                left. None: the instance name of the client. Empty: no name; the instance is new at
                each start.

        Returns:
            The deliveries; empty, and false, if none came in time.

        Raises:
            UnknownTopic, Forbidden, GroupSettingsMismatch, CannotConnect.
            GroupPaused: The group was paused all the time of ``wait``.
            InstanceTaken: Another connected client uses this instance name.
            ClientClosed: The client is closed, or was closed while this waited.
        """
        topic = self._declarations.name_of(topic)
        source = Source(
            topic, group, tags, mode, start, filter=filter,
            broadcast=broadcast, instance=instance, own_instance=self.options.instance,
        )  # fmt: skip
        check_positive("max_messages", max_messages)
        wait = wait_of("wait", wait)
        self._session.bind()
        await self._puller.join(source)
        leased = await self._puller.pull(source, max_messages, wait)
        return Deliveries(topic, [] if leased is None else [leased], self.codecs)

    def consume(
        self,
        topic: str | Topic,
        *,
        group: str | None = None,
        max_in_flight: int | None = None,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        broadcast: bool | None = None,
        instance: str | None = None,
    ) -> Consumer:
        """Return deliveries one by one: an async context manager around an async iterator.

        At most ``max_in_flight`` messages are unsettled at one time. None: the client requests one
        for each task that iterates, and in advance as many as are processed in 0.1 s, at most
        1,024; it gives back messages that a slow consumer has not begun; and it requests no more
        while 64 returned messages are not settled. Leaving the context gives back all messages that
        are not settled. See ``pull`` for the other arguments.
        """
        topic = self._declarations.name_of(topic)
        source = Source(
            topic, group, tags, mode, start, filter=filter,
            broadcast=broadcast, instance=instance, own_instance=self.options.instance,
        )  # fmt: skip
        return Consumer(ConsumerEngine(self._puller, source, self.codecs, max_in_flight))

    def consume_batches(
        self,
        topic: str | Topic,
        *,
        group: str | None = None,
        max_messages: int = 500,
        max_wait: float | timedelta = 2.0,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        broadcast: bool | None = None,
        instance: str | None = None,
    ) -> AsyncIterator[Deliveries]:
        """Return deliveries in batches: ``max_messages``, or all within ``max_wait``.

        A batch is returned when it is full, or ``max_wait`` seconds after its first message came.
        Leaving gives back what is not settled; closing the client ends it. See ``pull`` for the
        other arguments.
        """
        topic = self._declarations.name_of(topic)
        source = Source(
            topic, group, tags, mode, start, filter=filter,
            broadcast=broadcast, instance=instance, own_instance=self.options.instance,
        )  # fmt: skip
        check_positive("max_messages", max_messages)
        return self._batches(source, max_messages, wait_of("max_wait", max_wait))

    async def _batches(
        self, source: Source, max_messages: int, max_wait: float
    ) -> AsyncIterator[Deliveries]:
        self._session.bind()
        await self._puller.join(source)
        self._puller.begin(source)
        handed: list[Leased] = []
        try:
            while True:
                try:
                    parts = await self._puller.gather(source, max_messages, max_wait)
                except ClientClosed:  # while it waited: this ends, as ``consume`` does
                    return
                handed = [one for one in handed if one.lease.left and not one.lease.lost]
                handed += parts
                if parts:
                    yield Deliveries(source.topic, parts, self.codecs)
        finally:
            self._puller.end(source)
            for one in handed:
                give_back(one.lease)

    async def leave(self, topic: str | Topic, *, group: str) -> None:
        """Leave a group of mode owned or exclusive: its queues go to other members at once.

        Consumers, handlers and ``consume_batches`` leave by themselves when they end, and a client
        that closes leaves all its groups; after ``pull``, this call leaves. Settle the messages
        that the client still holds: until then, no other member gets messages of their queues. The
        next ``pull`` or ``consume`` joins again. No effect on groups of other modes.

        Raises:
            UnknownTopic, UnknownGroup: There is no such topic or group.
            InvalidRequest: A consumer of this client still pulls for the group, or it is that of a
                broadcast instance, which belongs to the client until it is closed.
        """
        name = self._declarations.name_of(topic)
        self._session.bind()
        await self._puller.leave(name, check_left(group))

    def on_assigned(self, function: A) -> A:
        """Call a function with each change of the queues that this client owns; a decorator.

        It is called in the client's event loop with an ``AssignedQueues``, for every group of mode
        owned or exclusive that the client consumes, when its queues change and after each join. It
        must return soon, and cannot be an ``async def``: to await something, it starts a task. An
        exception is logged.

        Raises:
            InvalidHandler: It is no function of one argument, or it would have to be awaited.
        """
        self._declarations.add_on_assigned(function)
        return function

    def read(
        self,
        topic: str | Topic,
        *,
        start: int | datetime | Literal["earliest", "latest"] = "earliest",
        stop: int | datetime | None = None,
        queue: int | None = None,
        follow: bool = False,
        from_: Literal["primary", "replica"] = "primary",
    ) -> AsyncIterator[Delivery]:
        """Read messages without a group: nothing is leased, nothing can be settled.

        Args:
            topic: The topic.
            start: An offset, a time, ``earliest`` or ``latest``.
            stop: An offset or a time to stop before; None: the end when reading begins.
            queue: The queue; None: all, one after the other (``follow`` allows only one).
            follow: Continue, waiting for new messages.
            from_: The broker that is asked. ``replica``: one that copies the primary, which has no
                work with it; without one, the primary. A replica may be behind: see ``behind``.

        Raises:
            UnknownTopic, UnknownQueue, Forbidden, OffsetExpired.
        """
        session = self._reads(from_)
        session.bind()
        if queue is not None:
            whole("queue", queue)
        flag("follow", follow)
        span = reading.ReadRange(start, stop, follow=follow)
        return reading.read(session, self.codecs, name_of(topic), queue, span)

    def behind(self) -> timedelta | None:
        """Return how far the replica was behind with its last answer to ``from_="replica"``.

        Everything that was stored longer ago was in the answer. Callable from any thread.

        Returns:
            None: the last answer was not a replica's, since there is none, or nothing was read so.
        """
        session = self._replica or self._session
        return session.behind if isinstance(session, ReplicaSession) else None

    def _reads(self, from_: str) -> Session:
        """Return the session for reads from the primary, or from a replica."""
        main = self._session
        if choose("from_", From, from_) is From.PRIMARY or isinstance(main, ReplicaSession):
            return main
        main.bind()
        if self._replica is None:
            self._replica = ReplicaSession(self.options, served=self._served, known=main.known)
        return self._replica

    # -- handlers ---------------------------------------------------------------------------------

    def handler(
        self,
        topic: str | Topic,
        *,
        group: str | None = None,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        concurrency: int = 16,
        max_in_flight: int | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        retry: RetryPolicy | None = None,
        lease: float | timedelta | None = None,
        broadcast: bool | None = None,
        instance: str | None = None,
    ) -> Callable[[F], F]:
        """Declare that a function handles the messages of a group; ``run`` calls it.

        It takes the body, decoded according to its annotation, and optionally a second parameter,
        the delivery: ``ternmq.Delivery`` in an ``async def``; ``ternmq.sync.Delivery`` in a
        ``def``, which runs in a thread. ``pull`` describes the other arguments.

        Args:
            topic: The topic: its name, or a ``Topic``, which this call also declares.
            group: The consumer group; None: a broadcast instance, as ``pull`` describes.
            tags: Filter; ``declare`` describes how it is applied.
            filter: Header filter, likewise.
            concurrency: Number of messages handled at one time. No more than ``max_in_flight`` are
                there to be handled, whatever this says.
            max_in_flight: Largest number of unsettled messages that the client holds; None:
                ``concurrency``, plus as many as are processed in 0.1 s, at most 1,024.
            mode: Mode of the group.
            start: Where a new group begins.
            retry: When failed messages are delivered again; see ``declare``.
            lease: How long messages are leased, in seconds or as a timedelta, 0.1 s to a day; it is
                extended while they are handled.
            broadcast: As in ``pull``.
            instance: As in ``pull``.

        Raises:
            InvalidHandler: The function cannot be called with a message: it has other parameters,
                or an annotation that cannot be resolved. Or the topic and group have a handler.
        """
        name = self._declarations.name_of(topic)
        source = Source(
            name, group, tags, mode, start, retry, lease, filter,
            broadcast=broadcast, instance=instance, own_instance=self.options.instance,
        )  # fmt: skip

        def declare(function: F) -> F:
            self._declarations.add(function, source, concurrency, max_in_flight)
            return function

        return declare

    def declare(self, *topics: Topic) -> None:
        """Declare topics that must exist.

        ``run`` creates the missing ones and changes settings that differ. It does the same with the
        filters, retry policies and leases of handlers, if the app may manage them. If the app may
        not, or a mode or start differs, ``run`` ends with ``TopologyMismatch``.
        ``ternmq apply MODULE:CLIENT``, which also changes modes, does this ahead of time, or only
        compares with ``--dry-run``; ``apply`` does it from code.

        A topic that is missing at the first send or consume is created as declared, if the broker
        creates topics on first use (``dev``, tests) and the app may manage it. An existing topic is
        used as it is.

        Raises:
            InvalidRequest: A topic of that name is already declared with other settings.
        """
        self._declarations.declare(topics)

    async def apply(self) -> list[Change]:
        """Bring topics and groups to their declared settings, durably; return the changes.

        ``run`` does this by itself, except for missing groups, which it creates by joining them.
        Call this in programs that only send, in tests, and in deployments.

        Raises:
            TopologyMismatch: Something cannot be changed, or this app may not manage it; the text
                names each difference. Nothing was changed, unless the text lists it.
        """
        self._session.bind()
        return await self.topology.apply(self.admin)

    @property
    def topology(self) -> Topology:
        """The declared topics, and the groups of the handlers, for comparison with a broker."""
        return Topology(self._declarations)

    def handler_middleware(self, function: F) -> F:
        """Run a generator that yields once around each call of a handler; a decorator.

        ::

            @client.handler_middleware
            async def timed(delivery: ternmq.Delivery) -> AsyncIterator[None]:
                began = time.monotonic()
                yield  # the handler runs
                print(delivery.topic, time.monotonic() - began)

        The first that is declared is the outermost; a handler's dependencies are made inside all of
        them. An error of the handler is raised at the ``yield``. If the middleware raises another
        error, that error decides what happens to the message; if it catches the error, the message
        is acked. A ``def`` runs where the handler runs, in its thread or in the loop, and gets the
        same kind of delivery. An ``async def`` runs in the loop, also around a handler in a thread;
        if it stops before the thread ends, as by ``asyncio.timeout``, its error takes effect when
        the thread has ended. A function that returns a context manager may be used in place of the
        generator.

        Raises:
            InvalidHandler: The function is none of these.
        """
        self._declarations.middlewares.around_handlers(function)
        return function

    def send_middleware(self, function: F) -> F:
        """Run a generator that yields once around each message that is sent; a decorator.

        It receives an ``Outbound``: the topic, and the message, whose fields it may change before
        the ``yield``. After the ``yield``, ``outbound.receipt`` has the place of the stored
        message; an error of the send is raised at the ``yield``. It is a ``def`` and runs in the
        client's loop, so it must not block. All sends pass through it except prepared batches.

        Raises:
            InvalidHandler: The function is not such a generator.
        """
        self._declarations.middlewares.around_sends(function)
        return function

    def lifespan(self, function: F) -> F:
        """Run a generator that yields once around ``run``; a decorator.

        The code before the ``yield`` runs before ``run`` connects, and before any handler. The code
        after it runs when the last handler has ended, while the client can still send. The
        generator receives the client if it has a parameter.

        Raises:
            InvalidHandler: The function is not such a generator.
        """
        self._declarations.middlewares.around_run(function)
        return function

    @property
    def overrides(self) -> dict[Provider, Provider]:
        """Providers that replace others from the next ``run`` on, as in tests."""
        return self._declarations.middlewares.overrides

    async def run(
        self, *, signals: bool | None = None, drain_timeout: float | timedelta | None = None
    ) -> None:
        """Call handlers with messages until ``stop()`` or a signal; then close.

        The signals are SIGTERM, SIGINT, and SIGHUP unless it is ignored. They are taken only in the
        main thread, and not if SIGTERM already has a handler, such as a web server's.

        If no broker is there, ``run`` waits for it. On stopping, no more messages are taken, and
        those that were not begun are given back. Running handlers have ``drain_timeout`` to finish;
        then they are cancelled, and those that cannot be (a thread, a coroutine that ignores it)
        are named in the log. Their messages are not delivered again while they run: the lease is
        extended until the handler ends. If this process ends first, the message is delivered again
        by the group's retry policy, and the attempt counts. A second SIGTERM or SIGINT ends the
        process without waiting.

        Args:
            signals: True: take the signals. False: leave them to their handlers; ``stop()`` ends
                ``run``. None: take them unless SIGTERM already has a handler in this process.
            drain_timeout: Used instead of the client's; None: the client's.

        Raises:
            InvalidRequest: There are no handlers, or a value is not valid.
            TopologyMismatch: A topic or group differs from its declaration; see ``declare``.
            InvalidHandler: No body can be decoded to the type that a handler takes.
            ClientError: Another ``run`` of this client has not ended.
            TernMQError: A group cannot be consumed.
        """
        if drain_timeout is not None:
            drain_timeout = drain_of(drain_timeout)
        loop = self._session.bind()
        post = loop.call_soon_threadsafe
        self.serving.begin_run()
        try:
            with Signals(post, lambda now: self.stop(at_once=now), wanted=signals):
                try:
                    await self.serve(self._declarations.middlewares.lifespans, drain_timeout)
                finally:
                    await self.close()
        finally:
            self.serving.end_run()

    async def serve(
        self, lifespans: Sequence[Lifespan], drain_timeout: float | timedelta | None
    ) -> None:
        """Do what ``run`` does, inside these lifespans; the caller takes signals and closes."""
        await self.serving.serve(self, lifespans, drain_timeout)

    def stop(self, *, at_once: bool = False) -> None:
        """End ``run``: no handler is called any more. Callable from any thread.

        If it is called before ``run``, ``run`` ends as soon as it begins.

        Args:
            at_once: Do not wait for running handlers: cancel them.
        """
        flag("at_once", at_once)
        self.serving.stop(at_once=at_once)

    # -- scheduled messages -----------------------------------------------------------------------

    async def cancel(self, what: Receipt | str | Topic, id: str = "") -> None:  # noqa: A002
        """Cancel a scheduled message: it is never delivered. Returns when this is durable.

        Cancelling it again changes nothing. Its ``id=`` stays in use, like that of a stored
        message: a message that replaces it needs another id; otherwise the send fails with
        ``IdConflict``.

        Args:
            what: Its receipt; or its topic.
            id: With a topic: its id, the broker's (``Receipt.id``) or the application's own; of
                several messages with the same id of the application, the newest.

        Raises:
            AlreadyDelivered: It was due, or was not scheduled.
            MessageNotFound: There is no such message, or it is no longer kept.
            InvalidRequest: No id is given.
        """
        self._session.bind()
        await self._schedule.cancel(what, id)

    # -- looking up -------------------------------------------------------------------------------

    async def get(
        self,
        topic: str | Topic,
        id: str | None = None,  # noqa: A002
        *,
        queue: int | None = None,
        offset: int | None = None,
        from_: Literal["primary", "replica"] = "primary",
    ) -> FoundMessage:
        """Return the message with an id (the broker's, or the application's own), or at an offset.

        A message that is scheduled, or was cancelled, is found by its id: see its ``state``.

        Args:
            topic: The topic.
            id: The id.
            queue: Queue of the offset; it may be omitted if the topic has only one.
            offset: Offset in the queue.
            from_: The broker that is asked: as for ``read``.

        Raises:
            MessageNotFound: There is no such message, or it is no longer kept; or the replica does
                not have it yet.
            InvalidRequest: Neither id nor offset is given, or both; the id is empty; or the topic
                has several queues and ``queue`` is missing.
        """
        return await self._look_ups(from_).get(topic, id, queue, offset)

    async def find(
        self,
        topic: str | Topic,
        *,
        key: str,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 32,
        from_: Literal["primary", "replica"] = "primary",
    ) -> list[FoundMessage]:
        """Return the messages with a key, newest first; those that are scheduled, too.

        Args:
            topic: The topic.
            key: The key that they were sent with.
            since: Only those stored at or after this time.
            until: Only those stored before this time.
            limit: Most that are returned.
            from_: The broker that is asked: as for ``read``.

        Raises:
            InvalidRequest: ``since`` is not before ``until``.
        """
        return await self._look_ups(from_).find(topic, key, since, until, limit)

    def _look_ups(self, from_: str) -> Lookup:
        session = self._reads(from_)
        session.bind()
        return self._lookup if session is self._session else Lookup(session, self.codecs)

    # -- replay -----------------------------------------------------------------------------------

    async def replay(
        self,
        topic: str | Topic,
        group: str,
        *,
        offsets: range | Iterable[int] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        ids: Iterable[str] | None = None,
        queue: int | None = None,
        dry_run: bool = False,
    ) -> Replayed:
        """Deliver messages to a group again, whatever their state; other groups are unaffected.

        They begin a new round: attempts count from 1, and a consumer that holds one of them loses
        it. Messages that the group has not read yet stay unread.

        Args:
            topic: The topic.
            group: The group.
            offsets: Offsets of one queue: ``range(10, 20)``, or any others.
            since: Only messages stored at or after this time.
            until: Only messages stored before this time.
            ids: Only messages with these ids: the broker's, or your own. If several messages have
                the same id of your own, the newest.
            queue: Queue of the offsets; it may be omitted if the topic has only one. With times:
                only this queue, by default all.
            dry_run: Only return what would happen.

        Raises:
            InvalidRequest: Offsets are given, the topic has several queues, and ``queue`` is
                missing; or ``since`` is not before ``until``.
            ReplayTooLarge: More messages would wait for redelivery than the broker allows. A large
                replay is done in parts: those done before the error stay done.
        """
        self._session.bind()
        return await self._replay.replay(
            topic,
            group,
            offsets=offsets,
            since=since,
            until=until,
            ids=ids,
            queue=queue,
            dry_run=dry_run,
        )

    # -- forks ------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """Take a new identity, or become unusable if it was connected. For ``forking``."""
        if self._session.used:
            self._session.leave_behind()
            if self._replica is not None:
                self._replica.leave_behind()
        else:
            self._session.renew()
            self._producer.renew()
            self._parts.batches.ids.renew()


def leases_of(port: int) -> list[Lease]:
    """Return the unfinished leases of this process's clients of the broker at a port.

    For the testing kit. Callable from any thread.
    """
    return [
        lease
        for client in watched(Client)
        if port in {address.port for address in client.options.addresses}
        for lease in client._settler.held()  # noqa: SLF001 - of a class of this module
    ]


def session_of(client: Client) -> Session:
    """Return the session of a client, for the packages above; applications do not need it."""
    return client._session  # noqa: SLF001 - of a class of this module
