"""Asks a broker for numbers of topics; ``ternmq.reliable.Ids`` hands them out one by one.

A client has one reserve, of all topics together: a range of numbers that no other client ever gets.
The first request for numbers asks for it.
"""

from __future__ import annotations

import threading

from ternmq.client.connection.session import Session
from ternmq.client.declaration.making import Making
from ternmq.model.errors import UnknownTopic
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control import NumbersTaken


class Reserve:
    """A range of numbers for the time in which no broker answers. Callable from any thread."""

    __slots__ = ("_asked", "_lock", "_next", "_stop")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = self._stop = 0
        self._asked = False

    def take(self) -> int | None:
        """Return the next number; None: none is left, or none was given yet."""
        with self._lock:
            number = self._next
            if number == self._stop:
                return None
            self._next += 1
            return number

    def ask(self) -> bool:
        """Return whether to ask for a range: it has no number, and nobody else asks just now."""
        with self._lock:
            wanted = self._next == self._stop and not self._asked
            self._asked = self._asked or wanted
            return wanted

    def answered(self, first: int, count: int) -> None:
        """Take over the range that was asked for; ``count`` 0: there is none."""
        with self._lock:
            self._asked = False
            if count:
                self._next, self._stop = first, first + count

    @property
    def there(self) -> bool:
        """Whether it has a number."""
        return self._next < self._stop


class NumberSource:
    """Numbers of topics. Not thread-safe: call it from the client's loop, unless noted.

    Attributes:
        reserve: The client's reserve. Callable from any thread.
    """

    __slots__ = ("_making", "_session", "reserve")

    def __init__(self, session: Session, making: Making) -> None:
        self._session = session
        self._making = making
        self.reserve = Reserve()

    @property
    def reached(self) -> bool:
        """Whether the client was ever connected. Callable from any thread."""
        return self._session.welcome is not None

    def bind(self) -> None:
        """Bind the client to the running loop, or check that it is its loop.

        Raises:
            ClientForked, ClientClosed, WrongEventLoop: It cannot be used here.
        """
        self._session.bind()

    async def take(self, topic: str, count: int) -> NumbersTaken:
        """Return a block of a topic's numbers, which is durable; nobody gets them again.

        It asks for the reserve as well, unless the client has it. A topic that is declared and
        missing is created, as for a send.

        Raises:
            CannotConnect, ConnectionLost: No broker answered within the client's timeout.
            TernMQError: The broker refused it; a temporary refusal is raised after the timeout.
        """
        self.bind()
        reserve = self.reserve.ask()
        try:
            try:
                taken = await self._ask(topic, count, reserve=reserve)
            except UnknownTopic:
                found = await self._making.found(topic)
                if not found.topics:
                    raise
                taken = await self._ask(topic, count, reserve=reserve)
        except BaseException:
            if reserve:
                self.reserve.answered(0, 0)
            raise
        if reserve:
            self.reserve.answered(taken.reserve_first, taken.reserve_count)
        return taken

    async def _ask(self, topic: str, count: int, *, reserve: bool) -> NumbersTaken:
        asked = control.NumbersTake(topic=topic, count=count, reserve=reserve)
        return await self._session.control(Command.NUMBERS_TAKE, asked, NumbersTaken)
