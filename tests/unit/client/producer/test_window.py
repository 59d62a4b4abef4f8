"""What leaves too late does not leave: a broker that is asked for three times what it can do."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

import ternmq
from ternmq.client.connection.options import KIB
from ternmq.client.producer.load import Load, Unclaimed
from ternmq.client.producer.singles import Singles
from ternmq.client.producer.window import When, Window
from ternmq.wire.bodies import Receipt
from ternmq.wire.commands import Command
from ternmq.wire.session import Request
from tests.asynchronous import until
from tests.unit.client.fake import FakeBroker

OPTIONS: Final = ternmq.connect("ternmq://127.0.0.1:1").options
TRIES: Final = 3


@dataclass(slots=True)
class Wanted:
    """A message of an application that tries again."""

    at: float
    client: int
    tries: int = 0
    outcome: str = ""
    unknown: bool = False
    ended: float = 0.0


class OneLoad(Load):
    """A message on its way, as far as a window looks at it."""

    __slots__ = ("wanted",)

    def __init__(self, wanted: Wanted, size: int, now: float, timeout: float) -> None:
        self.wanted = wanted
        self.size_bytes = size
        self.timeout = timeout
        self.deadline = now + timeout
        self.in_window = self.over = False

    def contents(self) -> Sequence[bytes]:
        raise NotImplementedError

    def encode(self, producer_id: int) -> bytes:
        raise NotImplementedError

    def stored(self, receipt: Receipt, producer_id: int) -> Sequence[Unclaimed]:
        raise NotImplementedError

    def failed(self, error: ternmq.TernMQError) -> Sequence[Unclaimed]:
        raise NotImplementedError


@dataclass
class World:
    """Clients with a window each, and a broker that answers in order, eight at a time at most.

    Time is counted, not waited for.
    """

    per_s: float
    timeout: float
    size: int = 128 * KIB
    clients: int = 4
    now: float = 0.0
    wanted: list[Wanted] = field(default_factory=list)
    unknown_tries: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(1)
        self._windows = [Window(OPTIONS) for _ in range(self.clients)]
        self._lanes: list[deque[OneLoad]] = [deque() for _ in range(self.clients)]
        self._asked: deque[OneLoad] = deque()
        self._at_work = False
        self._count = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what))

    def come(self, begin: float, end: float, per_s: float) -> None:
        """Let messages come at a pace."""
        for n in range(int((end - begin) * per_s)):
            one = Wanted(begin + n / per_s, n % self.clients)
            self.wanted.append(one)
            self.at(one.at, lambda one=one: self._try(one))  # type: ignore[misc]

    def run(self) -> None:
        while self._events:
            self.now, _, what = heapq.heappop(self._events)
            what()

    def _try(self, one: Wanted) -> None:
        one.tries += 1
        load = OneLoad(one, self.size, self.now, self.timeout)
        self._lanes[one.client].append(load)
        self.at(load.deadline, lambda: None if load.over else self._failed(load))
        self._advance(one.client)

    def _failed(self, load: OneLoad) -> None:
        load.over = True
        one = load.wanted
        one.unknown |= load.in_window
        self.unknown_tries += load.in_window
        if one.tries < TRIES:
            pause = 0.1 * 2 ** (one.tries - 1) * self._chance.uniform(0.5, 1.5)
            self.at(self.now + pause, lambda: self._try(one))
        else:
            one.outcome, one.ended = "unknown" if one.unknown else "refused", self.now

    def _advance(self, client: int) -> None:
        window, lane = self._windows[client], self._lanes[client]
        while lane and not window.full:
            load = lane[0]
            when = When.NOW if load.over else window.when(load, self.now)
            if when is When.LATER:
                return
            lane.popleft()
            if when is When.NEVER:
                self._failed(load)
            elif not load.over:
                window.leaves(load, self.now)
                self._asked.append(load)
                self._work()

    def _work(self) -> None:
        if not self._at_work and self._asked:
            self._at_work = True
            turn = [self._asked.popleft() for _ in range(min(8, len(self._asked)))]
            takes = len(turn) / self.per_s * self._chance.uniform(0.7, 1.3)
            self.at(self.now + takes, lambda: self._done(turn))

    def _done(self, turn: list[OneLoad]) -> None:
        self._at_work = False
        for load in turn:
            window = self._windows[load.wanted.client]
            window.answered(load, self.now)
            window.ends(load)
            if not load.over:
                load.over = True
                load.wanted.outcome, load.wanted.ended = "ok", self.now
        for client in range(self.clients):
            self._advance(client)
        self._work()


@pytest.mark.parametrize(
    ("per_s", "timeout", "size", "clients"),
    [
        (300, 1.0, 128 * KIB, 4),
        (300, 0.3, 128 * KIB, 4),
        (1000, 1.0, 8 * KIB, 4),
        (20, 1.0, 128 * KIB, 4),
        (300, 1.0, 128 * KIB, 40),
        (40, 10.0, 128 * KIB, 4),
    ],
)
def test_three_times_the_load_gets_what_the_broker_can_do(per_s, timeout, size, clients):
    world = World(per_s, timeout, size, clients)
    warm, ends = 5 + 2 * timeout, 15 + 4 * timeout
    world.come(0, 5, per_s / 2)
    world.come(5, ends, per_s * 3)
    calm = ends + 3 * timeout + 5
    world.come(ends, calm + 5, per_s / 2)
    world.run()
    good = sum(one.outcome == "ok" and warm <= one.ended < ends for one in world.wanted)
    assert good >= 0.8 * per_s * (ends - warm)
    tries = sum(one.tries for one in world.wanted)
    assert world.unknown_tries < 0.05 * tries
    # Half of the load: everything goes at the first try again, however much was tried again.
    assert all(one.outcome == "ok" and one.tries == 1 for one in world.wanted if one.at >= calm)


def test_one_pause_of_the_broker_is_not_its_pace():
    window = Window(OPTIONS)

    def answered(left: float, now: float) -> None:
        load = OneLoad(Wanted(left, 0), 1000, left, 10.0)
        window.leaves(load, left)
        window.answered(load, now)
        window.ends(load)

    for second in range(4):
        answered(second, second + 0.01)
    quick = window.expected_s(OPTIONS.batch_bytes)
    assert 0.01 <= quick < 0.05
    answered(4, 9)  # it stood still
    assert window.expected_s(OPTIONS.batch_bytes) <= quick
    for second in range(10, 13):  # it is slow
        answered(second - 5, second)
    assert window.expected_s(OPTIONS.batch_bytes) > 5


async def test_what_was_given_up_is_still_on_its_way_until_it_is_answered() -> None:
    """A window that a silent broker fills stays full: the rest is known not to be sent."""
    async with FakeBroker() as fake:
        options = replace(ternmq.connect(fake.url).options, window_bytes=100, batch_rows=1)
        async with ternmq.connect(options=options) as client:
            await client.send("t", b"0")
            window = client._producer.core.window
            assert window.taken_bytes == 0
            fake.silent = True
            with pytest.raises(ternmq.SendTimeout):
                await client.send("t", b"x" * 100, timeout=0.1)
            assert window.full
            for _ in range(3):
                with pytest.raises(ternmq.BufferFull, match="this one was not sent"):
                    await client.send("t", b"y", timeout=0.05)
            long = asyncio.ensure_future(client.send("t", b"z"))
            fake.silent = False
            fake.cut()
            await long
            assert window.taken_bytes == 0
            assert b"y" not in fake.stored


async def test_an_answer_that_came_too_late_lets_others_go() -> None:
    async with FakeBroker() as fake:
        options = replace(ternmq.connect(fake.url).options, window_bytes=100, batch_rows=1)
        async with ternmq.connect(options=options) as client:
            await client.send("t", b"0")
            held: list[Request] = []
            fake.on[Command.SEND] = held.append
            with pytest.raises(ternmq.SendTimeout):
                await client.send("t", b"x" * 100, timeout=0.1)
            waits = asyncio.ensure_future(client.send("t", b"y"))
            await until(lambda: client._producer.core._held != {})
            del fake.on[Command.SEND]
            for request in held:
                fake.tell(request, fake._send(request))
            await waits
            assert fake.stored == [b"0", b"x" * 100, b"y"]


async def test_a_lane_whose_loads_fill_the_window_lets_another_have_its_turn() -> None:
    async with FakeBroker() as fake:
        options = replace(ternmq.connect(fake.url).options, window_bytes=100, batch_rows=1)
        async with ternmq.connect(options=options) as client:
            await client.send("many", b"0")
            await client.send("few", b"0")
            held: list[Request] = []
            fake.on[Command.SEND] = held.append
            many = [asyncio.ensure_future(client.send("many", b"m" * 100)) for _ in range(4)]
            few = asyncio.ensure_future(client.send("few", b"f" * 100))
            for at in range(5):
                await until(lambda at=at: len(held) > at)  # type: ignore[misc]
                fake.tell(held[at], fake._send(held[at]))
            await asyncio.gather(*many, few)
            assert [body[:1] for body in fake.stored[2:]] == [b"m", b"f", b"m", b"m", b"m"]


async def test_a_batch_that_cannot_be_made_takes_no_other_off_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sequences are those of the next one, of another topic here."""
    inner = Singles.encode

    def encode(self: Singles, producer_id: int) -> bytes:
        if self.messages[0].body == b"bad":
            raise ValueError("no")
        return inner(self, producer_id)

    monkeypatch.setattr(Singles, "encode", encode)
    async with FakeBroker(ordered=True) as fake, ternmq.connect(fake.url) as client:
        await client.send("t", b"0", ordering_key="k")
        await client.send("u", b"0", ordering_key="k")
        bad, good = await asyncio.gather(
            client.send("t", b"bad", ordering_key="k"),
            client.send("u", b"1", ordering_key="k"),
            return_exceptions=True,
        )
        assert isinstance(bad, ternmq.EncodeError)
        assert isinstance(good, ternmq.Receipt)
        await client.send("u", b"2", ordering_key="k", timeout=2)
        assert fake.stored == [b"0", b"0", b"1", b"2"]
