"""This process as a follower: the copy on the disk, its threads, the connection to the primary."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec import UNSET

from ternmq.cluster.coordination.group import Presence
from ternmq.cluster.coordination.loss import Loss
from ternmq.cluster.coordination.record import Floor, Reach
from ternmq.cluster.replication.following import promised
from ternmq.cluster.replication.standing import Loyalty
from ternmq.journal.copy.copy import Copy, CopySyncJob
from ternmq.journal.copy.damaged import cut_before_damage, damage_of
from ternmq.journal.copy.indexing import CopyIndex, IndexJob
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.index.open import hints
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.space import AllocateJob
from ternmq.journal.log.worker import Job, SyncThread
from ternmq.model.errors import (
    CorruptJournal,
    JournalError,
    UnknownRecordKind,
)
from ternmq.model.types import Epoch, Position
from ternmq.model.units import read_address
from ternmq.model.version import __version__
from ternmq.server.node.applying import NOBODY, Applying, Shown, Successor
from ternmq.server.node.figures import CopyFigures
from ternmq.server.node.folder import Holding
from ternmq.server.node.stream import CONNECT_S, Stream
from ternmq.server.process.surely import surely
from ternmq.server.reading.lag import Lag
from ternmq.server.scrub.donors import Donor
from ternmq.server.scrub.figures import Extent
from ternmq.server.scrub.scrubber import NotNow, Scrubber
from ternmq.settings import Settings
from ternmq.settings.settings import Follower as FollowerKind
from ternmq.wire.control import Checkpoint as Told
from ternmq.wire.control import Follow, Followed

log = logging.getLogger("ternmq.cluster")


class Replica:
    """The copy in this broker's folder, and what copies into it. Loop only, but for its threads.

    Args:
        settings: Of the broker.
        incarnation: Of this process.
        loyalty: What this process has promised.
        now_us: A clock that nobody sets, and that goes on while the machine sleeps.
        lacking: Called, in a thread, before bytes of the folder that were durable are given up:
            makes durable that the folder does not have everything any more.
        donors: Returns the brokers that may have bytes that are damaged here.
        steady_us: The clock by which the primary's broker time goes on here; None: ``now_us``.
        disk: The data root; None: the folder of the settings.
        shown: Those who read the views of the copy.

    Attributes:
        copy: The copy; None while the folder is empty.
        scrubber: Finds and mends damaged bytes of the copy; made by ``open``, worked by the node.
        journal: Number of the group's journal.
        loss: The loss that an operator accepted last, as the leadership record has it.
        gave_up: Records were cut that this copy was told to be committed, since an operator
            accepted their loss.
        applying: The views of the copy; there after ``open``.
    """

    def __init__(
        self,
        settings: Settings,
        incarnation: int,
        loyalty: Loyalty,
        now_us: Callable[[], int],
        lacking: Callable[[], None],
        *,
        donors: Callable[[], Sequence[Donor]] = tuple,
        steady_us: Callable[[], int] | None = None,
        disk: Disk | None = None,
        shown: Shown = NOBODY,
    ) -> None:
        self.settings = settings
        self.incarnation = incarnation
        self.loyalty = loyalty
        self.now_us = now_us
        self.copy: Copy | None = None
        self.index: CopyIndex | None = None
        self.journal = 0
        self.loss: Loss | None = None
        self.gave_up = False
        self.disk: Disk
        self.scrubber: Scrubber
        self._donors = donors
        self.applying: Applying
        self._shown = shown
        self._lag = Lag()
        self._handed = False
        """The data root is a successor's now."""
        self._give_up = lacking
        self._disk = disk
        self._steady_us = steady_us or now_us
        self._threads: list[SyncThread] = []
        self._stream: Stream | None = None
        self._lacking = Epoch(0)
        """Epoch of a primary that lacks what this copy was told to be committed."""
        self._time: tuple[int, int] | None = None
        """Broker time that the primary told last, and when."""
        self._heard_us: int | None = None
        self._primary_end = 0
        self._syncs = self._saved_bytes = 0

    # -- the folder -------------------------------------------------------------------------------

    async def open(
        self, journal: int, committed: Position, mends: Callable[[], Awaitable[bool]]
    ) -> None:
        """Open the copy in the folder, or turn the folder's journal into one.

        If bytes of it are damaged that were durable, it may be cut before them.

        Args:
            journal: Number of the group's journal.
            committed: How far this process was committed as a primary: that is never cut.
            mends: Returns whether a copy that is damaged may be cut: the primary has the bytes.

        Raises:
            AlreadyRunning: Another process uses the folder.
            CorruptJournal: It is damaged, and nothing was changed.
            UnknownRecordKind, DiskError, OSError: The folder cannot be used as it is.
        """
        self.journal = journal
        self.disk = self._disk if self._disk is not None else RealDisk(self.settings.data)
        self.disk.lock()
        self.applying = Applying(
            self.disk,
            self.settings.options().limits,
            enabled=self.settings.follower is not FollowerKind.BACKUP,
            in_place=self._disk is not None,
            shown=self._shown,
        )
        try:
            try:
                self.copy = await asyncio.to_thread(self._open)
            except UnknownRecordKind:
                raise
            except CorruptJournal as error:
                if not await mends():
                    raise
                self.copy = await asyncio.to_thread(self._mend, error.args[0])
        except BaseException:
            self.disk.close()
            raise
        self.scrubber = Scrubber(
            self.disk,
            self.extent,
            self.run_beside,
            period_us=self.settings.scrub_us,
            wall_us=lambda: time.time_ns() // 1000,
            donors=self._donors,
        )
        if self.copy is not None:
            self.index = CopyIndex(self.disk, self.copy.segment_size)
            self.loyalty.hears_of(self.copy.told)
            self.loyalty.hears_of(self.copy.last_epoch)
            self.loyalty.remembers(self.copy.promise_ms * 1000)
            self.copy.tell(committed=committed)

    def _open(self) -> Copy | None:
        hint = next((one.begin for one in hints(self.disk)), None)
        return Copy.open(self.disk, hint=hint, reserve_bytes=self._reserve_bytes)

    def _mend(self, damage: str) -> Copy | None:
        """Open a copy that is damaged: it ends before the damage then."""
        found = damage_of(self.disk)
        self._give_up()
        at = cut_before_damage(self.disk, found)
        log.error("the copy is damaged: %s. It ends before the damage now, at %d, and is copied "
                  "again from there", damage, at)  # fmt: skip
        copy = Copy.open(self.disk, reserve_bytes=self._reserve_bytes)
        # Without a copy nothing is left of the segment that begins there.
        CopyIndex(self.disk, 1 if copy is None else copy.segment_size).cut(at)
        return copy

    @property
    def _reserve_bytes(self) -> int | None:
        return self.settings.reserve_bytes or None

    def begin(self, followed: Followed) -> Copy:
        """Return the copy, for a stream that begins; blocks if it has to be made."""
        copy, first = self.copy, Position(followed.first)
        if copy is not None and not copy.leads_to(first, Position(followed.matched)):
            # The primary has removed what would follow: nothing here leads to what it has.
            log.warning("the copy from %d to %d has nothing of the primary's journal, which begins "
                        "at %d: copied anew", copy.first, copy.end, first)  # fmt: skip
            left = promised(copy, self.loss, Epoch(followed.epoch))
            committed = copy.committed
            self.applying.discard()
            self._lag.cut()
            copy.discard(first, promised=left)
            if left < committed:
                self.note_loss(committed, left)
            copy = self.copy = None
        if copy is None:
            copy = Copy.make(
                self.disk,
                first=first,
                segment_size=followed.segment_bytes,
                told=Epoch(followed.epoch),
                reserve_bytes=self._reserve_bytes,
            )
        if self.copy is not copy:
            self.copy = copy
            self.index = CopyIndex(self.disk, copy.segment_size)
        return copy

    async def stop(self) -> None:
        """Make everything durable that was copied, and have COPY say so.

        Raises:
            JournalError: That failed.
        """
        if self.copy is not None:
            await asyncio.to_thread(self.copy.sync_all)

    def holding(self, floor: Floor | None) -> Holding | None:
        """Return what the copy has; None if it is empty."""
        copy = self.copy
        if copy is None or copy.last is None:
            return None
        begun = None if floor is None else copy.record(floor.position)
        return Holding(
            copy.first,
            copy.end,
            copy.last_epoch,
            floor,
            None if begun is None else begun.crc,
            copy.last,
            copy.committed,
        )

    @property
    def reach(self) -> Reach | None:
        """How far the copy reaches; None if it is empty."""
        copy = self.copy
        if copy is None or copy.last is None:
            return None
        return Reach(copy.last_epoch, copy.end, copy.committed)

    def hand_over(self) -> Successor | None:
        """Return what this process takes over if it leads; None: it has to recover the journal.

        Call it after ``stop``. The successor has the data root then, also after ``close``.
        """
        successor = None if self.copy is None else self.applying.successor(self.copy)
        self._handed = successor is not None
        return successor

    def close(self) -> None:
        """Close the files and end the threads; blocks for a moment."""
        for thread in self._threads:
            thread.close()
        self._threads = []
        self.applying.discard()
        if self.copy is not None:
            self.copy.close()
            self.copy = None
        if not self._handed:
            self.disk.close()

    # -- following --------------------------------------------------------------------------------

    async def follow(self, there: Presence) -> str:
        """Copy from a primary until the connection ends; return why it ended.

        Raises:
            JournalError: The copy cannot go on.
        """
        if self.copy is not None and self.copy.failure is not None:
            raise JournalError(f"the copy has failed: {self.copy.failure}")
        loop = asyncio.get_running_loop()
        if not self._threads:
            self._threads = [
                SyncThread(self._report),
                SyncThread(self._report),
                SyncThread(self._report, name="ternmq-scrub"),
            ]
        address = read_address(there.address)
        checkpoints = await asyncio.to_thread(self._checkpoints)
        stream = self._stream = Stream(self, there, self._follow(checkpoints))
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(
                    lambda: stream, address.host, address.port, ssl=self._tls(there)
                )
            return await stream.ended
        except TimeoutError:
            return f"{there.broker} at {there.address} does not answer"
        except OSError as error:
            return f"{there.broker} at {there.address} cannot be reached: {error.strerror or error}"
        finally:
            stream.end("")
            await surely(stream.idle.wait())  # no job works on the copy any more
            self._saved_bytes += stream.saved_bytes
            self._stream = None

    def _checkpoints(self) -> Sequence[Checkpoint]:
        """Return what shows the primary what this copy has; reads from the disk."""
        copy, loss = self.copy, self.loss
        if copy is None:
            return []
        epoch = Epoch(0) if loss is None else loss.epoch
        return copy.checkpoints(promised=promised(copy, loss, epoch))

    def _follow(self, checkpoints: Sequence[Checkpoint]) -> Follow:
        copy, settings = self.copy, self.settings
        token = settings.cluster_token
        assert token is not None
        return Follow(
            token=token.reveal(),
            group=settings.broker_group,
            journal=self.journal,
            broker=settings.name,
            incarnation=self.incarnation,
            kind=settings.follower.value,
            told=self.loyalty.told,
            end=0 if copy is None else copy.end,
            checkpoints=[Told(*one) for one in checkpoints],
            lacking=self._lacking,
            software=f"ternmq {__version__}",
            compress=("zstd",) if settings.compress_stream else UNSET,
        )

    def _tls(self, there: Presence) -> ssl.SSLContext | None:
        if not there.tls:
            return None
        return ssl.create_default_context(cafile=self.settings.cluster_ca)

    def submit(self, job: Job) -> None:
        """Run a job of the copy in a thread; the stream is told when it has ended."""
        if isinstance(job, CopySyncJob):
            number = 0
        else:
            number = 1 if isinstance(job, (AllocateJob, IndexJob)) else 2
        self._threads[number].submit(job)

    async def run_beside(self, job: Job) -> None:
        """Run a job of the scrub in a thread; raises its error.

        Raises:
            NotNow: Nothing is followed, or the histories are being compared: the copy may be cut.
        """
        if self._stream is None or not self._stream.may_scrub:
            raise NotNow
        await self._stream.scrub(job)

    def extent(self) -> Extent | None:
        """Return which bytes of the copy are certainly those of the group; None: it is empty."""
        copy = self.copy
        if copy is None:
            return None
        safe = min(copy.committed, copy.durable)
        return Extent(copy.segment_size, copy.first, Position(safe), copy.last_epoch)

    def count_sync(self) -> None:
        """Count a sync that has ended."""
        self._syncs += 1

    def _report(self, job: Job, error: Exception | None) -> None:
        """Pass a finished job to the loop. Called in a thread."""
        stream = self._stream
        if stream is not None:
            stream.loop.call_soon_threadsafe(stream.finished, job, error)

    @property
    def epoch(self) -> int:
        """The epoch that is followed now; 0: none."""
        return 0 if self._stream is None else self._stream.epoch

    def figures(self) -> CopyFigures:
        """Return what this follower has, for people and scrapers."""
        stream = self._stream
        following = None if stream is None else stream.following
        if following is not None:
            self._heard_us, self._primary_end = following.heard_us, following.primary_end
        copy, heard_us, behind_us = self.copy, self._heard_us, self.behind_us
        held = 0 if copy is None else copy.end if following is None else following.held
        return CopyFigures(
            written=0 if copy is None else copy.end,
            synced=0 if copy is None else copy.durable,
            committed=0 if copy is None else copy.committed,
            behind_bytes=max(0, self._primary_end - held),
            heard_s=None if heard_us is None else max(0, self.now_us() - heard_us) / 1e6,
            connected=following is not None,
            syncs=self._syncs,
            scrub=self.scrubber.figures,
            applied=self.applying.applied,
            saved_bytes=self._saved_bytes + (0 if stream is None else stream.saved_bytes),
            behind_s=None if behind_us is None else behind_us / 1e6,
            readers=self._shown.readers,
        )

    def lacks(self, broker: str, epoch: Epoch, why: str) -> None:
        """Note that a primary lacks what this copy was told to be committed; it is told so."""
        if epoch != self._lacking:
            log.error("%s leads with a journal that lacks what was answered, and this copy has it: "
                      "its folder is an old one, or a copy (%s)", broker, why)  # fmt: skip
        self._lacking = epoch

    def was_cut(self, at: Position) -> None:
        """Note that the copy was cut at a position, while no job was at work.

        If the views are there, the files of the index are theirs, and describe nothing behind
        ``at``: it was not committed.
        """
        assert self.copy is not None
        if self.applying.cut(at) and self.applying.holds_files:
            return
        self._lag.cut()
        self.index = CopyIndex(self.disk, self.copy.segment_size)
        self.index.cut(at)

    def note_loss(self, before: Position, committed: Position) -> None:
        """Note a cut below the commit mark.

        Args:
            before: The commit mark before.
            committed: What is left of it.
        """
        self.gave_up = True
        log.warning("cut below the commit mark, from %d to %d, since an operator accepted this "
                    "loss; what was cut is kept in repair/", committed, before)  # fmt: skip

    @property
    def is_whole(self) -> bool:
        """Whether this disk has everything that the primary says to be committed."""
        following = None if self._stream is None else self._stream.following
        if following is None or self.copy is None or not following.commit:
            return False
        return min(self.copy.durable, following.held) >= following.commit

    # -- time -------------------------------------------------------------------------------------

    def hear_time(self, broker_time_us: int, commit: Position) -> None:
        """Note the primary's broker time, and its commit mark at that time."""
        self._time = broker_time_us, self._steady_us()
        self._lag.heard(commit, broker_time_us)

    @property
    def broker_time_us(self) -> int | None:
        """Broker time now, by the primary's last word; None if it said nothing yet."""
        if self._time is None:
            return None
        told_us, at_us = self._time
        return told_us + self._steady_us() - at_us

    @property
    def behind_us(self) -> int | None:
        """Since when something committed may be missing in the views; None: it is not known."""
        now_us, applying = self.broker_time_us, self.applying
        if now_us is None or not applying.applied:
            return None
        return self._lag.behind_us(applying.applied, applying.applied_us, now_us)
