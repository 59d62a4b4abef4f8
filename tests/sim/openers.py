"""Clients of transactions with check-back: they open them, fill them, decide or forget them, lose
answers, and answer the broker's questions, right, late, twice or never."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from ternmq.broker.checkback.questions import Name, Question
from ternmq.broker.gate.replies import (
    CheckedPrepareReply,
    DecideReply,
    DoneReply,
    Reply,
    ValueReply,
)
from ternmq.broker.group.lease import LEASE_BITS
from ternmq.model.errors import (
    Busy,
    DiskFull,
    InvalidBatch,
    LeaseExpired,
    NoChecker,
    ResendTooOld,
    TernMQError,
    TransactionDecided,
    UnknownGroup,
    UnknownQueue,
    UnknownSession,
    UnknownTopic,
    UnknownTransaction,
)
from ternmq.model.specs import ProducerGroupSpec, Unanswered
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle, TransactionPrepare
from tests.sim.consumers import Consumer, Held
from tests.sim.history import Opening, Tried
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

GROUP: Final = "pay"
APP: Final = "sim"
_OUTCOMES: Final = (Outcome.DONE, Outcome.DONE, Outcome.DONE, Outcome.RETRY, Outcome.DEAD)
_UNHURRIED: Final = DiskFull | Busy | UnknownTopic | UnknownGroup | UnknownSession


class Plan:
    """A transaction as its client sees it."""

    def __init__(self, counter: int) -> None:
        self.counter = counter
        self.number = 0
        """Once an answer told it."""
        self.batches: list[Tried] = []
        """What is to be prepared, or asked for again."""
        self.steps = 0
        """Settles and moves that it may still make."""
        self.commit: bool | None = None
        """What its client decided, so that it decides alike when it is asked."""


class Desk:
    """Takes the questions of all brokers of a world to the clients that are asked."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clients: list[Opener] = []
        self.known = 0
        world.restart_hooks.append(self.restarted)

    def restarted(self) -> None:
        """The broker is back, and knows nobody who could be asked."""
        self.world.broker.checking.askers = self

    def decide(self, number: int, *, commit: bool) -> None:
        """Have the client of an undecided transaction decide it, alike if it did before."""
        fact = self.world.reference.opened.open[number].fact
        client = next(one for one in self.clients if one.number == fact.producer)
        client.decide(number, fact.batch_id, commit=commit)

    def ask(self, session: int, question: Question) -> None:
        """Take a question to the client with that session.

        Raises:
            Violation: it left before its record was durable, or is not the one recorded.
        """
        world = self.world
        opened = world.reference.opened.open.get(question.transaction)
        if opened is None:
            raise Violation(f"asked about transaction {question.transaction}, which is not open")
        if opened.asked_end > world.broker.journal.committed:
            raise Violation(f"question {question.attempt} left before its record was committed")
        if question.attempt > opened.attempt:
            raise Violation(f"question {question.attempt} left, {opened.attempt} is recorded")
        if question.rows > sum(len(one.tried.rows) for one in opened.batches.values()):
            raise Violation(f"question of {question.rows} rows")
        world.reached("question")
        for client in self.clients:
            if client.session == session:
                client.asked(question)
                return


class Opener(Consumer):
    """A consumer that does what it does in transactions, and checks those of its producer group."""

    def __init__(
        self,
        world: World,
        desk: Desk,
        topic: str,
        group: str,
        name: str,
        number: int,
        *,
        targets: tuple[str, ...],
        keys: int = 0,
        forget: float = 0.3,
        due: float = 0.25,
        answers: float = 0.8,
        offers: bool = True,
        steps: tuple[int, ...] = (0, 0, 1, 2, 3),
        parts: tuple[int, ...] = (0, 1, 1, 2, 3),
        changes: float = 0.0,
        every_us: int = 100_000,
        most: int = 6,
        fail: float = 0.2,
    ) -> None:
        super().__init__(
            world, topic, group, name, every_us=every_us, most=most, vanish=0.05, fail=fail
        )
        self.desk = desk
        self.number = number
        self.targets = targets
        self.keys = keys
        self.forget = forget
        self.due = due
        self.answers = answers
        self.offers = offers
        self.steps = steps
        """How many settles and moves a transaction has, one of these."""
        self.parts = parts
        """How many batches, one of these."""
        self.changes = changes
        """How often it goes on with another transaction, and later with this one."""
        self.aside: Plan | None = None
        self.offered = False
        self.sequence = 0
        self.counter = 0
        self.plan: Plan | None = None
        self.old: list[Plan] = []
        desk.clients.append(self)

    # -- sessions and offers ----------------------------------------------------------------------

    def restarted(self) -> None:
        """The broker is back: it has to be told what is offered."""
        self.offered = False
        super().restarted()

    def _forget(self) -> None:
        if self.session is not None and self.offered:
            self.world.broker.checking.withdrawn(self.session)
        self.offered = False
        super()._forget()

    def _offer(self) -> None:
        world, session = self.world, self.session
        assert session is not None
        reply = world.command(
            lambda: world.broker.checking.offered(world.now_us(), APP, session, [GROUP])
        )
        self.offered = not isinstance(reply, TernMQError)
        world.reached("offered" if self.offered else f"offer refused {type(reply).__name__}")

    def _act(self) -> None:
        chance = self.world.chance
        if self.session is not None and not self.world.calm:
            if self.offers and not self.offered and chance.random() < 0.5:
                self._again()
                self._offer()
                return
            idle = 0.1 if self.changes else 0.3
            if chance.random() < (0.6 if self.leases else idle):
                self._again()
                self._transact()
                return
        super()._act()

    def _joined(self, reply: Reply) -> None:
        assert isinstance(reply, ValueReply)
        super()._joined(reply)

    # -- one transaction --------------------------------------------------------------------------

    def _transact(self) -> None:
        chance = self.world.chance
        if self.changes and chance.random() < self.changes:
            self.plan, self.aside = self.aside, self.plan
        plan = self.plan
        if plan is None:
            if self.old and chance.random() < 0.2:
                self._ask_again(chance.choice(self.old[-6:]))
                return
            self.counter += 1
            plan = self.plan = Plan(self.counter)
            plan.batches = [self._make(plan) for _ in range(chance.choice(self.parts))]
            plan.steps = chance.choice(self.steps)
            self._opening(plan)
            self._prepare(plan)
            return
        if not plan.number or (plan.batches and chance.random() < 0.6):
            self._prepare(plan)
        elif plan.steps and chance.random() < 0.7:
            plan.steps -= 1
            self._step(plan)
        elif plan.batches:
            self._prepare(plan)
        elif chance.random() < self.forget:
            self.world.reached("transaction forgotten by its client")
            self._over(plan)
        else:
            if plan.commit is None:
                plan.commit = chance.random() < 0.7
            self._decide(plan, commit=plan.commit)

    def _opening(self, plan: Plan) -> Opening:
        return self.world.history.openings.setdefault((self.number, plan.counter), Opening())

    def _over(self, plan: Plan) -> None:
        self.old.append(plan)
        if plan is self.aside:
            self.aside = None
        else:
            self.plan = None

    def _make(self, plan: Plan) -> Tried:
        world, chance = self.world, self.world.chance
        topic = chance.choice(self.targets)
        rows = [
            Row(
                body=b"%d:%d:" % (self.number, self.sequence + at) + b"." * chance.randrange(60),
                key=f"key{chance.randrange(4)}" if chance.random() < 0.3 else "",
            )
            for at in range(chance.randint(1, 3))
        ]
        ordered = world.broker.views.catalog.by_name.get(topic)
        keyed = ordered is not None and ordered.spec.ordered
        if keyed:
            rows = [replace(row, ordering_key=f"o{chance.randrange(3)}") for row in rows]
            rows = [replace(row, ordering_key=rows[0].ordering_key) for row in rows]
        if ordered is not None and ordered.spec.levels > 1:
            priority = chance.randrange(ordered.spec.levels)
            rows = [replace(row, priority=priority) for row in rows]
        if chance.random() < self.due:
            now = world.now_us()
            rows = [
                replace(row, due_us=now + chance.choice((-5_000, 200_000, 2_000_000, 9_000_000)))
                for row in rows
            ]
        batch = encode(
            rows,
            topic_seed=topic_seed(topic),
            producer_id=self.number,
            first_sequence=self.sequence,
            born_us=world.monotonic_us,
            keyed=keyed,
        )
        self.sequence += len(rows)
        tried = Tried(topic, self.number, batch, rows, world.monotonic_us)
        tried.opened = (self.number, plan.counter)
        world.history.tried[batch] = tried
        return tried

    def _prepare(self, plan: Plan) -> None:
        world, chance = self.world, self.world.chance
        tried = plan.batches[0] if plan.batches else None
        fresh = tried is not None and not tried.sent
        if tried is not None:
            tried.sent += 1
        session = self.session or 0
        asked = TransactionPrepare(
            "" if tried is None else tried.topic, None, self.number, plan.counter, GROUP,
            f"q{plan.counter}", plan.number, chance.choice((0, 1_000_000, 2_000_000)),
            b"" if tried is None else tried.batch,
        )  # fmt: skip
        reply = world.command(
            lambda: world.broker.checking.prepare(world.now_us(), APP, session, asked)
        )
        if isinstance(reply, TernMQError):
            self._refused(plan, tried, reply, fresh=fresh)
            return
        if tried is not None:
            tried.refused = False
        if chance.random() < 0.1:
            world.reached("answer to a prepare lost")
            return
        world.hold(reply, lambda told: self._prepared(plan, tried, told))

    def _refused(self, plan: Plan, tried: Tried | None, error: TernMQError, *, fresh: bool) -> None:
        self.world.reached(f"checked prepare refused {type(error).__name__}")
        if tried is not None:
            tried.refused = tried.refused or fresh
        if isinstance(error, TransactionDecided | UnknownTransaction):
            self._check_over(plan, error)
            self._over(plan)
        elif isinstance(error, NoChecker):
            if self.offered and self.session in self.world.broker.checking.asking._offers:
                raise Violation("NoChecker, and one is offered")
            if plan.number:
                raise Violation("NoChecker for a transaction that is open")
            self.plan = None
        elif (
            isinstance(error, UnknownTopic)
            or self._elsewhere(tried, error)
            or (isinstance(error, ResendTooOld) and tried is not None and self._forgotten(tried))
        ):
            plan.batches.pop(0)
        elif not isinstance(error, DiskFull | Busy):
            raise Violation(f"a good prepare was refused: {error!r}")

    def _forgotten(self, tried: Tried) -> bool:
        """Return whether a batch that was stored need not be known any more.

        Its record was removed, because it was copied or is long decided; or its answer was lost so
        long ago that deduplication has forgotten it.
        """
        world = self.world
        position = world.reference.stored.get(tried.batch)
        if position is None:
            return False
        return position < world.broker.journal.first or not world.remembers(tried.time_us)

    def _elsewhere(self, tried: Tried | None, error: TernMQError) -> bool:
        """Return whether a batch was prepared for a topic that was deleted, or is kept no more."""
        found = None if tried is None else self.world.broker.views.catalog.by_name.get(tried.topic)
        if isinstance(error, ResendTooOld) and tried is not None:
            return self._forgotten(tried)
        return (
            isinstance(error, InvalidBatch) and tried is not None and found is not None
            and found.number != tried.topic_number
        )  # fmt: skip

    def _prepared(self, plan: Plan, tried: Tried | None, reply: Reply) -> None:
        assert isinstance(reply, CheckedPrepareReply)
        world = self.world
        world.history.rely(world.disk.at, reply.position)
        opening = self._opening(plan)
        if opening.number not in (0, reply.transaction):
            if not reply.duplicate or tried is None:
                plan.number = reply.transaction  # opened anew: the first one was decided
            return
        opening.number = plan.number = reply.transaction
        if tried is not None and tried in plan.batches:
            plan.batches.remove(tried)
        if reply.duplicate:
            world.reached("prepared again: the first answer")

    # -- settles and moves ------------------------------------------------------------------------

    def _step(self, plan: Plan) -> None:
        if self.leases and self.world.chance.random() < 0.75:
            self._settle_inside(plan, self.world.chance.choice(self.leases))
        else:
            self._move(plan)

    def _settle_inside(self, plan: Plan, held: Held, *, rest: bool = False) -> None:
        world, chance = self.world, self.world.chance
        spans = self._some(held, by_name=chance.random() < 0.5)
        last = False
        if rest:
            spans = [(one, one + 1) for one in held.rows]
        elif self.keys and len(held.rows) > 1 and chance.random() < 0.7:
            # The last rows: those in front of them may fail. Or the first: the others must wait.
            low = held.rows[chance.randrange(1, len(held.rows))]
            last = chance.random() < (0.8 if self._overtakes() else 0.5)
            spans = [(one, one + 1) for one in held.rows if (one >= low) is last]
        outcome = chance.choice(_OUTCOMES)
        delay = chance.choice((None, 0, 500_000)) if outcome is Outcome.RETRY else None
        session = self.session or 0
        before = self._held_now(held, spans)
        asked = Settle(
            self.topic, self.group, held.key[2], held.epoch, held.lease, outcome,
            tuple(spans or ()), delay, "inside",
        )  # fmt: skip
        reply = world.command(
            lambda: world.broker.checking.settle(world.now_us(), APP, session, plan.number, asked)
        )
        if isinstance(reply, TernMQError):
            world.reached(f"settle in a transaction refused {type(reply).__name__}")
            if isinstance(reply, TransactionDecided | UnknownTransaction):
                self._check_over(plan, reply)
                self._over(plan)
            elif isinstance(reply, LeaseExpired):
                named = held.rows if spans is None else [
                    one for start, stop in spans for one in range(start, stop)
                ]  # fmt: skip
                if before == len(named) and not self._closed(held):
                    raise Violation(f"a settle of {before} rows that are held was refused")
            elif not isinstance(reply, _UNHURRIED | UnknownQueue):
                raise Violation(f"a good settle was refused: {reply!r}")
            return
        world.reached("settle in a transaction")
        if chance.random() < 0.8:  # else it tries to settle some of them once more
            settled = {one for start, stop in spans or () for one in range(start, stop)}
            held.rows = [one for one in held.rows if spans and one not in settled]
            if not held.rows:
                self.leases.remove(held)
        world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))
        if last and self.changes and held in self.leases:
            self._overtake(plan, held)

    def _overtake(self, plan: Plan, held: Held) -> None:
        """Settle the rows in front of it in another transaction, then commit this one first."""
        other = self.aside
        if other is None or not self._overtakes():
            return
        self._settle_inside(other, held, rest=True)
        if plan is self.plan:
            plan.commit = True
            self.world.reached("later rows of keys committed before earlier ones")
            self._decide(plan, commit=True)

    def _overtakes(self) -> bool:
        """Return whether another transaction of this client is open."""
        return bool(self.changes and self.aside is not None and self.aside.number)

    def _closed(self, held: Held) -> bool:
        """Return whether another transaction settles rows of the queue: it may close keys."""
        group = self.world.reference.groups.get(held.key)
        return group is None or any(id_ >> LEASE_BITS == 0 for id_ in group.leases)

    def _move(self, plan: Plan) -> None:
        world, chance = self.world, self.world.chance
        topic = world.broker.views.catalog.by_name.get(self.topic)
        if topic is None or self.keys:
            return
        queue = chance.randrange(len(topic.queues))
        number = self._group_number()
        if number is None:
            return
        group = world.reference.groups.get((number, topic.number, queue))
        if group is None:
            return
        offset = min(topic.queues[queue].next, group.cursor + chance.choice((0, 1, 12)))
        reply = world.command(
            lambda: world.broker.checking.move(
                world.now_us(), APP, plan.number, self.topic, self.group, queue, offset
            )
        )
        if isinstance(reply, TernMQError):
            if isinstance(reply, TransactionDecided | UnknownTransaction):
                self._check_over(plan, reply)
                self._over(plan)
            elif not isinstance(reply, _UNHURRIED):
                raise Violation(f"a good move was refused: {reply!r}")
            return
        world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))

    # -- decisions --------------------------------------------------------------------------------

    def _decide(
        self,
        plan: Plan,
        *,
        commit: bool,
        attempt: int = 0,
    ) -> None:
        world, chance = self.world, self.world.chance
        opening = self._opening(plan)
        opening.decisions.add((commit, attempt))
        which: int | Name = plan.number or opening.number
        if not which or (not attempt and chance.random() < 0.1):
            which = Name(self.number, plan.counter)
        reply = world.command(
            lambda: world.broker.checking.decide(
                world.now_us(), APP, which, commit=commit, attempt=attempt
            )
        )
        if isinstance(reply, TernMQError):
            world.reached(f"decision refused {type(reply).__name__}")
            if isinstance(reply, TransactionDecided | UnknownTransaction):
                self._check_refused(plan, reply, commit=commit, by_name=isinstance(which, Name))
                if plan is self.plan:
                    self._over(plan)
            elif not isinstance(reply, DiskFull | Busy):
                raise Violation(f"a good decision was refused: {reply!r}")
            return
        if reply.repeated:
            world.reached("decision repeated")
        if chance.random() < 0.1:
            world.reached("answer to a decision lost")
            return
        world.hold(reply, lambda told: self._decided(plan, told, commit=commit))

    def _decided(self, plan: Plan, reply: Reply, *, commit: bool) -> None:
        assert isinstance(reply, DecideReply)
        world, opening = self.world, self._opening(plan)
        world.history.rely(world.disk.at, reply.position)
        if reply.transaction != (opening.number or reply.transaction):
            return  # of the one that was opened anew under this name
        told = commit, reply.rows
        if opening.told not in (None, told):
            raise Violation(f"transaction {reply.transaction}: told {opening.told}, now {told}")
        opening.told = told
        known = world.reference.opened.decided.get(reply.transaction)
        if known is None or known[:2] != told:
            raise Violation(f"transaction {reply.transaction}: told {told}, recorded is {known}")
        if plan is self.plan:
            self._over(plan)

    def _check_refused(
        self, plan: Plan, error: TernMQError, *, commit: bool, by_name: bool
    ) -> None:
        """The other decision was made; or the journal no longer holds it."""
        world = self.world
        number = plan.number or self._opening(plan).number
        if world.broker.journal.written != world.broker.journal.end:
            return
        known = world.reference.opened.decided.get(number)
        if isinstance(error, TransactionDecided):
            if known is None or known.committed is commit:
                raise Violation(f"transaction {number}: {error!r}, recorded is {known}")
        elif not by_name and (known is None or known.position >= world.broker.journal.first):
            raise Violation(f"transaction {number}: {error!r}, recorded is {known}")

    def _check_over(self, plan: Plan, error: TernMQError) -> None:
        """What is refused for being decided is decided."""
        world = self.world
        if world.broker.journal.written == world.broker.journal.end:
            number = plan.number or self._opening(plan).number
            if number in world.reference.opened.open:
                raise Violation(f"transaction {number} is undecided: {error!r}")

    def _ask_again(self, plan: Plan) -> None:
        """Repeat or contradict a decision, or decide what was forgotten, long after."""
        if plan.commit is None:
            plan.commit = self.world.chance.random() < 0.5
        commit = plan.commit if self.world.chance.random() < 0.6 else not plan.commit
        if not plan.number and not self._opening(plan).number:
            return
        self._decide(plan, commit=commit)

    # -- questions --------------------------------------------------------------------------------

    def asked(self, question: Question) -> None:
        """A question came: answer it, sooner or later, or never."""
        world, chance = self.world, self.world.chance
        session, reign = self.session, world.reigns
        if chance.random() >= self.answers or world.calm:
            world.reached("question without an answer")
            return
        delay_us = chance.choice((1_000, 50_000, 900_000))

        def answer() -> None:
            if world.reigns == reign and session is not None:
                self._answer(session, question)

        world.after(delay_us, answer)

    def _answer(self, session: int, question: Question) -> None:
        world, chance = self.world, self.world.chance
        opened = world.reference.opened.open.get(question.transaction)
        if opened is None or chance.random() < 0.25:
            world.broker.checking.unknown(session, question.transaction)
            world.reached("answer: unknown")
            return
        world.reached("answer")
        owner = opened.fact.producer
        client = next(one for one in self.desk.clients if one.number == owner)
        client.decide(
            question.transaction, opened.fact.batch_id, commit=chance.random() < 0.6,
            attempt=question.attempt,
        )  # fmt: skip

    def decide(self, number: int, counter: int, *, commit: bool, attempt: int = 0) -> None:
        """Decide a transaction that may be forgotten; as before, if it was decided before."""
        plans = [one for one in (self.plan, *self.old) if one is not None]
        plan = next((one for one in plans if one.counter == counter), None)
        if plan is None:
            return
        if plan.commit is None:
            plan.commit = commit
        self._opening(plan).number = number
        self._decide(plan, commit=plan.commit, attempt=attempt)


class Hasty:
    """Has transactions committed of which rows are in the segment that is about to go."""

    def __init__(self, world: World, desk: Desk, *, every_us: int) -> None:
        self.world = world
        self.desk = desk
        self.every_us = every_us
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        world = self.world
        journal, moving = world.broker.journal, world.started.upkeep.moving
        if world.calm or not moving._active or world.chance.random() < 0.5:
            return
        end = journal.first + journal.segment_size
        for number, one in sorted(world.reference.opened.open.items()):
            if any(batch.position < end for batch in one.batches.values()):
                world.reached("decided while its segment is emptied")
                self.desk.decide(number, commit=True)
                return


class Keeper:
    """An operator of producer groups: changes policies, takes transactions up again."""

    def __init__(
        self, world: World, specs: tuple[ProducerGroupSpec, ...], *, every_us: int
    ) -> None:
        self.world = world
        self.specs = specs
        self.every_us = every_us
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        world, chance = self.world, self.world.chance
        if world.calm:
            return
        opened = world.reference.opened.open
        parked = [number for number, one in opened.items() if one.parked]
        if parked and chance.random() < 0.5:
            number = chance.choice(parked)
            name = opened[number].fact.producer, opened[number].fact.batch_id
            world.history.openings[name].taken_up += 1
            reply = world.command(
                lambda: world.broker.checking.take_up(world.now_us(), APP, number)
            )
            world.reached("operator take_up")
        else:
            spec = msgspec.structs.replace(
                chance.choice(self.specs), then=chance.choice(list(Unanswered))
            )
            reply = world.command(
                lambda: world.broker.checking.put_group(world.now_us(), APP, spec)
            )
            world.reached("operator put_group")
        if isinstance(reply, DoneReply):
            world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))
