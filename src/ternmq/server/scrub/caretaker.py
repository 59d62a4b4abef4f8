"""The scrub of a broker that leads, or is alone: its parts, and what the broker shows of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from ternmq.journal.disk.port import Disk
from ternmq.model.types import Position
from ternmq.server.engine.engine import Core
from ternmq.server.scrub.alarms import DamageAlarms
from ternmq.server.scrub.beside import Beside
from ternmq.server.scrub.donors import Donor
from ternmq.server.scrub.figures import Extent, scrub_families
from ternmq.server.scrub.giving import Giver
from ternmq.server.scrub.scrubber import Scrubber, scrub_ended
from ternmq.server.telemetry.families import Numbers
from ternmq.settings import Settings
from ternmq.wire import control


class Caretaker:
    """Finds damage in the journal of a running core, and mends it. Loop only.

    Args:
        core: The core; its reads that fail are looked at from now on.
        settings: Of the broker.
        wall_us: The wall clock.
        donors: Returns the other brokers that may have the bytes; None: the broker is alone.
    """

    def __init__(
        self,
        core: Core,
        settings: Settings,
        wall_us: Callable[[], int],
        donors: Callable[[], Sequence[Donor]] | None,
    ) -> None:
        self._core = core
        self._settings = settings
        self._disk: Disk = core.disk
        self._beside = Beside(core.loop)
        self.scrubber = Scrubber(
            core.disk,
            self.extent,
            self._beside.run,
            period_us=settings.scrub_us,
            wall_us=wall_us,
            donors=donors,
            renewed=core.broker.store.drop_segment,
            released=core.cold_reads.go_on,
        )
        core.broker.store.mends = self.scrubber.mends
        core.look_at = self.scrubber.look_at
        self._alarms = DamageAlarms(core, self.scrubber)
        self._giver: Giver | None = None
        self._task: asyncio.Task[None] | None = None

    def extent(self) -> Extent | None:
        """Return which bytes of the journal may be read again and mended; None: none now."""
        if self._core.failure is not None:
            return None
        journal = self._core.broker.journal
        safe = min(journal.committed, journal.durable)
        return Extent(journal.segment_size, journal.first, Position(safe), journal.epoch)

    def begin(self) -> None:
        """Begin to read."""
        self._task = asyncio.create_task(self.scrubber.work())
        self._task.add_done_callback(scrub_ended)

    def give(self, journal: Callable[[], int]) -> Giver:
        """Return what answers other brokers that ask for records.

        Args:
            journal: Returns the number of the group's journal.
        """
        self._giver = Giver(
            self._settings,
            self._disk,
            journal=journal,
            extent=self.extent,
            suspect=self.scrubber.suspect,
        )
        return self._giver

    def look(self, now_us: int) -> None:
        """Raise alarms for what is new; called once a second."""
        self._alarms.look(now_us)

    def numbers(self) -> Iterator[Numbers]:
        """Yield the metrics."""
        yield from scrub_families(self.scrubber.figures)

    def info(self) -> control.ScrubInfo:
        """Return the part of the status."""
        figures = self.scrubber.figures
        return control.ScrubInfo(
            on=figures.on,
            completed_us=figures.completed_us,
            damaged=figures.damaged,
            found=figures.found,
            mended=figures.mended,
        )

    async def end(self) -> None:
        """End the scrub, and what other brokers are given; a job of the scrub is waited for."""
        if self._task is not None:
            self._task.cancel()
        if self._giver is not None:
            await self._giver.close()
        self._beside.close()
