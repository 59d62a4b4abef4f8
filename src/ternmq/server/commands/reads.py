"""READ: rows without a group, at once or when there are some.

A parked read follows its queue: the core reports a queue once when its next rows are durable, and
only reads that wait for that queue are checked.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ternmq.access import Authoriser
from ternmq.broker.query.messages import Queries
from ternmq.server.commands.rows import records_of
from ternmq.server.commands.waits import Wait, Waiting, check_id, wait_us
from ternmq.server.desk.desk import ReadingDesk
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller
from ternmq.wire.session import Request

WOKEN: Final = 256
"""Reads at queues with new rows that are taken up in a turn; see then ``LateReads``."""
MIXED_ROWS: Final = 1024
MIXED_BYTES: Final = 1 << 20
"""Most rows and bytes of an answer while other apps have little work: 10,000 small messages, or
8 MiB, take 6 to 10 ms to gather, and all other requests wait meanwhile."""
QueueNumbers = tuple[int, int]
"""Numbers of topic and queue."""


class ReadCommands:
    """Handler of READ, and parked reads. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: ReadingDesk, authoriser: Authoriser, queries: Queries) -> None:
        self._desk = desk
        self._core = desk.core
        self._broker = desk.core.broker
        self._authoriser = authoriser
        self._queries = queries
        self.waiting: Waiting[QueueNumbers] = Waiting(
            desk.core, desk.waiting, self._end, withdrawn=self._left, over=self._again
        )
        self._at: dict[QueueNumbers, dict[Wait[QueueNumbers], None]] = {}
        """The reads that wait at each queue."""
        self.grown: deque[Wait[QueueNumbers]] = deque()
        """Reads that waited at queues with new rows; some of them are over by now."""

    def read(self, caller: Caller, request: Request) -> None:
        """READ: answer with rows from an offset on, or wait for some."""
        asked = bodies.unpack_read(request.body)
        self._authoriser.check(caller.app, Command.READ, asked.topic)
        check_id(caller, request)
        now = self._core.now_us()
        until_us = request.until_us or now + wait_us(asked.wait_ms)
        if asked.topic not in caller.topics:
            caller.uses(asked.topic)
        if not self._answered(caller, request, even_empty=until_us <= now):
            self._park(caller, request, until_us)

    def _answered(self, caller: Caller, request: Request, *, even_empty: bool) -> bool:
        """Answer a read if it finds rows or ``even_empty``; return whether it was answered."""
        asked = bodies.unpack_read(request.body)
        broker = self._broker
        limits = broker.limits
        most, most_bytes = limits.pull_messages, limits.pull_bytes
        if self._desk.accounts.mixed:
            most, most_bytes = min(most, MIXED_ROWS), min(most_bytes, MIXED_BYTES)
        found = self._queries.read(
            asked.topic,
            asked.queue,
            asked.offset,
            min(max(asked.max_messages, 1), most),
            min(asked.max_bytes or most_bytes, most_bytes),
        )
        if found.stop <= found.start and not even_empty:
            return False
        topic = broker.views.catalog.topic(asked.topic)
        queue = topic.queues[asked.queue]
        end = queue.next
        if queue.end > broker.journal.committed:
            end = broker.index.visible(topic.number, asked.queue, broker.journal.committed)
        records = []
        if found.stop > found.start:
            records = records_of(
                broker, topic, asked.queue, [(found.start, found.stop)], [found.places]
            )
        head = bodies.rows_head(
            topic.number, asked.queue, found.start, found.stop, queue.first, end
        )
        caller.answer(request, b"".join([head, *records]))
        return True

    # -- waiting ----------------------------------------------------------------------------------

    def _park(self, caller: Caller, request: Request, until_us: int) -> None:
        asked = bodies.unpack_read(request.body)
        queue = self._broker.views.catalog.topic(asked.topic).queues[asked.queue]
        self.waiting.take_place(caller)
        place = queue.topic.number, queue.number
        wait = self.waiting.add(caller, request, until_us, place)
        self._at.setdefault(place, {})[wait] = None
        self._broker.parking.follow(queue)

    def _left(self, wait: Wait[QueueNumbers]) -> None:
        """A read waits no longer: its queue need not be watched for it."""
        there = self._at[wait.what]
        del there[wait]
        if not there:
            del self._at[wait.what]

    def wake(self) -> None:
        """Queue the reads for queues with new rows; they run late in this turn or the next."""
        grown = self._broker.parking.grown
        while grown:
            queue = grown.pop()
            place = queue.topic.number, queue.number
            self.grown.extend(self._at.get(place, ()))
        for _ in range(min(WOKEN, len(self.grown))):
            wait = self.grown.popleft()
            if not wait.over:
                self._again(wait)
        if self.grown:
            self._core.touch()

    def _again(self, wait: Wait[QueueNumbers]) -> None:
        """Queue a parked read, to run late in this turn or the next; it may be parked again."""
        self.waiting.remove(wait)
        self._left(wait)
        self._desk.late.put(wait.caller, wait.again)

    def _end(self, wait: Wait[QueueNumbers]) -> None:
        """Answer a read at once, with what there is."""
        self._left(wait)
        self._desk.commands.read(wait.caller, wait.request.until(1))
