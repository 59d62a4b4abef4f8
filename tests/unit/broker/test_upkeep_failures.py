"""Jobs of the upkeep that fail are tried again: later, not at once, and until they work."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from ternmq.broker.start import Options, Started, open_broker
from ternmq.journal.cache.cold import Job, WouldBlock
from ternmq.journal.disk.faulty import Fault, FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.run_jobs import RunJob
from ternmq.model.errors import DiskError, DiskReadError
from ternmq.model.specs import TopicSpec
from ternmq.model.types import SECOND_US
from ternmq.record.batch.batch import encode_one, topic_seed
from tests.unit.broker.kit import START_US

SEGMENT = 16 << 10
LOOK_EVERY_US = SECOND_US


def opened(disk: FaultyDisk) -> Started:
    options = Options(segment_bytes=SEGMENT, reserve_bytes=SEGMENT, look_every_us=LOOK_EVERY_US)
    started = open_broker(disk, wall_us=START_US, chance=random.Random(1), options=options)
    started.broker.administration.create_topic(START_US, TopicSpec(name="t"))
    return started


def turn(started: Started, now_us: int) -> Iterator[Job]:
    """End a turn, and yield the jobs that it ran."""
    journal = started.broker.journal
    started.upkeep.step(now_us, lambda: True)
    journal.flush()
    journal.sync_now()
    for _ in range(100):
        job = started.upkeep.next_job()
        if job is None:
            return
        failure: DiskError | None = None
        try:
            job.run()
        except DiskError as error:
            failure = error
        started.upkeep.finished(job, failure)
        yield job
    raise AssertionError("upkeep never runs out of jobs")


def fill_a_segment(started: Started) -> None:
    journal = started.broker.journal
    number = 0
    while journal.end < SEGMENT + 4096:
        batch = encode_one(
            bytes(1000),
            topic_seed=topic_seed("t"),
            producer_id=1,
            first_sequence=number,
            born_us=START_US,
        )
        started.broker.send(START_US, "t", batch)
        journal.flush()
        journal.sync_now()
        number += 1


@pytest.mark.parametrize("call", ["rename", "open"])
def test_a_run_file_that_cannot_be_written_is_tried_again_after_a_while(call) -> None:
    disk = FaultyDisk(MemoryDisk())
    started = opened(disk)
    fill_a_segment(started)
    first = disk.counts[call]
    calls_a_job = 1 if call == "rename" else 2  # the journal's segment, then the file itself
    disk.plan(Fault(call, first + 1 + number) for number in range(3 * calls_a_job))
    tried_us = []
    for now_us in range(START_US, START_US + 10 * LOOK_EVERY_US, 1000):
        tried_us += [now_us for job in turn(started, now_us) if isinstance(job, RunJob)]
    assert len(disk.fired) >= 3
    assert f"{0:020d}.idx" in disk.names("index")
    waits = [later - earlier for earlier, later in pairwise(tried_us)]
    assert waits == [LOOK_EVERY_US] * len(disk.fired)


def test_a_read_of_the_retention_that_fails_is_tried_again_after_a_while(monkeypatch) -> None:
    started = opened(FaultyDisk(MemoryDisk()))
    moving = started.upkeep.moving
    failures = [DiskReadError("planted")] * 3
    read_us: list[int] = []

    class Read:
        def run(self) -> None:
            read_us.append(now_us)
            if failures:
                raise failures.pop()

    asked: list[int] = []

    def step(now_us: int, *_: object) -> None:
        asked.append(now_us)
        if len(read_us) < 4:
            raise WouldBlock(Read())

    monkeypatch.setattr(moving, "step", step)
    now_us = START_US
    for now_us in range(START_US, START_US + 5 * LOOK_EVERY_US, 1000):
        for _ in turn(started, now_us):
            pass
    waits = [later - earlier for earlier, later in pairwise(read_us)]
    assert waits == [LOOK_EVERY_US] * 3
    assert asked[-1] - asked[-2] == 1000  # once it works it goes on at its own pace
