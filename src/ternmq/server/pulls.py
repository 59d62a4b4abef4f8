"""PULL: rows leased to a session, at once or when there are some.

Leased rows that cannot be delivered are released: if the peer is gone or has no room, or its app
lost the right while the pull was parked. Rows whose bytes cannot be read count as failed, with the
reason: they are retried by the group's policy and become dead letters in the end, and the rows
behind them are delivered.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import Final, NamedTuple

from ternmq.access import Authoriser
from ternmq.broker.history import LastFailures
from ternmq.broker.queries import Queries
from ternmq.broker.replies import PullReply
from ternmq.broker.tokens import Tokens
from ternmq.journal.cold import WouldBlock
from ternmq.model.errors import (
    CorruptJournal,
    DiskReadError,
    JournalFull,
    MessageNotFound,
    RefusedError,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.record.facts import Outcome, Span
from ternmq.server.hub import Hub
from ternmq.server.peer import Peer
from ternmq.server.rows import pack_last_failures, records_of
from ternmq.server.waits import check_id, take_place, wait_us
from ternmq.wire import bodies
from ternmq.wire.bodies import Pull
from ternmq.wire.commands import Command
from ternmq.wire.session import Request

WOKEN_CALLS: Final = 4
"""Most calls of ``woken_pulls`` in one turn."""
WOKEN_S: Final = 0.0003
"""Once answering parked pulls has taken this long, no more are requested in this turn."""


class Parked(NamedTuple):
    """A pull that waits for rows in the core."""

    peer: Peer
    request: Request
    until_us: int


class PullCommands:
    """Handler of PULL, and parked pulls. Not thread-safe: call it from the broker's loop."""

    def __init__(self, hub: Hub, authoriser: Authoriser, queries: Queries) -> None:
        self._hub = hub
        self._core = hub.core
        self._broker = hub.core.broker
        self._authoriser = authoriser
        self._queries = queries
        self._parked: Tokens[Parked] = Tokens()
        """Parked pulls by the core's token."""
        self._tokens: dict[Peer, dict[int, int]] = {}
        """Connection -> request id -> token."""
        self._waking = False

    def pull(self, peer: Peer, request: Request) -> None:
        """PULL: lease rows and answer with them, or wait for some."""
        asked = bodies.unpack_pull(request.body)
        self._authoriser.check(peer.app, Command.PULL, asked.topic, asked.group)
        check_id(peer, request)
        broker, now = self._broker, self._core.now_us()
        until_us = request.until_us or now + wait_us(asked.wait_ms)
        most = asked.max_bytes or broker.limits.pull_bytes
        messages = min(asked.max_messages, broker.limits.pull_messages)
        reply = broker.pull(
            now, peer.session, asked.topic, asked.group, messages, most, asked.queue, asked.at_once
        )
        if asked.topic not in peer.topics:
            peer.uses(asked.topic)
        if reply is None and until_us > now and asked.queue is None:
            take_place(self._hub, peer)
            try:
                token = broker.park(
                    peer.session, asked.topic, asked.group, messages, most, until_us, asked.at_once
                )
            except BaseException:
                self._hub.waiting.give(peer.app)
                raise
            self._parked.add(token, Parked(peer, request, until_us))
            self._tokens.setdefault(peer, {})[request.id] = token
            peer.waiting.add(request.id)
            peer.park(request)
            return
        self._hand_out(peer, request, asked, reply)

    def _hand_out(
        self,
        peer: Peer,
        request: Request,
        asked: Pull,
        reply: PullReply | None,
        failures: LastFailures | None = None,
    ) -> None:
        """Answer a pull with the leased rows; release them if the peer is gone."""
        now = self._core.now_us()
        if reply is None:
            peer.answer(request, self.nothing())
            return
        if peer.closed:
            self._give_back(peer, asked, reply)
            return
        topic = self._broker.views.catalog.topics.get(reply.topic)
        spans = [(start, stop) for start, stop, _, _ in reply.runs]
        if topic is None:
            peer.refuse(request, UnknownTopic(f"topic {asked.topic!r} was deleted"))
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
            peer.expect(size)
            self._core.read_first(
                blocked, partial(self._read_on, peer, request, asked, reply, size, failures), peer
            )
            return
        except (MessageNotFound, UnknownGroup, UnknownTopic) as error:
            self._give_back(peer, asked, reply)
            peer.refuse(request, error)
            return
        except (DiskReadError, CorruptJournal) as error:
            unreadable = self._core.unreadable(error)
            self._set_apart(peer, asked, reply, str(unreadable.args[0]))
            peer.refuse(request, unreadable)
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
        )
        counters = self._hub.counters
        counters.pulls += 1
        rows = sum([stop - start for start, stop in spans])
        counters.delivered_rows += rows
        subscription = topic.by_group.get(asked.group)
        if subscription is not None:
            subscription.counted().delivered += rows
        peer.answer(request, b"".join([head, *records]), reply.position, reply.rests)

    def _read_on(
        self,
        peer: Peer,
        request: Request,
        asked: Pull,
        reply: PullReply,
        size: int,
        failures: LastFailures | None,
    ) -> None:
        """Go on with a pull whose rows have been read from the disk."""
        peer.expect(-size)
        self._hand_out(peer, request, asked, reply, failures)

    # -- rows that cannot be delivered ------------------------------------------------------------

    def _give_back(self, peer: Peer, asked: Pull, reply: PullReply) -> None:
        """Release the leased rows; this counts as no attempt."""
        self._settle(peer, asked, reply, Outcome.RELEASED)

    def _set_apart(self, peer: Peer, asked: Pull, reply: PullReply, reason: str) -> None:
        """Settle the rows that cannot be read as failed; release the others."""
        bad = self._unreadable(reply)
        self._settle(peer, asked, reply, Outcome.RETRY, bad, reason)
        self._give_back(peer, asked, reply)

    def _settle(
        self,
        peer: Peer,
        asked: Pull,
        reply: PullReply,
        outcome: Outcome,
        spans: list[Span] | None = None,
        reason: str = "",
    ) -> None:
        # If the settle is refused, the lease ends with its session or its time.
        with contextlib.suppress(RefusedError, JournalFull):
            self._broker.settle(
                self._core.now_us(),
                peer.session,
                asked.topic,
                asked.group,
                reply.queue,
                reply.epoch,
                reply.lease,
                outcome,
                spans,
                reason=reason,
            )

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
                    pass  # not known to be unreadable
        return sorted(bad) or runs

    # -- waiting ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Answer parked pulls that have rows or are out of time, some in each turn."""
        core = self._core
        if self._waking:
            return
        until = 0.0
        for _ in range(WOKEN_CALLS):
            try:
                over = self._broker.woken_pulls(core.now_us())
            except WouldBlock as blocked:
                self._waking = True
                core.read_first(blocked, self._woken_read)
                return
            if not over:
                return
            unreadable = self._broker.parking.unreadable
            until = until or time.perf_counter() + WOKEN_S
            for token, reply in over:
                parked = self._unpark(token)
                if token in unreadable:
                    parked.peer.refuse(parked.request, core.unreadable(unreadable.pop(token)))
                else:
                    self._over(parked, reply)
            if time.perf_counter() > until:
                break
        core.touch()

    def _woken_read(self) -> None:
        self._waking = False
        self.wake()

    def _over(self, parked: Parked, reply: PullReply | None) -> None:
        peer, request, until_us = parked
        asked = bodies.unpack_pull(request.body)
        if reply is not None:
            try:  # the app's grants may have changed since
                self._authoriser.check(peer.app, Command.PULL, asked.topic, asked.group)
            except RefusedError as error:
                self._give_back(peer, asked, reply)
                peer.refuse(request, error)
                return
        if reply is not None and not peer.roomy and not peer.closed:
            # The peer's other pulls were answered in this turn: this one runs again once it has
            # taken those answers.
            self._give_back(peer, asked, reply)
            peer.put_back(request.until(until_us))
            return
        self._hand_out(peer, request, asked, reply)

    def end(self, peer: Peer, id_: int) -> None:
        """Answer a parked pull at once: with nothing, or the rows that it was just leased."""
        token = self._tokens.get(peer, {}).get(id_)
        if token is not None:
            over = self._broker.cancel(token)
            self._over(self._unpark(token), None if over is None else over.reply)

    def end_all(self, peer: Peer) -> None:
        """Answer all parked pulls of a connection at once."""
        for id_ in list(self._tokens.get(peer, ())):
            self.end(peer, id_)

    def withdraw(self, peer: Peer) -> list[Request]:
        """Take a connection's parked pulls back, to run again later; they keep their deadlines."""
        requests: list[Request] = []
        for token in list(self._tokens.get(peer, {}).values()):
            over = self._broker.cancel(token)
            _, request, until_us = self._unpark(token)
            if over is not None and over.reply is not None:
                self._give_back(peer, bodies.unpack_pull(request.body), over.reply)
                self._core.touch()
            requests.append(request.until(until_us))
        return requests

    def _unpark(self, token: int) -> Parked:
        """Remove a parked pull and return it."""
        parked = self._parked.pop(token)
        peer, id_ = parked.peer, parked.request.id
        tokens = self._tokens[peer]
        del tokens[id_]
        if not tokens:
            del self._tokens[peer]
        peer.waiting.discard(id_)
        self._hub.waiting.give(peer.app)
        peer.unpark(parked.request)
        return parked

    def nothing(self) -> bytes:
        """Return the answer to a pull that got no rows."""
        return bodies.delivery_head(0, 0, 0, 0, 0, self._core.now_us(), 0, ())
