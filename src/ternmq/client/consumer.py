"""Deliveries of a group one by one, pulled ahead of whoever works on them.

At most ``max_in_flight`` messages are here and not settled. The next pull leaves as soon as half of
them are settled, and at once, so that the broker works on it while the rest is being processed. In
a group of mode ordered a message waits here while one of the same ordering key is unsettled; one
that fails takes the later ones of its key along, since the broker ends their leases as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from types import TracebackType
from typing import Final, Self

from ternmq.client.codecs import Codecs
from ternmq.client.deliveries import Leased
from ternmq.client.delivery import Delivery
from ternmq.client.lease import Lease
from ternmq.client.link import Link
from ternmq.client.puller import LONGEST_WAIT, Puller, Source, give_back, pull_body
from ternmq.client.session import Member
from ternmq.model.errors import InvalidRequest, TernMQError
from ternmq.model.specs import Mode
from ternmq.record.facts import Outcome
from ternmq.wire import bodies
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")

_PAUSE: Final = 0.2
_MOST_IN_FLIGHT: Final = 60_000
_SETTLE_TIMEOUT: Final = 5.0
_AHEAD: Final = 0.05
"""Seconds of work that an adaptive consumer holds."""
_MOST_AHEAD: Final = 1024
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
        least: int = 64,
    ) -> None:
        adaptive = max_in_flight is None
        max_in_flight = least if max_in_flight is None else max_in_flight
        if not 1 <= max_in_flight <= _MOST_IN_FLIGHT:
            raise InvalidRequest(f"max_in_flight must be 1 to {_MOST_IN_FLIGHT}")
        self.source = source
        self._puller = puller
        self._session = puller.session
        self._codecs = codecs
        self._least = self._most = max_in_flight
        self._adaptive = adaptive
        self._took_at = 0.0
        self._settled_count = 0
        self._half = (max_in_flight + 1) // 2
        self._in_flight = 0
        self._ready: deque[Delivery] = deque()
        self._waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._leases: dict[Lease, None] = {}
        self._pull: _Pull | None = None
        self._paused = False
        self._running = False
        self._stopping = False
        self._error: TernMQError | None = None
        self._ordered = False
        self._lines: dict[str, deque[Delivery]] = {}  # ordered: keys with a delivery out
        self._keys: dict[tuple[Lease, int], str] = {}  # ordered: of unsettled rows

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
        joined = await self._puller.join(self.source)
        self._ordered = joined.spec.mode is Mode.ORDERED
        self._running = True
        self._session.members.append(self)
        self._pull_on()

    def stop(self) -> None:
        """Pull no more, and give back what nobody works on; iterating ends."""
        if self._stopping:
            return
        self._stopping = True
        if self._running:
            self._running = False
            self._session.members.remove(self)
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
        while True:
            ready = self._ready
            while ready:
                delivery = ready.popleft()
                if not delivery.lost:
                    return delivery
            if self._error is not None:
                raise self._error
            if not self._running:
                if not self._stopping:
                    raise InvalidRequest("use it as `async with client.consume(...) as deliveries`")
                raise StopAsyncIteration
            waiter = self._session.loop.create_future()
            self._waiters[waiter] = None
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

    async def take(self) -> list[Delivery]:
        """Return what there is to work on, waiting for the first; empty when it was stopped."""
        try:
            found = [await anext(self)]
        except StopAsyncIteration:
            return []
        while self._ready:
            found.append(self._ready.popleft())
        return found

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

    def _pull_on(self) -> None:
        """Pull if there is room and no pull is under way."""
        if self._pull is not None or not self._running or self._paused or self._session.draining:
            return
        free = self._most - self._in_flight
        if free < self._half and (free <= 0 or self._ready):
            return
        link = self._session.link
        if link is None:
            self._session.wake()
            return
        pull = self._pull = _Pull(self, link)
        # What was settled goes along, in one write.
        self._puller.settler.flush()
        pull.id = link.ask(Command.PULL, pull_body(link, self.source, free, LONGEST_WAIT), pull)
        link.flush()

    def came(self, pull: _Pull, leased: Leased | None) -> None:
        """A pull was answered."""
        if pull is not self._pull:
            if leased is not None:
                give_back(leased.lease)
            return
        self._pull = None
        if leased is not None:
            self._take(leased)
        self._pull_on()

    def leased(self, body: bytes) -> Leased | None:
        """Return what the answer to a pull brought."""
        return self._puller.leased(self.source, body)

    def _take(self, leased: Leased) -> None:
        lease = leased.lease
        lease.owner = self
        if self._adaptive:
            self._adapt()
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

    def _adapt(self) -> None:
        """Hold as many messages as are worked off in a moment: a pull costs as much as 50 of them.

        Slow handlers get few ahead, so that other consumers are not left without.
        """
        now = self._session.loop.time()
        rate = self._settled_count / max(now - self._took_at, 1e-4)
        self._took_at, self._settled_count = now, 0
        wanted = min(int(rate * _AHEAD), 2 * self._most, _MOST_AHEAD)
        self._most = max(self._least, wanted)
        self._half = (self._most + 1) // 2

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
        self._in_flight -= stop - offset
        self._settled_count += stop - offset
        if not lease.left:
            self._leases.pop(lease, None)
        if self._ordered:
            for one in range(offset, stop):
                self._next_of_key(lease, one, outcome)
        if self._most - self._in_flight >= self._half or not self._ready:
            self._pull_on()

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
                self._ready.append(delivery)
                self._wake(1)
                return
        del self._lines[key]

    def _lost(self, lease: Lease) -> None:
        self._leases.pop(lease, None)
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
                self._ready.append(left.popleft())
                self._lines[key] = left
                self._wake(1)
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
