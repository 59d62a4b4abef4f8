"""How a client sends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, overload

from ternmq.client import tracing
from ternmq.client.many import ready_bodies
from ternmq.client.message import Failure, Message, Queue, Receipt
from ternmq.client.outgoing import Outgoing
from ternmq.client.parts import Parts
from ternmq.client.selecting import chosen_by, number_of
from ternmq.client.validation import check_message, check_topic
from ternmq.model.errors import (
    BufferFull,
    EncodeError,
    InvalidRequest,
    MessageTooLarge,
    UnsentMessages,
)

_NO_HEADERS: Final[Mapping[str, str]] = {}
_UNKNOWN_BYTES: Final = 16 * 1024 * 1024
"""Largest body while the broker has not said what it takes: the most it can be set to."""


class Sending(Parts):
    """Sending single messages and many, waiting for receipts or not."""

    async def send(
        self,
        topic: str,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        id: str = "",  # noqa: A002
        queue: Queue | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Send a message; returns when it is stored durably.

        Messages sent at the same time (by other tasks) travel and are stored together.

        Args:
            topic: Where to.
            body: Bytes, str, or what a codec can encode.
            key: What it can be looked up by.
            ordering_key: What order is kept by, on ordered topics.
            tag: Second-level kind, for filters.
            headers: Properties.
            content_type: What the body is; by default as its type says.
            id: An identifier of the application's own: a second message with it is not stored
                again, its receipt is marked ``duplicate``.
            queue: Where it goes: the number of a queue, or a function that is given the message
                (as a ``Message``) and the numbers of the topic's queues, and returns one of them;
                it may be asked again when the topic is changed. None: messages of one key share a
                queue, as long as the topic has as many; others go to the queues in turn. Ordered
                topics go by the ordering key, and refuse another queue than its own.
            timeout: Seconds in all; at most (and by default) the client's ``timeout``.

        Raises:
            InvalidName, EncodeError, MessageTooLarge, OrderingKeyRequired: Nothing was sent.
            UnknownQueue: Nothing was sent: the topic does not have that queue.
            CannotConnect: Nothing was sent: there was no connection in time.
            BufferFull: Nothing was sent: too many waited all the time.
            SendTimeout: No answer came in time: whether it is stored is not known.
            TernMQError: The broker's refusal; nothing was stored.
        """
        producer = self._producer
        loop = self._session.loop
        if producer.room.full:
            timeout = self.options.timeout if timeout is None else timeout
            until = loop.time() + timeout
            try:
                async with asyncio.timeout_at(until):
                    await producer.room.wait(loop)
            except TimeoutError:
                raise BufferFull(f"no room within {timeout:g} s: nothing was sent") from None
            timeout = until - loop.time()
        future: asyncio.Future[Receipt] = loop.create_future()
        if timeout is not None and timeout >= self.options.timeout:
            timeout = None
        producer.put(
            topic,
            self._outgoing(body, key, ordering_key, tag, headers, content_type, id, future, queue),
            timeout,
        )
        return await future

    def send_soon(
        self,
        topic: str,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        id: str = "",  # noqa: A002
        queue: Queue | None = None,
    ) -> asyncio.Future[Receipt]:
        """Send a message without waiting; the future is its receipt. See ``send``.

        A failure that nobody waits for is logged, and ``flush`` or closing the client raises
        ``UnsentMessages``.

        Raises:
            BufferFull: Too many wait already.
            InvalidName, EncodeError, MessageTooLarge, OrderingKeyRequired: Nothing was sent.
        """
        producer = self._producer
        producer.room.refuse_when_full()
        future: asyncio.Future[Receipt] = self._session.loop.create_future()
        producer.put(
            topic,
            self._outgoing(body, key, ordering_key, tag, headers, content_type, id, future, queue),
        )
        return future

    def send_oneway(
        self,
        topic: str,
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
            BufferFull: Too many wait already.
            InvalidName, EncodeError, MessageTooLarge, OrderingKeyRequired: Nothing was sent.
        """
        self._producer.room.refuse_when_full()
        self._producer.put(
            topic,
            self._outgoing(body, key, ordering_key, tag, headers, content_type, "", None, queue),
            one_way=True,
        )

    @overload
    async def send_many(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        return_errors: Literal[False] = False,
    ) -> list[Receipt]: ...

    @overload
    async def send_many(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        return_errors: Literal[True],
    ) -> list[Receipt | Exception]: ...

    async def send_many(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        return_errors: bool = False,
    ) -> list[Receipt] | list[Receipt | Exception]:
        """Send many messages; returns when it is known what became of each.

        A message that cannot be sent (its body is too large, or cannot be encoded) does not keep
        the others back: it is one of the failures.

        Args:
            topic: Where to.
            messages: ``Message``, or bare bodies.
            queue: Where those go that do not say it themselves; see ``send``.
            return_errors: Return an exception in the place of each message that was not stored,
                instead of raising.

        Raises:
            PartialSendError: Some were not stored: ``receipts``, ``failures``.
            InvalidName, OrderingKeyRequired, UnknownQueue, CannotConnect: Nothing was sent.
        """
        check_topic(topic)
        if isinstance(messages, str | bytes | bytearray | Mapping):
            kind = type(messages).__name__
            raise InvalidRequest(f"send_many takes a list of messages; one {kind} goes to send")
        items: Sequence[object] = messages if isinstance(messages, list | tuple) else [*messages]
        if not items:
            return []
        ready = None if callable(queue) or tracing.active() else ready_bodies(items)
        if ready is not None and max(map(len, ready)) <= self._most_bytes():
            number = None if queue is None else number_of(queue)
            many = await self._producer.put_many(topic, items, ready, number)
            return many.outcomes() if return_errors else many.outcome()
        encoded, failures = self._encoded(items, queue)
        if failures:
            bad = {failure.row for failure in failures}
            rows = [row for row in range(len(items)) if row not in bad]
            good = await self._producer.put_many(topic, [items[row] for row in rows], encoded)
            many = good.among(items, rows, failures)
        else:
            many = await self._producer.put_many(topic, items, encoded)
        return many.outcomes() if return_errors else many.outcome()

    def _encoded(
        self, items: Sequence[object], queue: Queue | None
    ) -> tuple[list[Outgoing], list[Failure]]:
        """Return the messages that can be sent, and those that cannot."""
        encoded: list[Outgoing] = []
        failures: list[Failure] = []
        for row, item in enumerate(items):
            try:
                encoded.append(self._of_item(item, queue))
            except (EncodeError, InvalidRequest) as error:
                failures.append(Failure(item, row, error))
        return encoded, failures

    def _of_item(self, item: object, queue: Queue | None) -> Outgoing:
        if not isinstance(item, Message):
            return self._outgoing(item, "", "", "", None, "", "", None, queue)
        return self._outgoing(
            item.body,
            item.key,
            item.ordering_key,
            item.tag,
            item.headers,
            item.content_type,
            item.id,
            None,
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
        application_id: str,
        future: asyncio.Future[Receipt] | None,
        queue: Queue | None,
    ) -> Outgoing:
        given = body
        if type(body) is not bytes:
            if body is None:
                raise EncodeError("no body was given: send b'' for an empty one")
            if isinstance(body, Message):
                raise EncodeError("a Message goes to send_many; send takes its body, key= ...")
            body, content_type = self.codecs.encode(body, content_type)
        if headers is None:
            headers = _NO_HEADERS
        if tracing.enabled:
            headers = tracing.sent(headers)
        message = Outgoing(
            body, key, ordering_key, tag, headers, content_type, application_id, future
        )
        if len(body) > self._most_bytes():
            self._check_size(len(body))
        # Compared, not tested for truth: None is no key.
        if headers or not key == ordering_key == tag == content_type == application_id == "":
            check_message(message)
        if queue is not None:
            message.queue = number_of(queue) if not callable(queue) else chosen_by(
                queue,
                Message(given, key, ordering_key, tag, headers, content_type, application_id),
            )  # fmt: skip
        return message

    def _most_bytes(self) -> int:
        welcome = self._session.welcome
        return welcome.body_bytes if welcome is not None else _UNKNOWN_BYTES

    def _check_size(self, size: int) -> None:
        most = self._most_bytes()
        if size > most:
            raise MessageTooLarge(f"a body of {size} bytes; the broker takes {most}")

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until what was sent is answered.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were given up since the last flush, and
                nobody waited for them; or they are not answered within ``timeout`` seconds.
        """
        if not self._session.used:
            return
        if not await self._producer.drained(timeout):
            raise UnsentMessages(f"messages are still on their way after {timeout:g} s")
        self._raise_unsent()

    def _raise_unsent(self) -> None:
        unheard: list[Failure] = []
        for failure in self._producer.take_failures():
            future = failure.message
            if isinstance(future, asyncio.Future):
                # Whoever looked at the future in the meantime knows already.
                if not getattr(future, "_log_traceback", True):
                    continue
                future.exception()
            unheard.append(failure)
        if unheard:
            raise UnsentMessages(
                f"{len(unheard)} messages were not sent; the first: {unheard[0].error}",
                failures=unheard,
            )
