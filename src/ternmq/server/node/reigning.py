"""What a reign adds to a running broker: copies that count, changes of the record, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.port import Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import BadRecord, Floor, Leadership, Progress
from ternmq.cluster.replication.reign import Change, Reign
from ternmq.cluster.replication.settings import CopySettings
from ternmq.model.types import Epoch, Position
from ternmq.server.replication.primary import Primary
from ternmq.settings import Settings

if TYPE_CHECKING:
    from ternmq.server.engine.engine import Core
    from ternmq.server.native.hub import Hub

log = logging.getLogger("ternmq.cluster")

_TICK_S: Final = 0.1
_LOOK_S: Final = 1.0
"""Longest time between two readings of the record."""
_PROGRESS_S: Final = 10.0
_AGAIN_S: Final = 0.25


class Reigning:
    """A reign of this broker. Loop only.

    Args:
        group: The records of the broker group.
        record: The record that made this broker the primary.
        settings: Of the broker.
        copying: How followers are judged.
        now_us: A clock that nobody sets, and that goes on while the machine sleeps.
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
        self._floor: Floor | None = None
        self._core: Core
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()
        self._committed = asyncio.Event()
        self._hint = asyncio.Event()
        self._unwatch: Callable[[], None] = lambda: None
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
        hub.replication = self.primary
        self._unwatch = self._group.watch(self._hint.set)
        self._keeping = asyncio.create_task(self._keep())

    async def committed(self) -> None:
        """Return when this reign's EPOCH is committed: only then may clients be served."""
        await self._committed.wait()

    async def resign(self, why: str) -> None:
        """End the reign: answers stop, then a member may stand at once."""
        if self.primary is not None:
            await self.primary.resign(why)
        await self.end()

    async def end(self) -> None:
        """End what runs for the reign; nothing leaves for clients any more."""
        self._unwatch()
        running = [one for one in (self._keeping, *self._changes) if one is not None]
        for task in running:
            task.cancel()
        for task in running:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self.primary is not None:
            self.primary.close()

    # -- while it lasts ---------------------------------------------------------------------------

    async def _keep(self) -> None:
        primary, loop = self.primary, asyncio.get_running_loop()
        assert primary is not None
        look_at = progress_at = loop.time()
        begun = False
        while not self.deposed.is_set():
            primary.tick()
            journal = self._core.broker.journal
            if journal.committed and not begun:
                begun = True
                self._spawn(self._begin_serving())  # MARKS go on while the coordinator is away
            now = loop.time()
            if now >= look_at or self._hint.is_set():
                self._hint.clear()
                look_at = now + _LOOK_S
                self._spawn(self._look())
            if now >= progress_at and self._committed.is_set():
                progress_at = now + _PROGRESS_S
                self._spawn(self._put_progress(Progress(self.epoch, journal.committed)))
            await asyncio.sleep(_TICK_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    def _depose(self, why: str) -> None:
        log.warning("epoch %d is over: %s", self.epoch, why)
        self.deposed.set()

    async def _look(self) -> None:
        """Read the record: another epoch in it ends this reign."""
        try:
            found = await self._group.read()
        except BadRecord as error:
            _disbelieve(error)
            return
        if isinstance(found, Leadership) and self.primary is not None:
            self.primary.learned(found)

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
        await self._put_floor()
        if self.primary is not None and self.primary.record.floor is not None:
            self._committed.set()

    async def _put_floor(self) -> None:
        """State in the record that this reign has begun."""
        async with self._changing:
            assert self.primary is not None
            record = self.primary.record
            await self._decided(
                msgspec.structs.replace(
                    record,
                    version=record.version + 1,
                    writer=self._group.writer(),
                    floor=self._floor,
                    why=record.why,
                    at_us=time.time_ns() // 1000,
                )
            )

    def _change(self, change: Change) -> None:
        self._spawn(self._carry_out(change))

    async def _carry_out(self, change: Change) -> None:
        """Change the members, and have the reign learn what became of it."""
        async with self._changing:
            assert self.primary is not None
            record = self.primary.record
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
        while not self.deposed.is_set():
            try:
                outcome = await self._group.change(record)
                if isinstance(outcome, Swapped):
                    self.primary.learned(record)
                    return
                found = await self._group.read()
            except BadRecord as error:
                _disbelieve(error)
            else:
                if isinstance(found, Leadership):
                    self.primary.learned(found)
                if isinstance(outcome, Refused):
                    return
                if isinstance(outcome, Unknown):
                    log.warning("the coordinator does not answer: %s", outcome.why)
            await asyncio.sleep(_AGAIN_S)


def _disbelieve(error: BadRecord) -> None:
    log.error("the coordinator cannot be believed: %s", error)
