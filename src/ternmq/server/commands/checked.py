"""The commands of transactions with check-back, of their checkers and of producer groups."""

from __future__ import annotations

from typing import NamedTuple

from ternmq.access import Authoriser
from ternmq.broker.checkback.questions import Name, TransactionState
from ternmq.broker.query.messages import Queries
from ternmq.model.errors import Forbidden, InvalidRequest, ProducerGroupTaken
from ternmq.model.specs import ProducerGroupSpec, Unanswered, check_name
from ternmq.model.transaction_ids import transaction_id
from ternmq.record.fact.header import HEADER_BYTES
from ternmq.record.fact.messages import TOPIC_QUEUE
from ternmq.server.commands.control import Answer, BrokerCommands
from ternmq.server.commands.sends import check_bodies
from ternmq.server.desk.desk import Desk
from ternmq.server.desk.first_use import make_topic, may_make_topic
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller
from ternmq.wire.session import Request


class _Sight(NamedTuple):
    """A transaction that an app may use."""

    state: TransactionState
    operator: bool
    """The app acts as an operator, not as the owner of the transaction."""


class CheckedCommands(BrokerCommands):
    """Handlers of these commands. Not thread-safe: call it from the broker's loop.

    A transaction belongs to the app that opened it, and this app must have the right to produce to
    every topic of it. An app with the right to manage everything may show and decide those of
    others.
    """

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self._checking = desk.core.broker.checking
        self._checking.askers = desk.checkers
        self.handlers |= {
            Command.TRANSACTION_PREPARE: self.prepare,
            Command.TRANSACTION_SETTLE: self.settle,
            Command.TRANSACTION_READ: self.read,
            Command.TRANSACTION_MOVE: self.control(
                Command.TRANSACTION_MOVE, control.TransactionMove, self.move
            ),
            Command.TRANSACTION_DECIDE: self.control(
                Command.TRANSACTION_DECIDE, control.TransactionDecide, self.decide
            ),
            Command.TRANSACTION_SHOW: self.control(
                Command.TRANSACTION_SHOW, control.TransactionShow, self.show
            ),
            Command.TRANSACTION_CHECK_AGAIN: self.control(
                Command.TRANSACTION_CHECK_AGAIN, control.TransactionCheckAgain, self.check_again
            ),
            Command.CHECKER_OFFER: self.control(
                Command.CHECKER_OFFER, control.CheckerOffer, self.offer
            ),
            Command.PRODUCER_GROUP_PUT: self.control(
                Command.PRODUCER_GROUP_PUT, control.ProducerGroupPut, self.put_group
            ),
            Command.PRODUCER_GROUP_LIST: self.control(
                Command.PRODUCER_GROUP_LIST, control.ProducerGroupList, self.list_groups
            ),
            Command.PRODUCER_GROUP_DELETE: self.control(
                Command.PRODUCER_GROUP_DELETE, control.ProducerGroupDelete, self.delete_group
            ),
        }

    # -- what is in it ----------------------------------------------------------------------------

    def prepare(self, caller: Caller, request: Request) -> None:
        """TRANSACTION_PREPARE: store an invisible batch; the answer leaves when it is durable."""
        asked = bodies.unpack_transaction_prepare(request.body)
        topic = asked.topic
        now = self._core.now_us()
        if topic:
            self._authoriser.check(caller.app, Command.TRANSACTION_PREPARE, topic)
            check_bodies(asked.batch, self._desk.settings.body_bytes)
            self._make_topic(caller, now, asked)
        else:
            self._authoriser.check_some(caller.app, Command.TRANSACTION_PREPARE)
        reply = self._checking.prepare(now, caller.app, caller.session, asked)
        if topic:
            if topic not in caller.topics:
                caller.uses(topic)
            counters = self._desk.counters
            counters.prepared_batches += 1
            counters.prepared_rows += reply.rows
        body = bodies.pack_transaction_prepared(
            reply.transaction, reply.topic, reply.queue, reply.rows, duplicate=reply.duplicate
        )
        caller.answer(request, body, reply.position, reply.rests)

    def _make_topic(self, caller: Caller, now: int, asked: bodies.TransactionPrepare) -> None:
        """Make a missing topic, unless the transaction cannot be opened."""
        topic = asked.topic
        if not may_make_topic(self._desk, topic):
            return
        self._checking.check(caller.app, asked)
        make_topic(self._desk, caller, now, Command.TRANSACTION_PREPARE, topic, asked.batch)

    def settle(self, caller: Caller, request: Request) -> None:
        """TRANSACTION_SETTLE: put rows of a lease under the transaction.

        The broker knows from its state which rows the transaction settles: a request that is sent
        again, because its answer was lost, succeeds again.
        """
        asked = bodies.unpack_transaction_settle(request.body)
        self._authoriser.check(caller.app, Command.TRANSACTION_SETTLE, asked.topic, asked.group)
        reply = self._checking.settle(
            self._core.now_us(), caller.app, caller.session, asked.transaction, asked.settle
        )
        caller.answer(request, b"", reply.position, reply.rests)

    def move(self, caller: Caller, asked: control.TransactionMove) -> Answer:
        """TRANSACTION_MOVE: move the cursor of a group when the transaction commits."""
        reply = self._checking.move(
            self._core.now_us(),
            caller.app,
            asked.transaction,
            asked.topic,
            asked.group,
            asked.queue,
            asked.offset,
        )
        return control.Nothing(), reply.position

    # -- what becomes of it -----------------------------------------------------------------------

    def decide(self, caller: Caller, asked: control.TransactionDecide) -> Answer:
        """TRANSACTION_DECIDE: commit or roll back; the answer leaves when it is durable."""
        command, what = Command.TRANSACTION_DECIDE, _named(asked)
        if asked.transaction is not None:
            self._desk.checkers.answered(caller.session, asked.transaction)
            # Also if it is refused: who may not decide it any more is not busy with it.
            self._checking.unknown(caller.session, asked.transaction)
        sight = self._see(caller, command, what)
        if asked.commit is None:
            return control.TransactionDone(transaction=sight.state.transaction), 0
        reply = self._checking.decide(
            self._core.now_us(),
            caller.app,
            what,
            commit=asked.commit,
            attempt=asked.attempt,
            operator=sight.operator,
        )
        if not reply.repeated:
            if asked.commit:
                self._desk.counters.committed_rows += reply.rows
            if sight.operator:
                self._desk.audit.changed(
                    caller.app,
                    caller.address,
                    command,
                    target=transaction_id(reply.transaction),
                    decision="commit" if asked.commit else "roll back",
                )
        done = control.TransactionDone(
            rows=reply.rows, repeated=reply.repeated, transaction=reply.transaction
        )
        return done, reply.position

    def _see(self, caller: Caller, command: Command, which: int | Name) -> _Sight:
        """Return the state of a transaction, if the app may use a command for it.

        Raises:
            Forbidden, Unauthenticated: It may not produce to a topic of the transaction.
            ProducerGroupTaken: It belongs to another app, and this one is no operator.
            UnknownTransaction: There is none.
        """
        try:
            self._authoriser.check_some(caller.app, command)
            state = self._checking.show(caller.app, which)
            for topic in state.topics:
                self._authoriser.check(caller.app, command, topic)
        except (Forbidden, ProducerGroupTaken):
            if not self._authoriser.operates(caller.app, command):
                raise
            return _Sight(self._checking.show(caller.app, which, operator=True), operator=True)
        return _Sight(state, operator=False)

    def show(self, caller: Caller, asked: control.TransactionShow) -> Answer:
        """TRANSACTION_SHOW: return the state of a transaction."""
        state = self._see(caller, Command.TRANSACTION_SHOW, _named(asked)).state
        return told(state), state.position

    def read(self, caller: Caller, request: Request) -> None:
        """TRANSACTION_READ: a page of the prepared rows."""
        asked = bodies.unpack_transaction_read(request.body)
        self._see(caller, Command.TRANSACTION_READ, asked.transaction)
        most = self._broker.limits.pull_bytes
        page = self._checking.rows(
            caller.app, asked.transaction, asked.after, min(asked.max_bytes or most, most)
        )
        catalog = self._broker.views.catalog
        numbers = {TOPIC_QUEUE.unpack_from(one, HEADER_BYTES)[0] for one in page.records}
        names = [(number, catalog.topics[number].name) for number in sorted(numbers)]
        head = bodies.transaction_rows_head(page.next, names)
        caller.answer(request, b"".join([head, *page.records]), page.position)

    def check_again(self, caller: Caller, asked: control.TransactionCheckAgain) -> Answer:
        """TRANSACTION_CHECK_AGAIN: begin the questions anew."""
        reply = self._checking.take_up(
            self._core.now_us(), caller.app, asked.transaction, operator=True
        )
        return control.Nothing(), reply.position

    # -- producer groups --------------------------------------------------------------------------

    def offer(self, caller: Caller, asked: control.CheckerOffer) -> Answer:
        """CHECKER_OFFER: ask this connection about transactions of groups from now on."""
        for group in asked.groups:
            check_name(group, "a producer group's name")
        position = self._desk.checkers.offer(caller, asked.groups)
        self._core.touch()
        return control.Nothing(), position

    def put_group(self, caller: Caller, asked: control.ProducerGroupPut) -> Answer:
        """PRODUCER_GROUP_PUT: make or change a producer group."""
        spec = ProducerGroupSpec(
            name=asked.group,
            first_us=asked.first_us,
            factor=asked.factor,
            cap_us=asked.cap_us,
            jitter=asked.jitter,
            attempts=asked.attempts,
            give_up_us=asked.give_up_us,
            then=Unanswered(asked.then),
            without_checker=asked.without_checker,
        ).check()
        if asked.app:
            check_name(asked.app, "an app's name")
        now, app = self._core.now_us(), asked.app or caller.app
        reply = self._checking.put_group(now, app, spec, operator=True)
        return control.Nothing(), reply.position

    def list_groups(self, caller: Caller, asked: control.ProducerGroupList) -> Answer:
        """PRODUCER_GROUP_LIST: a page of the producer groups."""
        views = self._broker.views
        names = sorted(one for one in views.producer_groups.by_name if one > asked.after)
        checkers = self._desk.checkers.groups()
        groups: list[control.ProducerGroupInfo] = []
        for name in names[: asked.limit]:
            known = views.producer_groups.by_name[name]
            spec = known.spec
            groups.append(
                control.ProducerGroupInfo(
                    group=name,
                    app=known.app,
                    first_us=spec.first_us,
                    factor=spec.factor,
                    cap_us=spec.cap_us,
                    jitter=spec.jitter,
                    attempts=spec.attempts,
                    give_up_us=spec.give_up_us,
                    then=spec.then.value,
                    without_checker=spec.without_checker,
                    checkers=checkers.get(name, 0),
                    undecided=views.checked.of_group.get(name, 0),
                )
            )
        more = len(names) > len(groups)
        answer = control.ProducerGroups(groups=groups, next=groups[-1].group if more else "")
        return answer, self._broker.journal.end

    def delete_group(self, caller: Caller, asked: control.ProducerGroupDelete) -> Answer:
        """PRODUCER_GROUP_DELETE: delete a producer group."""
        reply = self._checking.delete_group(
            self._core.now_us(), caller.app, asked.group, operator=True
        )
        return control.Nothing(), reply.position


def _named(asked: control.TransactionDecide | control.TransactionShow) -> int | Name:
    """Return the transaction that a request names.

    Raises:
        InvalidRequest: It names none, or in both ways.
    """
    by_name = bool(asked.producer or asked.counter)
    if (asked.transaction is not None) is by_name:
        raise InvalidRequest("state either transaction, or producer and counter")
    return Name(asked.producer, asked.counter) if asked.transaction is None else asked.transaction


def told(state: TransactionState) -> control.CheckedTransaction:
    """Return the state of a transaction for an answer."""
    return control.CheckedTransaction(
        transaction=state.transaction,
        state=state.outcome,
        app=state.app,
        group=state.group,
        query_id=state.query_id,
        time_us=state.time_us,
        attempt=state.attempt,
        next_us=state.next_us,
        topics=list(state.topics),
        rows=state.rows,
        due_rows=state.due_rows,
        bytes=state.bytes,
        settled_rows=state.settled_rows,
        moves=state.moves,
        why=state.why,
    )
