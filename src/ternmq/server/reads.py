"""READ: rows without a group, at once or when there are some.

A parked read follows its queue: the core reports a queue once when its next rows are durable, and
only reads that wait for that queue are checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from ternmq.access import Authoriser
from ternmq.broker.queries import Queries
from ternmq.server.hub import Hub
from ternmq.server.peer import Peer
from ternmq.server.rows import records_of
from ternmq.server.waits import Key, check_id, take_place, wait_us
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from ternmq.wire.session import Request

WOKEN: Final = 256
"""Most reads for queues with new rows that one turn passes to ``Hub.read_late``."""
MIXED_ROWS: Final = 1024
MIXED_BYTES: Final = 1 << 20
"""Most rows and bytes of an answer while other apps have little work: 10,000 small messages, or
8 MiB, take 6 to 10 ms to gather, and all other requests wait meanwhile."""
Place = tuple[int, int]
"""Numbers of topic and queue."""


class Waiting(NamedTuple):
    """A parked read."""

    peer: Peer
    request: Request
    until_us: int
    place: Place


class ReadCommands:
    """Handler of READ, and parked reads. Not thread-safe: call it from the broker's loop."""

    def __init__(self, hub: Hub, authoriser: Authoriser, queries: Queries) -> None:
        self._hub = hub
        self._core = hub.core
        self._broker = hub.core.broker
        self._authoriser = authoriser
        self._queries = queries
        self._waiting: dict[Key, Waiting] = {}
        self._of: dict[Peer, dict[int, None]] = {}
        """Connection -> request ids of its parked reads."""
        self._at: dict[Place, dict[Key, None]] = {}
        """Queue -> the reads that wait for its next rows."""
        self._grown: deque[Key] = deque()
        """Reads whose queue got new rows; some of them may have ended since."""
        self._ends: dict[Key, Callable[[], None]] = {}
        """Functions that cancel the timers of ``_waiting``."""

    @property
    def woken(self) -> bool:
        """Whether parked reads are to be checked in the next turn."""
        return bool(self._grown)

    def read(self, peer: Peer, request: Request) -> None:
        """READ: answer with rows from an offset on, or wait for some."""
        asked = bodies.unpack_read(request.body)
        self._authoriser.check(peer.app, Command.READ, asked.topic)
        check_id(peer, request)
        now = self._core.now_us()
        until_us = request.until_us or now + wait_us(asked.wait_ms)
        if asked.topic not in peer.topics:
            peer.uses(asked.topic)
        if not self._answered(peer, request, even_empty=until_us <= now):
            self._park(peer, request, until_us)

    def _answered(self, peer: Peer, request: Request, *, even_empty: bool) -> bool:
        """Answer a read if it finds rows or ``even_empty``; return whether it was answered."""
        asked = bodies.unpack_read(request.body)
        broker = self._broker
        limits = broker.limits
        most, most_bytes = limits.pull_messages, limits.pull_bytes
        if self._hub.ledgers.mixed:
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
        if queue.end > broker.journal.durable:
            end = broker.index.visible(topic.number, asked.queue, broker.journal.durable)
        records = []
        if found.stop > found.start:
            records = records_of(
                broker, topic, asked.queue, [(found.start, found.stop)], [found.places]
            )
        head = bodies.rows_head(
            topic.number, asked.queue, found.start, found.stop, queue.first, end
        )
        peer.answer(request, b"".join([head, *records]))
        return True

    # -- waiting ----------------------------------------------------------------------------------

    def _park(self, peer: Peer, request: Request, until_us: int) -> None:
        asked = bodies.unpack_read(request.body)
        queue = self._broker.views.catalog.topic(asked.topic).queues[asked.queue]
        take_place(self._hub, peer)
        place = queue.topic.number, queue.number
        key = (peer, request.id)
        self._waiting[key] = Waiting(peer, request, until_us, place)
        peer.waiting.add(request.id)
        self._of.setdefault(peer, {})[request.id] = None
        self._at.setdefault(place, {})[key] = None
        self._broker.parking.follow(queue)
        self._end_at(key, until_us)
        peer.park(request)

    def _unpark(self, key: Key) -> Waiting:
        """Remove a parked read and return it."""
        self._ends.pop(key)()
        waiting = self._waiting.pop(key)
        waiting.peer.waiting.discard(waiting.request.id)
        peer, id_ = key
        del self._of[peer][id_]
        if not self._of[peer]:
            del self._of[peer]
        there = self._at[waiting.place]
        del there[key]
        if not there:
            del self._at[waiting.place]
        self._hub.waiting.give(peer.app)
        peer.unpark(waiting.request)
        return waiting

    def wake(self) -> None:
        """Queue the reads for queues with new rows; they run late in this turn or the next."""
        grown = self._broker.parking.grown
        while grown:
            queue = grown.pop()
            place = queue.topic.number, queue.number
            self._grown.extend(self._at.get(place, ()))
        for _ in range(min(WOKEN, len(self._grown))):
            key = self._grown.popleft()
            if key in self._waiting:
                self._again(key)
        if self._grown:
            self._core.touch()

    def _end_at(self, key: Key, until_us: int) -> None:
        core = self._core
        at = core.clocks.monotonic_us() + max(0, until_us - core.now_us())
        self._ends[key] = core.clocks.call_at(at, partial(self._time_over, key))

    def _time_over(self, key: Key) -> None:
        """Run a read again whose time is over; set the timer again if broker time is behind it."""
        until_us = self._waiting[key].until_us
        if self._core.now_us() < until_us:
            self._end_at(key, until_us)
            self._core.touch()
        else:
            self._again(key)

    def _again(self, key: Key) -> None:
        """Queue a parked read, to run late in this turn or the next; it may be parked again."""
        waiting = self._unpark(key)
        again = waiting.request.until(waiting.until_us)
        self._hub.read_late(waiting.peer, again)

    def end(self, peer: Peer, id_: int) -> None:
        """Answer a parked read at once, with the rows that there are."""
        if (peer, id_) in self._waiting:
            request = self._unpark((peer, id_)).request
            self._hub.commands.read(peer, request.until(1))

    def end_all(self, peer: Peer) -> None:
        """Answer all parked reads of a connection at once."""
        for id_ in list(self._of.get(peer, ())):
            self.end(peer, id_)

    def withdraw(self, peer: Peer) -> list[Request]:
        """Take a connection's parked reads back, to run again later; they keep their deadlines."""
        requests: list[Request] = []
        for id_ in list(self._of.get(peer, ())):
            waiting = self._unpark((peer, id_))
            requests.append(waiting.request.until(waiting.until_us))
        return requests
