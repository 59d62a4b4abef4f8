"""Random commands against the short reference in ``model``, with STATE sets written object by object
between them, reads that block, restarts, and power cuts that take everything since the last sync.

After every step the broker's views must say of every row what the reference says.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ternmq.broker.failures import HELD_US
from ternmq.broker.replies import PullReply
from ternmq.journal.memory_disk import MemoryDisk
from ternmq.model.errors import GroupPaused, LeaseExpired
from ternmq.model.specs import Exhausted, RetryPolicy
from ternmq.record.batch import Row
from ternmq.record.facts import Outcome
from tests.unit.broker.kit import SECOND, World, check, same_after_restart
from tests.unit.broker.model import NEVER, Reference

GRACE = 10 * SECOND
LEASE = 30 * SECOND
PLACES = {"g": "t", "f": "t", "o": "k"}
"""Group -> topic: a shared one, one with a filter, an ordered one."""
groups = st.sampled_from(sorted(PLACES))
outcomes = st.sampled_from([Outcome.DONE, Outcome.DONE, Outcome.RETRY, Outcome.RELEASED, Outcome.DEAD])
waits = st.sampled_from([1, SECOND // 2, SECOND, 3 * SECOND, GRACE, LEASE, LEASE + 1, 400 * SECOND])


class Known:
    """What the world outside knows, and would know after a power cut."""

    def __init__(self) -> None:
        self.groups = {
            "g": Reference(), "f": Reference(tags="a"), "o": Reference(ordered=True),
        }  # fmt: skip
        self.gone: dict[int, int | None] = {}
        """Session -> when its grace ends; None while it is connected."""
        self.batches: list[tuple[int, str, bytes, int]] = []
        """When, where, what, and the offset that it got."""
        self.paused: set[str] = set()


class BrokerMachine(RuleBasedStateMachine):
    """Two topics, three groups, a few sessions."""

    @initialize(flaky=st.integers(0, 5))
    def begin(self, flaky: int) -> None:
        self.world = World(flaky=flaky or None, segment_bytes=1 << 16)
        self.known = Known()
        self.world.topic("t")
        self.world.topic("k", ordered=True)
        policy = RetryPolicy(first_us=SECOND, factor=2.0, cap_us=100 * SECOND, jitter=0.0, attempts=4)
        for group, topic in PLACES.items():
            reference = self.known.groups[group]
            self.world.group(topic, group, tags=reference.tags, retry=policy, lease_us=LEASE)
            reference.policy = policy
            reference.lease = LEASE
        self.pulls: list[tuple[str, int, PullReply]] = []
        """Hand-outs that their consumers have not forgotten, lost or not."""
        self.join()
        self.join()
        self.commit()

    # -- producers --------------------------------------------------------------------------------

    @rule(
        topic=st.sampled_from(["t", "k"]),
        keys=st.text("abc", min_size=1, max_size=8),
        commit=st.booleans(),
    )
    def send(self, topic: str, keys: str, commit: bool) -> None:
        rows = [
            Row(body=b"%d %d" % (len(self.world.sequences), at) + key.encode(), tag=key)
            if topic == "t"
            else Row(body=b"%d" % at + key.encode(), ordering_key=key)
            for at, key in enumerate(keys)
        ]
        batch = self.world.batch(topic, rows)
        reply = self.world.send_batch(topic, batch)
        queue = self.world.broker.views.catalog.topic(topic).queues[0]
        assert reply.first_offset == queue.next - len(keys)
        for group, place in PLACES.items():
            if place == topic:
                self.known.groups[group].stored(reply.first_offset, keys)
        self.known.batches.append((self.world.now, topic, batch, reply.first_offset))
        if commit:
            self.commit()

    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        young = [one for one in self.known.batches if one[0] > self.world.now - 300 * SECOND]
        if not young:
            return
        _, topic, batch, first = young[data.draw(st.integers(0, len(young) - 1))]
        reply = self.world.send_batch(topic, batch)
        assert reply.duplicate
        assert reply.first_offset == first

    @rule()
    def commit(self) -> None:
        self.world.commit()
        self.image = self.world.disk.image()
        self.saved = copy.deepcopy(self.known)
        self.saved_now = self.world.now

    # -- consumers --------------------------------------------------------------------------------

    def connected(self) -> list[int]:
        return sorted(number for number, gone in self.known.gone.items() if gone is None)

    @rule()
    def join(self) -> None:
        if len(self.known.gone) < 4:
            self.known.gone[self.world.join()] = None

    @precondition(lambda self: self.connected())
    @rule(group=groups, rows=st.integers(1, 12), data=st.data())
    def pull(self, group: str, rows: int, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.connected()))
        topic = PLACES[group]
        if group in self.known.paused:
            with pytest.raises(GroupPaused):
                self.world.pull(session, topic, group, rows)
            return
        reply = self.world.pull(session, topic, group, rows)
        self.known.groups[group].pulled(
            reply, self.world.now, self.visible(topic), rows, session
        )
        if reply is not None:
            self.pulls.append((group, session, reply))

    def visible(self, topic: str) -> int:
        """Return how many rows were there at the last sync."""
        group = next(group for group, place in PLACES.items() if place == topic)
        return len(self.saved.groups[group].key)

    @precondition(lambda self: self.pulls)
    @rule(data=st.data(), outcome=outcomes, how=st.sampled_from(["all", "some", "some", "wrong"]))
    def settle(self, data: st.DataObject, outcome: Outcome, how: str) -> None:
        group, session, reply = data.draw(st.sampled_from(self.pulls))
        reference = self.known.groups[group]
        topic = PLACES[group]
        lease = (reply.epoch, reply.lease)
        handed = sorted(at for start, stop, _, _ in reply.runs for at in range(start, stop))
        held = reference.leases.get(lease)
        spans: list[tuple[int, int]] | None = None
        if how != "all":
            chosen = data.draw(st.sets(st.sampled_from(handed), min_size=1, max_size=4))
            if how == "wrong":
                chosen = {at + 1 for at in chosen} | chosen
            spans = [(at, at + 1) for at in sorted(chosen)]
        delay = None
        if outcome is Outcome.RETRY and data.draw(st.booleans()):
            delay = data.draw(st.sampled_from([0, 1, SECOND, 50 * SECOND]))

        def say() -> Any:
            return self.world.settle(
                session, topic, group, reply, outcome, spans, delay_us=delay, reason="why"
            )

        if held is None:
            self._settle_blind(group, reference, reply, outcome, spans, say, delay)
            return
        rows = set(held.rows)
        if spans is not None:
            rows &= {at for start, stop in spans for at in range(start, stop)}
        if not rows:
            with pytest.raises(LeaseExpired):
                say()
            return
        answer = say()
        named = {at for start, stop, _, _ in answer.settled for at in range(start, stop)}
        assert named == rows
        refused = {at for start, stop in answer.refused for at in range(start, stop)}
        asked = rows if spans is None else {at for a, b in spans for at in range(a, b)}
        assert refused == asked - rows
        reference.settled(lease, outcome, rows, self.world.now, delay)

    def _settle_blind(
        self,
        group: str,
        reference: Reference,
        reply: PullReply,
        outcome: Outcome,
        spans: list[tuple[int, int]] | None,
        say: Any,
        delay: int | None,
    ) -> None:
        """The lease is not known (any more): it counts only for rows that were never handed out."""
        counts: list[int] = []
        if reply.epoch < self.world.broker.journal.epoch and not reference.ordered:
            known = self.world.held(PLACES[group], group)
            for start, _ in spans or ():
                unread = start in reference.unread and start >= known.cursor
                if unread and not reference.reset_done:
                    counts.append(start)
        if not counts:
            with pytest.raises(LeaseExpired):
                say()
            return
        answer = say()
        assert [(start, stop) for start, stop, _, _ in answer.settled] == [
            (at, at + 1) for at in counts
        ]
        reference.settled_blind(counts, outcome, self.world.now, delay)

    @precondition(lambda self: self.pulls)
    @rule(data=st.data(), us=st.sampled_from([1, SECOND, LEASE, 2 * LEASE]))
    def extend(self, data: st.DataObject, us: int) -> None:
        group, session, reply = data.draw(st.sampled_from(self.pulls))
        held = self.known.groups[group].leases.get((reply.epoch, reply.lease))
        world = self.world

        def say() -> None:
            world.run(
                lambda: world.broker.extend(
                    world.now, session, PLACES[group], group, 0, reply.epoch, reply.lease, us
                )
            )

        if held is None:
            with pytest.raises(LeaseExpired):
                say()
            return
        say()
        held.until = max(held.until, world.now + us)

    @precondition(lambda self: self.connected())
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.connected()))
        self.world.broker.disconnected(self.world.now, session)
        self.known.gone[session] = self.world.now + GRACE

    @precondition(lambda self: None in self.known.gone.values() or self.known.gone)
    @rule(data=st.data())
    def reconnect(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.known.gone)))
        self.world.broker.reconnected(session)
        self.known.gone[session] = None

    @precondition(lambda self: self.connected())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.connected()))
        self.world.leave(session)
        del self.known.gone[session]
        for reference in self.known.groups.values():
            reference.session_ended(session, self.world.now, counted=False)

    # -- time, operators ----------------------------------------------------------------------------

    @rule(us=waits)
    def wait(self, us: int) -> None:
        self.world.pass_time(us)
        now = self.world.now
        over = [number for number, gone in self.known.gone.items() if gone and gone <= now]
        for reference in self.known.groups.values():
            for session in over:
                reference.session_ended(session, now, counted=True)
            reference.time_passed(now)
        for session in over:
            del self.known.gone[session]

    @rule(group=groups, data=st.data())
    def reset(self, group: str, data: st.DataObject) -> None:
        topic = PLACES[group]
        queue = self.world.broker.views.catalog.topic(topic).queues[0]
        offset = data.draw(st.integers(0, queue.next))
        self.world.run(lambda: self.world.broker.reset(self.world.now, topic, group, 0, offset))
        self.known.groups[group].reset(offset)

    @rule(group=groups, data=st.data())
    def skip(self, group: str, data: st.DataObject) -> None:
        topic = PLACES[group]
        queue = self.world.broker.views.catalog.topic(topic).queues[0]
        cursor = self.world.held(topic, group).cursor
        offset = data.draw(st.integers(cursor, max(cursor, queue.next)))
        if offset <= queue.next:
            self.world.run(lambda: self.world.broker.skip(self.world.now, topic, group, 0, offset))
            ready = self.world.held(topic, group).ready
            parked = {at for start, stop, _, _ in ready.runs for at in range(start, stop)}
            self.known.groups[group].skipped(offset, parked)

    @rule(group=groups, data=st.data(), give_up=st.booleans())
    def operate(self, group: str, data: st.DataObject, give_up: bool) -> None:
        reference = self.known.groups[group]
        able = reference.in_state("waiting", "dead") if give_up else reference.in_state("waiting")
        if not able:
            return
        offsets = data.draw(st.sets(st.sampled_from(able), min_size=1))
        now, broker, topic = self.world.now, self.world.broker, PLACES[group]
        if give_up:
            self.world.run(lambda: broker.delete_failures(now, topic, group, 0, sorted(offsets)))
            reference.given_up(offsets)
        else:
            self.world.run(lambda: broker.retry_now(now, topic, group, 0, sorted(offsets)))
            reference.let_go(offsets, now)

    @rule(
        group=groups,
        attempts=st.integers(1, 5),
        hold=st.booleans(),
        window=st.sampled_from([2, 5, 1000]),
        paused=st.sampled_from([False, False, False, True]),
    )
    def change(self, group: str, attempts: int, hold: bool, window: int, paused: bool) -> None:
        reference = self.known.groups[group]
        policy = RetryPolicy(
            first_us=SECOND,
            factor=2.0,
            cap_us=100 * SECOND,
            jitter=0.0,
            attempts=attempts,
            exhausted=Exhausted.HOLD if hold else Exhausted.DEAD_LETTER,
        )
        self.world.change(PLACES[group], group, retry=policy, window=window, paused=paused)
        reference.policy = policy
        reference.window = window
        self.known.paused.discard(group)
        if paused:
            self.known.paused.add(group)

    # -- the broker's own ---------------------------------------------------------------------------

    @rule(budget=st.sampled_from([1, 1, 2, 5, 100]))
    def write_state(self, budget: int) -> None:
        writer = self.world.broker.writer
        if not writer.active:
            writer.begin(self.world.now)
        left = [budget]

        def may_go_on() -> bool:
            left[0] -= 1
            return left[0] > 0

        writer.step(self.world.now, may_go_on)
        self.world.spare()

    @rule(how=st.sampled_from(["killed", "killed", "clean", "power cut"]), back=st.booleans())
    def restart(self, how: str, back: bool) -> None:
        world = self.world
        if how == "power cut":
            world.disk = MemoryDisk(self.image)
            self.known = copy.deepcopy(self.saved)
            world.now += SECOND
            world._open(world.now)
        else:
            world.restart(clean=how == "clean")
        for session in self.known.gone:
            self.known.gone[session] = world.now + GRACE
            if back:
                world.broker.reconnected(session)
                self.known.gone[session] = None
        self.commit()
        # Consumers forget some day what they held in reigns long gone.
        self.pulls = [one for one in self.pulls if one[2].epoch > world.broker.journal.epoch - 3]

    # -- what must hold -----------------------------------------------------------------------------

    @invariant()
    def the_views_say_what_the_reference_says(self) -> None:
        check(self.world.broker)
        for group, topic in PLACES.items():
            held = self.world.held(topic, group)
            reference = self.known.groups[group]
            owed: dict[int, tuple[object, ...]] = {}
            for lease in held.leases.values():
                key = (lease.id >> 40, lease.id & (1 << 40) - 1)
                known = reference.leases.get(key)
                assert known is not None, f"{group}: lease {key}"
                assert (lease.session, lease.until_us) == (known.session, known.until)
                for start, stop, attempt, deliveries in lease.runs:
                    for at in range(start, stop):
                        assert at in known.rows
                        owed[at] = ("leased", attempt, deliveries, 0)
            for start, stop, attempt, deliveries in held.ready.runs:
                for at in range(start, stop):
                    owed[at] = ("ready", attempt, deliveries, 0)
            for what, shards in (("waiting", held.waiting), ("dead", held.dead)):
                for rows in shards.values():
                    for row in rows:
                        when = NEVER if row.when_us == HELD_US else row.when_us
                        owed[row.offset] = (what, row.attempt, row.deliveries, when)
            unread = set(reference.unread)
            expected = {}
            for at, row in reference.rows.items():
                when = row.when if row.state in ("waiting", "dead") else 0
                expected[at] = (row.state, row.attempt, row.deliveries, when)
            parked = {at for at in owed if owed[at] == ("ready", 1, 0, 0) and at not in expected}
            assert parked <= unread, f"{group}: parked {parked - unread}"
            assert {at: row for at, row in owed.items() if at not in parked} == expected, group
            for at in unread - parked:
                if reference.matches(at):
                    assert at >= held.cursor, f"{group}: {at} was passed over"
                assert not held.ahead.overlaps(at, at + 1)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        same_after_restart(self.world)
        self._everything_comes_at_last()

    def _everything_comes_at_last(self) -> None:
        """With everybody gone and time enough, every row is handed out, or dead, or held."""
        world = self.world
        self.commit()
        for group in PLACES:
            self.change(group, 5, hold=False, window=1000, paused=False)
        self.wait(400 * SECOND)
        self.wait(400 * SECOND)
        session = world.join()
        self.known.gone[session] = None
        for group, topic in PLACES.items():
            reference = self.known.groups[group]
            for _ in range(500):
                reply = world.pull(session, topic, group, 50)
                reference.pulled(reply, world.now, self.visible(topic), 50, session)
                if reply is None:
                    break
                lease = (reply.epoch, reply.lease)
                world.settle(session, topic, group, reply)
                reference.settled(lease, Outcome.DONE, set(reference.leases[lease].rows), world.now)
                self.the_views_say_what_the_reference_says()
            left = {row.state for row in reference.rows.values()}
            assert left <= {"dead", "waiting"}
            held_keys = {reference.key[at] for at in reference.in_state("waiting")}
            for at in reference.in_state("waiting"):
                assert reference.rows[at].when == NEVER
            if not reference.ordered:
                assert not [at for at in reference.unread if reference.matches(at)]
            else:
                assert {reference.key[at] for at in reference.unread} <= held_keys


TestBroker = BrokerMachine.TestCase
TestBroker.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
