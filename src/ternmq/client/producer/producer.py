"""The producer: messages that wait, batches that were sent, and their outcome.

Messages sent in one turn of the loop to one topic leave as one batch, at the end of that turn.
Messages that are sent one at a time, each after the answer to the one before, leave at once: there
is nothing to combine, and it saves a pass of the loop (``ALONE``). A batch that a lost connection
left unanswered is sent again over the next one with the same bytes, until its time is over: then
its outcome is unknown (``SendTimeout``). A batch that the broker refuses for now is sent again
after a pause. ``SendCore`` decides all that; the producer has the loop, the connection and the
futures.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Member, Session
from ternmq.client.content.message import Failure
from ternmq.client.declaration.making import Making
from ternmq.client.producer.core import SendCore
from ternmq.client.producer.facts import FactsRequests, not_asked
from ternmq.client.producer.heard import Unheard
from ternmq.client.producer.lanes import TopicFacts, TopicLanes
from ternmq.client.producer.load import Load, Unclaimed
from ternmq.client.producer.many import Many, Part
from ternmq.client.producer.outgoing import Outgoing
from ternmq.client.producer.receipts import log_sent, log_unsent
from ternmq.client.producer.reports import Counts
from ternmq.client.producer.room import Room
from ternmq.client.producer.unsent import Unsent
from ternmq.model.errors import ClientClosed, TernMQError
from ternmq.wire import control
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
``buffer_bytes``. Of others, it is only known whether the application has looked at the future."""
KEPT_HOLDERS: Final = 100_000
"""Most futures of such other failures; beyond, they are only counted."""


class Producer(Member):
    """Sends messages in batches. Not thread-safe: call it from the client's loop.

    Attributes:
        core: Decides what is sent, sent again and given up; has the counts.
        room: Budget for the bytes of unfinished loads.
        failures: The first failures of ``send_soon``, until ``flush`` raises them.
        further: What the application holds of later ones, as in ``Unheard``.
        uncounted: Number of failures after these.
    """

    def __init__(self, session: Session, making: Making) -> None:
        self._session = session
        self.options = session.options
        self.core = SendCore(self.options, self, session.broker_time)
        self.renew()
        self.failures: list[Unheard] = []
        self.further: list[object] = []
        self.uncounted = 0
        self._kept_bytes = 0
        self.room = Room(self.core, self.options.buffer_bytes)
        self._topics = self.core.placing.topics
        self._requests = FactsRequests(self, making)
        self._scheduled = False
        self._alone = 0
        """Messages in a row that were put while nothing else was open; see ``ALONE``."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._idle: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsent = Unsent(session, self.core.loads)

    @property
    def id(self) -> int:
        """This producer in message ids; random, 64 bits."""
        return self.core.id

    @property
    def counts(self) -> Counts:
        """The counts that are reported to the broker."""
        return self.core.counts

    def renew(self) -> None:
        """Take a new id, in a process that was forked before anything was sent."""
        self.core.id = secrets.randbits(64)

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
        session, core = self._session, self.core
        if core.ended:
            raise ClientClosed("the client is closed")
        loop = self._loop
        if session.closed or loop is None:
            loop = self._bind()
        topic = self._topics.get(topic_name)
        if topic is None:
            topic = core.placing.topic(topic_name)
        lane = topic.lane_of(message)
        if timeout is None:
            timeout = self.options.timeout
        if core.open_loads or one_way or self._scheduled:
            self._alone = 0
        elif self._alone >= ALONE:
            self._scheduled = True  # this call advances the lanes itself, below
            try:
                core.put(lane, message, timeout, loop.time())
            finally:
                self._advance()
            return
        else:
            self._alone += 1
        if core.put(lane, message, timeout, loop.time(), one_way=one_way):
            self._watch()  # a message that joined a load changes neither lanes nor deadlines

    def _bind(self) -> asyncio.AbstractEventLoop:
        """Bind to the running loop; see ``Session.bind``."""
        loop = self._session.bind()
        if self._loop is None:
            self._unsent.begins()
        self._loop = loop
        return loop

    async def known_topic(self, name: str, timeout: float | None = None) -> TopicLanes:
        """Return a topic once its settings are known.

        Args:
            name: Of the topic.
            timeout: Seconds to wait for the broker; None: the client's.

        Raises:
            TernMQError: The broker does not report them.
        """
        self._bind()
        topic = self.core.placing.topic(name)
        await self._requests.known(topic, timeout)
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
        core = self.core
        topic = core.placing.topic(topic_name)
        many = Many(items, messages, loop.create_future(), queue)
        rows = range(len(messages))
        try:
            await self._requests.known(topic)
        except TernMQError as error:  # each has the outcome that it would have were the topic known
            why = not_asked(topic_name, error)
            core.refuse([core.placing.refused(topic, many, rows, why)])
            self._react()
            return many
        timeout = self.options.timeout
        if queue is not None:
            topic.of_queue(queue, None)
        try:
            if messages:
                placings, left = topic.placings, self._split(topic, many, rows, timeout)
                while left:
                    while self.room.full and not many.future.done():
                        await self.room.wait(loop)
                    if topic.placings != placings:  # they may belong to other lanes now
                        many.open_parts -= len(left)
                        waiting = sorted([row for part in left for row in part.rows])
                        placings, left = topic.placings, self._split(topic, many, waiting, timeout)
                        continue
                    part = left.popleft()
                    core.take(part, loop.time())
                    if core.ended:
                        closed = ClientClosed("the client was closed before this was sent")
                        core.give_up(part, closed)
                    self._react()
            many.part_over()  # the part that counts for this call
            await many.future
        finally:
            many.future.cancel()
        return many

    def _split(
        self, topic: TopicLanes, many: Many, rows: Sequence[int], timeout: float
    ) -> deque[Part]:
        """Return rows as loads that no lane has yet; refuse those that the topic does not take."""
        parts = self.core.placing.parts(topic, many, rows, timeout)
        self.core.refuse(parts.refused)
        self._react()
        return deque(parts.good)

    # -- driving the core

    def _watch(self) -> None:
        """Have the core's loads sent at the end of this turn, and its deadlines kept."""
        core = self.core
        if not self._scheduled and core.pending:
            self._scheduled = True
            assert self._loop is not None
            self._loop.call_soon(self._advance)
        deadline = core.next_deadline()
        if deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            assert self._loop is not None
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._look)

    def _react(self) -> None:
        """Do what an event asks for: report outcomes, send more, let waiting callers go on."""
        core = self.core
        try:
            if core.outcomes:
                self._report()
        except BaseException:
            assert self._loop is not None
            self._loop.call_soon(self._react)  # the rest of the outcomes
            raise
        self._watch()
        if self.room.waiters:
            self.room.let_in()
        if self._idle and not core.open_loads:
            for idle in self._idle:
                if not idle.done():
                    idle.set_result(None)
            self._idle.clear()

    def _look(self) -> None:
        """Give up what is too late, and repeat what was refused for now."""
        self._timer, self._timer_at = None, math.inf
        session = self._session
        now, connected = session.loop.time(), session.link is not None
        self.core.over(now, connected=connected, failure=session.obstacle)
        self._react()

    def _advance(self) -> None:
        """Send what the lanes of this turn may send."""
        self._scheduled = False
        core = self.core
        link = self._session.link
        if link is None:
            core.hold()
            self._session.wake()
            self._watch()
            return
        loop = self._loop
        assert loop is not None
        link.gather()
        try:
            now, wall_us = loop.time(), time.time_ns() // 1000
            self._send(core.to_send(now, wall_us, writable=link.writable), link)
            if core.unknown:
                unknown, core.unknown = core.unknown, []
                for topic in unknown:
                    self._requests.ask(topic, link)
        finally:
            link.flush()
        if core.outcomes:
            loop.call_soon(self._react)  # later: their senders await them by then
        else:
            self._react()

    @staticmethod
    def _send(loads: Iterable[Load], link: Link) -> None:
        for load in loads:
            if load.one_way:
                link.tell(_SEND, load.frame)
                load.frame = b""
            else:
                link.ask(_SEND, load.frame, load)

    # -- outcomes

    def answered(self, load: Load, body: bytes) -> None:
        """Handle the answer to a load's batch: it is stored."""
        assert self._loop is not None
        self.core.answered(load, body, self._loop.time())
        self._react()

    def wants_again(self, load: Load, error: TernMQError) -> None:
        """Handle the refusal of a load: it is sent again later, or given up."""
        self.core.refused(load, error, self._session.loop.time())
        self._react()

    def _report(self) -> None:
        """Report the outcomes to the callers and to the log."""
        core = self.core
        each = log.isEnabledFor(logging.DEBUG)  # at this level every outcome is logged
        outcomes = core.outcomes
        while outcomes:
            load, receipt, error = outcomes.popleft()
            # Callers first: logging may raise, in a handler of the application.
            if receipt is not None:
                unclaimed = load.stored(receipt, core.id)
                if each:
                    log_sent(load, core.id)
            else:
                assert error is not None
                unclaimed = load.failed(error)
                if each:
                    log_unsent(load, core.id, {id(one): error for one in load.contents()})
            if unclaimed:
                self._unheard(load, unclaimed, logged=each)
            load.frame = b""

    def _unheard(self, load: Load, unclaimed: Sequence[Unclaimed], *, logged: bool) -> None:
        """Keep the failures of messages that no caller waits for, and log them."""
        for message, holder, error in unclaimed:
            failure = Failure(message.as_message(), 0, error, load.lane.topic)
            self.keep(Unheard(holder, failure), message.size_bytes)
        if not logged:
            log_unsent(load, self.core.id, {id(one.message): one.error for one in unclaimed})

    def keep(self, unheard: Unheard, size_bytes: int) -> None:
        """Keep a failure for ``flush`` or the close to raise, unless its holder gets it before."""
        if len(self.failures) < KEPT_FAILURES and self._kept_bytes < self.options.buffer_bytes:
            self.failures.append(unheard)
            self._kept_bytes += size_bytes
        elif len(self.further) < KEPT_HOLDERS:
            self.further.append(unheard.holder)
        else:
            self.uncounted += 1

    # -- facts about topics

    def learned(self, topic: TopicLanes, facts: TopicFacts) -> None:
        """Place what waited for the facts of a topic."""
        self.core.learned(topic, facts)
        self._react()

    def not_learned(self, topic: TopicLanes, error: TernMQError) -> None:
        """Handle a refused request for facts."""
        self.core.not_learned(topic, error, self._session.loop.time())
        self._react()

    def not_asked(self, topic: TopicLanes) -> None:
        """Handle a connection that ended before the facts came."""
        self.core.not_asked(topic)

    # -- connections

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Send unanswered batches again, unchanged; then what waits."""
        self.core.opened()
        self._send(self.core.again(), link)
        self._react()

    def lost(self) -> None:
        """Note that unanswered batches may be stored."""
        self.core.lost()
        self._react()

    def refused(self, error: TernMQError) -> None:
        """Give up all that waits: no connection will come."""
        self.core.give_up_all(error)
        self._react()

    def pushed(self, push: Push) -> None:
        """Ask again for the settings of a topic that was changed."""
        if push.command is Command.TOPIC_CHANGED:
            changed = control.decode_answer(push.body, control.TopicChanged)
            self.core.placing.outdated(changed.topic)

    def writable(self) -> None:
        """Send more: the connection takes bytes again."""
        self.core.touch_held()
        self._react()

    # -- the end

    async def drained(self, timeout: float | None) -> bool:
        """Wait until no load is unfinished; return False if that takes too long."""
        if not self.core.open_loads and not self.core.outcomes:
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf
        self.core.end()
        self._react()

    def take_failures(self) -> tuple[list[Unheard], list[object], int]:
        """Return ``failures``, ``further`` and ``uncounted``, and forget them."""
        taken = self.failures, self.further, self.uncounted
        self.failures, self.further, self.uncounted, self._kept_bytes = [], [], 0, 0
        return taken
