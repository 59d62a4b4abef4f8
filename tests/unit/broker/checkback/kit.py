"""A world of transactions with check-back: what clients do, and who is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ternmq.broker.checkback.questions import Name, Question
from ternmq.broker.gate.replies import CheckedPrepareReply, DecideReply, DoneReply, PullReply
from ternmq.record.batch.batch import Batch, Row
from ternmq.record.fact.facts import Outcome, Span
from ternmq.wire import bodies
from tests.unit.broker.kit import World

APP = "app"


class Asked:
    """Notes the questions that left."""

    def __init__(self) -> None:
        self.all: list[tuple[int, Question]] = []

    def ask(self, session: int, question: Question) -> None:
        self.all.append((session, question))

    def take(self) -> list[tuple[int, int, int]]:
        """Return session, transaction and attempt of the questions since the last call."""
        found = [(session, one.transaction, one.attempt) for session, one in self.all]
        self.all.clear()
        return found


class Transacting(World):
    """The commands of transactions, with one producer group ``pay``."""

    asked: Asked

    def _open(self, wall_us: int) -> None:
        super()._open(wall_us)
        self.asked = Asked()
        self.broker.checking.askers = self.asked

    def offer(self, session: int, *groups: str, app: str = APP) -> None:
        self.run(lambda: self.broker.checking.offered(self.now, app, session, groups or ["pay"]))

    def checker(self, client: str = "c") -> int:
        """Join a session that offers to check ``pay``."""
        session = self.join(client)
        self.offer(session)
        return session

    def put(
        self,
        counter: int,
        topic: str | None = None,
        rows: int | str | Sequence[Row] | bytes = 1,
        *,
        number: int = 0,
        session: int = 1,
        queue: int | None = None,
        app: str = APP,
        group: str = "pay",
        query_id: str = "",
        check_after_us: int = 0,
    ) -> CheckedPrepareReply:
        """Prepare rows in the transaction with this counter; without a topic, only open it."""
        data = b""
        if topic is not None:
            data = rows if isinstance(rows, bytes) else self.batch(topic, self.rows(rows))
        asked = bodies.TransactionPrepare(
            topic or "", queue, 9, counter, group, query_id, number, check_after_us, data
        )
        reply = self.run(lambda: self.broker.checking.prepare(self.now, app, session, asked))
        if topic is not None:
            self.prepared[reply.position] = (reply.topic, reply.queue, data)
        self.commit()
        return reply

    def hold(
        self,
        number: int,
        session: int,
        topic: str,
        pulled: PullReply,
        outcome: Outcome = Outcome.DONE,
        spans: Sequence[Span] = (),
        **more: Any,
    ) -> DoneReply:
        """Settle rows of a lease in a transaction."""
        lease = (pulled.queue, pulled.epoch, pulled.lease)
        asked = bodies.Settle(topic, "g", *lease, outcome, tuple(spans), **more)
        return self.run(lambda: self.broker.checking.settle(self.now, APP, session, number, asked))

    def decided(
        self, which: int | Name, *, commit: bool = True, attempt: int = 0, app: str = APP,
        operator: bool = False,
    ) -> DecideReply:  # fmt: skip
        """Decide, and note where the rows are."""
        checked = self.broker.views.checked
        opened = checked.by_number.get(which) if isinstance(which, int) else None
        batches = [] if opened is None else [one for _, one in sorted(opened.batches.items())]
        reply = self.run(
            lambda: self.broker.checking.decide(
                self.now, app, which, commit=commit, attempt=attempt, operator=operator
            )
        )
        self.commit()
        if commit and not reply.repeated:
            self._note(batches)
        return reply

    def _note(self, batches: Sequence[Any]) -> None:
        bodies: dict[tuple[int, int], list[bytes]] = {}
        by_first = {
            (Batch(data).producer_id, Batch(data).first_sequence): data
            for _, _, data in self.prepared.values()
        }
        for one in batches:
            record = self.broker.store.get(one.position)
            data = next(data for data in by_first.values() if data in record)
            if one.due_us:
                whole = Batch(data)
                for row, body in enumerate(whole.bodies()):
                    self.scheduled[whole.producer_id, whole.first_sequence + row] = body
            else:
                bodies.setdefault((one.topic, one.queue), []).extend(Batch(data).bodies())
        for (topic, queue), found in bodies.items():
            if topic not in self.broker.views.catalog.topics:
                continue  # deleted meanwhile
            next_ = self.broker.views.catalog.topics[topic].queues[queue].next
            for at, body in enumerate(found):
                self.sent[topic, queue, next_ - len(found) + at] = body

    def wait(self, us: int) -> list[tuple[int, int, int]]:
        """Let time pass; return the questions that left."""
        self.pass_time(us)
        assert not self.asked.all, "a question left before its record was durable"
        self.commit()
        return self.asked.take()
