"""Pulls: joins a group, and requests its rows."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Final

from ternmq.client.connection.link import Link
from ternmq.client.connection.raising import own
from ternmq.client.connection.session import Session
from ternmq.client.consumer.awake import Awake
from ternmq.client.consumer.chunk import chunks_of
from ternmq.client.consumer.deliveries import Leased
from ternmq.client.consumer.lease import Lease
from ternmq.client.consumer.membership import Memberships, rejoin
from ternmq.client.consumer.ordering import OrderedRows
from ternmq.client.consumer.settler import Settler
from ternmq.client.declaration.instances import Instances
from ternmq.client.declaration.making import Making
from ternmq.client.declaration.source import Source
from ternmq.model.errors import (
    CannotConnect,
    ClientClosed,
    ConnectionLost,
    InstanceTaken,
    InvalidName,
    InvalidRequest,
    LeaseExpired,
    NotOwner,
    NotPrimary,
    TernMQError,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.model.specs import BROADCAST_GROUP, Mode
from ternmq.model.words import nearest
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")

LONGEST_WAIT: Final = 60.0
"""Seconds that one PULL may be parked in the broker."""
_LATE_S: Final = 0.5
"""Seconds after the end of its wait at which the client ends an unanswered pull."""
_MOST: Final = 2**31
_LONG_WAIT: Final = 60.0


class Puller:
    """Joins groups and pulls. Not thread-safe: call it from the client's loop."""

    def __init__(
        self, session: Session, settler: Settler, making: Making, memberships: Memberships
    ) -> None:
        self.session = session
        self.memberships = memberships
        self.settler = settler
        self._making = making
        self._joined: dict[tuple[object, ...], tuple[tuple[int, int], control.GroupJoined]] = {}
        """By what was stated: ``_generation`` at the join, and its answer."""
        self.instances = Instances()
        self.awake: Awake | None = None

    async def join(self, source: Source) -> control.GroupJoined:
        """Join the group, and create it if it is missing; one request for each stated source.

        Raises:
            GroupSettingsMismatch: A stated setting differs from the group's.
            UnknownTopic, Forbidden, ModeNotAllowed: The group cannot be joined.
        """
        if self.awake is None:
            awake = Awake(self.session.loop, lambda: self.session.closed)
            self.awake = self.settler.awake = awake
        if not source.broadcast:
            return await self._join(source)
        async with self.instances.joining(source):
            if self.instances.changes(source):
                self._forget_place(*source.stated[:2])
            joined = await self._join(source)
            self.instances.joined(source, joined.spec)
            return joined

    async def _join(self, source: Source) -> control.GroupJoined:
        known = self._joined.get(source.stated)
        if known is not None and known[0] == self._generation(source):
            source.group = known[1].group or source.group
            return known[1]
        await self._making.before_join(source.topic)
        try:
            joined = await self.session.control(
                Command.GROUP_JOIN, source.join(self.memberships.name), control.GroupJoined
            )
        except UnknownTopic as error:
            raise await self._suggested(source.topic, error) from None
        except InvalidName as error:
            if source.broadcast and BROADCAST_GROUP in str(error):
                raise InvalidRequest("the broker is too old for broadcast instances") from error
            raise
        source.group = joined.group or source.group
        source.check_joined(joined.spec)
        self._note(source, joined)
        if joined.created:
            log.info("created group %s on topic %s, starting at %s", source.group, source.topic,
                     joined.spec.start.value)  # fmt: skip
        return joined

    def _note(self, source: Source, joined: control.GroupJoined) -> None:
        self._joined[source.stated] = self._generation(source), joined
        if joined.spec.mode.assigns_queues:
            self.memberships.joined(source)
        else:
            self.memberships.forget(source.topic, source.group)
        self.settler.policies.joined(source.topic, source.group, joined.spec)

    async def _suggested(self, topic: str, error: UnknownTopic) -> UnknownTopic:
        """Return the error with the name of an existing topic that is similar."""
        try:
            found = await self.session.control(
                Command.TOPIC_LIST, control.TopicList(), control.Topics
            )
        except TernMQError:
            return error
        like = nearest(topic, [info.spec.name for info in found.topics])
        meant = f"; did you mean {like!r}?" if like else ""
        told = UnknownTopic(f"{error.args[0]}{meant}")
        told.hint = UnknownTopic.hint  # shown as it would be without the suggestion
        return told

    def mode(self, source: Source) -> Mode | None:
        """Return the group's mode as the broker reported it last; None: not known."""
        return self.settler.policies.mode(source.topic, source.group)

    def _generation(self, source: Source) -> tuple[int, int]:
        """Return a value that changes when the source must be joined again.

        A group, when the broker lost its data; a broadcast instance, with each new session.
        """
        return self.session.anew, self.session.number if source.broadcast else 0

    def outdated(self, source: Source) -> bool:
        """Return whether the source must be joined again before the next pull."""
        known = self._joined.get(source.stated)
        return known is not None and known[0] != self._generation(source)

    def forget(self, source: Source) -> None:
        """Forget a join: the group does not exist any more."""
        self._joined.pop(source.stated, None)

    async def leave(self, topic: str, group: str) -> None:
        """Leave a group; see ``Client.leave``."""
        if self.memberships.used(topic, group):
            raise InvalidRequest(
                f"a consumer of this client pulls for group {group!r} on {topic!r}: end it first"
            )
        self.memberships.leave(topic, group)
        self._forget_place(topic, group)
        asked = control.GroupLeave(topic=topic, group=group)
        await self.session.control(Command.GROUP_LEAVE, asked, control.Nothing)
        self.memberships.left(topic, group)

    def _forget_place(self, topic: object, group: object) -> None:
        """Forget the joins of a group, or of an instance, whatever was stated."""
        place = topic, group
        self._joined = {key: one for key, one in self._joined.items() if key[:2] != place}

    async def become_member(self, source: Source) -> control.GroupJoined:
        """Join a group again of which the session is no member.

        The group may have another mode than is stated: it was changed while the client consumed.

        Raises:
            UnknownTopic, UnknownGroup: It was deleted meanwhile.
        """
        asked = rejoin(source.topic, source.group, self.memberships.name)
        try:
            joined = await self.session.control(Command.GROUP_JOIN, asked, control.GroupJoined)
        except (UnknownGroup, UnknownTopic):
            self.forget(source)
            raise
        self._note(source, joined)
        return joined

    def begin(self, source: Source) -> None:
        """Note that a consumer of a joined group begins to pull."""
        if source.broadcast:
            self.instances.begin(source)
        else:
            self.memberships.begin(source)

    def end(self, source: Source) -> None:
        """Note that it pulls no more; the last one leaves a group with members."""
        if source.broadcast:
            self.instances.end(source)
        elif self.memberships.end(source):
            self._forget_place(source.topic, source.group)

    async def pull(
        self, source: Source, max_messages: int, wait: float, *, patience: float | None = None
    ) -> Leased | None:
        """Return rows, or None if none came within ``wait`` seconds.

        If the connection is lost, or the broker is about to stop or no longer the primary, it waits
        for a new connection:
        for ``patience`` seconds; None: ``wait``, or the client's timeout if that is longer. If
        cancelled, it gives back rows that still come.

        Raises:
            CannotConnect: There was no connection in time.
            ConnectionLost: The broker did not answer in time.
            ClientClosed: The client was closed meanwhile.
            TernMQError: The broker refused it.
        """
        try:
            leased = await self._pulled(source, max_messages, wait, patience)
        except TernMQError:
            if self.session.closed:  # it has left the broker, which refuses the pull
                raise _closed() from None
            raise
        if leased is None and self.session.closed:
            raise _closed()
        return leased

    async def _pulled(
        self, source: Source, max_messages: int, wait: float, patience: float | None
    ) -> Leased | None:
        session = self.session
        loop = session.loop
        until = loop.time() + wait
        if patience is None:
            patience = max(wait, session.options.timeout)
        connect_until = loop.time() + patience
        refused = False
        while True:
            try:
                link = await session.opened(max(0.0, connect_until - loop.time()), to_pull=True)
            except CannotConnect:
                if session.draining:
                    return None
                raise
            if self.outdated(source):
                await self.join(source)
                continue
            left = min(max(0.0, until - loop.time()), LONGEST_WAIT)
            ask = _Pull(self, source, loop)
            self.settler.asking()  # settles first: this pull may return what they release
            id_ = link.ask(Command.PULL, pull_body(link, source, max_messages, left), ask)
            # The broker's clock may be slower than ours: that of the testing kit stops.
            ends = loop.call_later(left + _LATE_S, _end, link, id_)
            try:
                # The broker answers in time; the additional time is for a link that is silent.
                async with asyncio.timeout(left + session.options.timeout):
                    leased = await ask.future
            except asyncio.CancelledError:
                self._abandon(ask, link, id_)
                raise
            except TimeoutError:
                self._abandon(ask, link, id_)
                break  # an error raised here would refer to this one: see ``raising``
            except (ConnectionLost, NotPrimary):
                if session.closed or loop.time() >= connect_until:
                    raise
                continue
            except TernMQError as error:
                await self._answer_to(error, source, until, first=not refused)
                refused = True
                continue
            finally:
                ends.cancel()
                del ask  # see ``raising``
            if leased is not None and (not self.doubts(leased.lease) or await self._kept(leased)):
                return self._in_hand(source, leased)
            if loop.time() >= until or session.closed:
                return None
            if session.draining:
                continue
        raise ConnectionLost("the broker did not answer a pull in time")

    async def _answer_to(
        self, error: TernMQError, source: Source, until: float, *, first: bool
    ) -> None:
        """Do what lets the next pull succeed, if a refusal may pass; else raise it.

        A group that has members by now is joined, the first time also if no time is left. So is an
        instance that another client was meanwhile; if it still is, the join says so.
        """
        if first and isinstance(error, InstanceTaken):
            self.forget(source)
            await self.join(source)
            return
        left = until - self.session.loop.time()
        joins = isinstance(error, NotOwner)
        if not error.retriable or (left <= 0 and not (joins and first)):
            raise own(error)
        if joins:
            await self.become_member(source)
        if not (joins and first):
            await asyncio.sleep(min(0.2, max(0.0, left)))

    def doubts(self, lease: Lease) -> bool:
        """Return whether a lease may have ended in a freeze. Callable from any thread."""
        return self.settler.doubts(lease)

    async def still_held(self, lease: Lease) -> bool:
        """Ask the broker whether a lease goes on; if not, lose it.

        Raises:
            TernMQError: The broker cannot be asked now: perhaps another client has the rows.
        """
        try:
            await self.settler.extend(lease, max(lease.duration, lease.until - monotonic()))
        except (LeaseExpired, UnknownGroup, UnknownTopic):
            self.settler.lose(lease)
        return not lease.lost

    async def _kept(self, leased: Leased) -> bool:
        """Return whether rows that came before a freeze may be handed out; else give them back."""
        try:
            return await self.still_held(leased.lease)
        except TernMQError as error:
            log.debug("a lease of %s cannot be extended now: %s", leased.lease.topic, str(error))
            give_back(leased.lease)
            return False
        except BaseException:
            give_back(leased.lease)
            raise

    def _in_hand(self, source: Source, leased: Leased) -> Leased:
        """Keep the order within rows that are handed out as a batch."""
        mode = self.mode(source)
        if mode is None or not mode.keeps_order:
            return leased
        leased.lease.owner = OrderedRows(leased.chunks, by_queue=mode.locks_queues)
        return Leased(leased.lease, leased.chunks, ordered=True)

    def _abandon(self, ask: _Pull, link: Link, id_: int) -> None:
        """Withdraw a pull that has no caller any more, and give back rows that still come."""
        future = ask.future
        if future.done() and not future.cancelled() and future.exception() is None:
            leased = future.result()
            if leased is not None:
                give_back(leased.lease)
            return
        future.cancel()
        _end(link, id_)

    def leased(self, source: Source, body: bytes) -> Leased | None:
        """Return the rows in the answer to a PULL; None without rows.

        Raises:
            ProtocolError: The answer is damaged.
        """
        told = bodies.unpack_delivery(body)
        if not told.lease:
            return None
        chunks = chunks_of(told.queue, told.records, told.runs, told.suspect_below, told.anew)
        lease = Lease(
            self.settler,
            source.topic,
            source.group,
            told.queue,
            told.epoch,
            told.lease,
            [(start, start + rows) for start, rows, _, _ in told.runs],
            told.lease_until_us,
            told.now_us,
            told.failures,
            None if self.awake is None else self.awake.arrived(),
        )
        self.settler.began(lease)
        return Leased(lease, chunks)

    async def gather(self, source: Source, max_messages: int, max_wait: float) -> list[Leased]:
        """Return a batch: ``max_messages``, or what came within ``max_wait`` s after the first.

        Of a group that locks queues it returns the first answer: the queue is locked until
        these messages are settled. Without a broker, or if it is about to stop, it returns what it
        has, so that this can be settled in time; if that is nothing, it waits for a broker. If this
        is cancelled, what was gathered is given back.
        """
        loop = self.session.loop
        parts: list[Leased] = []
        count, until = 0, None
        try:
            while count < max_messages:
                wait = _LONG_WAIT if until is None else until - loop.time()
                if wait <= 0:
                    break
                try:
                    left, patience = max_messages - count, 0.0 if parts else None
                    leased = await self.pull(source, left, wait, patience=patience)
                except (CannotConnect, ConnectionLost, NotPrimary):
                    if parts:
                        break
                    continue
                if leased is None:
                    break
                parts.append(leased)
                count += leased.lease.rows
                mode = self.mode(source)
                if mode is not None and mode.locks_queues:
                    break
                until = until or loop.time() + max_wait
            for part in [one for one in parts if self.doubts(one.lease)]:
                if not await self._kept(part):
                    parts.remove(part)
        except BaseException:
            for part in parts:
                give_back(part.lease)
            raise
        return parts


def pull_body(
    link: Link, source: Source, max_messages: int, wait: float, at_once: int = 0
) -> bytes:
    """Return the body of a PULL; ``at_once`` as in ``bodies.Pull``, if the broker supports it."""
    most = min(max_messages, link.welcome.pull_messages or _MOST)
    said = at_once if link.welcome.pull_at_once else 0
    return bodies.pack_pull(
        bodies.Pull(source.topic, source.group, None, most, 0, int(wait * 1000), said)
    )


def _closed() -> ClientClosed:
    return ClientClosed("the client was closed while a pull waited")


def _end(link: Link, id_: int) -> None:
    """Make the broker answer a waiting pull: with nothing, or with rows that have just come."""
    if link.usable:
        link.tell(Command.CANCEL, bodies.pack_cancel(id_))


def give_back(lease: Lease) -> None:
    """Release the rows that are left of a lease."""
    if not lease.lost and lease.left:
        lease.owner = None
        lease.settle_rest(Outcome.RELEASED)


class _Pull:
    """A PULL that a caller waits for."""

    __slots__ = ("_puller", "_source", "future")

    def __init__(self, puller: Puller, source: Source, loop: asyncio.AbstractEventLoop) -> None:
        self._puller = puller
        self._source = source
        self.future: asyncio.Future[Leased | None] = loop.create_future()

    def answered(self, body: bytes) -> None:
        """Return the rows to the caller; give them back if it is gone."""
        leased = self._puller.leased(self._source, body)
        if not self.future.done():
            self.future.set_result(leased)
        elif leased is not None:
            give_back(leased.lease)

    def refused(self, error: TernMQError) -> None:
        """Raise the refusal in the caller."""
        if isinstance(error, UnknownGroup | UnknownTopic | InstanceTaken):
            self._puller.forget(self._source)  # it was deleted: the next call joins again
        if not self.future.done():
            self.future.set_exception(error)

    def lost(self) -> None:
        """Raise ``ConnectionLost`` in the caller."""
        if not self.future.done():
            self.future.set_exception(ConnectionLost("the connection ended before the answer"))
