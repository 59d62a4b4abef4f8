"""What is under way, sent again and given up: functions of time over data.

No loop, clock or connection: the producer passes the time in, sends the loads of ``to_send``, and
reports the ``outcomes`` to the callers. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from ternmq.client.connection.options import Options
from ternmq.client.content.broker_time import BrokerTime
from ternmq.client.producer.deadlines import too_late, until
from ternmq.client.producer.lanes import TopicFacts, TopicLanes
from ternmq.client.producer.load import Lane, Load, LoadOwner
from ternmq.client.producer.many import Part
from ternmq.client.producer.outgoing import MESSAGE_BYTES, Outgoing
from ternmq.client.producer.placing import Placing, Refused, take_part
from ternmq.client.producer.reports import Counts
from ternmq.client.producer.resending import due_again, outdates_facts, unanswered
from ternmq.client.producer.singles import begin
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
from ternmq.wire import bodies

_OUTDATED: Final = None


class Outcome(NamedTuple):
    """The end of a load: it was stored, or given up with an error.

    Attributes:
        load: The load.
        receipt: The broker's receipt, if it is stored.
        error: Why it was given up, otherwise.
    """

    load: Load
    receipt: bodies.Receipt | None
    error: TernMQError | None


class SendCore:
    """The loads of a producer, from their first message to their outcome. Not thread-safe.

    After each call, the caller sends what ``to_send`` returns if ``pending``, requests the facts of
    ``unknown`` topics, takes the ``outcomes``, and calls ``over`` at ``next_deadline``.

    Args:
        options: Limits, timeout and pauses.
        owner: Receives the answers of the loads.
        broker_time: The broker's clock, from which delays are counted.

    Attributes:
        id: The producer's id, in each batch.
        placing: The topics, and what waits in their lanes.
        window: Budget for the bytes that the broker has not answered.
        counts: The counts that are reported to the broker.
        taken_bytes: Bytes of the unfinished loads.
        open_loads: Number of unfinished loads.
        outcomes: Outcomes that the caller has not taken yet.
        unknown: Topics whose facts the caller has to request.
        ended: Whether no more is taken or sent again.
        sent_count: Number of messages sent.
        batch_count: Number of batches they were sent in.
        resent_count: Number of batches sent again.
        stored_count: Number of messages stored.
        failed_count: Number of messages given up.
    """

    def __init__(
        self, options: Options, owner: LoadOwner, broker_time: BrokerTime | None = None
    ) -> None:
        self.id = 0
        self.placing = Placing(options)
        self.window = Window(options)
        self.counts = Counts()
        self.taken_bytes = 0
        self.open_loads = 0
        self.outcomes: deque[Outcome] = deque()
        self.unknown: list[TopicLanes] = []
        self.ended = False
        self.sent_count = self.batch_count = self.resent_count = 0
        self.stored_count = self.failed_count = 0
        self._owner = owner
        self._broker_time = BrokerTime() if broker_time is None else broker_time
        self._backoff = options.backoff
        self._next_sequence = 1
        self._under_way: dict[int, Load] = {}  # by first sequence, in that order
        self._forsaken: dict[Load, None] = {}
        """Loads that were given up before their answer, which is still due."""
        self._again: list[Load] = []
        self._rests: list[tuple[float, int, Load | TopicLanes]] = []
        """Refused loads and requests for facts, by the time at which they are repeated."""
        self._order = count()
        self._dirty: list[Lane] = []
        self._held: dict[Lane, None] = {}
        self._look_at = math.inf

    # -- taking messages

    def put(
        self, lane: Lane, message: Outgoing, timeout: float, now: float, *, one_way: bool = False
    ) -> bool:
        """Take a message into a lane; it is given up after ``timeout`` seconds.

        Returns:
            Whether it began a load; otherwise it joined one that waits already.
        """
        self.taken_bytes += message.size_bytes + MESSAGE_BYTES
        load, deadline = lane.open, now + timeout
        if load is not None and load.join(message, deadline, timeout, one_way=one_way):
            return False
        self._began(begin(lane, message, deadline, timeout, one_way=one_way))
        return True

    def take(self, part: Part, now: float) -> None:
        """Take a load of ``send_many``; its timeout begins now."""
        part.deadline = now + part.timeout
        take_part(part)
        self.taken_bytes += part.size_bytes
        self._began(part)

    def refuse(self, refused: Sequence[Refused]) -> None:
        """Give up loads that no lane accepts."""
        for load, _ in refused:
            self.open_loads += 1
            self.taken_bytes += load.size_bytes
        for load, error in refused:
            self.give_up(load, error)

    def _began(self, load: Load) -> None:
        self.open_loads += 1
        if load.deadline < self._look_at:
            self._look_at = load.deadline
        lane = load.lane
        if not lane.dirty:
            lane.dirty = True
            self._dirty.append(lane)

    # -- sending

    @property
    def pending(self) -> bool:
        """Whether ``to_send`` may return something, or the lanes wait for a connection."""
        return bool(self._dirty or self._again)

    def hold(self) -> None:
        """Keep everything waiting: there is no connection. ``opened`` continues."""
        dirty, self._dirty = self._dirty, []
        for lane in dirty:
            lane.dirty = False
            self._held[lane] = None
        self._again.clear()

    def again(self) -> list[Load]:
        """Return the loads to be sent again now, with the same bytes."""
        again, self._again = self._again, []
        loads = [load for load in again if not load.over and not load.asked]
        for load in loads:
            load.asked = True
        self.resent_count += len(loads)
        return loads

    def to_send(self, now: float, wall_us: int, *, writable: bool) -> list[Load]:
        """Return the loads to be sent now, in order: each has its ``frame``.

        Args:
            now: The time.
            wall_us: Wall clock, in µs since the epoch: when new batches are born.
            writable: Whether the connection takes more bytes; otherwise new loads wait.
        """
        loads = self.again() if self._again else []
        dirty, self._dirty = self._dirty, []
        sent: list[Lane] = []
        for lane in dirty:
            lane.dirty = False
            topic = self.placing.topics[lane.topic]
            if topic.facts is _OUTDATED:
                if not topic.asking:
                    topic.asking = True
                    self.unknown.append(topic)
                continue
            before = self.batch_count
            self._advance(lane, loads, now, wall_us, writable=writable)
            if self.batch_count != before and lane in self._held:
                sent.append(lane)
        for lane in sent:  # lanes take turns: those that sent nothing come first next time
            self._held.pop(lane, None)
            self._held[lane] = None
        return loads

    def _advance(
        self, lane: Lane, sent: list[Load], now: float, wall_us: int, *, writable: bool
    ) -> None:
        loads, window = lane.loads, self.window
        while loads:
            if not writable or window.full or (lane.keyed and lane.under_way):
                self._held[lane] = None
                return
            load = loads[0]
            if not load.one_way and not load.over:
                when = window.when(load, now)
                if when is When.LATER:
                    self._held[lane] = None
                    return
                if when is When.NEVER:
                    self.give_up(load, self._too_late(load, connected=True, failure=None))
            loads.popleft()
            if load is lane.open:
                lane.open = None
            if not load.over and self._start(load, now, wall_us):
                sent.append(load)

    def _start(self, load: Load, now: float, wall_us: int) -> bool:
        """Give a load its sequences and its bytes; return False if it cannot be encoded."""
        load.first_sequence = self._next_sequence
        load.born_us = wall_us
        if load.patient:
            load.deadline = now + load.timeout
        try:
            if load.lane.scheduled or load.expiring:
                _set_times(load, self._broker_time)
            batch = load.encode(self.id)
        except Exception as error:  # noqa: BLE001 - the other loads of this turn must leave
            self.give_up(load, EncodeError(f"a batch cannot be made: {error}"))
            return False
        self._next_sequence += load.count
        lane = load.lane
        load.frame = lane.prefix + batch
        self.counts.sent(lane.topic, wall_us, load.first_sequence, load.count)
        self.sent_count += load.count
        self.batch_count += 1
        if load.one_way:
            self._arrived(load)
            self._close(load)
            return True
        self._under_way[load.first_sequence] = load
        lane.under_way += 1
        self.window.leaves(load, now)
        load.owner = self._owner
        load.asked = True
        return True

    # -- outcomes

    def answered(self, load: Load, body: bytes, now: float) -> None:
        """Handle the answer to a load's batch: it is stored.

        Raises:
            ProtocolError: The answer cannot be read: the outcome is unknown.
        """
        load.asked = False
        if not load.tries and not load.uncertain:
            self.window.answered(load, now)
        if load.over:
            self._forget(load)
            return
        try:
            receipt = bodies.unpack_receipt(body)
        except ProtocolError:
            load.uncertain = True
            raise
        self._leave(load)
        self._arrived(load)
        self.stored_count += load.count
        lane = load.lane
        number, first = receipt.topic, load.first_sequence
        self.counts.answered(lane.topic, number, load.born_us, first, load.count)
        if receipt.others:
            others = [first + other.row for other in receipt.others]
            self.counts.left_out(lane.topic, number, load.born_us, others)
        if lane.loads:
            lane.moved = now
        self._close(load)
        self.outcomes.append(Outcome(load, receipt, None))

    def refused(self, load: Load, error: TernMQError, now: float) -> None:
        """Handle a refusal: the load is sent again after a pause, or given up."""
        load.asked = False
        if load.over:
            self._forget(load)
            return
        if outdates_facts(error):
            self.placing.outdated(load.lane.topic)
        due = due_again(load, error, now, self._backoff)
        if due is None or self.ended:
            self.give_up(load, error)
            return
        load.resting = True
        self._rest(load, due)

    def _arrived(self, load: Load) -> None:
        """Ask for a topic's queues again if a batch shows that the topic exists now."""
        if load.lane.keyed or load.lane.level:
            topic = self.placing.topics[load.lane.topic]
            if topic.absent:
                topic.facts = _OUTDATED

    def give_up(self, load: Load, error: TernMQError) -> None:
        """Give a load up. If it may be stored, its error says that this is not known."""
        if load.over:
            return
        lane = load.lane
        if load.uncertain and not isinstance(error, SendTimeout | ResendTooOld):
            error = SendTimeout(
                f"whether {counted(load.count, 'message')} to {lane.topic!r} "
                f"{verb(load.count, 'is', 'are')} stored is not "
                f"known: {error.args[0] if error.args else error}"
            )
        if load.frame:
            self.counts.given_up(lane.topic, load.born_us, load.first_sequence, load.count)
        self._leave(load)
        if load.asked:
            self._forsaken[load] = None
        self.failed_count += load.count
        self._close(load)
        self.outcomes.append(Outcome(load, None, error))

    def _leave(self, load: Load) -> None:
        # A load that could not be encoded has no sequences: the next load has them.
        if self._under_way.get(load.first_sequence) is load:
            del self._under_way[load.first_sequence]
            load.lane.under_way -= 1
        if not load.asked:
            self.window.ends(load)

    def _forget(self, load: Load) -> None:
        """End a given-up load's share of the window: it is answered, or its connection lost."""
        self._forsaken.pop(load, None)
        self.window.ends(load)
        if self._held:
            self.touch_held()

    def _close(self, load: Load) -> None:
        load.over = True
        if load.lane.open is load:
            load.lane.open = None  # no message joins it any more
        self.open_loads -= 1
        self.taken_bytes -= load.size_bytes
        if self._held:
            self.touch_held()

    # -- time

    def next_deadline(self) -> float:
        """Return the time at which ``over`` must be called; infinity: not at all."""
        return min(self._look_at, self._rests[0][0]) if self._rests else self._look_at

    def over(self, now: float, *, connected: bool, failure: TernMQError | None = None) -> None:
        """Give up the loads that are too late; repeat what was refused and has rested.

        Args:
            now: The time.
            connected: Whether there is a connection.
            failure: Why the last attempt to connect failed, if it did.
        """
        while self._rests and self._rests[0][0] <= now:
            _, _, rested = heappop(self._rests)
            if isinstance(rested, TopicLanes):
                rested.asking = False
                for lane in rested.every():
                    self.touch(lane)
            else:
                rested.resting = False
                self._again.append(rested)
        if now < self._look_at:
            return
        for load in self.loads():
            if until(load) <= now:
                self.give_up(load, self._too_late(load, connected=connected, failure=failure))
        self._look_at = min([until(load) for load in self.loads()], default=math.inf)

    def _too_late(self, load: Load, *, connected: bool, failure: TernMQError | None) -> TernMQError:
        behind = self.window.taken_bytes > 0
        known = self.placing.topic(load.lane.topic).facts is not None
        return too_late(load, connected=connected, behind=behind, known=known, failure=failure)

    def _rest(self, refused: Load | TopicLanes, due: float) -> None:
        heappush(self._rests, (due, next(self._order), refused))

    # -- topics

    def learned(self, topic: TopicLanes, facts: TopicFacts) -> None:
        """Handle the facts of a topic: what waited for them goes to its lanes."""
        moves = self.placing.learned(topic, facts)
        self.taken_bytes += moves.moved_bytes
        for load in moves.began:
            self._began(load)
        for load in moves.gone:
            load.over = True
            self.open_loads -= 1
            self.taken_bytes -= load.size_bytes
        self.refuse(moves.refused)
        for lane in topic.lanes:
            if lane.loads:
                self.touch(lane)

    def not_learned(self, topic: TopicLanes, error: TernMQError, now: float) -> None:
        """Handle a refused request for facts: repeat it later, or give the loads up."""
        lanes = topic.every()
        if error.retriable:
            for lane in lanes:
                for load in lane.loads:
                    load.last_error = error
            topic.tries += 1
            self._rest(topic, now + self._backoff.pause(topic.tries))
            return
        topic.asking = False
        for lane in lanes:
            while lane.loads:
                self.give_up(lane.loads.popleft(), error)
            lane.open = None

    def not_asked(self, topic: TopicLanes) -> None:
        """Handle a connection that ended before the facts of a topic came."""
        topic.asking = False
        for lane in topic.every():
            self._held[lane] = None

    def touch(self, lane: Lane) -> None:
        """Look at a lane in the next ``to_send``."""
        if not lane.dirty:
            lane.dirty = True
            self._dirty.append(lane)

    def touch_held(self) -> None:
        """Look at the lanes that wait for a change: there was one."""
        held, self._held = self._held, {}
        for lane in held:
            self.touch(lane)

    # -- connections

    def opened(self) -> None:
        """Have the unanswered loads sent again over a new connection; then what waits."""
        self.lost()  # whatever became of the previous one
        self._again = unanswered(self._under_way.values())
        self.touch_held()

    def lost(self) -> None:
        """Handle the end of a connection: whether the loads under way are stored is unknown."""
        for load in self._under_way.values():
            if load.asked:
                load.asked = False
                load.uncertain = True
        for load in list(self._forsaken):
            load.asked = False
            self._forget(load)

    def loads(self) -> list[Load]:
        """Return the unfinished loads, in the order in which they were or will be sent."""
        waiting = [load for lane in self.placing.lanes() for load in lane.loads if not load.over]
        return [*self._under_way.values(), *waiting]

    def give_up_all(self, error: TernMQError) -> None:
        """Give up all loads, with one error: no connection will come."""
        self.lost()  # if the session did not report it
        for load in self.loads():
            self.give_up(load, error)

    def end(self) -> None:
        """Give up all loads, and take no more: the client closes."""
        self.ended = True
        self._look_at = math.inf
        self._rests.clear()
        for load in self.loads():
            unknown = SendTimeout("the client was closed before the answer")
            self.give_up(load, unknown if load.asked or load.uncertain else ClientClosed(
                "the client was closed before this was sent"))  # fmt: skip


def _set_times(load: Load, broker_time: BrokerTime) -> None:
    """Set when each message of a load is due and expires, in broker time."""
    for message in load.contents():
        assert isinstance(message, Outgoing)
        message.set_times(broker_time)
