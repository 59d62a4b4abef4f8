"""``Throttle``: a rate that is kept by due times."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar, Unpack, overload

import ternmq
import ternmq.sync
from ternmq.client.content.message import Receipt
from ternmq.client.content.validation import real
from ternmq.client.declaration.topic import Topic
from ternmq.model.errors import InvalidRequest
from ternmq.reliable.modes.options import (
    ThrottledOptions,
    check_client,
    passed_on,
    session_behind,
)

C = TypeVar("C", ternmq.Client, ternmq.sync.Client)

_SECOND_NS: Final = 1_000_000_000
_MOST_PER_S: Final = 1_000_000
"""Due times are in µs."""
_LEAST_PER_S: Final = 1e-6


class Slots:
    """Moments at equal distances, each given once. Callable from any thread; no I/O.

    Args:
        every_ns: The distance, in ns.
    """

    __slots__ = ("_every_ns", "_lock", "_next_ns")

    def __init__(self, every_ns: int) -> None:
        self._every_ns = every_ns
        self._next_ns = 0
        self._lock = threading.Lock()

    def take(self, now_us: int) -> int:
        """Return how far the next free moment is ahead, in µs, rounded up; 0: it is now.

        Args:
            now_us: The present moment of a clock that does not go back.
        """
        with self._lock:
            slot_ns = max(self._next_ns, now_us * 1000)
            self._next_ns = slot_ns + self._every_ns
        return -((now_us * 1000 - slot_ns) // 1000)


class Throttle(Generic[C]):
    """Sends messages so that they are delivered at a limited rate. Callable from any thread.

    ::

        throttle = Throttle(client, rate=100)
        await throttle.send("sms", {"to": number, "text": text})

    Each message gets the next free slot, ``1 / rate`` seconds after the one before, as its due
    time; if that is over, it is delivered at once. All messages of an object share its slots,
    whatever their topic; objects and processes do not know of each other: divide the rate among
    them. A send that fails has used up its slot.

    Args:
        client: Sends the messages.
        rate: Messages a second, from 0.000001 to 1,000,000.

    Raises:
        InvalidRequest: The client is no client, or the rate is not valid.
    """

    def __init__(self, client: C, *, rate: float) -> None:
        check_client(client)
        per_s = real("rate", rate)
        if not _LEAST_PER_S <= per_s <= _MOST_PER_S:
            raise InvalidRequest(
                f"rate is a number of messages a second, from {_LEAST_PER_S:f} to "
                f"{_MOST_PER_S:,}, not {rate!r}"
            )
        self._client: C = client
        self._rate = per_s
        self._slots = Slots(round(_SECOND_NS / per_s))

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self._rate

    @overload
    def send(
        self: Throttle[ternmq.Client],
        topic: str | Topic,
        body: object,
        *,
        within: object | None = None,
        **options: Unpack[ThrottledOptions],
    ) -> Coroutine[Any, Any, Receipt]: ...

    @overload
    def send(
        self: Throttle[ternmq.sync.Client],
        topic: str | Topic,
        body: object,
        *,
        within: object | None = None,
        **options: Unpack[ThrottledOptions],
    ) -> Receipt: ...

    def send(
        self,
        topic: str | Topic,
        body: object,
        *,
        within: object | None = None,
        **options: Unpack[ThrottledOptions],
    ) -> Receipt | Coroutine[Any, Any, Receipt]:
        """Send a message that is due at the next free slot; returns when it is stored durably.

        To be awaited if the client is a ``ternmq.Client``. The receipt has ``due_at``, or an offset
        if the message was due at once.

        Args:
            topic: The topic.
            body: Bytes, str, or a value that a codec can encode.
            within: The transaction that the message belongs to, as ``within=`` of ``Client.send``.
            options: The arguments of ``Client.send`` but for ``deliver_after`` and ``deliver_at``.

        Raises:
            DueTooFar: Nothing was stored: the next free slot is in more than 731 days.
            TernMQError: As ``Client.send``.
        """
        named = passed_on("Throttle.send", ThrottledOptions, options, within)
        client = self._client
        if isinstance(client, ternmq.sync.Client):
            return client.send(topic, body, deliver_after=self._delay(), **named)
        return self._send(client, topic, body, named)

    async def _send(
        self, client: ternmq.Client, topic: str | Topic, body: object, named: dict[str, Any]
    ) -> Receipt:
        # The slot is taken when the coroutine runs, not when it is made: its delay counts from now.
        return await client.send(topic, body, deliver_after=self._delay(), **named)

    def _delay(self) -> timedelta:
        now_us = session_behind(self._client).broker_time.moment_us()
        return timedelta(microseconds=self._slots.take(now_us))
