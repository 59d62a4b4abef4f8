"""Clients of scheduled messages: they send with due times, and cancel before, at and after them;
and long times in which the broker stands still."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ternmq.broker.gate.replies import DoneReply
from ternmq.model.errors import (
    AlreadyDelivered,
    Busy,
    DiskFull,
    MessageNotFound,
    TernMQError,
    UnknownTopic,
)
from ternmq.record.batch.batch import Row
from tests.sim.history import Tried
from tests.sim.producers import Producer
from tests.sim.scheduled import CANCELLED, DELIVERED, GONE, PENDING, ScheduledRow
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
SOON_US: Final = 120_000
"""Most delays are shorter, so that much comes due in a reign."""
DELAYS_US: Final = (
    0, SECOND_US, 10 * SECOND_US, MINUTE_US, 30 * MINUTE_US, HOUR_US - 1, HOUR_US, HOUR_US + 1,
    3 * HOUR_US, DAY_US, 7 * DAY_US, 45 * DAY_US, 100 * DAY_US, 400 * DAY_US,
)  # fmt: skip
LEAPS_US: Final = (
    SECOND_US, MINUTE_US, 29 * MINUTE_US, 31 * MINUTE_US, HOUR_US, 2 * HOUR_US, DAY_US, 45 * DAY_US,
)  # fmt: skip


class Delayer(Producer):
    """Sends batches whose rows come due later.

    Args:
        world: See ``Producer``.
        topic: See ``Producer``.
        number: See ``Producer``.
        soon: Share of the due times that are near.
        together: Share of the batches whose rows all come due at one time.
        plain: Share of the batches that have no due times.
        wishes: Share of the batches that ask for a queue.
        more: See ``Producer``.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        number: int,
        *,
        soon: float = 0.7,
        together: float = 0.4,
        plain: float = 0.1,
        wishes: float = 0.0,
        **more: int,
    ) -> None:
        super().__init__(world, topic, number, **more)  # type: ignore[arg-type]
        self.soon = soon
        self.together = together
        self.plain = plain
        self.wishes = wishes
        self.soon_us = SOON_US
        self.past = 0.02
        """Share of the due times that are over."""

    def _make(self) -> Tried:
        tried = super()._make()
        found = self.world.broker.views.catalog.by_name.get(self.topic)
        if found is not None and self.world.chance.random() < self.wishes:
            tried.queue = self.world.chance.randrange(len(found.queues))
        return tried

    def _made_rows(self) -> list[Row]:
        rows = super()._made_rows()
        chance = self.world.chance
        if self.keys:  # a batch of one key: a plain send must not be for several queues
            rows = [replace(row, ordering_key=rows[0].ordering_key) for row in rows]
        if chance.random() < self.plain:
            return rows
        now = self.world.now_us()
        due_us = now + self._delay()
        if chance.random() < self.together:
            return [replace(row, due_us=due_us) for row in rows]
        return [replace(row, due_us=now + self._delay()) for row in rows]

    def _delay(self) -> int:
        chance = self.world.chance
        if chance.random() < self.past:
            return -chance.randrange(10 * SECOND_US)
        if chance.random() < self.soon:
            return chance.randrange(self.soon_us)
        return chance.choice(DELAYS_US)


class Burst(Delayer):
    """Sends many rows that come due at one moment, the same for all of its kind in a world."""

    def _made_rows(self) -> list[Row]:
        rows = Producer._made_rows(self)
        world = self.world
        moment = world.moment_us
        if moment < world.now_us() + SECOND_US // 20:
            moment = world.now_us() + world.chance.choice((SECOND_US // 4, SECOND_US, HOUR_US))
            world.moment_us = moment
        return [replace(row, due_us=moment) for row in rows]


class Canceller:
    """Cancels rows that others scheduled; some before they are due, some then, some after it."""

    def __init__(self, world: World, delayers: tuple[Delayer, ...], *, every_us: int) -> None:
        self.world = world
        self.delayers = delayers
        self.every_us = every_us
        self.before: list[tuple[Tried, int]] = []
        """What it asked to cancel."""
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        world, chance = self.world, self.world.chance
        if world.calm:
            return
        delayer = chance.choice(self.delayers)
        draw = chance.random()
        if draw < 0.05:
            self._unknown(delayer)
        elif draw < 0.2 and self.before:
            self._cancel(*chance.choice(self.before[-10:]))
        else:
            tried = self._chosen(delayer)
            if tried is None:
                return
            at = chance.randrange(len(tried.rows))
            left_us = tried.rows[at].due_us - world.now_us()
            if 0 < left_us < SECOND_US and chance.random() < 0.4:
                off_us = chance.choice((-1, 0, 0, 1, 300))
                world.after(max(0, left_us + off_us), lambda: self._cancel(tried, at))
            else:
                self._cancel(tried, at)

    def _chosen(self, delayer: Delayer) -> Tried | None:
        known = [*delayer.recent[-12:], *list(delayer.unanswered.values())[-4:]]
        return self.world.chance.choice(known) if known else None

    def _unknown(self, delayer: Delayer) -> None:
        """Cancel what nobody sent."""
        world = self.world
        now = world.now_us()
        reply = world.command(
            lambda: world.broker.cancel_scheduled(now, delayer.topic, delayer.number, 1 << 40)
        )
        if not isinstance(reply, MessageNotFound | UnknownTopic):
            raise Violation(f"a cancel of what nobody sent: {reply!r}")
        world.reached("cancel of an unknown message")

    def _cancel(self, tried: Tried, at: int) -> None:
        world = self.world
        topic = world.broker.views.catalog.by_name.get(tried.topic)
        number = 0 if topic is None else topic.number
        sequence = tried.first_sequence + at
        given = tried.rows[at].application_id
        operator = world.chance.random() < 0.3
        now = world.now_us()
        if given and world.chance.random() < 0.5:
            rows = world.reference.scheduled.with_id(number, given)
            for row in rows:
                world.history.cancels.add((tried.topic, *row.message[1:]))
            reply = world.command(
                lambda: world.broker.cancel_scheduled_id(now, tried.topic, given, operator=operator)
            )
            world.reached("cancel by id")
        else:
            found = world.reference.scheduled.by_message.get((number, tried.producer, sequence))
            rows = [] if found is None else [found]
            world.history.cancels.add((tried.topic, tried.producer, sequence))
            reply = world.command(
                lambda: world.broker.cancel_scheduled(
                    now, tried.topic, tried.producer, sequence, operator=operator
                )
            )
        self.before.append((tried, at))
        world.tell("cancel", tried.topic, sequence, type(reply).__name__)
        delivered = isinstance(reply, AlreadyDelivered)
        if delivered and given and world.reference.scheduled.plain_with_id(number, given):
            return  # that one may be meant
        answered_cancel(world, rows, reply)


def answered_cancel(world: World, rows: list[ScheduledRow], reply: DoneReply | TernMQError) -> None:
    """Check the answer to a cancel, and have it relied on once it may go out.

    Args:
        world: See ``World``.
        rows: The scheduled rows that may be meant: several if they have one application id.
        reply: The answer.

    Raises:
        Violation: it is not what the journal says.
    """
    fates = {row.fate for row in rows}
    if len(rows) == 1:
        world.reached(f"cancel of a {rows[0].fate} row: {type(reply).__name__}")
    if isinstance(reply, DoneReply):
        if not fates & {PENDING, CANCELLED}:
            raise Violation(f"a cancel was answered, the rows are {fates}")
        world.hold(reply, lambda told: _told(world, rows, CANCELLED, told.position))
    elif isinstance(reply, AlreadyDelivered):
        if rows and DELIVERED not in fates and len(rows) == 1:
            raise Violation(f"a row is said to be delivered, it is {fates}")
        # The refusal waits as an answer does.
        waits = DoneReply(world.broker.refusal_rests_on(reply))
        world.hold(waits, lambda told: _told(world, rows, DELIVERED, told.position))
    elif isinstance(reply, MessageNotFound):
        first = world.broker.journal.first
        if PENDING in fates or any(row.position >= first for row in rows if row.fate != GONE):
            raise Violation(f"a cancel finds nothing, the rows are {fates}")
    elif not isinstance(reply, Busy | DiskFull | UnknownTopic):
        raise Violation(f"a cancel was refused: {reply!r}")


def _told(world: World, rows: list[ScheduledRow], fate: str, position: int) -> None:
    found = [row.fate for row in rows]
    if len(rows) == 1 and found[0] not in (fate, GONE):
        raise Violation(f"{rows[0].message} is told to be {fate}, it is {found[0]}")
    if rows and fate is CANCELLED and not {CANCELLED, GONE} & set(found):
        raise Violation(f"a cancel is answered, the rows are {found}")
    world.history.rely(world.disk.at, position)
    for row in rows:
        if row.fate is fate:
            world.history.fates.setdefault(row.message, (fate, position))


class Leaper:
    """Lets the broker stand still for long, at times just until something comes due."""

    def __init__(self, world: World, *, every_us: int) -> None:
        self.world = world
        self.every_us = every_us
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        world, chance = self.world, self.world.chance
        if world.calm:
            return
        us = chance.choice(LEAPS_US)
        due = [
            row.due_us
            for number in world.reference.topics
            if (row := world.reference.scheduled.first_due(number)) is not None
        ]
        if due and chance.random() < 0.6:
            us = max(1, min(due) - world.now_us() + chance.choice((-1, 0, 0, 1, 1000)))
        world.leap(us)
