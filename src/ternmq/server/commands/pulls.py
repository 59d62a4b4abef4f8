"""PULL: rows leased to a session, at once or when there are some.

Leased rows that cannot be delivered are released: if the caller is gone or has no room, or its app
lost the right while the pull was parked. Rows whose bytes cannot be read count as failed, with the
reason: they are retried by the group's policy and become dead letters in the end, and the rows
behind them are delivered.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from ternmq.access import Authoriser
from ternmq.broker.containers.tokens import Tokens
from ternmq.broker.delivery.parking import Woken
from ternmq.broker.gate.replies import PullReply
from ternmq.broker.group.history import LastFailures
from ternmq.broker.query.messages import Queries
from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import (
    Busy,
    CorruptJournal,
    DiskReadError,
    JournalFull,
    MessageNotFound,
    RefusedError,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.model.types import SECOND_US
from ternmq.record.fact.facts import Outcome, Span
from ternmq.server.commands.rows import pack_last_failures, records_of
from ternmq.server.commands.waits import Wait, Waiting, check_id, wait_us
from ternmq.server.desk.desk import Desk
from ternmq.wire import bodies
from ternmq.wire.bodies import Pull
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller
from ternmq.wire.session import Request

BRIEF_US: Final = SECOND_US
"""How long a pull that does not wait may look for rows behind those that it passes over: expired
ones, and those that its group's filter does not pass."""
WOKEN_CALLS: Final = 16
"""Most calls of ``woken_pulls`` in one turn."""
WOKEN_S: Final = 0.0003
"""Once answering parked pulls has taken this long, no more are requested in this turn."""


class PullCommands:
    """Handler of PULL, and parked pulls. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        self._desk = desk
        self._core = desk.core
        self._broker = desk.core.broker
        self._authoriser = authoriser
        self._queries = queries
        self.waiting: Waiting[int] = Waiting(
            desk.core, desk.waiting, self._end, withdrawn=self._withdrawn
        )
        """Pulls that wait in the core, with the core's token. The core ends them by time."""
        self._parked: Tokens[Wait[int]] = Tokens()
        """The same by token."""
        self._waking = False
        self._woken_turn, self._woken_calls, self._woken_until = -1, 0, 0.0
        """The last turn in which ``wake`` was called, which may be twice: number of its calls of
        ``woken_pulls`` that are left, and when its time for them ends."""

    def pull(self, caller: Caller, request: Request) -> None:
        """PULL: lease rows and answer with them, or wait for some."""
        asked = bodies.unpack_pull(request.body)
        self._authoriser.check(caller.app, Command.PULL, asked.topic, asked.group)
        check_id(caller, request)
        broker, now = self._broker, self._core.now_us()
        until_us = request.until_us or now + wait_us(asked.wait_ms)
        most = asked.max_bytes or broker.limits.pull_bytes
        messages = min(asked.max_messages, broker.limits.pull_messages)
        reply = broker.pull(
            now,
            caller.session,
            asked.topic,
            asked.group,
            messages,
            most,
            asked.queue,
            asked.at_once,
            asked.detached_ms * 1000,
        )
        if asked.topic not in caller.topics:
            caller.uses(asked.topic)
        if reply is None and asked.queue is None:
            brief = until_us <= now and broker.pull_stopped()
            if brief or until_us > now:
                until_us = now + BRIEF_US if brief else until_us
                if self._wait(caller, request, asked, messages, most, until_us, brief=brief):
                    return
        self._hand_out(caller, request, asked, reply)

    def _wait(
        self,
        caller: Caller,
        request: Request,
        asked: Pull,
        messages: int,
        most: int,
        until_us: int,
        *,
        brief: bool,
    ) -> bool:
        """Let a pull wait; return whether it does: a brief one does not if too many wait.

        Raises:
            Busy: Too many requests wait.
        """
        try:
            self.waiting.take_place(caller)
        except Busy:
            if brief:
                return False
            raise
        try:
            token = self._broker.park(
                caller.session,
                asked.topic,
                asked.group,
                messages,
                most,
                until_us,
                asked.at_once,
                asked.detached_ms * 1000,
                brief=brief,
            )
        except BaseException:
            self.waiting.give_place(caller)
            raise
        self._parked.add(token, self.waiting.add(caller, request, until_us, token))
        return True

    def _hand_out(
        self,
        caller: Caller,
        request: Request,
        asked: Pull,
        reply: PullReply | None,
        failures: LastFailures | None = None,
    ) -> None:
        """Answer a pull with the leased rows; release them if the caller is gone."""
        now = self._core.now_us()
        if reply is None:
            caller.answer(request, self.nothing())
            return
        if caller.closed:
            self._give_back(caller, asked, reply)
            return
        topic = self._broker.views.catalog.topics.get(reply.topic)
        spans = [(start, stop) for start, stop, _, _ in reply.runs]
        if topic is None:
            caller.refuse(request, UnknownTopic(f"topic {asked.topic!r} was deleted"))
            return
        told = b""
        try:
            if len(reply.runs) > 1 or reply.runs[0][3] > 1:  # some may have failed before
                if failures is None:
                    failures = self._queries.last_failures(asked.topic, asked.group, reply)
                told = pack_last_failures(failures.find())
            records = records_of(self._broker, topic, reply.queue, spans, reply.places)
        except WouldBlock as blocked:
            most = self._broker.limits.pull_bytes
            size = min(asked.max_bytes or most, most)
            caller.expect(size)
            self._core.cold_reads.read(
                blocked,
                partial(self._read_on, caller, request, asked, reply, size, failures),
                caller,
            )
            return
        except (MessageNotFound, UnknownGroup, UnknownTopic) as error:
            self._give_back(caller, asked, reply)
            caller.refuse(request, error)
            return
        except (DiskReadError, CorruptJournal) as error:
            unreadable = self._core.unreadable(error)
            self._set_apart(caller, asked, reply, str(unreadable.args[0]))
            caller.refuse(request, unreadable)
            return
        head = bodies.delivery_head(
            reply.topic,
            reply.queue,
            reply.epoch,
            reply.lease,
            reply.until_us,
            now,
            reply.suspect_below,
            reply.runs,
            told,
            reply.anew,
        )
        counters = self._desk.counters
        counters.pulls += 1
        rows = sum([stop - start for start, stop in spans])
        counters.delivered_rows += rows
        subscription = topic.by_group.get(asked.group)
        if subscription is not None:
            subscription.counted().delivered += rows
        caller.answer(request, b"".join([head, *records]), reply.position, reply.rests)

    def _read_on(
        self,
        caller: Caller,
        request: Request,
        asked: Pull,
        reply: PullReply,
        size: int,
        failures: LastFailures | None,
    ) -> None:
        """Go on with a pull whose rows have been read from the disk."""
        caller.expect(-size)
        self._hand_out(caller, request, asked, reply, failures)

    # -- what cannot be handed out ----------------------------------------------------------------

    def _give_back(self, caller: Caller, asked: Pull, reply: PullReply) -> None:
        """Release the leased rows; this counts as no attempt."""
        self._settle(caller, asked, reply, Outcome.RELEASED)

    def _set_apart(self, caller: Caller, asked: Pull, reply: PullReply, reason: str) -> None:
        """Settle the rows that cannot be read as failed; release the others."""
        bad = self._unreadable(reply)
        self._settle(caller, asked, reply, Outcome.RETRY, bad, reason)
        self._give_back(caller, asked, reply)

    def _settle(
        self,
        caller: Caller,
        asked: Pull,
        reply: PullReply,
        outcome: Outcome,
        spans: Sequence[Span] = (),
        reason: str = "",
    ) -> None:
        lease = (reply.queue, reply.epoch, reply.lease)
        settle = bodies.Settle(
            asked.topic, asked.group, *lease, outcome, tuple(spans), None, reason
        )
        # Refused, the lease ends by its session or its time.
        with contextlib.suppress(RefusedError, JournalFull):
            self._broker.settle(self._core.now_us(), caller.session, settle)

    def _unreadable(self, reply: PullReply) -> list[Span]:
        """Return the rows of a reply whose records cannot be read; all rows if none is found."""
        runs = [(start, stop) for start, stop, _, _ in reply.runs]
        bad: set[Span] = set()
        for places in reply.places:
            ends = [*places.first_offsets[1:], places.stop]
            for first, end, position, length in zip(
                places.first_offsets, ends, places.positions, places.lengths, strict=True
            ):
                try:
                    self._broker.store.get(position, length or None)
                except (DiskReadError, CorruptJournal):
                    bad.update(
                        (max(start, first), min(stop, end))
                        for start, stop in runs
                        if max(start, first) < min(stop, end)
                    )
                except (WouldBlock, MessageNotFound):
                    pass  # nothing is known against it
        return sorted(bad) or runs

    # -- waiting ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Answer parked pulls that have rows or are out of time, some in each turn."""
        core = self._core
        if self._waking:
            return
        if self._woken_turn != core.turns:
            self._woken_turn, self._woken_calls = core.turns, WOKEN_CALLS
            self._woken_until = time.perf_counter() + WOKEN_S
        while self._woken_calls:
            self._woken_calls -= 1
            try:
                over = self._broker.woken_pulls(core.now_us())
            except WouldBlock as blocked:
                self._waking = True
                core.cold_reads.read(blocked, self._woken_read)
                return
            if not over:
                return
            unreadable = self._broker.parking.unreadable
            for token, reply in over:
                wait = self._parked.pop(token)
                self.waiting.remove(wait)
                if token in unreadable:
                    wait.caller.refuse(wait.request, core.unreadable(unreadable.pop(token)))
                else:
                    self._over(wait, reply)
            if time.perf_counter() > self._woken_until:
                self._woken_calls = 0
        core.touch()

    def _woken_read(self) -> None:
        self._waking = False
        self.wake()

    def _over(self, wait: Wait[int], reply: PullReply | None) -> None:
        """Answer a pull that waited; it has been removed."""
        caller, request = wait.caller, wait.request
        asked = bodies.unpack_pull(request.body)
        if reply is not None:
            try:  # its grants may be others by now
                self._authoriser.check(caller.app, Command.PULL, asked.topic, asked.group)
            except RefusedError as error:
                self._give_back(caller, asked, reply)
                caller.refuse(request, error)
                return
        if reply is not None and not caller.roomy and not caller.closed:
            # Others of its pulls woke in this turn: this one asks again when their answers are out.
            self._give_back(caller, asked, reply)
            caller.put_back(wait.again)
            return
        self._hand_out(caller, request, asked, reply)

    def _end(self, wait: Wait[int]) -> None:
        """Answer a pull at once: with nothing, or with what had just come for it."""
        over = self._cancelled(wait)
        self._over(wait, None if over is None else over.reply)

    def _withdrawn(self, wait: Wait[int]) -> None:
        """Give back what had just come for a pull that goes back to its caller."""
        over = self._cancelled(wait)
        if over is not None and over.reply is not None:
            self._give_back(wait.caller, bodies.unpack_pull(wait.request.body), over.reply)
            self._core.touch()

    def _cancelled(self, wait: Wait[int]) -> Woken | None:
        """Have the core forget a pull; return how it ended there, if it had."""
        self._parked.pop(wait.what)
        return self._broker.cancel(wait.what)

    def nothing(self) -> bytes:
        """Return the answer to a pull that got no rows."""
        return bodies.delivery_head(0, 0, 0, 0, 0, self._core.now_us(), 0, ())
