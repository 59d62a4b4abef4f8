"""Deliveries of a group one by one, pulled ahead of whoever works on them.

At most ``max_in_flight`` messages are here and not settled. The next pull leaves as soon as half of
them are settled, and at once, so that the broker works on it while the rest is being processed.
Without ``max_in_flight`` a consumer asks for as many as are awaited here, and for as many ahead as
``prefetch`` says; what nobody begins within a second goes back to the group all the same. In
a group of mode ordered a message waits here while one of the same ordering key is unsettled; one
that fails takes the later ones of its key along, since the broker ends their leases as well.

Whoever works on ``at_once`` of them says so in each pull. They are begun in the order of hand-out,
so that the broker, should this process die, knows which of them may have been begun: only those
have used up an attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import _get_running_loop as running_loop  # asked for every message: no exception
from collections import OrderedDict, deque
from types import TracebackType
from typing import Final, Self

from ternmq.client.codecs import Codecs
from ternmq.client.deliveries import Leased
from ternmq.client.delivery import Delivery
from ternmq.client.lease import Lease
from ternmq.client.link import Link
from ternmq.client.prefetch import LONGEST_S, Prefetch
from ternmq.client.puller import LONGEST_WAIT, Puller, give_back, pull_body
from ternmq.client.session import Member
from ternmq.client.source import Source
from ternmq.client.validation import whole
from ternmq.model.errors import InvalidRequest, TernMQError
from ternmq.model.specs import Mode
from ternmq.record.facts import Outcome
from ternmq.wire import bodies
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")

NOT_ENTERED: Final = "use it as `{} client.consume(...) as deliveries`"
_PAUSE: Final = 0.2
_MOST_IN_FLIGHT: Final = 60_000
_SETTLE_TIMEOUT: Final = 5.0
_WOKEN_AT_ONCE: Final = 2


class Consumer(Member):
    """An async context manager, and an async iterator of deliveries. Loop only.

    Leaving it gives back what is not settled.
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
        """Make one.

        ``workers`` is how many messages it is asked for at one time. ``at_once`` is the same where
        it is certain that no more are begun, else 0: the application may hold any of them.
        """
        prefetch = Prefetch(workers) if max_in_flight is None else None
        max_in_flight = max(64, 2 * workers) if max_in_flight is None else max_in_flight
        if not 1 <= whole("max_in_flight", max_in_flight) <= _MOST_IN_FLIGHT:
            raise InvalidRequest(
                f"max_in_flight must be 1 to {_MOST_IN_FLIGHT}, not {max_in_flight}"
            )
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
        # A settled message is followed by a pull when so few are left that wait, or in all.
        self._few_ready = 0
        self._few = max_in_flight // 2 if prefetch is None else 0
        self._in_flight = 0
        self._ready: deque[Delivery] = deque()
        self._lent: deque[Delivery] = deque()
        """Where ``take`` puts them; a thread takes from its left end."""
        self._takers = 0
        self._waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._leases: dict[Lease, None] = {}
        self._pull: _Pull | None = None
        self._joining: asyncio.Task[None] | None = None
        self._paused = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = False
        self._stopping = False
        self._error: TernMQError | None = None
        self._ordered = False
        self._lines: dict[str, deque[Delivery]] = {}  # ordered: keys with a delivery out
        self._keys: dict[tuple[Lease, int], str] = {}  # ordered: of unsettled rows
        self._overdue: set[Lease] = set()

    # -- its life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group and begin to pull; raises as ``Puller.join``."""
        self._loop = self._session.bind()
        joined = await self._puller.join(self.source)
        self._ordered = joined.spec.mode is Mode.ORDERED
        self._running = True
        self._session.members.append(self)
        self._pull_on(self._workers)

    def stop(self) -> None:
        """Pull no more, and give back what nobody works on; iterating ends."""
        if self._stopping:
            return
        self._stopping = True
        if self._running:
            self._running = False
            self._session.members.remove(self)
        if self._joining is not None:
            self._joining.cancel()
        if self._looking is not None:
            self._looking.cancel()
        pull, self._pull = self._pull, None
        if pull is not None:
            pull.abandoned = True
            link = self._session.link
            if link is not None and link is pull.link:
                link.tell(Command.CANCEL, bodies.pack_cancel(pull.id))
        ready, self._ready = self._ready, deque()
        waiting = [*ready, *[one for line in self._lines.values() for one in line]]
        self._lines.clear()
        for delivery in waiting:
            if not (delivery.lost or delivery.settled):
                delivery.settle_soon(Outcome.RELEASED)
        self._wake_all()

    async def close(self) -> None:
        """Stop, give back what is not settled, and see that the broker was told."""
        self.stop()
        for lease in list(self._leases):
            give_back(lease)
        self._leases.clear()
        if not self._session.closed and self._session.link is not None:
            await self._puller.settler.drained(_SETTLE_TIMEOUT)

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
                if not delivery.lease.lost:
                    if self._prefetch is not None and self._prefetch.due:
                        self._time(self._prefetch, delivery)
                    return delivery
            if self._error is not None:
                raise self._error
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
                    self._wake(1)  # it was woken: what it was woken for is for another
                raise

    def before(self, delivery: Delivery) -> None:
        """Its handler is about to begin. What was settled before is told, if it came before.

        Else a message whose handler ends this process could hide behind others that are done and
        not told yet, each time that it comes.
        """
        if delivery.deliveries > 1:
            self._puller.settler.tell()

    async def take(self, into: deque[Delivery]) -> bool:
        """Put what there is to work on there, waiting for the first; false: it was stopped.

        What others wait for here is left to them. What is not begun may be given back: the loop
        removes it from the right end, while threads may take from the left end.
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
        """Wake some that wait; who is woken wakes others while there is more than it takes itself.

        So hundreds run at once if their work waits for something, and few are bothered if one is
        through with all there is before the next has a turn.
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
        """Pull if there is room and no pull is under way, for ``awaited`` at least."""
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
            if self._joining is None:
                self._joining = self._session.loop.create_task(self._join_anew())
            return
        pull = self._pull = _Pull(self, link)
        link.gather()
        try:
            self._puller.settler.flush()  # what was settled goes along, in one write
            body = pull_body(link, self.source, free, LONGEST_WAIT, self._at_once)
            pull.id = link.ask(Command.PULL, body, pull)
        finally:
            link.flush()

    async def _join_anew(self) -> None:
        """Join the group at a broker that began anew, and go on there."""
        try:
            joined = await self._puller.join(self.source)
            self._ordered = joined.spec.mode is Mode.ORDERED
        except TernMQError as error:
            self._stopped_by(error)
            return
        finally:
            self._joining = None
        self._pull_on()

    def came(self, pull: _Pull, leased: Leased | None) -> None:
        """A pull was answered."""
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
        """Return what the answer to a pull brought."""
        return self._puller.leased(self.source, body)

    def _take(self, leased: Leased) -> None:
        lease = leased.lease
        lease.owner = self
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

    # -- how much is asked for ahead

    @property
    def _busy(self) -> int:
        """How many messages are worked on."""
        behind = sum(map(len, self._lines.values())) if self._ordered else 0
        return self._in_flight - len(self._ready) - len(self._lent) - behind

    def _time(self, prefetch: Prefetch, delivery: Delivery) -> None:
        self._timed = delivery.lease, delivery.offset
        prefetch.begin(self._session.loop.time())

    def _timed_ends(self, prefetch: Prefetch) -> None:
        """The message that was timed is settled."""
        self._timed = None
        prefetch.end(self._session.loop.time(), self._busy)
        self._few_ready = prefetch.size // 2

    def _look_later(self, prefetch: Prefetch, last: Delivery | None) -> None:
        later = self._session.loop.call_later
        self._looking = later(LONGEST_S / 2, self._look, prefetch, last)

    def _look(self, prefetch: Prefetch, last: Delivery | None) -> None:
        """Give back what waits, if what was the last to wait at the look before still does.

        Here nobody is free; others may be.
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
            key = delivery.ordering_key
            self._keys[delivery.lease, delivery.offset] = key
            line = self._lines.get(key)
            if line is None:
                self._lines[key] = deque()
                self._ready.append(delivery)
            else:
                line.append(delivery)

    def failed(self, pull: _Pull, error: TernMQError) -> None:
        """A pull was refused."""
        if pull is not self._pull:
            return
        self._pull = None
        self._stopped_by(error)

    def _stopped_by(self, error: TernMQError) -> None:
        """Try again in a while what may pass then; else whoever iterates gets the error."""
        if error.retriable:
            self._paused = True
            self._session.loop.call_later(_PAUSE, self._go_on)
            return
        self._puller.forget(self.source)
        self._error = error
        self._wake_all()

    def _go_on(self) -> None:
        self._paused = False
        self._pull_on()

    def pull_lost(self, pull: _Pull) -> None:
        """The connection of a pull is lost."""
        if pull is self._pull:
            self._pull = None

    # -- settling

    def settled(self, lease: Lease, offset: int, stop: int, outcome: Outcome) -> None:
        """See ``LeaseOwner``."""
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
        if self._ordered:
            for one in range(offset, stop):
                self._next_of_key(lease, one, outcome)
        if self._pull is None and (
            len(self._ready) <= self._few_ready or self._in_flight <= self._few
        ):
            self._pull_on()

    def overdue(self, lease: Lease) -> None:
        """See ``LeaseOwner``."""
        if lease not in self._leases:
            return
        self._overdue.add(lease)
        waiting = [one for one in self._ready if one.lease is lease]
        self._ready = deque([one for one in self._ready if one.lease is not lease])
        for delivery in waiting:
            if not (delivery.lost or delivery.settled):
                delivery.settle_soon(Outcome.RELEASED)

    def _next_of_key(self, lease: Lease, offset: int, outcome: Outcome) -> None:
        """A row of an ordered group is settled: let the next of its key go, or drop them."""
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
        """It was the turn of a row of its key: it is before those that were handed out later."""
        place = _place(delivery)
        ready = self._ready
        at = next((at for at, one in enumerate(ready) if _place(one) > place), len(ready))
        ready.insert(at, delivery)
        self._wake(1)
        if self._prefetch is not None and self._looking is None:
            self._look_later(self._prefetch, None)

    @property
    def _stuck(self) -> bool:
        """Some are worked on for very long, and nobody is free: more would only wait here."""
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
            if held > len(left):  # one that is worked on is not of this lease
                self._lines[key] = left
            elif left:
                self._make_ready(left.popleft())
                self._lines[key] = left
        self._pull_on()

    # -- connections

    def opened(self, link: Link, *, resumed: bool) -> None:
        """See ``session.Member``."""
        self._pull_on()

    def closing(self) -> None:
        """See ``session.Member``."""
        self.stop()

    def refused(self, error: TernMQError) -> None:
        """See ``session.Member``."""
        self._error = error
        self._wake_all()


def _place(delivery: Delivery) -> tuple[int, int, int]:
    """Return where it stands in the order of hand-out."""
    lease = delivery.lease
    return lease.epoch, lease.number, delivery.offset


class _Pull:
    """A PULL of a consumer."""

    __slots__ = ("_consumer", "abandoned", "id", "link")

    def __init__(self, consumer: Consumer, link: Link) -> None:
        self._consumer = consumer
        self.link = link
        self.id = 0
        self.abandoned = False

    def answered(self, body: bytes) -> None:
        """See ``link.Asker``."""
        consumer = self._consumer
        consumer.came(self, consumer.leased(body))

    def refused(self, error: TernMQError) -> None:
        """See ``link.Asker``."""
        self._consumer.failed(self, error)

    def lost(self) -> None:
        """See ``link.Asker``."""
        self._consumer.pull_lost(self)
