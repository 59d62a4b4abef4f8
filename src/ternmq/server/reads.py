"""READ: rows without a group, at once or when there are some.

A read that waits follows its queue: the core names a queue once when its next rows are durable, and
only who waits for that queue is looked at. Loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ternmq.access import Authoriser
from ternmq.broker.queries import Queries
from ternmq.journal.cold import WouldBlock
from ternmq.model.errors import Busy, CorruptJournal, DiskReadError, RefusedError
from ternmq.server.hub import Hub
from ternmq.server.peer import Peer
from ternmq.server.rows import records_of
from ternmq.server.waits import Ids, Key, check_id, wait_us
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from ternmq.wire.session import Request

Place = tuple[int, int]
"""Numbers of topic and queue."""


class Waiting(NamedTuple):
    """A read that waits."""

    peer: Peer
    request: Request
    until_us: int
    place: Place


class ReadCommands:
    """Handler of READ, and the reads that wait."""

    def __init__(self, hub: Hub, authoriser: Authoriser, queries: Queries, ids: Ids) -> None:
        self._hub = hub
        self._core = hub.core
        self._broker = hub.core.broker
        self._authoriser = authoriser
        self._queries = queries
        self._waiting: dict[Key, Waiting] = {}
        self._of: dict[Peer, dict[int, None]] = {}
        """Request ids by connection."""
        self._ids = ids
        self._at: dict[Place, dict[Key, None]] = {}
        """Who waits at which queue."""
        self._ends: dict[Key, Callable[[], None]] = {}
        """What cancels the timers of ``_waiting``."""

    def read(self, peer: Peer, request: Request) -> None:
        """READ: rows from an offset on, or wait for some."""
        asked = bodies.unpack_read(request.body)
        self._authoriser.check(peer.app, Command.READ, asked.topic)
        check_id(self._ids, peer, request)
        now = self._core.now_us()
        until_us = request.until_us or now + wait_us(asked.wait_ms)
        if asked.topic not in peer.topics:
            peer.uses(asked.topic)
        if not self._answered(peer, request, even_empty=until_us <= now):
            self._park(peer, request, until_us)

    def _answered(self, peer: Peer, request: Request, *, even_empty: bool) -> bool:
        """Answer a read if there is something, or if it may be empty; return whether it was."""
        asked = bodies.unpack_read(request.body)
        broker = self._broker
        limits = broker.limits
        found = self._queries.read(
            asked.topic,
            asked.queue,
            asked.offset,
            min(max(asked.max_messages, 1), limits.pull_messages),
            min(asked.max_bytes or limits.pull_bytes, limits.pull_bytes),
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
        most = self._broker.limits.waiters
        if len(self._waiting) >= most:
            raise Busy(f"there are {most} waiting reads")
        asked = bodies.unpack_read(request.body)
        queue = self._broker.views.catalog.topic(asked.topic).queues[asked.queue]
        place = queue.topic.number, queue.number
        key = (peer, request.id)
        self._waiting[key] = Waiting(peer, request, until_us, place)
        self._ids.add(key)
        self._of.setdefault(peer, {})[request.id] = None
        self._at.setdefault(place, {})[key] = None
        self._broker.parking.follow(queue)
        self._end_at(key, until_us)
        peer.park(request)

    def _unpark(self, key: Key) -> Waiting:
        """Take a read that waits out."""
        self._ends.pop(key)()
        waiting = self._waiting.pop(key)
        self._ids.discard(key)
        peer, id_ = key
        del self._of[peer][id_]
        if not self._of[peer]:
            del self._of[peer]
        there = self._at[waiting.place]
        del there[key]
        if not there:
            del self._at[waiting.place]
        waiting.peer.unpark(waiting.request)
        return waiting

    def wake(self) -> None:
        """Answer the reads that wait at queues with new rows."""
        grown = self._broker.parking.grown
        while grown:
            queue = grown.pop()
            place = queue.topic.number, queue.number
            for key in list(self._at.get(place, ())):
                self._look_again(key)
            if place in self._at:
                self._broker.parking.follow(queue)

    def _end_at(self, key: Key, until_us: int) -> None:
        core = self._core
        at = core.clocks.monotonic_us() + max(0, until_us - core.now_us())
        self._ends[key] = core.clocks.call_at(at, partial(self._time_over, key))

    def _time_over(self, key: Key) -> None:
        """Look at a read whose time should be over; the clocks may have drifted apart."""
        until_us = self._waiting[key].until_us
        if self._core.now_us() < until_us:
            self._end_at(key, until_us)
            self._core.touch()
        else:
            self._look_again(key)

    def _look_again(self, key: Key) -> None:
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        peer, request, until_us, _ = waiting
        core = self._core
        core.touch()
        if not peer.roomy:
            self._unpark(key)
            peer.put_back(request._replace(until_us=until_us))
            return
        try:
            asked = bodies.unpack_read(request.body)
            self._authoriser.check(peer.app, Command.READ, asked.topic)
            if self._answered(peer, request, even_empty=core.now_us() >= until_us):
                self._unpark(key)
        except WouldBlock as blocked:
            core.read_first(blocked, partial(self._look_again, key))
        except RefusedError as error:
            self._unpark(key)
            peer.refuse(request, error)
        except (DiskReadError, CorruptJournal) as error:
            self._unpark(key)
            peer.refuse(request, core.unreadable(error))

    def end(self, peer: Peer, id_: int) -> None:
        """Answer a read that waits at once, with what there is."""
        if (peer, id_) in self._waiting:
            request = self._unpark((peer, id_)).request
            self._hub.commands.read(peer, request._replace(until_us=1))

    def end_all(self, peer: Peer) -> None:
        """Answer all reads of a connection that wait."""
        for id_ in list(self._of.get(peer, ())):
            self.end(peer, id_)

    def withdraw(self, peer: Peer) -> list[Request]:
        """Take a connection's waiting reads back."""
        requests: list[Request] = []
        for id_ in list(self._of.get(peer, ())):
            waiting = self._unpark((peer, id_))
            requests.append(waiting.request._replace(until_us=waiting.until_us))
        return requests
