"""The commands that move messages, and the one that takes numbers.

Pulls and reads are in files of their own, the others here.
"""

from __future__ import annotations

from typing import Final

from ternmq.access import Authoriser
from ternmq.broker.query.messages import Queries
from ternmq.model.errors import LeaseExpired, MessageTooLarge, UnknownTopic
from ternmq.model.marks import Rests
from ternmq.record.batch.batch import Batch, BatchError, Column
from ternmq.record.batch.layout import COMPRESSION_AT
from ternmq.record.fact.facts import Outcome
from ternmq.record.fact.numbers import RESERVE, first_of_reserve
from ternmq.server.commands.journal_reads import JournalReads
from ternmq.server.commands.pulls import PullCommands
from ternmq.server.commands.reads import ReadCommands
from ternmq.server.desk.desk import Desk
from ternmq.server.desk.first_use import make_topic
from ternmq.server.desk.settled import Answered, SettledLately
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller, Handler
from ternmq.wire.session import Request

# Members by name of the module: to look one up in its class takes 0.2 us (Python 3.11).
_SEND: Final = Command.SEND
_DURABLE: Final = Rests.DURABLE
_UNCOMPRESSED: Final = b"", b"\0"
_OUTCOMES: Final = {int(one): one.name.lower() for one in Outcome}


class MessageCommands:
    """Handlers of the message commands. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        self._desk = desk
        self._core = desk.core
        self._broker = desk.core.broker
        self._authoriser = authoriser
        self._settled = SettledLately()
        self._pulls = PullCommands(desk, authoriser, queries)
        self._reads = ReadCommands(desk, authoriser, queries)
        self._journal = JournalReads(desk, authoriser)
        desk.core.on_woken = self.wake
        desk.core.on_durable = self.wake_waiting
        self.handlers: dict[Command, Handler] = {
            Command.SEND: self.send,
            Command.PULL: self._pulls.pull,
            Command.SETTLE: self.settle,
            Command.NUMBERS_TAKE: self.take_numbers,
            Command.EXTEND: self.extend,
            Command.READ: self._reads.read,
            Command.JOURNAL_READ: self._journal.read,
            Command.CANCEL: self.cancel,
        }

    # -- what waits -------------------------------------------------------------------------------

    def wake(self) -> None:
        """Answer parked pulls that have rows or are out of time; run reads that have rows."""
        parking = self._broker.parking
        if parking.stirs(self._core.now_us()):
            self._pulls.wake()
        if parking.grown or self._reads.grown:
            self._reads.wake()
        if self._journal.waiting.of:
            self._journal.wake()

    def wake_waiting(self) -> None:
        """Call ``wake`` once more in a turn; only for journal reads if no others are parked."""
        if self._desk.waiting.taken:
            self.wake()
        elif self._journal.waiting.of:
            self._journal.wake()

    def cancel(self, caller: Caller, request: Request) -> None:
        """CANCEL: answer a parked pull or read at once, then the CANCEL."""
        id_ = bodies.unpack_cancel(request.body)
        self._pulls.waiting.end(caller, id_)
        self._reads.waiting.end(caller, id_)
        self._desk.late.hurry(caller, id_)
        self._journal.waiting.end(caller, id_)
        caller.answer(request, b"")

    def end_all(self, caller: Caller) -> None:
        """Answer all parked requests of a connection, as if their time was over."""
        self._pulls.waiting.end_all(caller)
        self._reads.waiting.end_all(caller)
        self._desk.late.hurry(caller)
        self._journal.waiting.end_all(caller)

    def withdraw(self, caller: Caller) -> list[Request]:
        """Take a connection's parked pulls and reads back; they keep their deadlines."""
        found = self._pulls.waiting.withdraw(caller) + self._reads.waiting.withdraw(caller)
        return found + self._journal.waiting.withdraw(caller)

    # -- send -------------------------------------------------------------------------------------

    def send(self, caller: Caller, request: Request) -> None:
        """SEND: store a batch; the answer leaves when it is durable (``fast``: written)."""
        topic, queue, batch = bodies.unpack_send(request.body)
        self._authoriser.check(caller.app, _SEND, topic)
        check_bodies(batch, self._desk.settings.body_bytes)
        now = self._core.now_us()
        try:
            reply = self._broker.send(now, topic, batch, queue)
        except UnknownTopic:
            if not make_topic(self._desk, caller, now, Command.SEND, topic, batch):
                raise
            reply = self._broker.send(now, topic, batch, queue)
        if topic not in caller.topics:
            caller.uses(topic)
        counters = self._desk.counters
        counters.sends += 1
        counters.sent_rows += reply.count
        counters.send_bytes += len(batch)
        if reply.scheduled:
            counters.scheduled_rows += reply.count
        if request.one_way:
            return
        first, rests = reply.first_offset, reply.rests
        if first is not None and not reply.duplicate and not reply.rows and rests is _DURABLE:
            body = bodies.pack_stored(first, reply.topic, reply.queue, reply.count)
        else:
            body = bodies.pack_receipt(
                bodies.Receipt(
                    first,
                    reply.topic,
                    reply.queue,
                    reply.count,
                    reply.duplicate,
                    rests is Rests.WRITTEN,
                    tuple([bodies.ReceiptRow(*row) for row in reply.rows]),
                    reply.scheduled,
                )
            )
        caller.answer(request, body, reply.position, rests)

    def take_numbers(self, caller: Caller, request: Request) -> None:
        """NUMBERS_TAKE: give numbers of a topic; the answer leaves when their record is durable.

        A topic that does not exist is not made: a first send decides whether it is ordered.
        """
        asked = control.decode(request.body, control.NumbersTake)
        self._authoriser.check(caller.app, Command.NUMBERS_TAKE, asked.topic)
        now = self._core.now_us()
        given = self._broker.take_numbers(now, asked.topic, asked.count, reserve=asked.reserve)
        reserve = given.reserve
        answer = control.NumbersTaken(
            first=given.first,
            count=given.count,
            reserve_first=0 if reserve is None else first_of_reserve(reserve),
            reserve_count=0 if reserve is None else RESERVE,
        )
        caller.answer(request, control.encode(answer), given.position, given.rests)

    # -- settle -----------------------------------------------------------------------------------

    def settle(self, caller: Caller, request: Request) -> None:
        """SETTLE: record the outcome of rows; the answer leaves when that is durable.

        If the same session sends the same settle again after its lease is over, it gets the first
        answer again.
        """
        asked = bodies.unpack_settle(request.body)
        self._authoriser.check(caller.app, Command.SETTLE, asked.topic, asked.group)
        try:
            reply = self._broker.settle(self._core.now_us(), caller.session, asked)
        except LeaseExpired:
            told = self._settled.told(caller.session, request.body)
            if told is None:
                raise
        else:
            rows = sum([stop - start for start, stop, _, _ in reply.settled])
            self._count(asked.topic, asked.group, _OUTCOMES[asked.outcome], rows)
            told = Answered(bodies.pack_settled(rows, reply.refused), reply.position, reply.rests)
            self._settled.note(caller.session, request.body, told)
        caller.answer(request, *told)

    def _count(self, topic: str, group: str, outcome: str, rows: int) -> None:
        self._desk.counters.settled_rows[outcome] += rows
        settled = self._broker.views.catalog.subscription(topic, group).counted().settled
        settled[outcome] = settled.get(outcome, 0) + rows

    def extend(self, caller: Caller, request: Request) -> None:
        """EXTEND: prolong a lease."""
        asked = bodies.unpack_extend(request.body)
        self._authoriser.check(caller.app, Command.EXTEND, asked.topic, asked.group)
        now = self._core.now_us()
        reply = self._broker.extend(
            now,
            caller.session,
            asked.topic,
            asked.group,
            asked.queue,
            asked.epoch,
            asked.lease,
            asked.extension_us,
        )
        until = now + asked.extension_us
        caller.answer(request, bodies.pack_extended(until, now), reply.position, reply.rests)


def check_bodies(batch: bytes, limit: int) -> None:
    """Refuse a batch with a body above the limit, which counts uncompressed bytes.

    Raises:
        MessageTooLarge: A body exceeds the limit.
    """
    if len(batch) <= limit and batch[COMPRESSION_AT : COMPRESSION_AT + 1] in _UNCOMPRESSED:
        return
    import numpy as np  # not before: see `late_imports`

    try:
        whole = Batch(batch)
        offsets = np.frombuffer(batch, "<i4", whole.count + 1, whole.start(Column.BODIES))
    except (BatchError, ValueError, IndexError):
        return  # the core refuses it, with the reason
    longest = int(np.diff(offsets).max())
    if longest > limit:
        raise MessageTooLarge(f"a body has {longest} bytes; at most {limit} are allowed")
