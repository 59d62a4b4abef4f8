"""One broker, its disk, its clients and its clock on one heap of events.

The world is the shell: it runs commands, lets upkeep work, flushes, releases what the gate held
back, issues syncs and jobs and completes them at other events. All of it is decided by one seeded
random. Every record that reaches the disk goes through the tape, a shadow broker (replay from
nothing) and the reference before any answer goes out.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeVar

from ternmq.broker.broker import Broker
from ternmq.broker.clock.clock import BrokerClock
from ternmq.broker.delivery.leases import ENDED_ROWS_A_TURN
from ternmq.broker.gate.replies import DoneReply, Gate, Reply
from ternmq.broker.group.lease import LEASE_BITS
from ternmq.broker.ledger.views import Views
from ternmq.broker.operation.drains import Drain
from ternmq.broker.start import Options, Started, new_views, open_broker
from ternmq.broker.upkeep.fulfilling import PAGES_A_TIME
from ternmq.journal.cache.cold import Job, WouldBlock
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.index import Index
from ternmq.journal.index.run_jobs import RunJob
from ternmq.journal.log.journal import SyncJob
from ternmq.journal.log.scan import RawRecord
from ternmq.model.errors import DiskError, JournalError, JournalFailed, RefusedError, TernMQError
from ternmq.model.types import DAY_US, HOUR_US, Position
from ternmq.record.fact.control import EPOCH, FLAG_CLEAN
from ternmq.record.fact.header import Kind
from tests.sim.disk import Faults, SimDisk, SimFile
from tests.sim.history import Asked, GroupKey, History, Name, Opening, Tried
from tests.sim.medium import Medium
from tests.sim.numbers import ToldNumbers
from tests.sim.oracles import Oracles
from tests.sim.portrait import Portrait, difference, portrait
from tests.sim.reference import Reference
from tests.sim.scheduled import Message
from tests.sim.schedules import check_schedule
from tests.sim.tape import Tape, Violation

T = TypeVar("T")
_STATE_END = 4
START_US = 1_700_000_000_000_000
_FACTS = frozenset(
    int(kind) for kind in Kind if kind not in (Kind.SEGMENT, Kind.PAD, Kind.MARK, Kind.STATE)
)


OVERDUE_US = 1_500_000
"""Leases over for so long must have been ended: ticks come late, a journal is full at times."""
CALM_OVERDUE_US = 250_000
"""A timer that found no room comes again in 100 ms."""
FREED_US = 2_500_000
"""Scheduled rows of a topic that was deleted are freed within it: housekeeping is every second."""
SYNC_US = (100, 300, 1000, 4000)
COPIED = "copied"
"""How kinds are called in which another copy must acknowledge what is written."""
COPY_US = (20, 200, 1000, 8000, 30_000)
"""How long it takes for that: before the sync of the same bytes ends, or long after it."""
WALL_JUMPS_US = (
    0, 0, 100_000, -100_000, 3_000_000, -4_000_000, 3_600_000_000, -3_600_000_000,
)  # fmt: skip
START_JUMPS_US = (-3_600_000_000, -5_000_000, 3_000_000)
FAR_US = 76 * 365 * DAY_US
"""As far as a clock in the year 2099 is ahead: no start believes it."""
DOWN_US = (1_000, 30_000, 200_000)


ASSIGNED_US = (5_000, 15_000)
"""When queues are assigned to members: a second and three, for a broker whose time is short."""


class Stopped(Exception):
    """The broker's process is over: its disk failed."""


class Told:
    """An answer that the gate holds back."""

    __slots__ = ("reply", "then")

    def __init__(self, reply: Reply, then: Callable[[Reply], None]) -> None:
        self.reply = reply
        self.then = then


class Reign:
    """What one life of the broker left for the crash sweep.

    Attributes:
        medium: As it was before the first operation.
        log: Operations of the disk.
        tape: Records, those of earlier reigns included.
        portraits: Of the views after each number of records.
        suspects: ``suspect_below`` likewise.
        demands: (length of the log, position) that answers rest on.
        first_of_reign: Records that were there when it began.
    """

    def __init__(self, medium: Medium, options: Options) -> None:
        self.medium = medium
        self.options = options
        self.disk = SimDisk()
        self.tape = Tape(options.segment_bytes)
        self.portraits: list[Portrait] = []
        self.suspects: list[int] = []
        self.demands: list[tuple[int, int]] = []
        self.kept_records = 0
        self.wall_us = 0
        self.tried: dict[bytes, Tried] = {}
        self.asked: dict[GroupKey, set[int]] = {}
        self.named: dict[Name, Asked] = {}
        self.cancels: set[tuple[str, int, int]] = set()
        self.fates: dict[Message, tuple[str, int]] = {}
        self.openings: dict[tuple[int, int], Opening] = {}
        self.numbers = ToldNumbers()


class World:
    """See the module.

    Args:
        seed: Decides everything.
        options: Of the broker.
        faults: Of the disk.
    """

    def __init__(self, seed: str, options: Options, faults: Faults | None = None) -> None:
        self.chance = random.Random(seed)
        self.options = options
        self.faults = faults or Faults()
        self.history = History()
        self.monotonic_us = 0
        self.wall_offset_us = START_US
        self.job_us: tuple[int, ...] = (50, 500, 3000)
        """How long background jobs take, one of these."""
        self.sync_us: tuple[int, ...] = SYNC_US
        """How long syncs take, one of these."""
        self.copy_us: tuple[int, ...] = COPY_US if seed.startswith(COPIED) else ()
        """How long another copy takes to acknowledge bytes, one of these; none: there is none."""
        self.pace: tuple[int, ...] = (0, 0, 1, 2, 5, 1000)
        """How many pieces upkeep goes on for after its first in a turn, one of these."""
        self.tick_late_us: tuple[int, ...] = ()
        """How late a tick may be at most, one of these; none: by 0.5 ms."""
        self.overdue_us = OVERDUE_US
        self.began_us = 0
        """Broker time at which the broker began that runs."""
        self.calm = False
        """Nobody sends or pulls; what is out comes to its end."""
        self.wall_jump_us = 0
        """How far the wall clock is off for a while; it is right again at the next start."""
        self.wall_jumps_us: tuple[int, ...] = WALL_JUMPS_US
        """By how much it may be, one of these."""
        self.start_jumps_us: tuple[int, ...] = START_JUMPS_US
        """By how much the wall clock may be set anew before a start, one of these."""
        self.accepts = False
        """An operator may accept a wall clock that is an hour ahead while the broker runs."""
        self.down_us: tuple[int, ...] = DOWN_US
        """How long the broker is down before a start, one of these."""
        self.backlog_us = 0
        """How long what comes due at one moment may take to become messages."""
        self.moment_us = 0
        """When all rows of a burst come due."""
        self.leapt_us = 0
        """Broker time at which the broker went on that had stood still for long."""
        self.oracles = Oracles()
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.event_count = 0
        self.digest = hashlib.sha256()
        self.paths: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.reigns = 0
        self.restart_hooks: list[Callable[[], None]] = []
        self.wake_hooks: list[Callable[[], None]] = []
        self.patience = 1.0
        """Share of turns after which a sync is issued as soon as it may be."""
        self.reign: Reign
        self.disk: SimDisk
        self.broker: Broker
        self.started: Started
        self.reference: Reference
        self.shadow: Views
        self.gate: Gate[Told]
        self.clock: BrokerClock
        self.dead = False
        self.drains: dict[Drain, Callable[[Reply], None]] = {}
        """What waits until leases have been given back."""
        self.work_a_turn = random.Random(f"{seed} work").choice((1, 7, 30, ENDED_ROWS_A_TURN))
        self.pages_a_time = random.Random(f"{seed} pages").choice((1, 1, PAGES_A_TIME))
        self._at_once: list[Told] = []
        self._writes_back = self.chance.random() < 0.8
        self._syncing: SyncJob | None = None
        self._sent_upto = 0
        self._acknowledged = 0
        self._committed: int | None = None
        self._served = False
        self._armed_us = 0
        self._step_budget = 0
        self._seen_first = 0

    # -- bookkeeping -------------------------------------------------------------------------------

    def remembers(self, time_us: int) -> bool:
        """Return whether a batch stored at that broker time must still be known.

        Broker time may leap forward at a start, with the wall clock; the window leaps with it.
        """
        limits = self.options.limits
        window = min(limits.dedup_window_us, limits.producer_idle_us)
        return self.now_us() - time_us < window - 1_100_000

    def reached(self, path: str, count: int = 1) -> None:
        """Note that a path was reached."""
        self.paths[path] = self.paths.get(path, 0) + count

    @property
    def dead_letters(self) -> int:
        """How many rows died so far."""
        return self.counts.get("dead letter", 0)

    def tell(self, *what: object) -> None:
        """Write a line of the event log (only its hash is kept)."""
        self.digest.update(repr((self.monotonic_us, what)).encode())

    def now_us(self) -> int:
        """Return broker time."""
        return self.clock.read(
            self.monotonic_us, self.monotonic_us + self.wall_offset_us + self.wall_jump_us
        )

    def after(self, delay_us: int, what: Callable[[], None]) -> None:
        """Let something happen later in this reign."""
        self.event_count += 1
        heappush(self.events, (self.monotonic_us + delay_us, self.event_count, what))

    def leap(self, us: int) -> None:
        """The broker stands still for so long: all that should happen meanwhile happens then."""
        self.monotonic_us += us
        self.leapt_us = self.now_us()
        self.reached("the broker stood still")

    # -- a reign -----------------------------------------------------------------------------------

    def begin(self, medium: Medium, tape: Tape, old: Reign | None = None) -> Reign:
        """Start the broker on what a crash left; ``tape`` holds the records that are there."""
        reign = self.reign = Reign(medium.clone(), self.options)
        far = bool(tape.records) and self.chance.random() < 0.05
        self.wall_jump_us = FAR_US if far else 0
        reign.wall_us = self.monotonic_us + self.wall_offset_us + self.wall_jump_us
        reign.kept_records = len(tape.records)
        self.reigns += 1
        self.events = []
        self.gate = Gate()
        self._at_once = []
        self._syncing = None
        self._sent_upto = self._acknowledged = 0
        self._committed = 0 if self.copy_us else None
        self._armed_us = 0
        self.dead = False
        self.history.begin_reign()
        reign.demands = self.history.demands
        reign.tried = self.history.tried
        reign.asked = self.history.asked
        reign.named = self.history.named
        reign.cancels = self.history.cancels
        reign.fates = self.history.fates
        reign.openings = self.history.openings
        reign.numbers = self.history.numbers
        self._replay(reign, tape, old)
        self.oracles.restart(tape)
        tape.on_record = self._on_record
        reign.tape = tape
        self.disk = reign.disk = medium.disk(self.faults, tape.write)
        try:
            self.started = self.opened(reign.wall_us)
        except DiskError as error:
            self.dead = True
            raise Stopped from error
        except JournalFailed as error:
            self.dead = True
            raise Stopped from error
        self.broker = self.started.broker
        if self.copy_us:
            self.broker.journal.share_commits()
        self.broker.ticking.work_a_turn = self.work_a_turn
        self.broker.broadcasting.work_a_turn = self.work_a_turn
        self.drains = {}
        self.clock = BrokerClock(
            max(self.started.report.time_us, self.broker.views.last_time_us), self.monotonic_us
        )
        if self.oracles.started(self.started.report, reign.wall_us, self.options.start_jump_us):
            self.reached("wall clock of a start not believed")
        self.began_us = self.leapt_us = self.now_us()
        self.broker.fulfilling.pages_a_time = self.pages_a_time
        self.broker.membership.settled_us, self.broker.membership.longest_us = ASSIGNED_US
        self.oracles.serving(self.began_us, self.monotonic_us)
        self._jump_later()
        self._seen_first = self.reference.first = self.broker.journal.first
        self.tell("began", self.started.report.valid_end, self.started.report.epoch)
        self.end_turn()
        self._served = self.reigns == 1  # its clients are made later
        self._serve()
        return reign

    def opened(self, wall_us: int) -> Started:
        """Return the broker on what is there."""
        return open_broker(self.disk, wall_us=wall_us, chance=self.chance, options=self.options)

    def _serve(self) -> None:
        """Let the clients come back, once the EPOCH of this reign is committed."""
        if not self._served and self.broker.journal.committed:
            self._served = True
            for hook in self.restart_hooks:
                hook()

    def _jump_later(self) -> None:
        self.after(self.chance.randrange(400_000), self._jump)

    def _jump(self) -> None:
        """The wall clock is set: nothing may end sooner or later for it."""
        self._jump_later()
        self.wall_jump_us = self.chance.choice(self.wall_jumps_us)
        self.reached("wall clock jumped while running")
        if self.accepts and self.wall_jump_us == HOUR_US and self.chance.random() < 0.5:
            self._accept()

    def _accept(self) -> None:
        """An operator accepts the wall clock: broker time leaps, as it may at a start."""
        before_us = self.now_us()
        if self.clock.gap_us < HOUR_US // 2:
            return  # broker time is ahead already
        try:
            self.broker.journal.flush()  # what was decided before is of the time before
        except JournalFailed as error:
            self.stop()
            raise Stopped from error
        self.clock.accept()
        self._armed_us = 0
        now_us = self.now_us()
        self.began_us = self.leapt_us = now_us
        self.oracles.serving(now_us, self.monotonic_us)
        reply = self.command(lambda: self.broker.administration.accept_clock(now_us, before_us))
        if isinstance(reply, DoneReply):
            self.reached("wall clock accepted")
            self.hold(reply, lambda told: self.history.rely(self.disk.at, told.position))

    def _replay(self, reign: Reign, tape: Tape, old: Reign | None) -> None:
        """Bring shadow and reference to where the surviving records lead."""
        size = self.options.segment_bytes
        self.shadow = new_views(self.options.limits, Index(MemoryDisk(), segment_size=size))
        history = self.history
        self.reference = Reference(history.tried, history.named, history.openings)
        self.reference.asked = self.history.asked
        self.reference.scheduled.asked = self.history.cancels
        limits = self.options.limits
        self.reference.decided.transaction_us = limits.transaction_us
        self.reference.segment_size = size
        self.reference.dedup_window_us = limits.dedup_window_us
        self.reference.producer_idle_us = limits.producer_idle_us
        self.reference.dead_letter_us = limits.dead_letter_us
        self.reference.session_grace_us = limits.session_grace_us
        self.reference.instances.instance_kept_us = limits.instance_kept_us
        self.reference.expiries.failures = limits.failures
        self.shadow.loaded(Position(0))
        self.reference.first = 1 << 62  # what retention had taken when, is not looked at again
        if old is not None:
            reign.portraits = old.portraits[: len(tape.records) + 1]
            reign.suspects = old.suspects[: len(tape.records) + 1]
        if not reign.portraits:
            reign.portraits = [portrait(self.shadow)]
            reign.suspects = [0]
        for record in tape.records:
            if record.kind in _FACTS:
                self.shadow.apply(record)
                self.reference.apply(record)
        self.shadow.finish(Position(0))
        for key in self.reference.groups:
            self.reference.compare(key, self.shadow.progress.get(key))
        self.reference.scheduled.compare(self.shadow.schedule)
        self.reference.opened.compare(self.shadow.checked, list(self.reference.opened.open))
        self.reference.scheduled.check_told(self.history.fates)

    def _on_record(self, record: RawRecord) -> None:
        kind = Kind(record.kind)
        self.tell(kind.name, record.position, record.crc)
        self.reached(f"record {kind.name}")
        self.oracles.record(record, self.monotonic_us)
        if kind is Kind.STATE and record.body[8] == _STATE_END:
            self.reached("STATE set complete")
        reign = self.reign
        if record.kind in _FACTS:
            self.shadow.apply(record)
            before = self.reference.counts
            self.reference.counts = {}
            self.reference.committed = self._committed
            self.reference.apply(record)
            for path, count in self.reference.counts.items():
                self.counts[path] = self.counts.get(path, 0) + count
            self.reference.counts = before
            for key in self.reference.touched:
                self.reference.compare(key, self.shadow.progress.get(key))
            if self.reference.scheduled.touched:
                scheduled = self.reference.scheduled
                scheduled.compare(self.shadow.schedule, scheduled.touched)
            if self.reference.opened.touched:
                opened = self.reference.opened
                opened.compare(self.shadow.checked, opened.touched)
            if record.kind in (Kind.CONFIG, Kind.EPOCH):
                self.reference.compare_apps(self.shadow.catalog.apps)
                for key in self.reference.groups:
                    self.reference.compare(key, self.shadow.progress.get(key))
            reign.portraits.append(portrait(self.shadow))
        else:
            reign.portraits.append(reign.portraits[-1])
        reign.suspects.append(self.shadow.suspect_below)

    def expected_clean(self, tape: Tape, count: int) -> bool:
        """Return whether the first ``count`` records end with a clean stop."""
        if not count:
            return False
        last = tape.records[count - 1]
        return bool(
            last.kind == Kind.MARK and last.flags & FLAG_CLEAN and last.durable == last.position
        )

    # -- the shell ---------------------------------------------------------------------------------

    def run(self, operations: int, until: Callable[[], bool] | None = None) -> None:
        """Let events happen until the disk's log has grown by so many operations.

        Events that do nothing to the disk count too, twenty for one.
        """
        limit = len(self.disk.log) + operations
        left = 20 * operations
        while not self.dead and self.events and len(self.disk.log) < limit and left:
            left -= 1
            if until is not None and until():
                return
            when_us, _, what = heappop(self.events)
            self.monotonic_us = max(self.monotonic_us, when_us)
            try:
                what()
                self.end_turn()
            except Stopped:
                return

    def command(self, ask: Callable[[], T]) -> T | TernMQError:
        """Run a command of a client's: the answer, or the refusal."""
        end = self.broker.journal.end
        try:
            reply = self.ask(ask)
        except JournalFailed as error:
            self.stop()
            raise Stopped from error
        except (RefusedError, JournalError) as error:
            if isinstance(error, RefusedError):
                self.oracles.refused(self.broker, error)
            return error
        self.oracles.replied(self.broker, end, reply)
        return reply

    def ask(self, ask: Callable[[], T]) -> T:
        """Run a command; one that would block changes nothing and is repeated after its job."""
        for _ in range(100):
            end = self.broker.journal.end
            try:
                return ask()
            except WouldBlock as blocked:
                if self.broker.journal.end != end:
                    raise Violation("a command that would block has written records") from blocked
                self.reached("would block")
                try:
                    blocked.job.run()
                except DiskError as error:
                    self.stop()
                    raise Stopped from error
        raise Violation("a command blocks for ever")

    def hold(self, reply: Reply, then: Callable[[Reply], None]) -> None:
        """Keep an answer back until it may go; one that rests on nothing goes with this turn."""
        if not reply.position and self.chance.random() < 0.7:
            self._at_once.append(Told(reply, then))
            return
        self.gate.hold(reply.position, reply.rests, Told(reply, then))

    def stop(self) -> None:
        """The process ends at once."""
        self.dead = True
        self.tell("stopped")

    def end_turn(self) -> None:
        """What the shell does after commands: upkeep, flush, answers, syncs, jobs, the deadline."""
        if self.dead:
            return
        now = self.now_us()
        broker, journal = self.broker, self.broker.journal
        try:
            self.started.upkeep.step(now, self._may_go_on())
            if self.chance.random() < 0.05:
                journal.mark(now)
            journal.flush()
        except JournalFailed as error:
            self._probe_failed("write")
            self.stop()
            raise Stopped from error
        if journal.first != self._seen_first:
            self._seen_first = journal.first
            self.reached("segment removed")
            self.oracles.removed(broker)
            self.reference.removed(journal.first)
        if self.copy_us:
            self._copy(journal.written)
        self._release()
        if self.chance.random() < self.patience:
            self._issue_sync()
        self._issue_job()
        deadline = broker.next_deadline_us()
        if deadline is not None and (not self._armed_us or deadline < self._armed_us):
            self._armed_us = deadline
            late_us = self.chance.choice(self.tick_late_us) if self.tick_late_us else 500
            self.after(max(0, deadline - now) + self.chance.randrange(late_us), self._tick)

    def _may_go_on(self) -> Callable[[], bool]:
        left = self.chance.choice(self.pace)

        def may() -> bool:
            nonlocal left
            left -= 1
            return left >= 0

        return may

    def _release(self) -> None:
        journal = self.broker.journal
        at_once, self._at_once = self._at_once, []
        for told in at_once:
            told.then(told.reply)
        for told in self.gate.release(journal.committed, journal.written):
            if told.reply.rests == 0 and told.reply.position > journal.committed:
                raise Violation("an answer went out before it was committed")
            told.then(told.reply)

    def _tick(self) -> None:
        self._armed_us = 0
        schedule = self.broker.views.schedule
        try:
            self.ask(lambda: self.broker.tick(self.now_us()))
        except JournalFailed as error:
            self.stop()
            raise Stopped from error
        except JournalError:
            self.reached("tick found the journal full")
        if schedule._to_load is not None:
            self.reached("the horizon is moved in pieces")
        if len(schedule.pages.by_number) > 1:
            self.reached("several pages of scheduled rows")
        for drain in self.broker.drains.over:
            then = self.drains.pop(drain, None)
            if then is not None:
                self.hold(DoneReply(drain.position), then)
        self.broker.drains.over.clear()
        self._wake()

    def _wake(self) -> None:
        for hook in self.wake_hooks:
            hook()

    def _issue_sync(self) -> None:
        if self._syncing is not None:
            return
        try:
            job = self.broker.journal.next_sync()
        except JournalFailed as error:
            self.stop()
            raise Stopped from error
        if job is None:
            return
        self._syncing = job
        for file in job.files:
            assert isinstance(file, SimFile)
            file.begin_sync()
        self.after(self.chance.choice(self.sync_us), lambda: self._complete_sync(job))

    def _complete_sync(self, job: SyncJob) -> None:
        journal = self.broker.journal
        self._syncing = None
        try:
            job.run()
        except DiskError as error:
            journal.failed(error)
            self.reached("sync failed")
            self._probe_failed("sync")
            self.stop()
            raise Stopped from error
        journal.synced(job)
        if self.copy_us:
            if self._commit():
                self.reached("committed by the sync")
        else:
            self.broker.committed()
        self._wake()

    def _copy(self, upto: Position) -> None:
        """Another copy gets the bytes that were written, and acknowledges them some time later."""

        def acknowledged() -> None:
            self._acknowledged = max(self._acknowledged, upto)
            if self._commit():
                self.reached("committed by the copy's word")
            self._wake()

        if upto > self._sent_upto:
            self._sent_upto = upto
            self.after(self.chance.choice(self.copy_us), acknowledged)

    def _commit(self) -> bool:
        """Move the commit mark to where both have it: this disk, and the other copy."""
        journal = self.broker.journal
        upto = Position(min(self._acknowledged, journal.durable))
        if journal.failure is not None or not journal.commit(upto):
            return False
        self._committed = journal.committed
        self.broker.committed()
        self._serve()
        return True

    def _probe_failed(self, what: str) -> None:
        """After a failed write or sync nothing is recorded, synced or answered any more."""
        journal = self.broker.journal
        for name, ask in (
            ("a sync is given out", journal.next_sync),
            ("a write goes out", journal.flush),
            ("a record is taken", lambda: journal.append(Kind.MARK, bytes(8), self.now_us())),
        ):
            try:
                ask()
            except JournalFailed:
                continue
            raise Violation(f"after a failed {what} {name}")
        if self.gate.release(journal.committed, journal.written):
            self.reached("answers of topics that wait for no sync")

    def check_live(self, *, calm: bool = False) -> None:
        """What the broker knows is what its records say, and nothing else.

        Args:
            calm: Faults that fired are long over: leases must have ended in time all the same.

        Raises:
            Violation: something was applied and not recorded, or the other way round.
        """
        if self.dead:
            return
        try:
            self.broker.journal.flush()
        except JournalFailed:
            return
        now = self.now_us()
        different = difference(portrait(self.shadow, now), portrait(self.broker.views, now))
        if different is not None:
            raise Violation(f"the live views differ from replay: {different}")
        self.reference.scheduled.compare(self.broker.views.schedule)
        check_schedule(self.broker, now)
        self._check_delivered(now)
        if self.disk.full or (self.faults.fired and not calm):
            return
        late_us = CALM_OVERDUE_US if calm else self.overdue_us
        if self.tick_late_us:
            late_us = max(late_us, self.overdue_us)
        grace_us = self.broker.limits.session_grace_us
        self._check_lateness(now, late_us)
        self._check_questions(now, late_us)
        for key, group in self.reference.groups.items():
            for id_, lease in group.leases.items():
                since_us = max(lease.until_us, self.leapt_us)  # nobody ends it while no broker runs
                if id_ >> LEASE_BITS < self.broker.journal.epoch:  # and its client may come back
                    since_us = max(since_us, self.began_us + grace_us)
                if since_us < now - late_us:
                    raise Violation(
                        f"group {key}: a lease should have ended {now - since_us} us ago"
                    )

    def _check_delivered(self, now: int) -> None:
        """Nothing that was scheduled is remembered by its delivery; rows of deleted topics go."""
        deliveries = self.reference.scheduled.deliveries
        for number, producer in self.broker.views.dedup.producers.items():
            if not deliveries.isdisjoint(producer.positions):
                raise Violation(f"producer {number}: deduplication knows a delivery")
        gone = self.broker.views.schedule.pages.gone
        freed_us = FREED_US + 4 * max(self.tick_late_us, default=0)  # it takes a few ticks
        for number, time_us in self.reference.scheduled.dropped.items():
            if number in gone and max(time_us, self.leapt_us) < now - freed_us:
                raise Violation(f"scheduled rows of topic {number}, which is deleted, stay")

    def _check_lateness(self, now: int, late_us: int) -> None:
        """What has come due became messages."""
        late_us = max(late_us, self.backlog_us)
        for number in self.reference.topics:
            row = self.reference.scheduled.first_due(number)
            if row is not None and max(row.due_us, self.leapt_us) < now - late_us:
                raise Violation(f"entry {row.entry} came due {now - row.due_us} us ago")

    def _check_questions(self, now: int, late_us: int) -> None:
        """Whom nobody asks about is asked about in time, if somebody can be, or given up."""
        asking = self.broker.checking.asking
        for number, one in self.reference.opened.open.items():
            if one.parked:
                continue
            if number not in asking._times:
                raise Violation(f"nobody will look at transaction {number} again")
            spec = self.reference.opened.spec(one.fact.group)
            end_us = one.since_us + spec.give_up_us
            if one.since_us < asking._began_us:  # its clients have had no time to come back
                grace_us = self.broker.limits.session_grace_us
                end_us = max(end_us, asking._began_us + grace_us + spec.first_us)
            due_us = end_us if number in asking._waits else min(one.next_us, end_us)
            if asking.offers(one.fact.group, one.fact.app) and number in asking._waits:
                raise Violation(f"transaction {number} waits, and a checker is there")
            # The next in turn may wait for a second until a session is free.
            if max(due_us, self.leapt_us, self.began_us) < now - late_us - 2_000_000:
                raise Violation(f"transaction {number} should have been looked at {now - due_us}")

    def _issue_job(self) -> None:
        job = self.started.upkeep.next_job()
        if job is not None:
            self.after(self.chance.choice(self.job_us), lambda: self._complete_job(job))

    def _complete_job(self, job: Job) -> None:
        error: Exception | None = None
        try:
            job.run()
        except DiskError as caught:
            error = caught
            self.reached("job failed")
        self.reached(type(job).__name__)
        if isinstance(job, RunJob) and self._writes_back:
            self.after(20_000, lambda: self.disk.write_back("index"))
        self.started.upkeep.finished(job, error)

    def close(self) -> None:
        """Stop the broker cleanly."""
        if self._syncing is not None:
            self._complete_sync(self._syncing)
        self.reached("clean stop")
        try:
            self.broker.close(self.now_us())
        except JournalError as error:
            self.stop()
            raise Stopped from error
        self.stop()


def epoch_of(record: RawRecord) -> int:
    """Return the epoch that an EPOCH record begins."""
    number: int = EPOCH.unpack_from(record.body)[0]
    return number
