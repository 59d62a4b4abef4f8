"""Producers and consumers of workload W: seeded, many requests in flight, everything on record.

A client that lost its answers to a kill does what a real one does: it sends the same batch again,
comes back to its session, and settles what it was handed before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ternmq.broker.gate.replies import PullReply, SendReply, SettleReply
from ternmq.model.errors import JournalFull, LeaseExpired, RefusedError, UnknownSession
from ternmq.model.marks import Rests
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies
from tests.fault.history import History, Line
from tests.fault.messages import (
    GROUPS,
    LEDGER,
    ORDERS,
    QUICK,
    TOPICS,
    Attempt,
    batch_of,
    has_application_id,
    identity_of,
)
from tests.fault.shell import Shell

PARKED_US = 200_000
REMEMBERED = 40


@dataclass(slots=True)
class Held:
    """Rows of a lease that a consumer has not settled yet."""

    topic: str
    group: str
    queue: int
    epoch: int
    lease: int
    session: int
    offsets: list[int]
    keys: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True, frozen=True, kw_only=True)
class Plan:
    """How much of what.

    Attributes:
        messages: Sent until the end; the run then stops cleanly.
        window: Most sends without an answer.
        resend_ids: Whether messages are sent again under their application id.
    """

    messages: int
    window: int = 64
    resend_ids: bool = True


class Traffic:
    """Four producers' worth of sends, and consumers in every group.

    Args:
        shell: The broker.
        history: Where everything is written; it may hold earlier reigns.
        past: The lines of earlier reigns.
        seed: Of what is done when.
        plan: How much.
    """

    def __init__(
        self, shell: Shell, history: History, past: Sequence[Line], seed: int, plan: Plan
    ) -> None:
        self.done = False
        self.answered = 0
        self.acknowledged = 0
        """Settles answered in this reign."""
        self.refused = 0
        """Sends refused since the last one that was not."""
        self._shell = shell
        self._broker = shell.broker
        self._history = history
        self._chance = random.Random(seed)
        self._plan = plan
        self._sent = 0
        self._waiting = 0
        self._handing = 0
        self._settling = 0
        self._settles = sum(line["op"] == "settle" for line in past)
        self._held: list[Held] = []
        self._known: list[Attempt] = []
        self._parked: dict[int, tuple[str, str, int]] = {}
        reign = shell.broker.journal.epoch
        self._producer = reign
        self._next = 0
        self._again = _unanswered(past)
        shell.woken = self._woken
        old: list[int] = next(
            (line["sessions"] for line in reversed(past) if line["op"] == "begin"), []
        )
        self._sessions = self._join(old)
        history.write(
            "begin",
            epoch=reign,
            t=shell.now_us,
            suspect=self._broker.views.suspect_below,
            sessions=self._sessions,
            clean=shell.report.clean,
            cut=shell.report.cut,
            fault=shell.report.fault,
            records=shell.report.record_count,
        )
        self._held += _unsettled(past, self._sessions)

    def set_up(self) -> None:
        """Make the topics and groups that are not there yet."""
        by_name = self._broker.views.catalog.by_name
        for name, spec in TOPICS.items():
            if name not in by_name:
                self._broker.administration.create_topic(self._shell.now_us, spec)
            topic = self._broker.views.catalog.topic(name)
            for group, subscription in GROUPS[name].items():
                if group not in topic.by_group:
                    self._broker.administration.subscribe(
                        self._shell.now_us, name, group, subscription
                    )

    def _join(self, old: Sequence[int]) -> list[int]:
        sessions: list[int] = []
        for number in old:
            try:
                known = self._broker.views.sessions.by_number.get(number)
                client = "" if known is None else known.info.client
                self._broker.clients.resume(number, "app", client)
            except UnknownSession:
                continue
            sessions.append(number)
        while len(sessions) < 2:
            joined = self._broker.clients.join(
                self._shell.now_us, "app", f"client{len(sessions)}"
            ).value
            assert isinstance(joined, int)
            sessions.append(joined)
        return sessions

    @property
    def waiting(self) -> int:
        """How many sends have no answer yet."""
        return self._waiting

    @property
    def pending(self) -> int:
        """How many sends, pulls and settles wait for their answer."""
        return self._waiting + self._handing + self._settling

    @property
    def held(self) -> list[Held]:
        """What consumers have in hand."""
        return self._held

    # -- one command ------------------------------------------------------------------------------

    def act(self) -> bool:
        """Issue one command."""
        if self._again and self._waiting < self._plan.window:
            self._send(self._again.pop())
            return True
        if self._sent >= self._plan.messages:
            self.done = True
            return False
        roll = self._chance.random()
        if self.refused and self._chance.random() < 0.9:
            roll = 0.4 + 0.6 * roll  # who is refused does not try again at once
        if roll < 0.35:
            return self._send_new()
        if roll < 0.40:
            return self._send_again()
        if roll < 0.65:
            return self._pull()
        return self._settle()

    # -- sends ------------------------------------------------------------------------------------

    def _send_new(self) -> bool:
        if self._waiting >= self._plan.window:
            return False
        chance = self._chance
        topic = chance.choice((ORDERS, ORDERS, LEDGER, QUICK))
        self.send_new(topic, 1 if chance.random() < 0.7 else chance.randint(2, 12))
        return True

    def send_new(self, topic: str, count: int) -> None:
        """Send a batch of that many new messages."""
        attempt = Attempt(
            topic,
            self._producer,
            self._next,
            count,
            self._shell.now_us,
            count > 6 and self._chance.random() < 0.5,
        )
        self._next += count
        self._sent += count
        self._send(attempt)

    def _send_again(self) -> bool:
        """Send something that was answered once more: the same batch, or the same message."""
        if not self._known or self._waiting >= self._plan.window:
            return False
        attempt = self._chance.choice(self._known)
        single = attempt.rows == 1 and attempt.again is None
        if single and has_application_id(attempt.topic, attempt.identities()[0]):
            if not self._plan.resend_ids:
                return False
            attempt = Attempt(
                attempt.topic,
                self._producer,
                self._next,
                1,
                self._shell.now_us,
                packed=False,
                again=attempt.identities()[0],
            )
            self._next += 1
        self._send(attempt)
        return True

    def _send(self, attempt: Attempt) -> None:
        shell = self._shell
        self._history.write("try", a=attempt)
        try:
            reply = shell.ask(
                lambda: self._broker.send(shell.now_us, attempt.topic, batch_of(attempt))
            )
        except RefusedError as error:
            self._history.write("refused", a=attempt, code=error.code, t=shell.now_us)
            self.refused += 1
            return
        self.refused = 0
        self._waiting += 1
        shell.answer(reply.position, reply.rests, lambda: self._sent_is(attempt, reply))

    def _sent_is(self, attempt: Attempt, reply: SendReply) -> None:
        self._waiting -= 1
        self.answered += 1
        self._history.write(
            "sent",
            a=attempt,
            q=reply.queue,
            first=reply.first_offset,
            count=reply.count,
            dup=reply.duplicate,
            left=[(one.row, one.offset, one.conflict) for one in reply.rows],
            t=self._shell.now_us,
        )
        self._known.append(attempt)
        if len(self._known) > REMEMBERED:
            del self._known[0]

    # -- in order, for scenarios ------------------------------------------------------------------

    def consume(self, topic: str, group: str) -> bool:
        """Acknowledge what was handed out, or ask for more; return whether there was anything."""
        if self._held:
            held = self._held.pop(0)
            self.settle(held, Outcome.DONE, held.offsets)
            return True
        return self._pull_from(topic, group, 64)

    # -- pulls ------------------------------------------------------------------------------------

    def _pull(self) -> bool:
        chance = self._chance
        topic = chance.choice((ORDERS, ORDERS, LEDGER, QUICK))
        group = chance.choice(list(GROUPS[topic]))
        most = chance.choice((1, 8, 32, 64))
        if self._pull_from(topic, group, most):
            return True
        session = chance.choice(self._sessions)
        if len(self._parked) < 3:
            token = self._broker.park(
                session, topic, group, most, 1 << 20, self._shell.now_us + PARKED_US
            )
            self._parked[token] = (topic, group, session)
        return False

    def _pull_from(self, topic: str, group: str, most: int) -> bool:
        shell = self._shell
        session = self._chance.choice(self._sessions)
        reply = shell.ask(lambda: self._broker.pull(shell.now_us, session, topic, group, most))
        if reply is not None:
            self._handed(topic, group, session, reply)
        return reply is not None

    def _woken(self, token: int, reply: PullReply | None) -> None:
        topic, group, session = self._parked.pop(token)
        if reply is not None:
            self._handed(topic, group, session, reply)

    def _handed(self, topic: str, group: str, session: int, reply: PullReply) -> None:
        rows = self._shell.rows(reply)
        lines = [
            (
                row.offset,
                row.attempt,
                row.deliveries,
                identity_of(row.row.body),
                row.position < reply.suspect_below,
                row.row.ordering_key,
            )
            for row in rows
        ]
        keys = {row.offset: row.row.ordering_key for row in rows}

        def out() -> None:
            self._handing -= 1
            self._history.write(
                "out",
                T=topic,
                g=group,
                q=reply.queue,
                e=reply.epoch,
                l=reply.lease,
                s=session,
                rows=lines,
                t=self._shell.now_us,
            )
            if self._chance.random() < 0.99:  # a consumer may forget what it holds
                offsets = sorted(keys)
                self._held.append(
                    Held(
                        topic, group, reply.queue, reply.epoch, reply.lease, session, offsets, keys
                    )
                )

        self._handing += 1
        self._shell.answer(reply.position, reply.rests, out)

    # -- settles ----------------------------------------------------------------------------------

    def _settle(self) -> bool:
        if not self._held:
            return False
        chance = self._chance
        held = chance.choice(self._held)
        count = len(held.offsets) if chance.random() < 0.6 else chance.randint(1, len(held.offsets))
        roll = chance.random()
        outcome = Outcome.DONE
        if roll > 0.8:
            count = 1
            outcome = Outcome.RETRY if roll < 0.93 else Outcome.DEAD
        if roll > 0.97:
            outcome = Outcome.RELEASED
        taken = held.offsets[:count]
        try:
            self.settle(held, outcome, taken)
        except JournalFull:
            self._history.write("expired", n=self._settles)  # no segment is ready: later
            raise
        del held.offsets[:count]
        if held.topic == LEDGER and outcome in (Outcome.RETRY, Outcome.RELEASED):
            gone = {held.keys[offset] for offset in taken}  # the broker took back their key's rows
            held.offsets = [one for one in held.offsets if held.keys[one] not in gone]
        if not held.offsets:
            self._held.remove(held)
        return True

    def settle(self, held: Held, outcome: Outcome, offsets: Sequence[int]) -> None:
        """Settle rows; what becomes of it is on record."""
        self._settles += 1
        number = self._settles
        shell = self._shell
        fields: dict[str, object] = {
            "T": held.topic,
            "g": held.group,
            "q": held.queue,
            "o": outcome.name,
        }
        self._history.write(
            "settle",
            n=number,
            rows=offsets,
            e=held.epoch,
            l=held.lease,
            t=shell.now_us,
            **fields,
        )
        command: Callable[[], SettleReply] = lambda: self._broker.settle(  # noqa: E731
            shell.now_us,
            held.session,
            bodies.Settle(
                held.topic,
                held.group,
                held.queue,
                held.epoch,
                held.lease,
                outcome,
                tuple(_spans(offsets)),
                reason="" if outcome is Outcome.DONE else f"because of {number}",
            ),
        )
        try:
            reply = shell.ask(command)
        except LeaseExpired:
            self._history.write("expired", n=number)
            return
        taken = list(reply.settled)
        self._settling += 1
        shell.answer(
            reply.position,
            Rests.DURABLE,
            lambda: self._settled_is(number, taken, fields),
        )

    def _settled_is(
        self, number: int, taken: Sequence[tuple[int, int, int, int]], fields: dict[str, object]
    ) -> None:
        self.acknowledged += 1
        self._settling -= 1
        self._history.write("settled", n=number, runs=taken, t=self._shell.now_us, **fields)


def _spans(offsets: Sequence[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for offset in offsets:
        if spans and spans[-1][1] == offset:
            spans[-1] = (spans[-1][0], offset + 1)
        else:
            spans.append((offset, offset + 1))
    return spans


def _unanswered(past: Sequence[Line]) -> list[Attempt]:
    """Return the sends of earlier reigns that had no answer, newest first; ids of their own only.

    A message sent again under its application id is not: it may be outside the window by now.
    """
    waiting: dict[tuple[int, int], Attempt] = {}
    for line in past:
        if line["op"] in ("try", "sent", "refused"):
            attempt = attempt_of(line)
            if line["op"] == "try" and attempt.again is None:
                waiting.setdefault((attempt.producer, attempt.first), attempt)
            else:
                waiting.pop((attempt.producer, attempt.first), None)
    return list(reversed(waiting.values()))


def attempt_of(line: Line) -> Attempt:
    """Return the attempt that a line is about."""
    topic, producer, first, rows, born_us, packed, again = line["a"]
    return Attempt(
        topic,
        producer,
        first,
        rows,
        born_us,
        packed,
        None if again is None else (again[0], again[1]),
    )


def _unsettled(past: Sequence[Line], sessions: Sequence[int]) -> list[Held]:
    """Return what the sessions were handed in the last reign and had no settle for."""
    held: dict[tuple[str, str, int, int, int], Held] = {}
    for line in past:
        if line["op"] == "begin":
            held = {}
        elif line["op"] == "out" and line["s"] in sessions and line["T"] != LEDGER:
            offsets = [row[0] for row in line["rows"]]
            key = (line["T"], line["g"], line["q"], line["e"], line["l"])
            held[key] = Held(*key, session=line["s"], offsets=offsets)
        elif line["op"] == "settle":
            one = held.get((line["T"], line["g"], line["q"], line["e"], line["l"]))
            if one is not None:
                one.offsets = [offset for offset in one.offsets if offset not in line["rows"]]
    return [one for one in held.values() if one.offsets]
