"""Every write, sync and allocation of a small workload fails in turn, in every way."""

from __future__ import annotations

from collections import Counter

import pytest

from ternmq.journal.disk.faulty import Fault, FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.errors import CorruptJournal, DiskError, JournalError
from ternmq.record.fact.header import Kind
from tests.unit.journal.kit import body, make_spares, open_views

SIZE = 4096
RECORDS = 60


def work(disk: FaultyDisk) -> tuple[list[bytes], list[bytes]]:
    """Open, append, sync and stop like a broker; end at the first error.

    Returns:
        (appended, acked): bodies in order; those that an answer went out for.
    """
    appended: list[bytes] = []
    waiting: list[tuple[int, bytes]] = []
    acked: list[bytes] = []
    try:
        journal, _, views = open_views(disk, segment_size=SIZE)
        number = len(views.bodies())
        while len(appended) < RECORDS:
            make_spares(journal)
            for _ in range(3):
                data = body(number, 40 + number * 7 % 400)
                appended.append(data)
                number += 1
                journal.append(Kind.COUNTS, data, 1)
                waiting.append((journal.end, data))
            journal.flush()
            if number % 2:
                job = journal.next_sync()
                if job is not None:
                    try:
                        job.run()
                    except DiskError as error:
                        journal.failed(error)
                    else:
                        journal.synced(job)
            while waiting and waiting[0][0] <= journal.durable:
                acked.append(waiting.pop(0)[1])
        journal.close(5)
        acked.extend(data for _, data in waiting)
    except JournalError:
        pass
    return appended, acked


def counts() -> Counter[str]:
    probe = FaultyDisk(MemoryDisk())
    appended, acked = work(probe)
    assert appended == acked
    return Counter(probe.counts)


POINTS = [
    (call, number, kind)
    for call, kinds in (
        ("write", ("eio", "short", "late")),
        ("sync", ("eio", "late", "drop")),
        ("allocate", ("eio", "short", "late", "full")),
        ("open", ("eio",)),
    )
    for kind in kinds
    for number in range(1, counts()[call] + 1)
]


def test_there_are_points_to_fail_at():
    assert counts()["write"] > 15
    assert counts()["sync"] > 10
    assert counts()["allocate"] >= 6


@pytest.mark.parametrize(("call", "number", "kind"), POINTS)
def test_what_was_answered_is_there_after_any_failure(call, number, kind):
    inner = MemoryDisk()
    disk = FaultyDisk(inner, [Fault(call, number, kind)])
    appended, acked = work(disk)
    assert len(disk.fired) == 1
    journal, _, views = open_views(inner, segment_size=SIZE)
    found = views.bodies()
    assert found == appended[: len(found)]
    assert len(found) >= len(acked)
    journal.close()
    # And the journal goes on from there.
    more, acked_more = work(FaultyDisk(inner))
    assert more == acked_more
    assert open_views(inner, segment_size=SIZE)[2].bodies() == found + more


@pytest.mark.parametrize("number", range(1, counts()["sync"] + 1))
def test_a_dropped_sync_is_never_believed(number):
    """The kernel says EIO once, forgets the pages, and would say yes to a second sync."""
    inner = MemoryDisk()
    disk = FaultyDisk(inner, [Fault("sync", number, "drop")])
    appended, acked = work(disk)
    found = open_views(inner, segment_size=SIZE)[2].bodies()
    assert found[: len(acked)] == acked
    assert appended[: len(found)] == found
    if disk.counts["sync"] != number:
        # It went on, so it was zeros in a spare that could not be synced: nothing was lost.
        assert found == acked == appended


def test_a_read_error_stops_the_start_and_changes_nothing():
    inner = MemoryDisk()
    work(FaultyDisk(inner))
    probe = FaultyDisk(MemoryDisk(inner.image()))
    open_views(probe)
    for number in range(1, probe.counts["read"] + 1):
        disk = MemoryDisk(inner.image())
        with pytest.raises(DiskError):
            open_views(FaultyDisk(disk, [Fault("read", number)]))
        found = open_views(disk)[2].bodies()
        assert len(found) == RECORDS


def test_corruption_is_an_error_of_its_own():
    assert not issubclass(CorruptJournal, DiskError)
