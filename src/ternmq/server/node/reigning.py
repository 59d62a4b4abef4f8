"""What a reign adds to a running broker: copies that count, changes of the record, its end."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ternmq.broker.ledger.copies import BEHIND, COPIES, FAILOVER
from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.port import Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import (
    BadRecord,
    Floor,
    Leadership,
    Progress,
    Writes,
)
from ternmq.cluster.coordination.wishes import Copying, GroupSettings
from ternmq.cluster.replication.reign import Change, Reign
from ternmq.cluster.replication.settings import CopySettings
from ternmq.cluster.replication.standing import handover
from ternmq.model.errors import JournalFailed
from ternmq.model.types import Epoch, Position
from ternmq.server.process.doorway import Accepting, Doorway
from ternmq.server.replication.primary import Primary
from ternmq.settings import Settings

if TYPE_CHECKING:
    from ternmq.server.engine.engine import Core
    from ternmq.server.native.hub import Hub

log = logging.getLogger("ternmq.cluster")

_TICK_S: Final = 0.1
_PROGRESS_S: Final = 10.0
_SYNC_HANGS_S: Final = 10.0
"""A primary whose sync has run for so long leaves the group to a member, if there is one."""
_HAND_OVER_S: Final = 5.0
"""Longest wait until the member that takes over has synced everything."""
_AGAIN_S: Final = 0.25


class Reigning:
    """A reign of this broker. Loop only.

    Args:
        group: The records of the broker group.
        record: The record that made this broker the primary.
        settings: Of the broker.
        copying: How followers are judged.
        now_us: A clock that nobody sets, and that goes on while the machine sleeps.
        doorway: Where the broker listens.
        begins_us: Broker time to begin with; None: the wall clock.

    Attributes:
        epoch: Of the reign.
        begins_us: See the argument.
        deposed: Set when another reign has begun, or may have: nothing is answered any more.
        primary: The followers of this reign; None before ``begun``.
    """

    def __init__(
        self,
        group: Group,
        record: Leadership,
        settings: Settings,
        copying: CopySettings,
        now_us: Callable[[], int],
        *,
        doorway: Doorway,
        begins_us: int | None = None,
    ) -> None:
        self.epoch: Epoch = record.epoch
        self.begins_us = begins_us
        self.deposed = asyncio.Event()
        self.primary: Primary | None = None
        self._group = group
        self._record = record
        self._settings = settings
        self._copying = copying
        self._now_us = now_us
        self._doorway = doorway
        self._floor: Floor | None = None
        self._core: Core
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()
        self._sync: int | None = None
        self._ticks_of_sync = 0
        self._committed = asyncio.Event()
        self._settings_of_group = GroupSettings()
        self._even_us: dict[str, int] = {}
        """Follower -> when it had everything last."""
        self._keeping: asyncio.Task[None] | None = None

    @property
    def commit_mark(self) -> Position:
        """How far this reign was committed; 0 if it never began."""
        return Position(0) if self.primary is None else self._core.broker.journal.committed

    # -- called by the server ---------------------------------------------------------------------

    def begun(self, core: Core, hub: Hub) -> None:
        """Take over the commit mark of a broker whose EPOCH record was just written."""
        journal = core.broker.journal
        report = core.started.report
        self._core = core
        self._floor = Floor(journal.epoch, report.epoch_position, journal.last_crc)
        token = self._settings.cluster_token
        assert token is not None
        reign = Reign(self._settings.name, self._record, journal.end, self._copying, self._now_us())
        self.primary = Primary(
            core,
            reign,
            group=self._group.name,
            broker=self._settings.name,
            journal_number=self._record.journal,
            token=token,
            settings=self._copying,
            now_us=self._now_us,
            on_change=self._change,
            on_deposed=self._depose,
        )
        hub.take_follower = self.primary.follow
        self.heed(self._settings_of_group, self._copying)
        self._keeping = asyncio.create_task(self._keep())
        self._keeping.add_done_callback(self._ended)

    async def committed(self) -> None:
        """Return when this reign's EPOCH is committed: only then may clients be served."""
        await self._committed.wait()

    async def accept(
        self, factory: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None
    ) -> Accepting:
        """Accept connections at the address of the broker."""
        return await self._doorway.accept(factory, tls)

    async def resign(self, why: str, to: str = "") -> None:
        """End the reign: answers stop, then a member may stand at once.

        What the broker wrote last, its STATE and the MARK of a clean stop, is sent before.
        """
        if self.primary is not None:
            self.primary.written()
            self.primary.resign(why, to)
        await self.end()

    async def end(self) -> None:
        """End what runs for the reign; nothing leaves for clients any more."""
        running = [one for one in (self._keeping, *self._changes) if one is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        if self.primary is not None:
            self.primary.close()

    @property
    def outdated(self) -> str:
        """Why the journal must not be that of the primary; empty if it may. See ``Primary``."""
        return "" if self.primary is None else self.primary.outdated

    # -- while it lasts ---------------------------------------------------------------------------

    async def _keep(self) -> None:
        primary, loop = self.primary, asyncio.get_running_loop()
        assert primary is not None
        progress_at = loop.time()
        begun = False
        while not self.deposed.is_set():
            primary.tick()
            self._watch_sync()
            journal = self._core.broker.journal
            if journal.committed and not begun:
                begun = True
                self._spawn(self._begin_serving())  # MARKS go on while the coordinator is away
            elif self._opens:
                self._spawn(self._restate("two copies exist again"))
            self._limit()
            now = loop.time()
            if now >= progress_at and self._committed.is_set():
                progress_at = now + _PROGRESS_S
                self._spawn(self._put_progress(Progress(self.epoch, journal.committed)))
            await asyncio.sleep(_TICK_S)

    def _watch_sync(self) -> None:
        """Fail if the disk does not answer, while a member could lead: that ends the reign.

        While writes go on, the loop does, and followers would wait for this broker for ever. Ticks
        are counted instead of time: a process that was stopped has stopped its sync, too.
        """
        assert self.primary is not None
        number = self._core.syncing
        self._ticks_of_sync = self._ticks_of_sync + 1 if number == self._sync else 0
        self._sync = number
        hangs_s = self._ticks_of_sync * _TICK_S
        if number is None or hangs_s <= _SYNC_HANGS_S:
            return
        if any(one.member for one in self.primary.figures()):
            self._core.fail(JournalFailed(f"a sync has not ended for {hangs_s:.0f} s"))

    def learned(self, record: Leadership) -> None:
        """Take note of the record as it was read: another epoch in it ends this reign."""
        if self.primary is not None:
            self.primary.learned(record)

    def heed(self, settings: GroupSettings, copying: CopySettings) -> None:
        """Go by these settings of the broker group, and so judge followers, from now on."""
        self._settings_of_group = settings
        self._copying = copying
        if self.primary is not None:
            self.primary.heed(copying)
            self.primary.need(settings.copies)
            self.primary.wait_for_copies(synchronous=settings.copy is Copying.SYNCHRONOUS)

    @property
    def _opens(self) -> bool:
        """Whether new messages are to be taken again: the record says no, and two copies exist."""
        assert self.primary is not None
        reign = self.primary.reign
        closed = reign.record.writes is Writes.CLOSED
        return closed and reign.takes_strict and not self._changing.locked()

    def _limit(self) -> None:
        """Say to the broker whether new messages are taken."""
        assert self.primary is not None
        copies, reign, name = self._core.broker.ledger.copies, self.primary.reign, self._group.name
        why = reason = ""
        if reign.record.writes is Writes.CLOSED:
            reason = FAILOVER
            why = f"broker group {name} has one copy left, and takes no new messages"
        elif reign.copies < copies.needed:
            reason = COPIES
            why = (
                f"broker group {name} takes no new messages: {reign.copies} of {copies.needed} "
                "copies count, which its setting copies needs"
            )
        elif self._is_behind():
            reason = BEHIND
            why = f"every copy of broker group {name} is too far behind"
        copies.read_only, copies.reason = why, reason

    def _is_behind(self) -> bool:
        """Return whether every copy is further behind than the setting allows."""
        most_us = self._settings_of_group.read_only_behind_us
        if not most_us:
            self._even_us.clear()
            return False
        assert self.primary is not None
        now_us = self._now_us()
        for one in self.primary.figures():
            if not one.behind_bytes:
                self._even_us[one.broker] = now_us
            else:
                self._even_us.setdefault(one.broker, now_us)
        return bool(self._even_us) and now_us - max(self._even_us.values()) > most_us

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Forget a task; an error that nobody expected ends the reign."""
        self._changes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("what keeps the reign has failed", exc_info=error)
            self.deposed.set()

    def _depose(self, why: str) -> None:
        log.warning("epoch %d is over: %s", self.epoch, why)
        self.deposed.set()

    async def _put_progress(self, progress: Progress) -> None:
        try:
            await self._group.put_progress(progress)
        except BadRecord as error:
            _disbelieve(error)

    async def _begin_serving(self) -> None:
        """Let clients be served, and state in the record that this reign has begun.

        In a group without a floor nothing was ever answered, so its first primary may begin with an
        empty folder. For that to be true the first floor is stored before a client is served.
        """
        if self._record.floor is not None:
            self._committed.set()
        await self._restate("it has begun")
        if self.primary is not None and self.primary.reign.record.floor is not None:
            self._committed.set()

    async def _restate(self, why: str) -> None:
        """State in the record that this reign has begun, and that new messages are taken.

        That they are, only if two copies exist, or the record said so before.
        """
        async with self._changing:
            assert self.primary is not None
            record = self.primary.reign.record
            await self._decided(
                msgspec.structs.replace(
                    record,
                    version=record.version + 1,
                    writer=self._group.writer(),
                    floor=self._floor,
                    writes=Writes.OPEN if self.primary.reign.takes_strict else record.writes,
                    why=why,
                    at_us=time.time_ns() // 1000,
                )
            )

    async def hand_over(self, to: str, change: Callable[[Leadership], Awaitable[bool]]) -> bool:
        """Make another member the primary, after the journal was closed; return whether it is.

        Nothing is answered any more when this is called, and after it the reign is over.

        Args:
            to: The broker.
            change: Changes the record; returns once the outcome is known.
        """
        primary = self.primary
        assert primary is not None
        primary.written()
        end = self._core.broker.journal.end
        async with asyncio.timeout(_HAND_OVER_S), self._changing:
            while not self._has_synced(to, end):  # noqa: ASYNC110 - acknowledgements say it
                await asyncio.sleep(_TICK_S / 10)
            record = handover(
                primary.reign.record,
                to,
                self._group.writer(),
                f"{self._settings.name} hands over to {to}",
                time.time_ns() // 1000,
            )
        return await change(record)

    def _has_synced(self, broker: str, end: Position) -> bool:
        assert self.primary is not None
        return any(
            one.broker == broker and one.member and one.synced >= end
            for one in self.primary.figures()
        )

    def _change(self, change: Change) -> None:
        self._spawn(self._carry_out(change))

    async def _carry_out(self, change: Change) -> None:
        """Change the members, and have the reign learn what became of it."""
        async with self._changing:
            assert self.primary is not None
            record = self.primary.reign.record
            if record.version != change.replaces:
                # The record has changed meanwhile, which has ended this change. Do not withdraw it:
                # that would end the change that may have begun since, and be on its way uncounted.
                return
            log.info("members of %s: %s", self._group.name, change.why)
            await self._decided(
                msgspec.structs.replace(
                    record,
                    version=change.replaces + 1,
                    writer=self._group.writer(),
                    members=change.members,
                    why=change.why,
                    at_us=time.time_ns() // 1000,
                )
            )

    async def _decided(self, record: Leadership) -> None:
        """Ask for a change until it is known what became of it; both records count meanwhile."""
        assert self.primary is not None
        said = ""
        while not self.deposed.is_set():
            problem = ""
            try:
                outcome = await self._group.change(record)
                if isinstance(outcome, Swapped):
                    self.primary.learned(record)
                    return
                found = await self._group.read()
            except BadRecord as error:
                problem = f"the coordinator returned a record that is not valid: {error}"
            else:
                if isinstance(found, Leadership):
                    self.primary.learned(found)
                if isinstance(outcome, Refused):
                    return
                if isinstance(outcome, Unknown):
                    problem = f"the coordinator does not answer: {outcome.why}"
            if problem and problem != said:
                log.error("%s; it is asked again until the members have changed", problem)
            said = problem
            await asyncio.sleep(_AGAIN_S)


def _disbelieve(error: BadRecord) -> None:
    log.error("the coordinator returned a record that is not valid: %s", error)
