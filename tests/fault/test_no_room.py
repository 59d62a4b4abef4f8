"""Bugs that the full-disk test found in the core, each in its shortest form (a disk in memory).

What they have in common: ``JournalFull`` between two segments left something half done.
"""

from __future__ import annotations

import contextlib
import random

import pytest

from ternmq.broker.start import Options, Started, open_broker
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.model.errors import JournalFull
from ternmq.model.specs import Limits, RetryPolicy, SubscriptionSpec, TopicSpec
from ternmq.record.batch.batch import Row, encode, topic_seed

pytestmark = pytest.mark.fault

SEGMENT = 8192
OPTIONS = Options(
    segment_bytes=SEGMENT,
    reserve_bytes=0,
    state_bytes=1 << 40,
    chunk_bytes=512,
    limits=Limits(session_grace_us=1000),
)


def opened(disk: Disk) -> Started:
    return open_broker(disk, wall_us=1, chance=random.Random(1), options=OPTIONS)


def commit(started: Started) -> None:
    started.broker.journal.flush()
    started.broker.journal.sync_now()
    started.broker.committed()


def with_topics(started: Started, count: int) -> None:
    for number in range(count):
        started.broker.administration.create_topic(1, TopicSpec(name=f"topic{number}"))
        started.broker.administration.subscribe(1, f"topic{number}", "group")


def fill(started: Started) -> None:
    """Append until no segment is ready: the disk holds one and its spare."""
    with contextlib.suppress(JournalFull):
        while True:
            started.broker.clients.join(1, "app", "c" * 50)


def make_spare(disk: MemoryDisk, started: Started) -> None:
    disk.capacity += SEGMENT
    started.broker.journal.retry_spare()  # one may have been tried, and failed
    job = started.broker.journal.wants_spare()
    assert job is not None
    job.run()
    started.broker.journal.spare_ready(job)


def test_a_state_set_that_found_no_room_loses_no_object():
    """The objects of the chunk that did not fit were missing from the complete set."""
    disk = MemoryDisk(capacity=2 * SEGMENT)
    started = opened(disk)
    with_topics(started, 12)
    broker = started.broker
    seed = topic_seed("topic3")
    for number in range(6):
        batch = encode(
            [Row(b"x")], topic_seed=seed, producer_id=1, first_sequence=number, born_us=1
        )
        broker.send(1, "topic3", batch)
    commit(started)
    # Each place at which the room may end in the middle of the set.
    base = disk.image()
    stalls = 0
    for left in range(0, 2400, 40):
        disk = MemoryDisk(base, capacity=2 * SEGMENT)
        started = opened(disk)
        broker = started.broker
        with contextlib.suppress(JournalFull):
            while broker.journal.end < 2 * SEGMENT - left - 200:
                broker.clients.join(1, "app", "c")
        while True:
            try:
                if not broker.writer.active:
                    broker.writer.begin(1)
                if broker.state_sets.step(1, lambda: True):
                    break
            except JournalFull:
                stalls += 1
                make_spare(disk, started)
        commit(started)
        disk.capacity += SEGMENT
        again = opened(disk).broker
        assert again.views.catalog.by_name.keys() == broker.views.catalog.by_name.keys()
        assert again.views.progress.keys() == broker.views.progress.keys()
        assert len(again.views.dedup) == len(broker.views.dedup) == 6
        assert again.views.sessions.by_number.keys() == broker.views.sessions.by_number.keys()
    assert stalls > 10


@pytest.mark.parametrize("gone", ["lease", "session"])
def test_what_came_due_while_there_was_no_room_is_done_later(gone):
    """The timer was taken and the record refused: leases never ended, old dead letters stayed."""
    disk = MemoryDisk(capacity=2 * SEGMENT)
    started = opened(disk)
    broker = started.broker
    broker.administration.create_topic(1, TopicSpec(name="topic0"))
    policy = RetryPolicy(attempts=3, first_us=10, cap_us=10, jitter=0)
    lease_us = 5000 if gone == "lease" else 60_000_000
    broker.administration.subscribe(
        1, "topic0", "group", SubscriptionSpec(retry=policy, lease_us=lease_us)
    )
    session = broker.clients.join(1, "app", "client").value
    assert isinstance(session, int)
    seed = topic_seed("topic0")
    broker.send(
        1,
        "topic0",
        encode([Row(b"x")], topic_seed=seed, producer_id=1, first_sequence=0, born_us=1),
    )
    commit(started)
    assert broker.pull(1, session, "topic0", "group") is not None
    if gone == "session":
        broker.clients.disconnected(1, session)
    fill(started)
    now_us = 2_000_000
    for _ in range(3):
        broker.tick(now_us)
        now_us += 200_000
    make_spare(disk, started)
    broker.tick(now_us)
    broker.tick(now_us + 1000)
    commit(started)
    other = broker.clients.join(now_us, "app", "other").value
    assert isinstance(other, int)
    reply = broker.pull(now_us + 1000, other, "topic0", "group")
    assert reply is not None
    assert [run[3] for run in reply.runs] == [2]


def test_a_broker_with_no_room_can_be_stopped():
    """The STATE set of a clean stop found no segment, and the stop failed."""
    disk = MemoryDisk(capacity=2 * SEGMENT)
    started = opened(disk)
    with_topics(started, 3)
    commit(started)
    fill(started)
    commit(started)
    started.broker.close(2)
    again = opened(disk)
    assert again.report.clean
    assert len(again.broker.views.catalog.by_name) == 3
