"""The commands of writers of transactions: prepare, commit, abort, list."""

from __future__ import annotations

from typing import Final

from ternmq.access import Authoriser
from ternmq.broker.query.listings import TransactionPlace
from ternmq.broker.query.messages import Queries
from ternmq.model.errors import Forbidden, InvalidRequest
from ternmq.server.commands.checked import told
from ternmq.server.commands.control import Answer, BrokerCommands
from ternmq.server.commands.sends import check_bodies
from ternmq.server.desk.desk import Desk
from ternmq.server.desk.first_use import make_topic
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller
from ternmq.wire.session import Request

LOOKS: Final = 1000
"""Most transactions that one page of a list looks at."""


class TransactionCommands(BrokerCommands):
    """Handlers of the transaction commands. Not thread-safe: call it from the broker's loop.

    A transaction belongs to the app of its writer, and this app must have the right to produce to
    every topic of it. An app with the right to manage everything may roll back those of others.
    """

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self.handlers |= {
            Command.PREPARE: self.prepare,
            Command.TRANSACTION_COMMIT: self.control(
                Command.TRANSACTION_COMMIT, control.TransactionCommit, self.commit
            ),
            Command.TRANSACTION_ABORT: self.control(
                Command.TRANSACTION_ABORT, control.TransactionAbort, self.abort
            ),
            Command.TRANSACTION_LIST: self.control(
                Command.TRANSACTION_LIST, control.TransactionList, self.list_transactions
            ),
        }

    def prepare(self, caller: Caller, request: Request) -> None:
        """PREPARE: store an invisible batch; the answer leaves when it is durable."""
        asked = bodies.unpack_prepare(request.body)
        topic = asked.topic
        self._authoriser.check(caller.app, Command.PREPARE, topic)
        check_bodies(asked.batch, self._desk.settings.body_bytes)
        now = self._core.now_us()
        make_topic(self._desk, caller, now, Command.PREPARE, topic, asked.batch)
        reply = self._broker.prepare(
            now,
            caller.app,
            topic,
            asked.batch,
            asked.writer,
            asked.batch_id,
            asked.part,
            asked.queue,
        )
        if topic not in caller.topics:
            caller.uses(topic)
        counters = self._desk.counters
        counters.prepared_batches += 1
        counters.prepared_rows += reply.count
        body = bodies.pack_prepared(
            reply.prepared, reply.topic, reply.queue, reply.count, duplicate=reply.duplicate
        )
        caller.answer(request, body, reply.position, reply.rests)

    def commit(self, caller: Caller, asked: control.TransactionCommit) -> Answer:
        """TRANSACTION_COMMIT: turn the rows into messages, once this is durable."""
        self._check_topics(caller, Command.TRANSACTION_COMMIT, asked.writer, asked.batch_id)
        reply = self._broker.commit_transaction(
            self._core.now_us(), caller.app, asked.writer, asked.batch_id, asked.ids, asked.digest
        )
        if not reply.repeated:
            self._desk.counters.committed_rows += reply.rows
        return control.TransactionDone(rows=reply.rows, repeated=reply.repeated), reply.position

    def abort(self, caller: Caller, asked: control.TransactionAbort) -> Answer:
        """TRANSACTION_ABORT: roll back; the rows never become messages."""
        now, command = self._core.now_us(), Command.TRANSACTION_ABORT
        owner = self._broker.transactions.owner(now, asked.writer)
        operator = owner != caller.app and self._authoriser.operates(caller.app, command)
        if not operator:
            self._check_topics(caller, command, asked.writer, asked.batch_id)
        reply = self._broker.abort_transaction(
            now, caller.app, asked.writer, asked.batch_id, operator=operator
        )
        if operator and not reply.repeated:
            self._desk.audit.changed(
                caller.app,
                caller.address,
                command,
                target=asked.writer,
                batch_id=str(asked.batch_id),
            )
        return control.TransactionDone(repeated=reply.repeated), reply.position

    def _check_topics(self, caller: Caller, command: Command, writer: str, batch_id: int) -> None:
        """Check that the app may still produce to every topic of a transaction."""
        topics = self._broker.transactions.topics_of(writer, batch_id)
        if not topics:
            self._authoriser.check_some(caller.app, command)
        for topic in topics:
            self._authoriser.check(caller.app, command, topic)

    def list_transactions(self, caller: Caller, asked: control.TransactionList) -> Answer:
        """TRANSACTION_LIST: list undecided transactions, and writers."""
        try:
            self._authoriser.check(caller.app, Command.CLIENT_LIST)
        except Forbidden:
            app: str | None = caller.app
        else:
            app = None
        if asked.checked:
            return self._list_checked(asked, app)
        listed = self._listings.transactions(app, asked.writer, asked.limit, _place(asked.after))
        return (
            control.Transactions(
                undecided=listed.undecided,
                writers=listed.writers,
                more=listed.next is not None,
                next="" if listed.next is None else f"{listed.next.number}/{listed.next.writer}",
            ),
            listed.position,
        )

    def _list_checked(self, asked: control.TransactionList, app: str | None) -> Answer:
        """Return a page of the undecided transactions with check-back, which may be empty."""
        views, found = self._broker.views, list[control.CheckedTransaction]()
        after = _place(asked.after).number
        numbers = [number for number in views.checked.by_number if number > after]
        following = ""
        for number in numbers[:LOOKS]:
            if len(found) == asked.limit:
                break
            after, one = number, views.checked.by_number[number]
            if (
                app in {None, one.app}
                and asked.group in {"", one.group}
                and asked.query_id in {"", one.query_id}
            ):
                found.append(told(self._broker.checking.show(one.app, number)))
        if numbers and numbers[-1] != after:
            following = f"{after}/"
        answer = control.Transactions(undecided=[], writers=[], checked=found, next=following)
        return answer, self._broker.journal.end


def _place(token: str) -> TransactionPlace:
    """Return where a list continues; a token is a transaction's number, ``/`` and a writer."""
    number, _, writer = token.partition("/")
    if not token:
        return TransactionPlace(0, "")
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise InvalidRequest("after must be the `next` of a page of transactions")
    return TransactionPlace(int(number), writer)
