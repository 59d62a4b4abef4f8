"""Consumers: they pull, settle sooner or later or never, and check all that they are handed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from ternmq.broker.gate.replies import DoneReply, PullReply, Reply, SettleReply, ValueReply
from ternmq.broker.operation.drains import Drain
from ternmq.model.errors import (
    GroupPaused,
    LeaseExpired,
    TernMQError,
    UnknownGroup,
    UnknownSession,
    UnknownTopic,
)
from ternmq.model.specs import Mode
from ternmq.record.batch.batch import Batch, Row
from ternmq.record.fact import messages, moved
from ternmq.record.fact.facts import Outcome
from ternmq.record.fact.header import HEADER_BYTES, Kind
from ternmq.wire.bodies import Settle
from tests.sim.history import GroupKey, Stored
from tests.sim.reference import LEASED, WAITING, RefGroup, at_once_of
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

_KIND_AT: Final = 13
LEASE_BITS: Final = 40
_LATE_US: Final = 50_000


class Held:
    """A lease in a consumer's hands."""

    __slots__ = ("epoch", "given", "key", "lease", "reign", "rows", "until_us")

    def __init__(self, key: GroupKey, reply: PullReply, reign: int) -> None:
        self.key = key
        self.epoch = reply.epoch
        self.lease = reply.lease
        self.until_us = reply.until_us
        self.reign = reign
        self.rows = [one for start, stop, _, _ in reply.runs for one in range(start, stop)]
        self.given = frozenset(self.rows)


class Consumer:
    """Pulls for one group and does something with what it gets, sooner or later, or never."""

    def __init__(
        self,
        world: World,
        topic: str,
        group: str,
        name: str,
        *,
        every_us: int = 4000,
        most: int = 6,
        fail: float = 0.2,
        vanish: float = 0.05,
        park: bool = True,
        settle: float = 0.45,
        extend: float = 0.07,
        stay: bool = False,
    ) -> None:
        self.world = world
        self.topic = topic
        self.group = group
        self.name = name
        self.every_us = every_us
        self.most = most
        self.fail = fail
        self.vanish = vanish
        self.park = park
        self.settle = settle
        self.extend = extend
        self.stay = stay
        self.session: int | None = None
        self.joining = False
        self.token: int | None = None
        self.leases: list[Held] = []
        self.quiet = False
        world.restart_hooks.append(self.restarted)
        world.wake_hooks.append(self.woken)

    def restarted(self) -> None:
        """The broker is back: come back too, or not in time."""
        self.token = None
        self.joining = False
        if self.session is not None:
            if self.world.chance.random() < 0.75:
                found = self.world.command(self._reconnect)
                if isinstance(found, TernMQError):
                    if not isinstance(found, UnknownSession):
                        raise found
                    self._forget()
            else:
                self.world.reached("session not resumed")
                self.session = None
        self._again()

    def _reconnect(self) -> None:
        assert self.session is not None
        self.world.broker.clients.resume(self.session, "sim", self.name)

    def _forget(self) -> None:
        self.session = None
        self.token = None

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        chance = self.world.chance
        self._again()
        if self.world.calm:
            return
        if self.session is None:
            self._join()
            return
        draw = chance.random()
        if self.leases and draw < self.settle:
            self._settle(self.leases.pop(chance.randrange(len(self.leases))))
        elif self.leases and draw < self.settle + self.extend:
            self._extend(chance.choice(self.leases))
        elif not self.stay and draw < self.settle + self.extend + self.vanish * 0.4:
            self._go(chance)
        elif not self.quiet:
            self._pull()

    def _join(self) -> None:
        if self.joining:
            return
        world = self.world
        reply = world.command(lambda: world.broker.clients.join(world.now_us(), "sim", self.name))
        if isinstance(reply, TernMQError):
            return
        self.joining = True
        world.hold(reply, self._joined)

    def _joined(self, reply: Reply) -> None:
        assert isinstance(reply, ValueReply)
        assert isinstance(reply.value, int)
        self.joining = False
        self.world.history.rely(self.world.disk.at, reply.position)
        self.session = reply.value

    def _go(self, chance: random.Random) -> None:
        world = self.world
        assert self.session is not None
        session = self.session
        if chance.random() < 0.5:
            world.broker.clients.disconnected(world.now_us(), session)
            self.token = None
            world.reached("disconnected")
            if chance.random() < 0.5:
                world.command(lambda: world.broker.clients.resume(session, "sim", self.name))
                world.reached("reconnected")
                return
        else:
            reply = world.command(lambda: world.broker.clients.leave(world.now_us(), session))
            if isinstance(reply, TernMQError):
                if isinstance(reply, UnknownSession):
                    self._forget()
                return
            self._when_given_back(reply, session)
            world.reached("left")
        self._forget()
        if chance.random() < 0.7:
            self.leases.clear()  # else it will try to settle late

    def _when_given_back(self, reply: DoneReply | Drain, session: int) -> None:
        """Have an answer that says so relied on: its leases are over then."""
        world = self.world

        def told(reply: Reply) -> None:
            world.history.rely(world.disk.at, reply.position)
            if world.broker.views.figures.leased_to(session):
                raise Violation(f"session {session} was told that it has left, and holds rows")

        if isinstance(reply, Drain):
            world.drains[reply] = told
        else:
            world.hold(reply, told)

    def _pull(self) -> None:
        world, chance = self.world, self.world.chance
        if self.token is not None:
            if chance.random() < 0.1:
                world.broker.cancel(self.token)
                self.token = None
            return
        session = self.session
        assert session is not None
        most = chance.randint(1, self.most)
        max_bytes = chance.choice((None, None, None, 300))
        detached_us = chance.randint(1000, 400_000) if chance.random() < 0.1 else 0
        reply = world.command(
            lambda: world.broker.pull(
                world.now_us(),
                session,
                self.topic,
                self.group,
                most,
                max_bytes,
                at_once=at_once_of(session),
                detached_us=detached_us,
            )
        )
        if isinstance(reply, UnknownSession):
            self._forget()
        elif isinstance(reply, TernMQError):
            if not isinstance(reply, UnknownTopic | UnknownGroup | GroupPaused):
                world.reached(f"pull refused {type(reply).__name__}")
        elif reply is not None:
            self._handed(reply)
        elif self.park and chance.random() < 0.5:
            token = world.command(
                lambda: world.broker.park(
                    session,
                    self.topic,
                    self.group,
                    most,
                    1 << 20,
                    world.now_us() + 20_000,
                    at_once_of(session),
                    detached_us,
                )
            )
            if isinstance(token, int):
                self.token = token
                world.reached("parked")

    def woken(self) -> None:
        """The mark moved, or time passed: take what parked pulls got, for everybody."""
        world = self.world
        if self.token is None:
            return
        while some := world.ask(lambda: world.broker.woken_pulls(world.now_us())):
            for over in some:  # groups that had to wait for a read come with a later call
                for hook in world.wake_hooks:
                    owner = getattr(hook, "__self__", None)
                    if isinstance(owner, Consumer) and owner.token == over.token:
                        owner.token = None
                        if over.reply is not None:
                            world.reached("parked pull woken")
                            owner._handed(over.reply)
                        else:
                            world.reached("parked pull over")
                        break
        if self.token is not None:
            self._check_asleep()

    def _check_asleep(self) -> None:
        """No pull stays parked while there are new rows for it that are durable."""
        broker = self.world.broker
        if self.token is None or self.token not in broker.parking.waiters:
            return  # its session ended: nobody is told
        topic = broker.views.catalog.by_name.get(self.topic)
        found = topic.by_group.get(self.group) if topic is not None else None
        if topic is None or found is None or found.spec.paused or found.filter is not None:
            return
        if found.spec.mode is Mode.ORDERED or found in broker.ledger.wakes.awake:
            return  # awake: it passes over more expired rows in the next turn
        if found.limited:
            return  # its session may have as many rows as it may, or be switched off
        for queue, held in zip(topic.queues, found.queues, strict=True):
            free = found.spec.window - held.leased_rows
            if found.spec.mode.locks_queues and (held.leases or held.failures.waiting_rows):
                continue  # it is locked, or a row of it waits
            if found.owners is not None and found.owners.owner(queue.number) != self.session:
                continue  # another's, or nobody's
            start = max(held.cursor, queue.first)  # below it the unread went with their segments
            new = start < queue.next and not held.ahead.covers(start, queue.next)
            # It will look again by itself: the journal was full just now.
            soon = held.due_armed_us < self.world.now_us() + 200_000
            if free > 0 and new and not soon and queue.end <= broker.journal.committed:
                raise Violation(f"a pull is parked, {held.cursor} of queue {queue.number} is there")
            if free > 0 and not soon:
                self._check_due((found.group, topic.number, queue.number))

    def _check_due(self, key: GroupKey) -> None:
        """No pull stays parked while rows have long come due."""
        world = self.world
        journal = world.broker.journal
        group = world.reference.groups.get(key)
        if group is None or journal.written != journal.end:
            return
        late = world.now_us() - _LATE_US
        for offset, row in group.rows.items():
            if row.state == WAITING and row.when_us < late:
                raise Violation(f"a pull is parked, {offset} of queue {key[2]} has come due")

    def _handed(self, reply: PullReply) -> None:
        number = self._group_number()
        if number is not None:
            key = (number, reply.topic, reply.queue)
            resets = self.world.history.seen_of(key).resets
            self._check_rests(reply)
            # A shell takes the bytes at once: while the answer waits, their segment may go.
            offsets = [one for start, stop, _, _ in reply.runs for one in range(start, stop)]
            found = [
                self.world.ask(lambda: read_row(self.world, reply, offset))  # noqa: B023
                for offset in offsets
            ]
            self.world.hold(reply, lambda told: self._delivered(key, reply, resets, found))

    def _check_rests(self, reply: PullReply) -> None:
        """A pull of such a group waits for its PULLED, which is not even written yet."""
        broker = self.world.broker
        subscription = broker.views.catalog.subscription(self.topic, self.group)
        if subscription.spec.mode.keeps_order and reply.position <= broker.journal.written:
            raise Violation("a pull of a group with an order does not wait for its record")

    def _group_number(self) -> int | None:
        topic = self.world.broker.views.catalog.by_name.get(self.topic)
        found = topic.by_group.get(self.group) if topic is not None else None
        return None if found is None else found.group

    def _delivered(
        self, key: GroupKey, reply: PullReply, resets: int, found: list[Row | None]
    ) -> None:
        world = self.world
        topic = world.reference.topics.get(reply.topic)
        if topic is None:
            return
        group = world.reference.groups.get(key)
        if group is None:
            return
        held = Held(key, reply, world.reigns)
        world.tell("delivered", key, reply.runs)
        self._check_lease(group, reply)
        rows = [topic.queues[reply.queue][offset] for offset in held.rows]
        for offset, row, stored in zip(held.rows, found, rows, strict=True):
            if row != stored.row():
                raise Violation(f"offset {offset} holds {row!r}, not {stored.row()!r}")
        world.history.rely(world.disk.at, max(stored.end for stored in rows))
        if reply.rests == 0 and reply.position:
            world.history.rely(world.disk.at, reply.position)
        world.history.delivered(key, reply, rows, resets)
        if world.chance.random() >= self.vanish:
            self.leases.append(held)

    def _check_lease(self, group: RefGroup, reply: PullReply) -> None:
        """The reply says what its record says."""
        if self.world.broker.journal.written != self.world.broker.journal.end:
            return
        lease = reply.epoch << LEASE_BITS | reply.lease
        for start, stop, attempt, deliveries in reply.runs:
            for offset in range(start, stop):
                row = group.rows.get(offset)
                if row is None or row.state != LEASED or row.lease != lease:
                    continue
                if (row.attempt, row.deliveries) != (attempt, deliveries):
                    raise Violation(f"the reply says {(attempt, deliveries)} of {offset}")

    def _settle(self, held: Held, *, by_name: bool = False, whole: bool = False) -> None:
        world, chance = self.world, self.world.chance
        draw = chance.random()
        spans = None if whole else self._some(held, by_name=by_name)
        delay: int | None = None
        reason = ""
        if draw >= self.fail:
            outcome = Outcome.DONE
        elif draw < self.fail * 0.55:
            outcome = Outcome.RETRY
            delay = chance.choice((None, None, 0, 10_000))
            reason = "it did not work " + "x" * chance.randrange(40)
        elif draw < self.fail * 0.8:
            outcome = Outcome.DEAD
            reason = "no"
        else:
            outcome = Outcome.RELEASED
        session = self.session or 0
        asked = sum(stop - start for start, stop in spans) if spans else len(held.rows)
        before = self._held_now(held, spans)
        if spans is not None and self._of_earlier_round(held, spans):
            world.reached("settle of an earlier reign's lease after a reset")
        lease = (held.key[2], held.epoch, held.lease)
        asked_of = Settle(
            self.topic, self.group, *lease, outcome, tuple(spans or ()), delay, reason
        )
        reply = world.command(lambda: world.broker.settle(world.now_us(), session, asked_of))
        if isinstance(reply, TernMQError):
            self._settle_refused(held, before, reply)
            return
        settled = sum(stop - start for start, stop, _, _ in reply.settled)
        refused = sum(stop - start for start, stop in reply.refused)
        mine = {one for start, stop, _, _ in reply.settled for one in range(start, stop)}
        if not mine <= held.given:
            raise Violation(f"of {sorted(held.given)} in hand it settled {sorted(mine)}")
        if before is not None and settled != before:
            raise Violation(f"{settled} rows were settled, {before} were held")
        if spans is not None and settled + refused != asked:
            raise Violation(f"{settled} settled and {refused} refused of {asked}")
        if held.reign != world.reigns:
            world.reached("settle of an earlier reign's lease")
        world.hold(reply, lambda told: self._settled(held, outcome, told))
        if spans is not None and chance.random() < 0.7:
            named = {one for start, stop in spans for one in range(start, stop)}
            held.rows = [one for one in held.rows if one not in named]
            if held.rows:
                self.leases.append(held)
        elif chance.random() < 0.1:
            self.leases.append(held)  # settles it again: it must be refused

    def _some(self, held: Held, *, by_name: bool) -> list[tuple[int, int]] | None:
        """Return what a settle names: some of the rows, all, or (None) the lease as such."""
        chance = self.world.chance
        if len(held.rows) > 1 and chance.random() < 0.4:
            low = chance.randrange(len(held.rows))
            high = chance.randint(low + 1, len(held.rows))
            return _spans(held.rows[low:high])
        return _spans(held.rows) if by_name or chance.random() < 0.3 else None

    def _of_earlier_round(self, held: Held, spans: list[tuple[int, int]]) -> bool:
        """Return whether the settle speaks of unread rows that a reset took from an old lease."""
        group = self.world.reference.groups.get(held.key)
        if group is None or not group.round or held.reign == self.world.reigns:
            return False
        if held.epoch << LEASE_BITS | held.lease in group.leases:
            return False
        return any(
            group.cursor <= start
            and not any(one in group.ahead or one in group.rows for one in range(start, stop))
            for start, stop in spans
        )

    def _held_now(self, held: Held, spans: list[tuple[int, int]] | None) -> int | None:
        """Return how many of the rows are held under the lease, None when that is not known."""
        world = self.world
        journal = world.broker.journal
        if journal.written != journal.end:
            return None
        group = world.reference.groups.get(held.key)
        if group is None:
            return None
        if any(one < 1 << LEASE_BITS for one in group.leases):
            return None  # rows behind one of their key that a transaction settles are refused
        lease = group.leases.get(held.epoch << LEASE_BITS | held.lease)
        if lease is None:
            return None if held.reign != world.reigns else 0
        if spans is None:
            return len(lease.rows)
        named = {one for start, stop in spans for one in range(start, stop)}
        return len(named & lease.rows)

    def _settle_refused(self, held: Held, before: int | None, error: TernMQError) -> None:
        world = self.world
        world.tell("settle refused", type(error).__name__)
        world.reached(f"settle refused {type(error).__name__}")
        if isinstance(error, LeaseExpired):
            if before:
                raise Violation(f"a settle of {before} rows that are held was refused")
        elif not isinstance(error, UnknownTopic | UnknownGroup):
            world.reached("settle found the journal full")

    def _settled(self, held: Held, outcome: Outcome, reply: Reply) -> None:
        assert isinstance(reply, SettleReply)
        world, key = self.world, held.key
        world.history.rely(world.disk.at, reply.position)
        world.tell("settled", key, int(outcome), reply.settled)
        if outcome is Outcome.DONE:
            group = world.reference.groups.get(key)
            seen = world.history.seen_of(key)
            for start, stop, _, _ in reply.settled:
                for offset in range(start, stop):
                    if group is None or group.done(offset):
                        lease = held.epoch << LEASE_BITS | held.lease
                        seen.acked[offset] = min(lease, seen.acked.get(offset, lease))

    def _extend(self, held: Held) -> None:
        world = self.world
        reply = world.command(
            lambda: world.broker.extend(
                world.now_us(),
                self.session or 0,
                self.topic,
                self.group,
                held.key[2],
                held.epoch,
                held.lease,
                60_000,
            )
        )
        if isinstance(reply, TernMQError):
            if isinstance(reply, LeaseExpired) and self._held_now(held, None):
                raise Violation("an extension of a lease that is held was refused")
            return
        world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))


class Straggler(Consumer):
    """Pulls mostly when retention is at work: out of the segment that is about to go."""

    def _pull(self) -> None:
        world = self.world
        moving = world.started.upkeep.moving
        if not moving._active and world.chance.random() < 0.97:
            return
        super()._pull()

    def _handed(self, reply: PullReply) -> None:
        world = self.world
        journal = world.broker.journal
        rows = world.reference.topics[reply.topic].queues[reply.queue]
        first = rows[min(start for start, _, _, _ in reply.runs)]
        if (
            world.started.upkeep.moving._active
            and first.home < journal.first + journal.segment_size
        ):
            world.reached("pulled out of a segment that is being emptied")
        super()._handed(reply)


class Returning(Consumer):
    """Has its word on what it holds ready when the broker is back, before it pulls anything."""

    def restarted(self) -> None:
        """The broker is back: come back too, or not in time."""
        super().restarted()
        draw = self.world.chance.random()
        if draw < 0.5:
            self.world.after(1 + self.world.chance.randrange(3000), self._settle_all)
        elif draw < 0.85:  # when others hold leases of the same numbers
            before = self.world.reigns
            self.world.after(
                6000 + self.world.chance.randrange(30_000), lambda: self._settle_whole(before)
            )

    def _settle_all(self) -> None:
        chance = self.world.chance
        now = [held for held in self.leases if chance.random() < 0.6]
        self.leases = [held for held in self.leases if held not in now]
        for held in now:
            self._settle(held, by_name=True)

    def _settle_whole(self, reign: int) -> None:
        """Settle leases of earlier reigns as such: no rows are named."""
        if self.world.reigns != reign or self.session is None:
            return
        epoch = self.world.broker.journal.epoch
        for held in [one for one in self.leases if one.epoch < epoch]:
            self.leases.remove(held)
            self.world.reached("an earlier reign's lease settled as such")
            self._settle(held, whole=True)


def _spans(rows: list[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for offset in sorted(rows):
        if spans and spans[-1][1] == offset:
            spans[-1] = (spans[-1][0], offset + 1)
        else:
            spans.append((offset, offset + 1))
    return spans


def check_content(world: World, reply: PullReply, rows: list[Stored]) -> None:
    """Read what a reply hands out, as a shell would, and compare it with what was sent."""
    offsets = [one for start, stop, _, _ in reply.runs for one in range(start, stop)]
    for offset, stored in zip(offsets, rows, strict=True):
        found = world.ask(lambda: read_row(world, reply, offset))  # noqa: B023
        if found != stored.row():
            raise Violation(f"offset {offset} holds {found!r}, not {stored.row()!r}")


def read_row(world: World, reply: PullReply, offset: int) -> Row | None:
    """Return the row of an offset as the reply's places tell it."""
    store = world.broker.store
    for places in reply.places:
        for at, first in enumerate(places.first_offsets):
            if first > offset:
                continue
            record = store.at_place(places, at)
            if record[_KIND_AT] == Kind.MOVED:
                content = moved.unpack(record[HEADER_BYTES:])
                offsets = content.offsets()
                if offset in offsets:
                    piece, row = content.row(offsets.index(offset))
                    world.reached("delivered from a MOVED record")
                    return Batch(piece.batch).row(row)
                continue
            stored = messages.of_record(record)
            if (stored.topic, stored.queue) != (reply.topic, reply.queue):
                raise Violation(f"offset {offset} is said to stand in another queue's record")
            if stored.first_offset <= offset < stored.first_offset + stored.count:
                return Batch(stored.batch).row(stored.row_of(offset))
    return None
