"""Numbers: what the records may give, what clients were told, and clients that take them.

No number is told of twice under one name of a topic, whatever crashed or was deleted in between;
each block that is told of lies above all that were told of before; no reserve is told of twice.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ternmq.broker.gate.replies import NumbersReply
from ternmq.journal.log.scan import RawRecord
from ternmq.model.errors import (
    Busy,
    DiskFull,
    InvalidRequest,
    ReadOnly,
    StrictNeedsReplica,
    TernMQError,
    UnknownTopic,
)
from ternmq.record.fact import numbers
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.reference import Reference
    from tests.sim.world import World

COUNTS: Final = (1, 1, 2, 100, 100, 5_000, numbers.MOST)
WRONG: Final = (0, -1, numbers.MOST + 1, 1 << 63)


class RefNumbers:
    """The second opinion on NUMBERS records."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._next: dict[int, int] = {}
        self._ended = 1
        self.reserves = 0

    def given(self, record: RawRecord) -> None:
        """Take over a block: it follows the one before it, and a reserve is the next one.

        Raises:
            Violation: they do not.
        """
        given = numbers.unpack(record.body)
        where = f"NUMBERS at {record.position}"
        if given.topic not in self._reference.topics:
            raise Violation(f"{where}: no topic {given.topic}")
        if given.topic not in self._next and self._ended > 1:
            self._reference.count("a sequence begins above a deleted one")
        wanted = self._next.get(given.topic, self._ended)
        if given.first != wanted:
            raise Violation(f"{where}: numbers from {given.first} on, {wanted} is next")
        self._next[given.topic] = given.stop
        if given.reserve is not None:
            if given.reserve != self.reserves:
                raise Violation(f"{where}: reserve {given.reserve}, {self.reserves} is next")
            self.reserves += 1

    def drop_topic(self, topic: int) -> None:
        """End the sequence of a topic."""
        self._ended = max(self._ended, self._next.pop(topic, 1))


class ToldNumbers:
    """What clients were told, kept across restarts of the broker."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, NumbersReply]] = []
        """By topic's name, in the order in which they left."""
        self._stops: dict[str, int] = {}
        self._reserves: set[int] = set()

    def up_to(self, end: int) -> ToldNumbers:
        """Return what was told that rests on nothing at or behind ``end``."""
        found = ToldNumbers()
        for topic, reply in self.answers:
            if reply.position <= end:
                found.told(topic, reply)
        return found

    def told(self, topic: str, reply: NumbersReply) -> None:
        """Note an answer that left.

        Raises:
            Violation: a number or a reserve in it was told of before.
        """
        self.answers.append((topic, reply))
        stop = self._stops.get(topic, 1)
        if reply.first < stop:
            raise Violation(
                f"numbers of {topic!r} from {reply.first} on are told, those below {stop} were"
            )
        self._stops[topic] = reply.first + reply.count
        if reply.reserve is not None:
            if reply.reserve in self._reserves:
                raise Violation(f"reserve {reply.reserve} is told of twice")
            self._reserves.add(reply.reserve)


def check_numbers(world: World) -> None:
    """Take numbers of every topic behind a crash: none that was told of before comes again.

    Raises:
        Violation: one does.
    """
    now = world.now_us()
    for topic in sorted(world.broker.views.catalog.by_name):
        reply = world.command(partial(world.broker.take_numbers, now, topic, 3, reserve=True))
        if isinstance(reply, NumbersReply):
            world.history.numbers.told(topic, reply)
            world.reached("deep numbers")


class Taker:
    """Takes blocks of the numbers of some topics; now and then of a size that there is not."""

    def __init__(self, world: World, topics: tuple[str, ...], *, every_us: int) -> None:
        self.world = world
        self.topics = topics
        self.every_us = every_us
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        chance = self.world.chance
        topic = chance.choice(self.topics)
        if chance.random() < 0.05:
            reply = self._take(topic, chance.choice(WRONG), reserve=True)
            if not isinstance(reply, InvalidRequest | UnknownTopic):
                raise Violation(f"a block of a wrong size: {reply!r}")
            self.world.reached("numbers refused: wrong size")
            return
        reserve = chance.random() < 0.3
        count = chance.choice(COUNTS)
        reply = self._take(topic, count, reserve=reserve)
        if isinstance(reply, NumbersReply):
            self._check(topic, count, reply, reserve=reserve)
        elif not isinstance(reply, UnknownTopic | Busy | DiskFull | ReadOnly | StrictNeedsReplica):
            raise Violation(f"numbers are refused: {reply!r}")

    def _take(self, topic: str, count: int, *, reserve: bool) -> NumbersReply | TernMQError:
        world = self.world
        now = world.now_us()
        reply = world.command(lambda: world.broker.take_numbers(now, topic, count, reserve=reserve))
        world.tell("numbers", topic, count, getattr(reply, "first", type(reply).__name__))
        return reply

    def _check(self, topic: str, count: int, reply: NumbersReply, *, reserve: bool) -> None:
        world = self.world
        if reply.count != count or (reply.reserve is not None) is not reserve:
            raise Violation(f"{count} numbers were asked for, reserve {reserve}: {reply!r}")
        world.hold(reply, lambda _: self._told(topic, reply))

    def _told(self, topic: str, reply: NumbersReply) -> None:
        world = self.world
        world.history.rely(world.disk.at, reply.position)
        world.history.numbers.told(topic, reply)
        world.reached("numbers told" if reply.reserve is None else "numbers told with a reserve")
        if world.reigns > 1:
            world.reached("numbers told after a restart")
