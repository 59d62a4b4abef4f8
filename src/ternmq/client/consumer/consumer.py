"""Deliveries of a group one by one, pulled ahead of the code that processes them.

A consumer holds at most ``max_in_flight`` unsettled messages. The next pull is sent as soon as half
of them are settled, so that the broker works on it while the rest is processed. Without
``max_in_flight`` a consumer requests as many messages as its tasks wait for, and ahead of them as
many as ``prefetch`` computes; messages that no task begins within a second go back to the group all
the same. In a group of mode ordered a message waits here while one of the same ordering key is
unsettled, in one that locks queues while one of the same queue is; when one fails, those that wait
for it are given up too, since the broker ends their leases as well.

A consumer that processes ``at_once`` messages at a time states this in each pull. They are begun in
the order of hand-out, so if this process dies, the broker knows which of them may have been begun:
only those have used up an attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import _get_running_loop as running_loop  # called for every message: raises nothing
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, Self

from ternmq.client.connection.link import Link
from ternmq.client.connection.raising import own
from ternmq.client.connection.session import Member
from ternmq.client.consumer.awake import LATE_S, Awake
from ternmq.client.consumer.deliveries import Leased
from ternmq.client.consumer.delivery import Delivery, begun_before
from ternmq.client.consumer.lease import Lease
from ternmq.client.consumer.prefetch import LONGEST_S, Prefetch
from ternmq.client.consumer.puller import LONGEST_WAIT, Puller, give_back, pull_body
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.validation import check_in_flight
from ternmq.client.declaration.source import Source
from ternmq.model.errors import InstanceTaken, InvalidRequest, NotOwner, NotPrimary, TernMQError
from ternmq.model.specs import Mode
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")

NOT_ENTERED: Final = "use it as `{} client.consume(...) as deliveries`"
UNSETTLED: Final = 64
"""Messages that a program may hold unsettled, if ``max_in_flight`` is None."""
_PAUSE: Final = 0.2
_SETTLE_TIMEOUT: Final = 5.0
_WOKEN_AT_ONCE: Final = 2


class ConsumerEngine(Member):
    """Pulls deliveries of a group, and hands them out. One event loop only.

    ``Consumer`` in ``consuming`` is the part of it that programs use.
    """

    def __init__(
        self,
        puller: Puller,
        source: Source,
        codecs: Codecs,
        max_in_flight: int | None,
        *,
        workers: int = 1,
        at_once: int = 0,
    ) -> None:
        """Make a consumer that has not joined its group yet.

        ``workers`` is the number of messages it is asked for at one time. ``at_once`` is the same
        if it is certain that no more are begun, else 0: the application may have begun any of them.
        """
        prefetch = Prefetch(workers) if max_in_flight is None else None
        max_in_flight = max(UNSETTLED, 2 * workers) if max_in_flight is None else max_in_flight
        check_in_flight(max_in_flight)
        self.source = source
        self._at_once = at_once
        self._puller = puller
        self._session = puller.session
        self._codecs = codecs
        self._most = max_in_flight
        self._workers = workers
        self._prefetch = prefetch
        self._timed: tuple[Lease, int] | None = None
        """Lease and offset of the message that ``prefetch`` times."""
        self._looking: asyncio.TimerHandle | None = None
        # Pull after a settle if at most this many are left: ready ones, or unsettled ones in all.
        self._few_ready = 0
        self._few = max_in_flight // 2 if prefetch is None else 0
        self._in_flight = 0
        self._ready: deque[Delivery] = deque()
        self._lent: deque[Delivery] = deque()
        """The deque that ``take`` last filled; a thread takes from its left end."""
        self._takers = 0
        self._waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._leases: dict[Lease, None] = {}
        self._pull: _Pull | None = None
        self._withdrawn: _Pull | None = None
        """The pull that was under way at the stop."""
        self._joining: asyncio.Task[None] | None = None
        self._paused = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = False
        self._stopping = False
        self._error: TernMQError | None = None
        self._mode = Mode.SHARED
        self._ordered = False
        """Whether messages wait for others of their ordering key, or of their queue."""
        self._by_queue = False
        self._lines: dict[str | int, deque[Delivery]] = {}
        """Keys (or numbers of queues) with a delivery in hand, and who waits for it."""
        self._keys: dict[tuple[Lease, int], str | int] = {}
        """The key (or queue) of each unsettled row."""
        self._overdue: set[Lease] = set()
        self._awake: Awake  # from the start on
        self.handed_out = 0.0
        """Monotonic time at which the last message was handed out."""

    # -- start and end

    async def start(self) -> None:
        """Join the group and begin to pull, unless it was stopped. Raises as ``Puller.join``."""
        self._loop = self._session.bind()
        joined = await self._puller.join(self.source)
        self._keep_order(joined.spec.mode)
        assert self._puller.awake is not None  # since the join
        self._awake = self._puller.awake
        if self._stopping:
            return
        self._running = True
        self._session.members.append(self)
        self._puller.begin(self.source)
        self._pull_on(self._workers)

    def _keep_order(self, mode: Mode) -> None:
        self._mode = mode
        self._ordered = mode.keeps_order
        self._by_queue = mode.locks_queues

    def stop(self) -> None:
        """Stop pulling, and give back the messages that were not begun; iteration ends."""
        if self._stopping:
            return
        self._stopping = True
        began = self._running
        if began:
            self._running = False
            self._session.members.remove(self)
        if self._joining is not None:
            self._joining.cancel()
        if self._looking is not None:
            self._looking.cancel()
        pull, self._pull = self._pull, None
        if pull is not None:
            self._withdrawn = pull
            link = self._session.link
            if link is not None and link is pull.link:
                link.tell(Command.CANCEL, bodies.pack_cancel(pull.id))
        if began:
            self._puller.end(self.source)
        ready, self._ready = self._ready, deque()
        waiting = [*ready, *[one for line in self._lines.values() for one in line]]
        self._lines.clear()
        for delivery in waiting:
            if not (delivery.lost or delivery.settled):
                delivery.settle_soon(Outcome.RELEASED)
        self._wake_all()

    async def close(self, *, timeout: float = _SETTLE_TIMEOUT) -> None:
        """Stop, give back what is not settled, and wait some seconds for the broker's answers.

        After the answers, another consumer of the group can have the messages at once.
        """
        self.stop()
        for lease in list(self._leases):
            give_back(lease)
        self._leases.clear()
        session = self._session
        if session.closed or session.link is None:
            return
        until = session.loop.time() + timeout
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                if self._withdrawn is not None:
                    await asyncio.wait(
                        [self._withdrawn.over]
                    )  # perhaps with rows, which are given back
                await self._puller.memberships.confirmed(self.source)
        await self._puller.settler.drained(max(0.0, until - session.loop.time()))

    # -- iterating

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if running_loop() is not self._loop and self._running:
            self._session.here()
        while True:
            ready = self._ready
            while ready:
                delivery = ready.popleft()
                lease, awake = delivery.lease, self._awake
                self.handed_out = now = monotonic()
                if not lease.lost and (
                    (now - awake.seen < LATE_S and lease.confirmed >= awake.thawed)
                    or not awake.doubts(lease)
                    or await self._still_held(delivery)
                ):
                    if self._prefetch is not None and self._prefetch.due:
                        self._time(self._prefetch, delivery)
                    return delivery
            if self._error is not None:
                raise own(self._error)
            if not self._running:
                if not self._stopping:
                    raise InvalidRequest(NOT_ENTERED.format("async with"))
                raise StopAsyncIteration
            waiter = self._session.loop.create_future()
            self._waiters[waiter] = None
            if self._pull is None:
                self._pull_on()
            try:
                await waiter
                if len(self._ready) > 1:
                    self._wake(_WOKEN_AT_ONCE)
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    del self._waiters[waiter]
                elif self._ready:
                    self._wake(1)  # this task was woken for a message: another takes it
                raise

    async def _still_held(self, delivery: Delivery) -> bool:
        """Ask the broker whether a message is still leased, before it is handed out."""
        lease = delivery.lease
        try:
            return await self._puller.still_held(lease) and not delivery.settled
        except TernMQError as error:  # no connection: perhaps others have it
            log.debug("a lease of %s cannot be extended now: %s", lease.topic, str(error))
            self._put_back(delivery)
            await asyncio.sleep(_PAUSE)
            return False
        except BaseException:
            self._put_back(delivery)
            raise

    def _put_back(self, delivery: Delivery) -> None:
        if self._running:
            self._ready.appendleft(delivery)
        elif not (delivery.lost or delivery.settled):
            delivery.settle_soon(Outcome.RELEASED)

    def before(self, delivery: Delivery) -> None:
        """Prepare for a handler's start: for a redelivered message, send pending settles first.

        Otherwise a message whose handler ends this process could hide, at each delivery, behind
        others that are done but whose settles were not sent yet. At its first delivery since a
        reset or a replay it has not done so.
        """
        if begun_before(delivery):
            self._puller.settler.tell()

    async def take(self, into: deque[Delivery]) -> bool:
        """Move deliveries that are ready into a deque, waiting for the first; False: stopped.

        One is left for each other task that waits here. What is not begun may be given back: the
        loop removes it from the right end, while threads may take from the left end.
        """
        self._takers += 1
        try:
            into.append(await anext(self))
        except StopAsyncIteration:
            return False
        finally:
            self._takers -= 1
        while len(self._ready) > self._takers:
            into.append(self._ready.popleft())
        self._lent = into
        return True

    def _wake(self, count: int) -> None:
        """Wake some waiting tasks; each wakes others while more is ready than it takes itself.

        So hundreds run at once if their work waits for something, and few are woken needlessly if
        one task processes all that is ready before the next has its turn.
        """
        waiters = self._waiters
        while count > 0 and waiters:
            waiter, _ = waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _wake_all(self) -> None:
        self._wake(len(self._waiters))

    # -- pulling

    def _pull_on(self, awaited: int = 0) -> None:
        """Pull, for ``awaited`` at least, if there is room and no pull is under way."""
        if self._pull is not None or not self._running or self._paused or self._session.draining:
            return
        if self._stuck:
            return
        free, whole = self._most - self._in_flight, self._most
        prefetch = self._prefetch
        if prefetch is not None:
            whole = max(len(self._waiters), awaited) + prefetch.size
            free = min(free + prefetch.size, whole - len(self._ready) - len(self._lent))
        if 2 * free < whole and (free <= 0 or self._ready):
            return
        if free <= 0:
            return
        link = self._session.link
        if link is None:
            self._session.wake()
            return
        if self._puller.outdated(self.source):
            self._join_soon(self._puller.join)
            return
        pull = self._pull = _Pull(self, link, self._session.loop.create_future())
        link.gather()
        try:
            self._puller.settler.flush()  # pending settles go along, in one write
            body = pull_body(link, self.source, free, LONGEST_WAIT, self._at_once)
            pull.id = link.ask(Command.PULL, body, pull)
        finally:
            link.flush()

    def _join_soon(self, join: Callable[[Source], Awaitable[control.GroupJoined]]) -> None:
        if self._running and self._joining is None:
            self._joining = self._session.loop.create_task(self._join_anew(join))

    async def _join_anew(self, join: Callable[[Source], Awaitable[control.GroupJoined]]) -> None:
        """Join the group again, at a broker that lost its data or its members, and continue."""
        try:
            joined = await join(self.source)
            self._keep_order(joined.spec.mode)
        except TernMQError as error:
            self._stopped_by(error)
            return
        finally:
            self._joining = None
        self._pull_on()

    def came(self, pull: _Pull, leased: Leased | None) -> None:
        """Take the answer to a pull; give it back if that pull was abandoned."""
        if pull is not self._pull:
            if leased is not None:
                give_back(leased.lease)
            return
        self._pull = None
        if leased is not None:
            if self._stuck:
                give_back(leased.lease)
            else:
                self._take(leased)
        self._pull_on()

    def leased(self, body: bytes) -> Leased | None:
        """Return the rows in the answer to a pull."""
        return self._puller.leased(self.source, body)

    def _take(self, leased: Leased) -> None:
        lease = leased.lease
        lease.owner = self
        mode = self._puller.mode(self.source)
        if mode is not None and mode is not self._mode:
            self._keep_order(mode)
        if self._prefetch is not None:
            self._prefetch.more(self._session.loop.time(), self._busy)
            self._few_ready = self._prefetch.size // 2
        self._leases[lease] = None
        self._in_flight += lease.rows
        topic, codecs, ready = self.source.topic, self._codecs, self._ready
        for chunk in leased.chunks:
            deliveries = [Delivery(topic, chunk, at, lease, codecs) for at in range(chunk.count)]
            if self._ordered:
                self._line_up(deliveries)
            else:
                ready.extend(deliveries)
        self._wake(_WOKEN_AT_ONCE)
        if self._prefetch is not None and self._looking is None:
            self._look_later(self._prefetch, None)

    # -- how much is pulled ahead

    @property
    def _busy(self) -> int:
        """Number of messages that are being processed."""
        behind = sum(map(len, self._lines.values())) if self._lines else 0
        return self._in_flight - len(self._ready) - len(self._lent) - behind

    def _time(self, prefetch: Prefetch, delivery: Delivery) -> None:
        self._timed = delivery.lease, delivery.offset
        prefetch.begin(self._session.loop.time())

    def _timed_ends(self, prefetch: Prefetch) -> None:
        """Evaluate the timed message, which is settled."""
        self._timed = None
        prefetch.end(self._session.loop.time(), self._busy)
        self._few_ready = prefetch.size // 2

    def _look_later(self, prefetch: Prefetch, last: Delivery | None) -> None:
        later = self._session.loop.call_later
        self._looking = later(LONGEST_S / 2, self._look, prefetch, last)

    def _look(self, prefetch: Prefetch, last: Delivery | None) -> None:
        """Give back all that waits if the last one of the previous check still waits.

        All tasks of this consumer are busy; other consumers may be free.
        """
        self._looking = None
        waiting = [*self._lent, *self._ready]
        if self._waiters or all(one is not last for one in waiting):
            if waiting:
                self._look_later(prefetch, waiting[-1])
            return
        prefetch.none()
        self._few_ready = 0
        waiting = list(self._ready)
        self._ready.clear()
        with contextlib.suppress(IndexError):  # it is empty; a thread may have taken the last one
            while True:
                waiting.append(self._lent.pop())
        for delivery in waiting:
            if not (delivery.lost or delivery.settled):
                delivery.settle_soon(Outcome.RELEASED)

    def _line_up(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            key = delivery.lease.queue if self._by_queue else delivery.ordering_key
            self._keys[delivery.lease, delivery.offset] = key
            line = self._lines.get(key)
            if line is None:
                self._lines[key] = deque()
                self._ready.append(delivery)
            else:
                line.append(delivery)

    def failed(self, pull: _Pull, error: TernMQError) -> None:
        """Handle a refused pull."""
        if pull is not self._pull:
            return
        self._pull = None
        if isinstance(error, NotPrimary):
            return  # as if the connection was lost, which it is: the next one pulls
        if isinstance(error, InstanceTaken):
            self._puller.forget(self.source)
            self._join_soon(self._puller.join)  # the other client may be gone; else it says so
            return
        self._stopped_by(error)

    def _stopped_by(self, error: TernMQError) -> None:
        """Pause after an error that may pass; else raise it from the iteration."""
        if error.retriable:
            self._paused = True
            if isinstance(error, NotOwner):
                self._session.loop.call_later(_PAUSE, self._join_again)
            else:
                self._session.loop.call_later(_PAUSE, self._go_on)
            return
        self._puller.forget(self.source)
        self._error = error
        self._wake_all()

    def _join_again(self) -> None:
        self._paused = False
        self._join_soon(self._puller.become_member)

    def _go_on(self) -> None:
        self._paused = False
        self._pull_on()

    def pull_lost(self, pull: _Pull) -> None:
        """Handle the loss of a pull's connection."""
        if pull is self._pull:
            self._pull = None

    # -- settling

    def settled(self, lease: Lease, offset: int, stop: int, outcome: Outcome | None) -> None:
        """Count settled rows and pull more; or drop a lost lease. For ``LeaseOwner``."""
        if lease.lost:
            self._lost(lease)
            return
        timed = self._timed
        if timed is not None and timed[0] is lease and offset <= timed[1] < stop:
            assert self._prefetch is not None
            self._timed_ends(self._prefetch)
        self._in_flight -= stop - offset
        if not lease.left:
            self._leases.pop(lease, None)
            self._overdue.discard(lease)
        if self._keys and outcome is not None:  # there are some after a change of the mode, too
            for one in range(offset, stop):
                self._next_of_key(lease, one, outcome)
        if self._pull is None and (
            len(self._ready) <= self._few_ready or self._in_flight <= self._few
        ):
            self._pull_on()

    def decided(self, lease: Lease, offset: int, stop: int, outcome: Outcome) -> None:
        """Go on with the next rows, which waited for a transaction."""
        for one in range(offset, stop) if self._keys else ():
            self._next_of_key(lease, one, outcome)

    def overdue(self, lease: Lease) -> None:
        """Give back the ready rows of a lease that is held for too long. For ``LeaseOwner``."""
        if lease not in self._leases:
            return
        self._overdue.add(lease)
        waiting = [one for one in self._ready if one.lease is lease]
        self._ready = deque([one for one in self._ready if one.lease is not lease])
        for delivery in waiting:
            if not (delivery.lost or delivery.settled):
                delivery.settle_soon(Outcome.RELEASED)

    def _next_of_key(self, lease: Lease, offset: int, outcome: Outcome) -> None:
        """Continue with the next row of a settled row's key, or give up the later ones."""
        key = self._keys.pop((lease, offset), None)
        line = self._lines.get(key) if key is not None else None
        if key is None or line is None:
            return
        if outcome in {Outcome.RETRY, Outcome.RELEASED}:
            del self._lines[key]
            for delivery in line:
                self._keys.pop((delivery.lease, delivery.offset), None)
                if not (delivery.settled or delivery.lost):
                    # The broker took it back already, unless that was the last attempt.
                    delivery.settle_soon(Outcome.RELEASED)
            return
        while line:
            delivery = line.popleft()
            if not (delivery.lost or delivery.settled):
                self._make_ready(delivery)
                return
        del self._lines[key]

    def _make_ready(self, delivery: Delivery) -> None:
        """Make a row ready whose turn in its key came: before those that were handed out later."""
        place = _place(delivery)
        ready = self._ready
        at = next((at for at, one in enumerate(ready) if _place(one) > place), len(ready))
        ready.insert(at, delivery)
        self._wake(1)
        if self._prefetch is not None and self._looking is None:
            self._look_later(self._prefetch, None)

    @property
    def _stuck(self) -> bool:
        """Whether some leases are overdue and no task is free: more messages would only wait."""
        return bool(self._overdue) and not self._waiters

    def _lost(self, lease: Lease) -> None:
        self._leases.pop(lease, None)
        if self._timed is not None and self._timed[0] is lease:
            assert self._prefetch is not None
            self._timed = None
            self._prefetch.forget()
        self._overdue.discard(lease)
        self._in_flight -= lease.left
        gone = [one for one in self._keys if one[0] is lease]
        for key in {self._keys.pop(one) for one in gone}:
            line = self._lines.pop(key, None)
            # The broker may have leased rows of the key again before this was known.
            left = deque([one for one in line or () if not (one.lost or one.settled)])
            held = sum([one == key for one in self._keys.values()])
            if held > len(left):  # a row of another lease is being processed
                self._lines[key] = left
            elif left:
                self._make_ready(left.popleft())
                self._lines[key] = left
        self._pull_on()

    # -- connections

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Pull over the new connection.

        An instance without a name is joined at once, also if nothing is to be pulled yet: it begins
        with the next message.
        """
        if self._puller.outdated(self.source):
            self._join_soon(self._puller.join)
        self._pull_on()

    def closing(self) -> None:
        """Stop: the client closes."""
        self.stop()

    def refused(self, error: TernMQError) -> None:
        """Raise the refusal from the iteration: no connection will come."""
        self._error = error
        self._wake_all()


def doubts(consumer: ConsumerEngine, lease: Lease) -> bool:
    """Return whether a lease may have ended in a freeze. Callable from any thread."""
    return consumer._awake.doubts(lease)  # noqa: SLF001 - of a class of this module


async def still_held(consumer: ConsumerEngine, delivery: Delivery) -> bool:
    """Ask the broker whether a message is still leased, before it is handed out."""
    return await consumer._still_held(delivery)  # noqa: SLF001 - of a class of this module


def _place(delivery: Delivery) -> tuple[int, int, int]:
    """Return a delivery's position in the order of hand-out."""
    lease = delivery.lease
    return lease.epoch, lease.number, delivery.offset


class _Pull:
    """A PULL of a consumer, as ``link.Asker``."""

    __slots__ = ("_consumer", "id", "link", "over")

    def __init__(self, consumer: ConsumerEngine, link: Link, over: asyncio.Future[None]) -> None:
        self._consumer = consumer
        self.link = link
        self.id = 0
        self.over = over

    def answered(self, body: bytes) -> None:
        """Give the rows of the answer to the consumer."""
        self._end()
        consumer = self._consumer
        consumer.came(self, consumer.leased(body))

    def refused(self, error: TernMQError) -> None:
        """Report the refusal to the consumer."""
        self._end()
        self._consumer.failed(self, error)

    def lost(self) -> None:
        """Report the lost connection to the consumer."""
        self._end()
        self._consumer.pull_lost(self)

    def _end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)
