"""The producer: messages that wait, batches that were sent, and their outcome.

Messages sent in one turn of the loop to one topic leave as one batch, at the end of that turn.
Messages that are sent one at a time, each after the answer to the one before, leave at once: there
is nothing to combine, and it saves a pass of the loop (``ALONE``). A batch that a lost connection
left unanswered is sent again over the next one with the same bytes (`resending`), until its time is
over (`deadlines`): then its outcome is unknown (``SendTimeout``). A batch that the broker refuses
for now is sent again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Final

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Member, Session
from ternmq.client.content.message import Failure
from ternmq.client.declaration.making import Making
from ternmq.client.producer.deadlines import Deadlines
from ternmq.client.producer.heard import Unheard, who_holds
from ternmq.client.producer.lanes import Lane, TopicLanes
from ternmq.client.producer.load import Load, Outgoing
from ternmq.client.producer.many import Many, Part
from ternmq.client.producer.placing import Placing, not_asked
from ternmq.client.producer.receipts import log_sent, log_unsent
from ternmq.client.producer.reports import Counts
from ternmq.client.producer.resending import Resending
from ternmq.client.producer.room import Room
from ternmq.client.producer.unsent import Unsent
from ternmq.client.producer.window import When, Window
from ternmq.model.errors import (
    ClientClosed,
    EncodeError,
    ProtocolError,
    ResendTooOld,
    SendTimeout,
    TernMQError,
)
from ternmq.model.words import counted, verb
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push

log: Final = logging.getLogger("ternmq")

# A member of the enum under a module name: looking it up in its class takes 0.1 us (Python 3.11).
_SEND: Final = Command.SEND
ALONE: Final = 16
"""After this many messages in a row, each sent while nothing else was open, such a message leaves
at once. A message that joins another shows that messages come together, and restarts the count."""
KEPT_FAILURES: Final = 10_000
"""Most failures of ``send_soon`` kept for ``flush``; their bodies together have at most about
``buffer_bytes``. Failures beyond either limit are only counted."""


class Producer(Member, Unsent):
    """Sends messages in batches. Not thread-safe: call it from the client's loop.

    Attributes:
        id: This producer in message ids; random, 64 bits.
        sent_count: Number of messages sent.
        batch_count: Number of batches they were sent in.
        stored_count: Number of messages stored.
        failed_count: Number of messages given up.
        room: Budget for the bytes of unfinished loads.
        window: Budget for the bytes that the broker has not answered.
        resending: Batches that were refused for now, or left unanswered by a lost connection.
        failures: The first failures of ``send_soon``, until ``flush`` raises them.
    """

    def __init__(self, session: Session, making: Making) -> None:
        super().__init__(session)
        self.options = session.options
        self.id = 0
        self.renew()
        self.sent_count = self.batch_count = 0
        self.stored_count = self.failed_count = 0
        self.failures: list[Unheard] = []
        self._kept_bytes = 0
        self.counts = Counts()
        self.room = Room(self.options.buffer_bytes)
        self.window = Window(self.options)
        self.resending = Resending(self, session)
        self._placing = Placing(self, session, making)
        self._topics = self._placing.topics
        self._next_sequence = 1
        self._under_way: dict[int, Load] = {}  # by first sequence, in that order
        self._open_loads = 0
        self._dirty: list[Lane] = []
        self._held: dict[Lane, None] = {}
        self._scheduled = False
        self._alone = 0
        """Messages in a row that were put while nothing else was open; see ``ALONE``."""
        self._deadlines = Deadlines(self, session)
        self._idle: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False  # True: no more messages are taken

    def renew(self) -> None:
        """Take a new id, in a process that was forked before anything was sent."""
        self.id = secrets.randbits(64)

    # -- taking messages

    def put(
        self,
        topic_name: str,
        message: Outgoing,
        timeout: float | None = None,
        *,
        one_way: bool = False,
    ) -> None:
        """Take a message; it leaves at the end of this turn of the loop, or at once (``ALONE``).

        Args:
            topic_name: Name of the topic.
            message: The message.
            timeout: Seconds after which it is given up; None: as in ``options``.
            one_way: The broker does not answer.

        Raises:
            InvalidName, OrderingKeyRequired, TopicNotOrdered, UnknownQueue, ClientClosed,
                ClientForked, WrongEventLoop: The message was not taken.
        """
        session = self._session
        if self._ended:
            raise ClientClosed("the client is closed")
        loop = self._loop
        if session.closed or loop is None:
            loop = self._bind()
        topic = self._topics.get(topic_name)
        if topic is None:
            topic = self._placing.topic(topic_name)
        lane = topic.lane_of(message)
        if timeout is None:
            timeout = self.options.timeout
        deadline = loop.time() + timeout
        if self._open_loads or one_way or self._scheduled:
            self._alone = 0
        elif self._alone >= ALONE:
            self._scheduled = True  # this call advances the lanes itself, below
            try:
                self.room.taken_bytes += lane.put(message, deadline, timeout)
            finally:
                self._advance()
            return
        else:
            self._alone += 1
        self.room.taken_bytes += lane.put(message, deadline, timeout, one_way=one_way)

    def _bind(self) -> asyncio.AbstractEventLoop:
        """Bind to the running loop; see ``Session.bind``."""
        loop = self._session.bind()
        if self._loop is None:
            self.begins()
        self._loop = loop
        return loop

    async def known_topic(self, name: str) -> TopicLanes:
        """Return a topic once its settings are known.

        Raises:
            TernMQError: The broker does not report them.
        """
        self._bind()
        topic = self._placing.topic(name)
        await self._placing.known(topic)
        return topic

    async def put_many(
        self,
        topic_name: str,
        items: Sequence[object],
        messages: Sequence[Outgoing] | Sequence[bytes],
        queue: int | None = None,
    ) -> Many:
        """Send many messages; return when the outcome of each is known.

        Args:
            topic_name: Name of the topic.
            items: The objects that failures name, one per message.
            messages: The messages, encoded; bare bytes for messages that have only a body.
            queue: Queue of messages that do not name one; None: the broker chooses.

        Raises:
            InvalidName, UnknownQueue, ClientClosed, ClientForked, WrongEventLoop: Nothing was sent.
        """
        loop = self._bind()
        topic = self._placing.topic(topic_name)
        many = Many(items, messages, loop.create_future())
        rows = range(len(messages))
        try:
            await self._placing.known(topic)
        except TernMQError as error:  # each has the outcome that it would have were the topic known
            self._placing.refuse(topic, many, rows, not_asked(topic_name, error))
            return many
        timeout = self.options.timeout
        if queue is not None:
            topic.of_queue(queue)
        parts = self._placing.parts(topic, many, rows, queue, timeout) if messages else []
        many.open_parts += len(parts)
        try:
            for part in parts:
                while self.room.full and not many.future.done():
                    await self.room.wait(loop)
                part.deadline = loop.time() + timeout
                self.take_part(part)
                if self._ended:
                    self.finish(part, ClientClosed("the client was closed before this was sent"))
            many.part_over()  # the part that counts for this call
            await many.future
        finally:
            many.future.cancel()
        return many

    # -- lanes and loads, for ``Placing``

    def put_in(
        self, lane: Lane, message: Outgoing, deadline: float, timeout: float, *, one_way: bool
    ) -> None:
        """Put a message into a lane; it was taken earlier."""
        self.room.taken_bytes += lane.put(message, deadline, timeout, one_way=one_way)

    def take_part(self, part: Part) -> None:
        """Take a load into its lane."""
        part.lane.open = None
        part.lane.loads.append(part)
        self.room.taken_bytes += part.size_bytes
        self.began(part)

    def count(self, load: Load) -> None:
        """Count a load that is in no lane and is about to be given up."""
        self._open_loads += 1
        self.room.taken_bytes += load.size_bytes

    def uncount(self, load: Load) -> None:
        """Drop a load whose messages were moved to others."""
        load.over = True
        self._open_loads -= 1
        self.room.taken_bytes -= load.size_bytes

    def hold(self, lane: Lane) -> None:
        """Keep a lane waiting until something changes."""
        self._held[lane] = None

    # -- sending loads

    def began(self, load: Load) -> None:
        """Count and watch a load that now waits in its lane."""
        self._open_loads += 1
        self._deadlines.watch(load.deadline)
        self.touch(load.lane)

    def touch(self, lane: Lane) -> None:
        """Schedule a lane: its loads may be sent at the end of this turn of the loop."""
        if not lane.dirty:
            lane.dirty = True
            self._dirty.append(lane)
            if not self._scheduled:
                self._scheduled = True
                assert self._loop is not None
                self._loop.call_soon(self._advance)

    def _touch_held(self) -> None:
        held, self._held = self._held, {}
        for lane in held:
            self.touch(lane)

    def _advance(self) -> None:
        """Send what the lanes of this turn may send."""
        self._scheduled = False
        dirty, self._dirty = self._dirty, []
        link = self._session.link
        if link is None:
            for lane in dirty:
                lane.dirty = False
                self._held[lane] = None
            self._session.wake()
            return
        sent: list[Lane] = []
        link.gather()
        try:
            for lane in dirty:
                lane.dirty = False
                count = self.batch_count
                self._advance_lane(lane, link)
                if self.batch_count != count and lane in self._held:
                    sent.append(lane)
        finally:
            link.flush()
            for lane in sent:  # lanes take turns: those that sent nothing come first next time
                self._held.pop(lane, None)
                self._held[lane] = None

    def _advance_lane(self, lane: Lane, link: Link) -> None:
        if lane.topic.facts is None:
            self._placing.ask(lane.topic, link)
            return
        loads, window, now = lane.loads, self.window, self._session.loop.time()
        while loads:
            if not link.writable or window.full or (lane.keyed and lane.under_way):
                self._held[lane] = None
                return
            load = loads[0]
            if not load.one_way and not load.over:
                when = window.when(load, now)
                if when is When.LATER:
                    self._held[lane] = None
                    return
                if when is When.NEVER:
                    self._deadlines.give_up(load)
            loads.popleft()
            if load is lane.open:
                lane.open = None
            if not load.over:
                self._start(load, link)

    def _start(self, load: Load, link: Link) -> None:
        """Give a load its sequences and send it."""
        load.first_sequence = self._next_sequence
        load.born_us = time.time_ns() // 1000
        if load.patient:
            assert self._loop is not None
            load.deadline = self._loop.time() + load.timeout
        try:
            batch = load.encode(self.id)
        except (ValueError, UnicodeError, TypeError, AttributeError) as error:
            wrong = EncodeError(f"a batch cannot be made: {error}")
            assert self._loop is not None
            self._loop.call_soon(self.finish, load, wrong)  # later: its sender awaits it by then
            return
        self._next_sequence += load.count
        load.frame = load.lane.prefix + batch
        self.counts.sent(load.lane.topic.name, load.born_us, load.first_sequence, load.count)
        self.sent_count += load.count
        self.batch_count += 1
        if load.one_way:
            link.tell(_SEND, load.frame)
            self._arrived(load)
            self._close(load)
            return
        self._under_way[load.first_sequence] = load
        load.lane.under_way += 1
        assert self._loop is not None
        self.window.leaves(load, self._loop.time())
        load.asked = True
        link.ask(_SEND, load.frame, load)

    # -- outcomes

    def answered(self, load: Load, body: bytes) -> None:
        """Handle the answer to a load's batch: it is stored."""
        load.asked = False
        if not load.tries and not load.uncertain:
            self.window.answered(load, self._session.loop.time())
        if load.over:
            self.forget(load)
            return
        try:
            receipt = bodies.unpack_receipt(body)
        except ProtocolError:
            load.uncertain = True
            raise
        self._leave(load)
        self._arrived(load)
        self.stored_count += load.count
        if receipt.others:
            others = [load.first_sequence + other.row for other in receipt.others]
            self.counts.left_out(load.lane.topic.name, load.born_us, others)
        if load.lane.loads:
            load.lane.moved = self._session.loop.time()
        if log.isEnabledFor(logging.DEBUG):
            log_sent(load, self.id)
        load.stored(receipt, self.id)
        self._close(load)

    @staticmethod
    def _arrived(load: Load) -> None:
        """Ask for a topic's queues again if a keyed batch has just created the topic."""
        lane = load.lane
        if lane.keyed and lane.topic.absent:
            lane.topic.facts = None

    def finish(self, load: Load, error: TernMQError) -> None:
        """Give a load up."""
        if load.over:
            return
        if load.uncertain and not isinstance(error, SendTimeout | ResendTooOld):
            error = SendTimeout(
                f"whether {counted(load.count, 'message')} to {load.lane.topic.name!r} "
                f"{verb(load.count, 'is', 'are')} stored is not "
                f"known: {error.args[0] if error.args else error}"
            )
        if load.frame:
            self.counts.given_up(
                load.lane.topic.name, load.born_us, load.first_sequence, load.count
            )
        self._leave(load)
        self.failed_count += load.count
        if log.isEnabledFor(logging.DEBUG):  # at this level every outcome is logged
            log_unsent(load, self.id, error, load.contents())
        load.failed(error)
        self._close(load)

    def unheard(self, load: Load, messages: list[Outgoing], error: TernMQError) -> None:
        """Log messages that were not stored and have no waiting caller; keep their failures."""
        if messages and not log.isEnabledFor(logging.DEBUG):
            log_unsent(load, self.id, error, messages)
        for message in messages:
            holder = None if message.future is None else who_holds(message.future)
            failure = Failure(message.as_message(), 0, error, load.lane.topic.name)
            self.keep(Unheard(holder, failure), message.size_bytes)

    def keep(self, unheard: Unheard, size_bytes: int) -> None:
        """Keep a failure for ``flush`` or the close to raise, unless its holder gets it before."""
        if len(self.failures) < KEPT_FAILURES and self._kept_bytes < self.options.buffer_bytes:
            self.failures.append(unheard)
            self._kept_bytes += size_bytes

    def _leave(self, load: Load) -> None:
        # A load that could not be encoded has no sequences: the next load has them.
        if self._under_way.get(load.first_sequence) is load:
            del self._under_way[load.first_sequence]
            load.lane.under_way -= 1
        if not load.asked:
            self.window.ends(load)

    def forget(self, load: Load) -> None:
        """End a given-up load's share of the window: it is answered, or its connection lost."""
        self.window.ends(load)
        if self._held:
            self._touch_held()

    def _close(self, load: Load) -> None:
        load.over = True
        load.frame = b""
        self._open_loads -= 1
        self.room.taken_bytes -= load.size_bytes
        if self._held:
            self._touch_held()
        self.room.let_in()
        if not self._open_loads:
            for idle in self._idle:
                if not idle.done():
                    idle.set_result(None)
            self._idle.clear()

    # -- connections

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Send unanswered batches again, unchanged; then what waits."""
        self.resending.unanswered(list(self._under_way.values()), link)
        self._touch_held()

    def refused(self, error: TernMQError) -> None:
        """Give up all that waits: no connection will come."""
        for load in self.loads():
            self.finish(load, error)

    def pushed(self, push: Push) -> None:
        """Ask again for the settings of a topic that was changed."""
        if push.command is Command.TOPIC_CHANGED:
            changed = control.decode_answer(push.body, control.TopicChanged)
            self._placing.changed(changed.topic)

    def writable(self) -> None:
        """Send more: the connection takes bytes again."""
        self._touch_held()

    def loads(self) -> list[Load]:
        """Return the unfinished loads, in the order in which they were or will be sent."""
        waiting = [load for lane in self._placing.lanes() for load in lane.loads if not load.over]
        return [*self._under_way.values(), *waiting]

    # -- the end

    async def drained(self, timeout: float | None) -> bool:
        """Wait until no load is unfinished; return False if that takes too long."""
        if not self._open_loads:
            return True
        idle = self._session.loop.create_future()
        self._idle.append(idle)
        try:
            async with asyncio.timeout(timeout):
                await idle
        except TimeoutError:
            return False
        return True

    def give_up(self) -> None:
        """End all unfinished loads: the client closes."""
        self._ended = True
        self._deadlines.stop()
        for load in self.loads():
            unknown = SendTimeout("the client was closed before the answer")
            self.finish(load, unknown if load.asked or load.uncertain else ClientClosed(
                "the client was closed before this was sent"))  # fmt: skip

    def take_failures(self) -> list[Unheard]:
        """Return the failures that no caller received, and forget them."""
        taken, self.failures, self._kept_bytes = self.failures, [], 0
        return taken
