"""The commands that move messages: send, pull, settle, extend, read, cancel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from ternmq.access import Authoriser
from ternmq.broker.queries import Queries
from ternmq.broker.replies import PullReply, Rests
from ternmq.journal.cold import WouldBlock
from ternmq.model.errors import (
    InvalidRequest,
    JournalFull,
    MessageNotFound,
    MessageTooLarge,
    RefusedError,
    UnknownTopic,
)
from ternmq.model.specs import check_name
from ternmq.record.batch import Batch, BatchError, Column
from ternmq.record.facts import Outcome
from ternmq.server.connection import Connection, Handler, Hub
from ternmq.server.rows import records_of
from ternmq.wire import bodies
from ternmq.wire.bodies import Pull, Read
from ternmq.wire.commands import Command
from ternmq.wire.session import Request

_OUTCOMES: Final = {
    int(one): one for one in (Outcome.DONE, Outcome.RETRY, Outcome.DEAD, Outcome.RELEASED)
}
MAX_WAIT_MS: Final = 300_000


class Parked(NamedTuple):
    """A pull that waits in the core, or a read that waits here."""

    peer: Connection
    request: Request
    until_us: int


class MessageCommands:
    """Handlers of the message commands. Loop only."""

    def __init__(self, hub: Hub, authoriser: Authoriser, queries: Queries) -> None:
        self._hub = hub
        self._core = hub.core
        self._broker = hub.core.broker
        self._authoriser = authoriser
        self._queries = queries
        self._parked: dict[int, Parked] = {}
        """By the core's token."""
        self._tokens: dict[tuple[Connection, int], int] = {}
        """Tokens by connection and request id."""
        self._readers: dict[tuple[Connection, int], Parked] = {}
        self._ends: dict[tuple[Connection, int], Callable[[], None]] = {}
        """What cancels the timers of ``_readers``."""
        self._waking = False
        hub.core.on_woken = self.wake
        self.handlers: dict[Command, Handler] = {
            Command.SEND: self.send,
            Command.PULL: self.pull,
            Command.SETTLE: self.settle,
            Command.EXTEND: self.extend,
            Command.READ: self.read,
            Command.CANCEL: self.cancel,
        }

    # -- send -------------------------------------------------------------------------------------

    def send(self, peer: Connection, request: Request) -> None:
        """SEND: store a batch; answered when it is durable (``fast``: written)."""
        topic, queue, batch = bodies.unpack_send(request.body)
        self._authoriser.check(peer.app, Command.SEND, topic)
        settings = self._hub.settings
        if len(batch) > settings.body_bytes:
            _check_bodies(batch, settings.body_bytes)
        now = self._core.now_us()
        try:
            reply = self._broker.send(now, topic, batch, queue)
        except UnknownTopic:
            if not settings.create_topics:
                raise
            self._broker.create_topic(now, settings.topic_spec(check_name(topic)))
            reply = self._broker.send(now, topic, batch, queue)
        counters = self._hub.counters
        counters.sends += 1
        counters.sent_rows += reply.count
        counters.send_bytes += len(batch)
        if request.one_way:
            return
        body = bodies.pack_receipt(
            bodies.Receipt(
                reply.first_offset,
                reply.topic,
                reply.queue,
                reply.count,
                reply.duplicate,
                reply.rests is Rests.WRITTEN,
                tuple([bodies.ReceiptRow(*row) for row in reply.rows]),
            )
        )
        peer.answer(request, body, reply.position, reply.rests)

    def _check_id(self, peer: Connection, request: Request) -> None:
        """Refuse to wait twice under one id: the first could not be found any more."""
        key = (peer, request.id)
        if key in self._tokens or key in self._readers:
            raise InvalidRequest(f"a request with id {request.id} waits already")

    # -- pull -------------------------------------------------------------------------------------

    def pull(self, peer: Connection, request: Request) -> None:
        """PULL: lease rows, or wait for some."""
        asked = bodies.unpack_pull(request.body)
        self._authoriser.check(peer.app, Command.PULL, asked.topic, asked.group)
        self._check_id(peer, request)
        self._pull(peer, request, asked, self._core.now_us() + _wait_us(asked.wait_ms))

    def _pull(self, peer: Connection, request: Request, asked: Pull, until_us: int) -> None:
        broker, now = self._broker, self._core.now_us()
        most = asked.max_bytes or broker.limits.pull_bytes
        messages = min(asked.max_messages, broker.limits.pull_messages)
        reply = broker.pull(
            now, peer.session, asked.topic, asked.group, messages, most, asked.queue
        )
        if reply is None and until_us > now and asked.queue is None:
            token = broker.park(peer.session, asked.topic, asked.group, messages, most, until_us)
            self._parked[token] = Parked(peer, request, until_us)
            self._tokens[peer, request.id] = token
            return
        self._hand_out(peer, request, asked, reply)

    def _hand_out(
        self, peer: Connection, request: Request, asked: Pull, reply: PullReply | None
    ) -> None:
        """Answer a pull with what was leased; gives it back if that is nobody's any more."""
        now = self._core.now_us()
        if reply is None:
            peer.answer(request, self.nothing())
            return
        if peer.closed:
            self._give_back(peer, asked, reply)
            return
        topic = self._broker.views.catalog.topics.get(reply.topic)
        spans = [(start, stop) for start, stop, _, _ in reply.runs]
        if topic is None:
            peer.refuse(request, UnknownTopic(f"topic {asked.topic!r} was deleted"))
            return
        try:
            records = records_of(self._broker, topic, reply.queue, spans, reply.places)
        except WouldBlock as blocked:
            most = self._broker.limits.pull_bytes
            size = min(asked.max_bytes or most, most)
            peer.expect(size)
            self._core.read_first(
                blocked, partial(self._read_on, peer, request, asked, reply, size)
            )
            return
        except MessageNotFound as error:
            peer.refuse(request, error)
            return
        head = bodies.delivery_head(
            reply.topic,
            reply.queue,
            reply.epoch,
            reply.lease,
            reply.until_us,
            now,
            reply.suspect_below,
            reply.runs,
        )
        counters = self._hub.counters
        counters.pulls += 1
        counters.delivered_rows[asked.topic, asked.group] += sum(
            [stop - start for start, stop in spans]
        )
        peer.answer(request, b"".join([head, *records]), reply.position, reply.rests)

    def _read_on(
        self, peer: Connection, request: Request, asked: Pull, reply: PullReply, size: int
    ) -> None:
        """Go on with a pull whose rows have been read from the disk."""
        peer.expect(-size)
        self._hand_out(peer, request, asked, reply)

    def _give_back(self, peer: Connection, asked: Pull, reply: PullReply) -> None:
        """Release what was leased for a connection that is gone."""
        # Refused, the lease ends by its session or its time.
        with contextlib.suppress(RefusedError, JournalFull):
            self._broker.settle(
                self._core.now_us(),
                peer.session,
                asked.topic,
                asked.group,
                reply.queue,
                reply.epoch,
                reply.lease,
                Outcome.RELEASED,
            )

    def wake(self) -> None:
        """Answer the parked pulls that are over, and the reads that have something to read."""
        core = self._core
        if not self._waking:
            while True:
                try:
                    over = self._broker.woken_pulls(core.now_us())
                except WouldBlock as blocked:
                    self._waking = True
                    core.read_first(blocked, self._woken_read)
                    break
                if not over:
                    break
                for token, reply in over:
                    self._over(token, reply)
        if core.committed_rows:
            core.committed_rows = False
            for key in list(self._readers):
                self._look_again(key)

    def _woken_read(self) -> None:
        self._waking = False

    def _over(self, token: int, reply: PullReply | None) -> None:
        parked = self._parked.pop(token)
        peer, request = parked.peer, parked.request
        self._tokens.pop((peer, request.id), None)
        asked = bodies.unpack_pull(request.body)
        if reply is not None:
            try:  # its grants may be others by now
                self._authoriser.check(peer.app, Command.PULL, asked.topic, asked.group)
            except RefusedError as error:
                self._give_back(peer, asked, reply)
                peer.refuse(request, error)
                return
        if reply is not None and not peer.roomy and not peer.closed:
            # Others of its pulls woke in this turn: this one asks again when their answers are out.
            self._give_back(peer, asked, reply)
            peer.put_back(request)
            return
        self._hand_out(peer, request, asked, reply)

    def cancel(self, peer: Connection, request: Request) -> None:
        """CANCEL: answer a waiting pull or read at once; then this."""
        id_ = bodies.unpack_cancel(request.body)
        token = self._tokens.pop((peer, id_), None)
        if token is not None:
            parked = self._parked.pop(token)
            self._broker.cancel(token)
            self._hand_out(peer, parked.request, bodies.unpack_pull(parked.request.body), None)
        if (peer, id_) in self._readers:
            self._read(peer, self._unpark((peer, id_)).request, 0)
        peer.answer(request, b"")

    def withdraw(self, peer: Connection) -> list[Request]:
        """Take a connection's parked pulls and reads back."""
        requests: list[Request] = []
        for key in [one for one in self._tokens if one[0] is peer]:
            token = self._tokens.pop(key)
            requests.append(self._parked.pop(token).request)
            self._broker.cancel(token)
        for key in [one for one in self._readers if one[0] is peer]:
            requests.append(self._unpark(key).request)
        return requests

    def _unpark(self, key: tuple[Connection, int]) -> Parked:
        """Take a read that waits out."""
        self._ends.pop(key)()
        return self._readers.pop(key)

    def nothing(self) -> bytes:
        """Return the answer to a pull that nothing came to."""
        return bodies.delivery_head(0, 0, 0, 0, 0, self._core.now_us(), 0, ())

    def gone(self, peer: Connection) -> None:
        """A connection is lost: nothing waits for it any more."""
        self.withdraw(peer)

    @property
    def waiting(self) -> int:
        """How many reads wait here (the core counts the pulls)."""
        return len(self._readers)

    # -- settle -----------------------------------------------------------------------------------

    def settle(self, peer: Connection, request: Request) -> None:
        """SETTLE: say what became of rows; answered when that is durable."""
        asked = bodies.unpack_settle(request.body)
        self._authoriser.check(peer.app, Command.SETTLE, asked.topic, asked.group)
        outcome = _OUTCOMES.get(asked.outcome)
        if outcome is None:
            raise InvalidRequest(f"outcome {asked.outcome} is none that a consumer may state")
        reply = self._broker.settle(
            self._core.now_us(),
            peer.session,
            asked.topic,
            asked.group,
            asked.queue,
            asked.epoch,
            asked.lease,
            outcome,
            asked.spans or None,
            delay_us=asked.delay_us,
            reason=asked.reason,
        )
        rows = sum([run[1] - run[0] for run in reply.settled])
        self._hub.counters.settled_rows[asked.topic, asked.group, outcome.name.lower()] += rows
        peer.answer(request, bodies.pack_settled(rows, reply.refused), reply.position, reply.rests)

    def extend(self, peer: Connection, request: Request) -> None:
        """EXTEND: let a lease last longer."""
        asked = bodies.unpack_extend(request.body)
        self._authoriser.check(peer.app, Command.EXTEND, asked.topic, asked.group)
        now = self._core.now_us()
        reply = self._broker.extend(
            now,
            peer.session,
            asked.topic,
            asked.group,
            asked.queue,
            asked.epoch,
            asked.lease,
            asked.extension_us,
        )
        until = reply.value if isinstance(reply.value, int) else now + asked.extension_us
        peer.answer(request, bodies.pack_extended(until, now), reply.position, reply.rests)

    # -- read -------------------------------------------------------------------------------------

    def read(self, peer: Connection, request: Request) -> None:
        """READ: rows from an offset on, or wait for some."""
        asked = bodies.unpack_read(request.body)
        self._authoriser.check(peer.app, Command.READ, asked.topic)
        self._check_id(peer, request)
        self._read(peer, request, self._core.now_us() + _wait_us(asked.wait_ms))

    def _read(self, peer: Connection, request: Request, until_us: int) -> None:
        asked: Read = bodies.unpack_read(request.body)
        broker = self._broker
        limits = broker.limits
        found = self._queries.read(
            asked.topic,
            asked.queue,
            asked.offset,
            min(max(asked.max_messages, 1), limits.pull_messages),
            min(asked.max_bytes or limits.pull_bytes, limits.pull_bytes),
        )
        if found.stop <= found.start and until_us > self._core.now_us():
            key = (peer, request.id)
            if key not in self._readers:
                self._end_at(key, until_us)
            self._readers[key] = Parked(peer, request, until_us)
            return
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

    def _end_at(self, key: tuple[Connection, int], until_us: int) -> None:
        core = self._core
        at = core.clocks.monotonic_us() + max(0, until_us - core.now_us())
        self._ends[key] = core.clocks.call_at(at, partial(self._time_over, key))

    def _time_over(self, key: tuple[Connection, int]) -> None:
        """Look at a read whose time should be over; the clocks may have drifted apart."""
        until_us = self._readers[key].until_us
        if self._core.now_us() < until_us:
            self._end_at(key, until_us)
            self._core.touch()
        else:
            self._look_again(key)

    def _look_again(self, key: tuple[Connection, int]) -> None:
        parked = self._readers.get(key)
        if parked is None:
            return
        peer, request, until_us = parked
        asked = bodies.unpack_read(request.body)
        if not peer.roomy:
            self._unpark(key)
            peer.put_back(request)
            return
        try:
            self._authoriser.check(peer.app, Command.READ, asked.topic)
            if self._core.now_us() >= until_us:
                self._read(peer, request, 0)
            else:
                self._read(peer, request, until_us)
            if self._readers.get(key) is parked:
                self._unpark(key)
        except WouldBlock as blocked:
            self._core.read_first(blocked, partial(self._look_again, key))
        except RefusedError as error:
            self._unpark(key)
            peer.refuse(request, error)
        self._core.touch()


def _wait_us(wait_ms: int) -> int:
    if wait_ms > MAX_WAIT_MS:
        raise InvalidRequest(f"wait_ms may be at most {MAX_WAIT_MS}")
    return wait_ms * 1000


def _check_bodies(batch: bytes, limit: int) -> None:
    """Refuse a batch with a body above the limit; only asked of batches that may have one."""
    try:
        whole = Batch(batch)
        offsets = np.frombuffer(batch, "<i4", whole.count + 1, whole.start(Column.BODIES))
    except (BatchError, ValueError, IndexError):
        return  # the core refuses it, with the reason
    longest = int(np.diff(offsets).max())
    if longest > limit:
        raise MessageTooLarge(f"a body of {longest} bytes, at most {limit} are allowed")
