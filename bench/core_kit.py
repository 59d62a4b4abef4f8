"""What the measurements share: a broker driven in turns, prepared batches, and the clock.

Time is the thread's CPU clock: two cores are shared with whatever else runs, and what is asked is
what the core costs, not how long it was kept waiting. Where waiting is the subject (starts), the
wall clock is taken as well and named so.
"""

from __future__ import annotations

import cProfile
import gc
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from ternmq.broker.broker import Broker
from ternmq.broker.gate.replies import PullReply
from ternmq.broker.start import Options, Started, open_broker
from ternmq.broker.upkeep.upkeep import Upkeep
from ternmq.journal.cache.cold import Job
from ternmq.journal.disk.real import RealDisk
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.record.batch.batch import Row, encode, encode_bodies, encode_one, topic_seed
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle

START_US: Final = 1_800_000_000_000_000
"""Broker time at which every measurement begins."""
ROUNDS: Final = 5
MIB: Final = 1 << 20

Figures = dict[str, float]
"""What one round of a measurement found; the unit ends each name."""


@dataclass(frozen=True)
class Settings:
    """How large the measurements are, and where their data goes."""

    quick: bool = False
    journal_mib: int = 1024
    """Size of the journal for the starts."""
    data: Path | None = None
    rounds: int = ROUNDS

    def scaled(self, count: int, quick: int) -> int:
        """Return the count, or the one for a smoke run."""
        return quick if self.quick else count


@dataclass(frozen=True)
class Target:
    """What a figure should be at most (or at least)."""

    figure: str
    bound: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        """Return whether the value reaches it."""
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True)
class Measurement:
    """A measurement: what it is called, what it does in one round, what is asked of it."""

    name: str
    about: str
    run: Callable[[Settings], Figures]
    targets: Sequence[Target] = ()
    options: dict[str, object] = field(default_factory=dict)
    rounds: int | None = None
    """Instead of the usual number, where one round takes minutes."""


@contextmanager
def folder(settings: Settings) -> Iterator[Path]:
    """Give a folder on the disk that is measured; it is gone afterwards."""
    if settings.data is not None:
        settings.data.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="ternmq-bench-", dir=settings.data))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Rig:
    """A broker on a real disk, driven as a shell would, with everything that blocks run inline.

    ``turn`` ends a turn: upkeep within a millisecond, flush, sync, jobs. What is measured stands
    outside of it.
    """

    def __init__(self, path: Path, options: Options, *, seed: int = 1, sync: bool = True) -> None:
        self.path = path
        self.disk = RealDisk(path)
        self.started: Started = open_broker(
            self.disk, wall_us=START_US, chance=random.Random(seed), options=options
        )
        self.broker: Broker = self.started.broker
        self.upkeep: Upkeep = self.started.upkeep
        self.now_us = max(START_US, self.started.report.time_us)
        self.session = 0
        self.deferred: list[Job] | None = None
        """Jobs are kept here instead of being run when it is a list."""
        self._sync = sync

    def join(self) -> int:
        """Open a session and use it from now on."""
        value = self.broker.clients.join(self.now_us, "bench", "bench").value
        assert isinstance(value, int)
        self.session = value
        return value

    def topic(
        self,
        name: str,
        groups: Sequence[str] = (),
        *,
        ordered: bool = False,
        spec: SubscriptionSpec | None = None,
    ) -> None:
        """Create a topic and its groups."""
        self.broker.administration.create_topic(self.now_us, TopicSpec(name=name, ordered=ordered))
        for group in groups:
            self.broker.administration.subscribe(self.now_us, name, group, spec)

    def turn(self, *, passed_us: int = 1000, upkeep: bool = True) -> None:
        """End a turn, and let ``passed_us`` go by."""
        self.now_us += passed_us
        broker = self.broker
        if upkeep:
            stop = time.perf_counter_ns() + 1_000_000
            self.upkeep.step(self.now_us, lambda: time.perf_counter_ns() < stop)
        broker.journal.flush()
        self.sync()
        self.jobs()

    def sync(self) -> None:
        """Make everything durable (or say so, when the disk is not the subject)."""
        broker = self.broker
        job = broker.journal.next_sync()
        if job is not None:
            if self._sync:
                job.run()
            broker.journal.synced(job)
            broker.committed()

    def jobs(self) -> None:
        """Run what may block, or put it off."""
        while (job := self.upkeep.next_job()) is not None:
            if self.deferred is not None:
                self.deferred.append(job)
                return
            job.run()
            self.upkeep.finished(job, None)

    def pull_settle(
        self, topic: str, group: str, count: int, outcome: Outcome = Outcome.DONE
    ) -> PullReply | None:
        """Pull and settle whole; not for measuring, for making a state."""
        broker = self.broker
        reply = broker.pull(self.now_us, self.session, topic, group, count, queue=0)
        if reply is not None:
            asked = Settle(topic, group, 0, reply.epoch, reply.lease, outcome)
            broker.settle(self.now_us, self.session, asked)
        return reply

    def close(self) -> None:
        """Let go of the disk without a clean stop."""
        self.broker.journal.close()
        self.disk.close()


def gather(broker: Broker, reply: PullReply) -> list[bytes]:
    """Return the stored records that a reply hands out, as a shell does to pass them through."""
    gather = broker.store.gather
    if len(reply.places) == 1:
        return gather(reply.places[0])
    return [record for places in reply.places for record in gather(places)]


# ---------------------------------------------------------------------------------------- batches


class Producer:
    """Makes the batches of one producer of one topic."""

    def __init__(self, topic: str, number: int = 7, *, keyed: bool = False, start: int = 0) -> None:
        self.seed = topic_seed(topic)
        self.number = number
        self.keyed = keyed
        self.sequence = start

    def single(self, body: bytes) -> bytes:
        """Return the batch of one message."""
        at = self.sequence
        self.sequence = at + 1
        return encode_one(
            body,
            topic_seed=self.seed,
            producer_id=self.number,
            first_sequence=at,
            born_us=START_US,
        )

    def many(self, bodies: Sequence[bytes]) -> bytes:
        """Return the batch of some messages."""
        at = self.sequence
        self.sequence = at + len(bodies)
        return encode_bodies(
            bodies,
            topic_seed=self.seed,
            producer_id=self.number,
            first_sequence=at,
            born_us=START_US,
        )

    def rows(self, rows: Sequence[Row]) -> bytes:
        """Return the batch of rows with keys and so on."""
        at = self.sequence
        self.sequence = at + len(rows)
        return encode(
            rows,
            topic_seed=self.seed,
            producer_id=self.number,
            first_sequence=at,
            born_us=START_US,
            keyed=self.keyed,
        )


# ------------------------------------------------------------------------------------------ clock


class Stopwatch:
    """Adds up the thread's CPU time of what is between ``start`` and ``stop``.

    Attributes:
        profile: Where calls in these stretches are counted, if they are profiled.
    """

    __slots__ = ("_at", "count", "total_ns")

    profile: ClassVar[cProfile.Profile | None] = None

    def __init__(self) -> None:
        self._at = 0
        self.total_ns = 0
        self.count = 0

    def start(self) -> None:
        """Begin a stretch."""
        if self.profile is not None:
            self.profile.enable()
        self._at = time.thread_time_ns()

    def stop(self, count: int = 1) -> None:
        """End a stretch in which ``count`` things were done."""
        self.total_ns += time.thread_time_ns() - self._at
        self.count += count
        if self.profile is not None:
            self.profile.disable()

    def each_us(self) -> float:
        """Return the time of one thing."""
        return self.total_ns / self.count / 1000


def freeze() -> None:
    """Do what a broker does after its start: what is there now is not garbage."""
    gc.collect()
    gc.freeze()


def thaw() -> None:
    """Undo ``freeze``, so that the next round begins with a clean memory."""
    gc.unfreeze()
    gc.collect()


def spread(values: Sequence[float]) -> float:
    """Return (largest - smallest) / median, 0 for a median of 0."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0
