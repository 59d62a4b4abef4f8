"""What a client does for its sends, apart from the call that each message makes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from ternmq.client.connection.raising import own
from ternmq.client.connection.session import Session
from ternmq.client.content import tracing
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.delays import Due, due_of
from ternmq.client.content.lifetimes import Lifetime, lifetime_of
from ternmq.client.content.message import Failure, Message, Queue, Receipt
from ternmq.client.content.reasons import safe_str
from ternmq.client.content.validation import (
    LARGEST_BODY,
    check_body,
    check_message,
    priority_of,
)
from ternmq.client.declaration.topic import Topic
from ternmq.client.handler.middleware import Middlewares, Outbound
from ternmq.client.producer.heard import Bystander, SentSoon, Unheard, was_heard
from ternmq.client.producer.many import Many, ready_bodies
from ternmq.client.producer.outgoing import Outgoing
from ternmq.client.producer.producer import Producer
from ternmq.client.producer.selecting import chosen_by, number_of
from ternmq.model.errors import BufferFull, EncodeError, InvalidRequest, UnsentMessages, hinted
from ternmq.model.printing import printable
from ternmq.model.words import counted, verb

log: Final = logging.getLogger("ternmq")

_MOST_NAMED: Final = 3
"""Most messages that the text of ``UnsentMessages`` names."""
_MOST_SHOWN: Final = 80
"""Characters of a name in a log line: what is no name may have any length."""
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Sender:
    """Makes messages ready to send, and sends them inside middlewares, or many at once.

    Not thread-safe: call it from the client's loop.

    Args:
        session: The client's session.
        producer: Where messages go.
        codecs: How bodies are encoded.
        middlewares: Those of sends are called around each message.
        timeout: The client's ``timeout``, in seconds.
    """

    def __init__(
        self,
        session: Session,
        producer: Producer,
        codecs: Codecs,
        middlewares: Middlewares,
        timeout: float,
    ) -> None:
        self._session = session
        self._producer = producer
        self._codecs = codecs
        self._middlewares = middlewares
        self._timeout = timeout

    def outgoing(
        self,
        body: object,
        key: str,
        ordering_key: str,
        tag: str,
        headers: Mapping[str, str] | None,
        content_type: str,
        application_id: str | None,
        future: asyncio.Future[Receipt] | None,
        queue: Queue | None,
    ) -> Outgoing:
        """Return a message to send; ``future`` gets its receipt.

        Raises:
            EncodeError, InvalidRequest, MessageTooLarge: It cannot be sent.
        """
        given = body
        if type(body) is not bytes:
            if isinstance(body, Message):
                raise EncodeError("a Message goes to send_many; send takes its body, key= ...")
            body, content_type = self._codecs.encode(body, content_type)
        if headers is None:
            headers = _NO_HEADERS
        if application_id is None:
            application_id = ""
        elif application_id == "":  # an id that came out empty must not pass as no id
            raise InvalidRequest("id is empty: leave it out, or give one")
        if tracing.enabled and tracing.active() and isinstance(headers, Mapping):
            headers = tracing.sent(headers)
        message = Outgoing(
            body, key, ordering_key, tag, headers, content_type, application_id, future
        )
        welcome = self._session.welcome
        most = LARGEST_BODY if welcome is None else welcome.body_bytes
        if len(body) > most:
            check_body(len(body), most)
        # Compared, not tested for truth: None is not a valid key, and a list is no headers.
        if (
            headers
            or headers.__class__ is not dict
            or not key == ordering_key == tag == content_type == application_id == ""
        ):
            message.size_bytes += check_message(message)
        if queue is not None:
            message.queue = number_of(queue) if not callable(queue) else chosen_by(
                queue,
                Message(
                    given, key, ordering_key, tag, headers, content_type, application_id or None
                ),
            )  # fmt: skip
        return message

    def due(self, deliver_after: object, deliver_at: object) -> Due | None:
        """Return when a message is due; None: at once. Raises as ``due_of``."""
        return due_of(deliver_after, deliver_at, self._session.broker_time)

    def lifetime(self, expires_after: object, due: Due | None = None) -> Lifetime | None:
        """Return how long a message lives; None: for ever. Raises as ``lifetime_of``.

        Args:
            expires_after: How long.
            due: When the message is due, to check both together; None: at once.
        """
        lifetime = lifetime_of(expires_after, self._session.broker_time)
        if lifetime is not None and due is not None:
            lifetime.check(due)
        return lifetime

    def of_item(
        self,
        item: object,
        queue: Queue | None,
        future: asyncio.Future[Receipt] | None = None,
        due: Due | None = None,
        asked_us: int | None = None,
        priority: int = 0,
        lifetime: Lifetime | None = None,
    ) -> Outgoing:
        """Return a message to send: a ``Message``, or a bare body.

        Args:
            item: The message.
            queue: Its queue, if it does not name one.
            future: Gets its receipt.
            due: When it is due, if it does not say.
            asked_us: When its own delay begins; None: now. See ``due_of``.
            priority: Its priority, if it does not say.
            lifetime: How long it lives, if it does not say.

        Raises:
            EncodeError, InvalidRequest, MessageTooLarge: It cannot be sent.
        """
        if not isinstance(item, Message):
            outgoing = self.outgoing(item, "", "", "", None, "", None, future, queue)
            outgoing.due, outgoing.priority, outgoing.lifetime = due, priority, lifetime
            if due is not None and lifetime is not None:
                lifetime.check(due)
            return outgoing
        outgoing = self.outgoing(
            item.body,
            item.key,
            item.ordering_key,
            item.tag,
            item.headers,
            item.content_type,
            item.id,
            future,
            queue if item.queue is None else item.queue,
        )
        if item.deliver_after is not None or item.deliver_at is not None:
            time = self._session.broker_time
            due = due_of(item.deliver_after, item.deliver_at, time, asked_us)
        outgoing.priority = priority if item.priority is None else priority_of(item.priority)
        if item.expires_after is not None:
            lifetime = lifetime_of(item.expires_after, self._session.broker_time, asked_us)
        outgoing.due, outgoing.lifetime = due, lifetime
        if due is not None and lifetime is not None:
            lifetime.check(due)
        return outgoing

    def encoded(
        self,
        topic: str,
        items: Sequence[object],
        queue: Queue | None,
        due: Due | None = None,
        priority: int = 0,
        lifetime: Lifetime | None = None,
    ) -> tuple[list[Outgoing], list[Failure]]:
        """Return the messages that can be sent, and those that cannot."""
        encoded: list[Outgoing] = []
        failures: list[Failure] = []
        asked_us = self._session.broker_time.moment_us()  # of all: equal delays are one due time
        for row, item in enumerate(items):
            try:
                encoded.append(self.of_item(item, queue, None, due, asked_us, priority, lifetime))
            except (EncodeError, InvalidRequest) as error:
                failures.append(Failure(item, row, error.with_traceback(None), topic))
        try:
            return encoded, failures
        finally:
            del failures  # see ``raising``

    def all_encoded(
        self,
        topic: str,
        items: Sequence[object],
        queue: Queue | None,
        due: Due | None = None,
        priority: int = 0,
        lifetime: Lifetime | None = None,
    ) -> list[Outgoing]:
        """Return the messages if all of them can be sent; else raise the error of the first."""
        encoded, failures = self.encoded(topic, items, queue, due, priority, lifetime)
        if failures:
            try:
                raise failures[0].error
            finally:
                del failures  # see ``raising``
        return encoded

    async def room(self, timeout: float | None) -> float:
        """Wait until a message may be put; return the seconds that are left of the timeout.

        Raises:
            BufferFull: There was no room in time, or too little time is left for an answer.
        """
        loop, producer = self._session.bind(), self._producer
        timeout = self._timeout if timeout is None else timeout
        until = loop.time() + timeout
        try:
            async with asyncio.timeout_at(until):
                await producer.room.wait(loop)
        except TimeoutError:
            pass  # an error raised here would refer to this one: see ``raising``
        if producer.room.full:
            raise BufferFull(f"no room within {timeout:g} s: nothing was sent")
        left = until - loop.time()
        expected = producer.core.window.expected_s(producer.room.taken_bytes)
        if left < min(expected, timeout / 2):
            raise BufferFull(
                f"room came so late that the rest of {timeout:g} s is too short: nothing was sent"
            )
        return left

    async def around(self, topic: str, message: Message, timeout: float | None) -> Receipt:
        """Send a message inside the middlewares of sends."""
        asked_us = self._session.broker_time.moment_us()  # not when there is room
        outbound = Outbound(topic, message)
        failure: BaseException | None = None
        try:
            with self._middlewares.enter_sends(outbound):
                try:
                    if self._producer.room.full:
                        timeout = await self.room(timeout)
                    outbound.receipt = await self._put_outbound(outbound, timeout, asked_us)
                except BaseException as error:
                    failure = error
                    raise
            if failure is not None:  # a middleware caught it: a send returns a receipt, or fails
                raise failure
        finally:
            del failure  # see ``raising``
        assert outbound.receipt is not None
        return outbound.receipt

    def soon_around(self, topic: str, message: Message) -> asyncio.Future[Receipt]:
        """Send inside the middlewares of sends; they are left when the outcome is known."""
        outbound = Outbound(topic, message)
        with self._middlewares.enter_sends(outbound) as stack:
            future = self._put_outbound(outbound)
            future.add_done_callback(Bystander(partial(_tell, outbound, stack.pop_all())))
            return future
        raise InvalidRequest("a send middleware swallowed the error of a send")

    def oneway_around(self, topic: str, message: Message) -> None:
        """Send a message that nobody answers inside the middlewares of sends."""
        outbound = Outbound(topic, message)
        with self._middlewares.enter_sends(outbound):
            outgoing = self.of_item(outbound.message, None)
            if outgoing.due is not None:
                raise InvalidRequest(
                    "send_oneway takes no due time: nobody would know whether the message is "
                    "scheduled, and nobody could cancel it; use send or send_soon"
                )
            self._producer.put(topic, outgoing, one_way=True)

    def _put_outbound(
        self, outbound: Outbound, timeout: float | None = None, asked_us: int | None = None
    ) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = self._session.bind().create_future()
        outgoing = self.of_item(outbound.message, None, future, None, asked_us)
        self._producer.put(outbound.topic, outgoing, timeout)
        return future

    def refused_soon(
        self, topic: str | Topic, message: Message, error: Exception, holder: SentSoon
    ) -> None:
        """Fail a message of another thread's ``send_soon``. Call it from the client's loop."""
        if not holder.set_running_or_notify_cancel():
            return  # its sender cancelled it
        if not holder.heard:
            # The topic and the key may be of any type: here nothing may fail, or the future of
            # ``send_soon`` would never be done.
            name = topic.name if isinstance(topic, Topic) else safe_str(topic)
            log.warning("not sent: %s: %s: %s",
                        _which(name, message), type(error).__name__, str(error))  # fmt: skip
            size = len(message.body) if isinstance(message.body, str | bytes) else 0
            self._producer.keep(Unheard(holder, Failure(message, 0, own(error), name)), size)
        holder.set_exception(own(error))

    async def many(
        self,
        topic: str,
        items: Sequence[object],
        queue: Queue | None,
        due: Due | None,
        priority: int,
        lifetime: Lifetime | None = None,
    ) -> Many:
        """Send many messages; return their outcomes."""
        if self._middlewares.sends:
            return await self._many_around(topic, items, queue, due, priority, lifetime)
        return await self._all(topic, items, queue, due, priority, lifetime)

    async def many_as_given(self, topic: str, messages: Sequence[Message]) -> Many:
        """Send many messages without the middlewares of sends; return their outcomes."""
        return await self._all(topic, messages, None, None, 0)

    async def _all(
        self,
        topic: str,
        items: Sequence[object],
        queue: Queue | None,
        due: Due | None,
        priority: int,
        lifetime: Lifetime | None = None,
    ) -> Many:
        number = None if queue is None or callable(queue) else number_of(queue)
        bodies_only = due is None and not priority and lifetime is None and not callable(queue)
        bodies_only = bodies_only and not tracing.active()
        ready = ready_bodies(items) if bodies_only and items else None
        if ready is not None and max(map(len, ready)) <= self._most_bytes():
            return await self._producer.put_many(topic, items, ready, number)
        encoded, failures = self.encoded(topic, items, queue, due, priority, lifetime)
        if failures:
            bad = {failure.row for failure in failures}
            rows = [row for row in range(len(items)) if row not in bad]
            some = [items[row] for row in rows]
            good = await self._producer.put_many(topic, some, encoded, number)
            return good.among(items, rows, failures)
        return await self._producer.put_many(topic, items, encoded, number)

    async def _many_around(
        self,
        topic: str,
        items: Sequence[object],
        queue: Queue | None,
        due: Due | None,
        priority: int,
        lifetime: Lifetime | None = None,
    ) -> Many:
        """Send many messages, each inside the middlewares of sends.

        A message whose middleware fails is not sent; it does not keep the others back.
        """
        entered: list[tuple[Outbound, ExitStack]] = []
        rows: list[int] = []
        failures: list[Failure] = []
        with ExitStack() as all_of_them:
            for row, item in enumerate(items):
                one = Outbound(topic, copy_of(item))
                try:
                    stack = self._middlewares.enter_sends(one)
                except Exception as error:  # noqa: BLE001 - a middleware may raise anything
                    failures.append(Failure(item, row, error.with_traceback(None), topic))
                    continue
                all_of_them.push(stack)
                entered.append((one, stack))
                rows.append(row)
            messages = [one.message for one, _ in entered]
            many = await self._all(topic, messages, queue, due, priority, lifetime)
            all_of_them.pop_all()
        for (one, stack), outcome in zip(entered, many.outcomes(), strict=True):
            _tell(one, stack, outcome)
        if not failures:
            return many.of(items)
        return many.of([items[row] for row in rows]).among(items, rows, failures)

    def _most_bytes(self) -> int:
        welcome = self._session.welcome
        return welcome.body_bytes if welcome is not None else LARGEST_BODY

    async def flush(self, timeout: float | None) -> None:
        """Wait until everything sent is answered; see ``Client.flush``."""
        if not await self._producer.drained(timeout):
            raise hinted(
                UnsentMessages(f"messages are still on their way after {timeout:g} s"),
                "the client continues to send them: another flush() waits for them",
            )
        self.raise_unsent()

    def raise_unsent(self) -> None:
        """Report messages that were given up and that no caller waited for.

        Raises:
            UnsentMessages: There are such messages.
        """
        failures, further, uncounted = self._producer.take_failures()
        unheard = [failure for holder, failure in failures if not _noticed(holder)]
        more = sum([not _noticed(holder) for holder in further])
        more += uncounted
        if unheard or more:
            count = len(unheard) + more
            named = [_named(one) for one in unheard[:_MOST_NAMED]]
            if count > len(named):
                named.append(f"and {count - len(named):,} more")
            raise UnsentMessages(
                f"{counted(count, 'message')} {verb(count, 'was', 'were')} not sent: "
                + "; ".join(named),
                failures=unheard,
                more=more,
            )


def _noticed(holder: object) -> bool:
    """Return whether a caller has looked at a failure; from now on, one has."""
    if was_heard(holder):
        return True
    if isinstance(holder, asyncio.Future):
        holder.exception()  # marks the exception as retrieved
    return False


def _named(failure: Failure) -> str:
    """Return a description of an unsent message and its error, without its body."""
    return f"{_which(failure.topic, failure.message)}: {failure.error}"


def _which(topic: str, message: object) -> str:
    """Return a description of a message, without its body."""
    told = [printable(f"topic={topic:.{_MOST_SHOWN}}")]
    if isinstance(message, Message):
        names = ("key", message.key), ("ordering_key", message.ordering_key), ("id", message.id)
        told += [printable(f"{name}={safe_str(value):.80}") for name, value in names if value]
    return " ".join(told)


def items_of(messages: object) -> Sequence[object]:
    """Return the messages of ``send_many``.

    Raises:
        InvalidRequest: It is one message, or nothing that has any.
    """
    if isinstance(messages, str | bytes | bytearray | Mapping):
        kind = type(messages).__name__
        raise InvalidRequest(f"send_many takes a list of messages; one {kind} goes to send")
    if not isinstance(messages, Iterable):
        raise InvalidRequest(f"messages are a list, not {type(messages).__name__}")
    return messages if isinstance(messages, list | tuple) else [*messages]


def copy_of(item: object) -> Message:
    """Return a copy of a message that a middleware may change."""
    if isinstance(item, Message):
        return replace(item, headers=copied(item.headers))
    return Message(item)


def copied(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of headers that a middleware may add to."""
    return dict(headers) if headers else {}


def _tell(outbound: Outbound, stack: ExitStack, outcome: Receipt | BaseException) -> None:
    """Leave the middlewares with an outcome; their own errors are logged: the message is sent."""
    try:
        if isinstance(outcome, BaseException):
            stack.__exit__(type(outcome), outcome, outcome.__traceback__)
        else:
            outbound.receipt = outcome
            stack.close()
    except BaseException as error:
        if error is not outcome:
            log.exception(
                "a send middleware failed after the send of a message to %s", outbound.topic
            )
