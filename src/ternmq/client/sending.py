"""Sends of a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, Literal, overload

from ternmq.client.content import tracing
from ternmq.client.content.message import Failure, Message, Queue, Receipt
from ternmq.client.content.validation import (
    LARGEST_BODY,
    check_body,
    check_message,
    check_topic,
    flag,
    seconds_of,
    timeout_of,
)
from ternmq.client.declaration.topic import Topic
from ternmq.client.handler.middleware import Outbound
from ternmq.client.handler.unawaited import looked_after
from ternmq.client.parts import Parts
from ternmq.client.producer.heard import Bystander, SentSoon, Unheard, was_heard
from ternmq.client.producer.many import Many, ready_bodies
from ternmq.client.producer.outgoing import Outgoing
from ternmq.client.producer.selecting import chosen_by, number_of
from ternmq.model.errors import (
    BufferFull,
    EncodeError,
    InvalidRequest,
    UnsentMessages,
)
from ternmq.model.printing import printable
from ternmq.model.words import counted, verb

log: Final = logging.getLogger("ternmq")

_MOST_NAMED: Final = 3
"""Most messages that the text of ``UnsentMessages`` names."""
_NO_HEADERS: Final[Mapping[str, str]] = {}


@looked_after("client")
class Sending(Parts):
    """Sending single messages and many, with and without waiting for receipts."""

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
        timeout: float | timedelta | None = None,
    ) -> Receipt:
        """Send a message; returns when it is stored durably.

        Messages sent at the same time (by other tasks) travel and are stored together.

        Args:
            topic: The topic.
            body: Bytes, str, or a value that a codec can encode.
            key: Text by which it can be looked up.
            ordering_key: Names the order it belongs to, on ordered topics. A topic that this
                message creates is ordered.
            tag: Its kind within the topic, for filters.
            headers: Properties.
            content_type: Type of the body; by default derived from the body's type.
            id: An identifier of the application's own: a second message with it is not stored
                again, its receipt is marked ``duplicate``. An empty text is refused.
            queue: Its queue: the number of a queue, or a function that takes the message (as a
                ``Message``) and the numbers of the topic's queues, and returns one of them; it may
                be called again when the topic is changed. None: messages of one key share a queue,
                as long as the number of queues stays the same; without a key, each batch goes to
                the next queue. Ordered topics use the queue of the ordering key, and refuse others.
            timeout: Seconds in all; None: the client's ``timeout``.

        Raises:
            InvalidName, EncodeError, MessageTooLarge: Nothing was sent.
            OrderingKeyRequired, TopicNotOrdered: Nothing was sent: an ordered topic needs an
                ordering key, and another topic accepts none.
            UnknownQueue: Nothing was sent: the topic does not have that queue.
            CannotConnect: Nothing was sent: there was no connection in time.
            BufferFull: Nothing was sent: the buffer stayed full, or had room only when too little
                time was left for an answer.
            SendTimeout: No answer came in time: whether it is stored is not known.
            TernMQError: The broker refused it; nothing was stored.
        """
        if timeout is not None:
            timeout = timeout_of("timeout", timeout)
        if type(topic) is not str:
            topic = self._declarations.name_of(topic)
        if self._declarations.middlewares.sends:
            given = _copied(headers)
            message = Message(body, key, ordering_key, tag, given, content_type, id, queue)
            return await self._send_around(topic, message, timeout)
        producer = self._producer
        loop = self._session.bind()
        if producer.room.full:
            timeout = await self._room(timeout)
        future: asyncio.Future[Receipt] = loop.create_future()
        producer.put(
            topic,
            self._outgoing(body, key, ordering_key, tag, headers, content_type, id, future, queue),
            timeout,
        )
        return await future

    async def _room(self, timeout: float | None) -> float:
        """Wait until a message may be put; return the seconds that are left of the timeout.

        Raises:
            BufferFull: There was no room in time, or too little time is left for an answer.
        """
        loop, producer = self._session.bind(), self._producer
        timeout = self.options.timeout if timeout is None else timeout
        until = loop.time() + timeout
        try:
            async with asyncio.timeout_at(until):
                await producer.room.wait(loop)
        except TimeoutError:
            raise BufferFull(f"no room within {timeout:g} s: nothing was sent") from None
        left = until - loop.time()
        expected = producer.core.window.expected_s(producer.room.taken_bytes)
        if left < min(expected, timeout / 2):
            raise BufferFull(
                f"room came so late that the rest of {timeout:g} s is too short: nothing was sent"
            )
        return left

    async def _send_around(self, topic: str, message: Message, timeout: float | None) -> Receipt:
        """Send a message inside the middlewares of sends."""
        outbound = Outbound(topic, message)
        failure: BaseException | None = None
        with self._declarations.middlewares.enter_sends(outbound):
            try:
                if self._producer.room.full:
                    timeout = await self._room(timeout)
                future = self._put_outbound(outbound, timeout)
                outbound.receipt = await future
            except BaseException as error:
                failure = error
                raise
        if failure is not None:  # a middleware caught the error: a send returns a receipt, or fails
            raise failure
        assert outbound.receipt is not None
        return outbound.receipt

    def _put_outbound(
        self, outbound: Outbound, timeout: float | None = None
    ) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = self._session.bind().create_future()
        outgoing = self._of_item(outbound.message, None, future)
        self._producer.put(outbound.topic, outgoing, timeout)
        return future

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
    ) -> asyncio.Future[Receipt]:
        """Send a message without waiting; the future returns its receipt. See ``send``.

        A failure of a future that is not awaited is logged, and ``flush`` or closing the client
        raises ``UnsentMessages``.

        Raises:
            BufferFull: The buffer is full.
            InvalidName, EncodeError, MessageTooLarge: Nothing was sent.
            OrderingKeyRequired, TopicNotOrdered: Nothing was sent: an ordered topic needs an
                ordering key, and another topic accepts none.
        """
        if type(topic) is not str:
            topic = self._declarations.name_of(topic)
        producer = self._producer
        loop = self._session.bind()
        producer.room.refuse_when_full()
        if self._declarations.middlewares.sends:
            given = _copied(headers)
            message = Message(body, key, ordering_key, tag, given, content_type, id, queue)
            return self._send_soon_around(topic, message)
        future: asyncio.Future[Receipt] = loop.create_future()
        producer.put(
            topic,
            self._outgoing(body, key, ordering_key, tag, headers, content_type, id, future, queue),
        )
        return future

    def _send_soon_around(self, topic: str, message: Message) -> asyncio.Future[Receipt]:
        """Send inside the middlewares of sends; they are left when the outcome is known."""
        outbound = Outbound(topic, message)
        with self._declarations.middlewares.enter_sends(outbound) as stack:
            future = self._put_outbound(outbound)
            future.add_done_callback(Bystander(partial(_tell, outbound, stack.pop_all())))
            return future
        raise InvalidRequest("a send middleware swallowed the error of a send")

    def refused_soon(
        self, topic: str | Topic, message: Message, error: Exception, holder: SentSoon
    ) -> None:
        """Fail a message of another thread's ``send_soon``. Call it from the client's loop."""
        if not holder.set_running_or_notify_cancel():
            return  # its sender cancelled it
        if not holder.heard:
            name = topic.name if isinstance(topic, Topic) else topic
            log.warning("not sent: topic=%s key=%s: %s: %s",
                        name, message.key, type(error).__name__, error)  # fmt: skip
            size = len(message.body) if isinstance(message.body, str | bytes) else 0
            self._producer.keep(Unheard(holder, Failure(message, 0, error, name)), size)
        holder.set_exception(error)

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
    ) -> None:
        """Send a message that may be lost: the broker does not answer. See ``send``.

        Raises:
            BufferFull: The buffer is full.
            InvalidName, EncodeError, MessageTooLarge: Nothing was sent.
            OrderingKeyRequired, TopicNotOrdered: Nothing was sent: an ordered topic needs an
                ordering key, and another topic accepts none.
        """
        if type(topic) is not str:
            topic = self._declarations.name_of(topic)
        self._session.bind()
        self._producer.room.refuse_when_full()
        if self._declarations.middlewares.sends:
            given = _copied(headers)
            message = Message(body, key, ordering_key, tag, given, content_type, None, queue)
            outbound = Outbound(topic, message)
            with self._declarations.middlewares.enter_sends(outbound):
                self._producer.put(topic, self._of_item(outbound.message, None), one_way=True)
            return
        self._producer.put(
            topic,
            self._outgoing(body, key, ordering_key, tag, headers, content_type, None, None, queue),
            one_way=True,
        )

    @overload
    async def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        return_errors: Literal[False] = False,
    ) -> list[Receipt]: ...

    @overload
    async def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        return_errors: Literal[True],
    ) -> list[Receipt | Exception]: ...

    async def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        return_errors: bool = False,
    ) -> list[Receipt] | list[Receipt | Exception]:
        """Send many messages; returns when the outcome of each is known.

        A message that cannot be sent does not keep the others back, for whatever reason (its body
        is too large, or cannot be encoded, it lacks an ordering key, its id was used for another
        message): it is one of the failures. Without a broker, every message is one.

        Args:
            topic: The topic.
            messages: ``Message``, or bare bodies.
            queue: Queue of messages that do not name one; see ``send``.
            return_errors: Return an exception in the place of each message that was not stored,
                instead of raising.

        Raises:
            PartialSendError: Some, or all, were not stored, whatever the reason: ``receipts``,
                ``failures``.
            InvalidName, InvalidRequest, ClientClosed: Nothing was sent.
            UnknownQueue: Nothing was sent: the topic does not have the queue that ``queue`` names.
        """
        topic = check_topic(self._declarations.name_of(topic))
        if isinstance(messages, str | bytes | bytearray | Mapping):
            kind = type(messages).__name__
            raise InvalidRequest(f"send_many takes a list of messages; one {kind} goes to send")
        if not isinstance(messages, Iterable):
            raise InvalidRequest(f"messages are a list, not {type(messages).__name__}")
        flag("return_errors", return_errors)
        items: Sequence[object] = messages if isinstance(messages, list | tuple) else [*messages]
        if not items:
            return []
        if self._declarations.middlewares.sends:
            many = await self._send_many_around(topic, items, queue)
        else:
            many = await self._send_all(topic, items, queue)
        return many.outcomes() if return_errors else many.outcome()

    async def _send_all(self, topic: str, items: Sequence[object], queue: Queue | None) -> Many:
        number = None if queue is None or callable(queue) else number_of(queue)
        ready = None if callable(queue) or tracing.active() else ready_bodies(items)
        if ready is not None and max(map(len, ready)) <= self._most_bytes():
            return await self._producer.put_many(topic, items, ready, number)
        encoded, failures = self._encoded(topic, items, queue)
        if failures:
            bad = {failure.row for failure in failures}
            rows = [row for row in range(len(items)) if row not in bad]
            some = [items[row] for row in rows]
            good = await self._producer.put_many(topic, some, encoded, number)
            return good.among(items, rows, failures)
        return await self._producer.put_many(topic, items, encoded, number)

    async def _send_many_around(
        self, topic: str, items: Sequence[object], queue: Queue | None
    ) -> Many:
        """Send many messages, each inside the middlewares of sends."""
        middlewares = self._declarations.middlewares
        outbound = [Outbound(topic, _copy_of(one)) for one in items]
        left: list[tuple[Outbound, ExitStack]] = []
        with ExitStack() as all_of_them:
            for one in outbound:
                stack = middlewares.enter_sends(one)
                all_of_them.push(stack)
                left.append((one, stack))
            many = await self._send_all(topic, [one.message for one in outbound], queue)
            all_of_them.pop_all()
        for (one, stack), outcome in zip(left, many.outcomes(), strict=True):
            _tell(one, stack, outcome)
        return many.of(items)

    def _encoded(
        self, topic: str, items: Sequence[object], queue: Queue | None
    ) -> tuple[list[Outgoing], list[Failure]]:
        """Return the messages that can be sent, and those that cannot."""
        encoded: list[Outgoing] = []
        failures: list[Failure] = []
        for row, item in enumerate(items):
            try:
                encoded.append(self._of_item(item, queue))
            except (EncodeError, InvalidRequest) as error:
                failures.append(Failure(item, row, error, topic))
        return encoded, failures

    def _of_item(
        self,
        item: object,
        queue: Queue | None,
        future: asyncio.Future[Receipt] | None = None,
    ) -> Outgoing:
        if not isinstance(item, Message):
            return self._outgoing(item, "", "", "", None, "", None, future, queue)
        return self._outgoing(
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

    def _outgoing(
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
        given = body
        if type(body) is not bytes:
            if isinstance(body, Message):
                raise EncodeError("a Message goes to send_many; send takes its body, key= ...")
            body, content_type = self.codecs.encode(body, content_type)
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
        # Compared, not tested for truth: None is not a valid key.
        if headers or not key == ordering_key == tag == content_type == application_id == "":
            message.size_bytes += check_message(message)
        if queue is not None:
            message.queue = number_of(queue) if not callable(queue) else chosen_by(
                queue,
                Message(
                    given, key, ordering_key, tag, headers, content_type, application_id or None
                ),
            )  # fmt: skip
        return message

    def _most_bytes(self) -> int:
        welcome = self._session.welcome
        return welcome.body_bytes if welcome is not None else LARGEST_BODY

    async def flush(self, timeout: float | timedelta | None = None) -> None:
        """Wait until everything sent is answered.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were given up since the last flush, and no
                caller waited for them; or some are not answered within ``timeout`` seconds.
        """
        if timeout is not None:
            timeout = seconds_of("timeout", timeout)
        if not self._session.used:
            return
        self._session.here()
        if not await self._producer.drained(timeout):
            waiting = UnsentMessages(f"messages are still on their way after {timeout:g} s")
            waiting.hint = "the client continues to send them: another flush() waits for them"
            raise waiting
        self._raise_unsent()

    def _raise_unsent(self) -> None:
        unheard: list[Failure] = []
        for holder, failure in self._producer.take_failures():
            if was_heard(holder):
                continue
            if isinstance(holder, asyncio.Future):
                holder.exception()  # marks the exception as retrieved
            unheard.append(failure)
        if unheard:
            count = len(unheard)
            named = [_named(one) for one in unheard[:_MOST_NAMED]]
            if count > _MOST_NAMED:
                named.append(f"and {count - _MOST_NAMED} more")
            raise UnsentMessages(
                f"{counted(count, 'message')} {verb(count, 'was', 'were')} not sent: "
                + "; ".join(named),
                failures=unheard,
            )


def _named(failure: Failure) -> str:
    """Return a description of an unsent message and its error, without its body."""
    told = [f"topic={failure.topic}"]
    message = failure.message
    if isinstance(message, Message):
        names = ("key", message.key), ("ordering_key", message.ordering_key), ("id", message.id)
        told += [printable(f"{name}={value!s:.80}") for name, value in names if value]
    return f"{' '.join(told)}: {failure.error}"


def _copy_of(item: object) -> Message:
    """Return a copy of a message that a middleware may change."""
    if isinstance(item, Message):
        return replace(item, headers=_copied(item.headers))
    return Message(item)


def _copied(headers: Mapping[str, str] | None) -> dict[str, str]:
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
