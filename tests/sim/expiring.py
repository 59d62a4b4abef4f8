"""Rows that expire: when they may be handed out, and what becomes of them.

X1: no row is handed out, for the first time or after a failure, at or after its expiry; one that
has expired is dead with the cause EXPIRED, or done with it: dropped. X2: expired rows never fill
the failure store, so it is never them that stop a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import LONGEST_US, Expired, Mode, SubscriptionSpec
from ternmq.record.batch.batch import Row, encode
from ternmq.record.fact import facts
from ternmq.record.fact.facts import Cause, Outcome
from tests.sim.delays import MINUTE_US, SECOND_US, Delayer, Leaper
from tests.sim.history import Stored
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from ternmq.journal.log.scan import RawRecord
    from ternmq.record.fact.facts import Settled
    from tests.sim.reference import Reference, RefGroup, RefTopic
    from tests.sim.reference import Row as RefRow
    from tests.sim.world import World

NEVER: Final = 1 << 63
NAPS_US: Final = (SECOND_US, 2 * SECOND_US, 11 * SECOND_US)
"""How long the broker stands still."""


class Expiries:
    """When the rows of all topics expire, as the reference sees it."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self.failures = 0
        """Rows that a failure store may have."""

    def expires_us(self, topic: RefTopic, stored: Stored) -> int:
        """Return when a row expires."""
        row = stored.row()
        of_topic = topic.spec.expires_us
        return min(row.expiry_us or NEVER, stored.time_us + of_topic if of_topic else NEVER)

    def handed_out(
        self,
        where: str,
        record: RawRecord,
        topic: RefTopic,
        group: RefGroup,
        stored: Sequence[Stored],
        offset: int,
        deliveries: int,
    ) -> None:
        """A row is handed out; its state is the one before it.

        Raises:
            Violation: it has expired (X1).
        """
        if offset >= len(stored):
            return
        expires_us = self.expires_us(topic, stored[offset])
        row = group.rows.get(offset)
        if row is None:
            judged = deliveries == 1
        elif row.parked:
            # Behind a skip, a group that parks no rows any more takes them for replayed ones.
            mode = topic.subscriptions[group.key[0]].spec.mode
            judged = deliveries == 1 and (mode is Mode.ORDERED or offset >= group.given.since)
        else:
            judged = row.state == "waiting"
        if judged and expires_us <= record.time_us:
            raise Violation(f"{where}: {offset} expired {record.time_us - expires_us} us ago")
        if expires_us <= record.time_us:
            self._reference.count("handed out again after its expiry")
        elif expires_us < NEVER:
            self._reference.count("handed out before its expiry")

    def ends(self, fact: Settled, row: RefRow | None) -> bool:
        """Return whether a settle says that a row has expired: it was not in a lease, nor dead."""
        if fact.cause is not Cause.EXPIRED or fact.lease or fact.session:
            return False
        return row is None or row.state != "dead"

    def ended(
        self,
        where: str,
        record: RawRecord,
        fact: Settled,
        group: RefGroup,
        offset: int,
        row: RefRow | None,
    ) -> None:
        """A row has expired.

        Raises:
            Violation: it has not, or nobody may judge it, or it should become something else.
        """
        topic = self._reference.topics[fact.topic]
        stored = topic.queues[fact.queue]
        spec = topic.subscriptions[fact.group].spec
        count = self._reference.count
        if offset >= len(stored) or stored[offset].end > record.durable:
            raise Violation(f"{where}: {offset} expires and is not there")
        if self.expires_us(topic, stored[offset]) > record.time_us:
            raise Violation(f"{where}: {offset} has not expired")
        if row is None and not topic.subscriptions[fact.group].passes(stored[offset].row()):
            raise Violation(f"{where}: {offset} expires, which the group does not want")
        if row is None and (offset < group.cursor or offset in group.ahead):
            raise Violation(f"{where}: {offset} expires and is done")
        if row is not None and row.state == "waiting":
            if row.when_us > record.time_us:
                raise Violation(f"{where}: {offset} expires before it comes again")
            count("expired behind a failure")
        elif row is not None:
            if not row.parked:
                raise Violation(f"{where}: {offset} is {row.state} and expires")
            ordered = spec.mode is Mode.ORDERED
            count("expired while parked" if ordered else "expired while parked, before a switch")
        self._check_outcome(where, record, fact, group, spec, row)
        if not stored[offset].row().expiry_us:
            count("expired by its topic")
        if stored[offset].row().due_us:
            count("expired after it was due")
        if stored[offset].home != stored[offset].position:
            count("expired out of a transaction")

    def _check_outcome(
        self,
        where: str,
        record: RawRecord,
        fact: Settled,
        group: RefGroup,
        spec: SubscriptionSpec,
        row: RefRow | None,
    ) -> None:
        count = self._reference.count
        failed = sum(one.state in ("waiting", "held", "dead") for one in group.rows.values())
        most = self.failures * 9 // 10
        if fact.outcome is Outcome.DEAD:
            if spec.expired is Expired.DROP:
                raise Violation(f"{where}: a dead letter in a group that drops")
            if row is None and failed >= most:
                raise Violation(f"{where}: expired rows fill the failure store ({failed})")
            count("expired: dead letter")
        elif fact.outcome is not Outcome.DONE:
            raise Violation(f"{where}: an expired row is {fact.outcome.name}")
        elif spec.expired is Expired.DROP:
            count("expired: dropped")
        else:
            told = facts.unpack_settled(record.body)
            rows = sum(stop - start for one in told for start, stop, _, _ in one.runs)
            if failed + rows <= most:
                raise Violation(f"{where}: dropped, with {failed} of {self.failures} failures")
            count("expired: dropped for want of room")

    def check_age(
        self, where: str, record: RawRecord, fact: Settled, spec: SubscriptionSpec, offset: int
    ) -> None:
        """A row fails, and is too old to be tried again.

        Raises:
            Violation: it is not.
        """
        policy = spec.retry
        stored = self._reference.topics[fact.topic].queues[fact.queue][offset]
        longest_us = policy.cap_us * (1 + policy.jitter) + MINUTE_US
        oldest_us = record.time_us + longest_us - policy.expires_us
        if not policy.expires_us or stored.time_us > oldest_us:
            raise Violation(f"{where}: {offset} is not too old for a retry")
        self._reference.count("retries ended by age")


class Napper(Leaper):
    """Lets the broker stand still for some seconds: groups that nobody pulls are swept after it."""

    def _act(self) -> None:
        self._again()
        if not self.world.calm:
            self.world.leap(self.world.chance.choice(NAPS_US))


class Brief(Delayer):
    """Sends rows that expire, soon or late, or have expired; at times such as must be refused."""

    def __init__(
        self, world: World, topic: str, number: int, *, brief: float = 0.6, **more: object
    ):
        super().__init__(world, topic, number, **more)  # type: ignore[arg-type]
        self.brief = brief
        """Share of the rows that expire."""

    def _act(self) -> None:
        if not self.world.calm and self.world.chance.random() < 0.1:
            self._refusals()
        super()._act()

    def _made_rows(self) -> list[Row]:
        return [replace(row, expiry_us=self._expiry(row)) for row in super()._made_rows()]

    def _expiry(self, row: Row) -> int:
        chance = self.world.chance
        if chance.random() > self.brief:
            return 0
        after = chance.choice(
            (0, -1, -50 * MINUTE_US, 1, 1000, 30_000, 150_000, 150_000, 1_000_000, MINUTE_US)
        )
        return max(row.due_us, self.world.now_us()) + (
            chance.randrange(after) if after > 1 else after
        )

    def _refusals(self) -> None:
        """Send what must be refused, under sequences that the next good batch uses."""
        world = self.world
        if world.broker.views.catalog.by_name.get(self.topic) is None:
            return
        rows = Delayer._made_rows(self)
        far = world.now_us() + LONGEST_US + 2 * MINUTE_US
        rows[-1] = replace(rows[-1], expiry_us=far)
        batch = encode(
            rows,
            topic_seed=self.seed,
            producer_id=self.number,
            first_sequence=self.sequence,
            born_us=world.monotonic_us,
            keyed=self.keys > 0,
        )
        end = world.broker.journal.end
        reply = world.command(lambda: world.broker.send(world.now_us(), self.topic, batch))
        if isinstance(reply, InvalidRequest):
            world.reached("expiry refused")
        if world.broker.journal.end != end:
            raise Violation(f"a batch with an expiry far away was stored: {reply!r}")
