"""A patch that is interrupted leaves damage, which is found again, or the right bytes."""

from __future__ import annotations

import pytest

from ternmq.cluster.replication.mending import Mending
from ternmq.journal.disk.faulty import Call, Fault, FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.mending.patch import Patch
from ternmq.model.errors import DiskError
from ternmq.model.types import Epoch
from tests.unit.journal.kit import SEGMENT
from tests.unit.journal.mending.kit import (
    contents,
    copy_of,
    damage_of,
    flip,
    journal,
    records_of,
)

GOOD = journal()
END = records_of(GOOD)[-1].end
SECOND = segment_bases(GOOD)[1]


def damaged() -> MemoryDisk:
    """A copy that is damaged over the end of a segment: its last records, and the next SEGMENT."""
    disk = copy_of(GOOD)
    flip(disk, SECOND - 900, 900)
    flip(disk, SECOND, 300)
    return disk


def patch_of(disk: Disk) -> Patch:
    found = damage_of(disk, END)[0]
    one = Mending(disk, SEGMENT, found, newest=Epoch(1), limit=END)
    for record in records_of(GOOD):
        if record.position >= one.next:
            base = record.position - record.position % SEGMENT
            length = 48 if record.kind == 2 else record.length
            data = GOOD.open(segment_name(base)).pread(length, record.position - base)
            patch = one.take(data)
            if patch is not None:
                return patch
    raise AssertionError("no patch")


def calls(call: Call) -> int:
    """How many calls of a kind a patch makes; its own bytes were read before."""
    disk = FaultyDisk(damaged(), [])
    patch = patch_of(disk)
    before = disk.counts[call]
    patch.run()
    return disk.counts[call] - before


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("write", "eio"), ("write", "short"), ("write", "late"), ("write", "full"),
        ("sync", "eio"), ("sync", "drop"), ("sync", "late"), ("open", "eio"),
    ],
)  # fmt: skip
def test_a_patch_fails_at_each_call(call, kind):
    """What it had written so far is right; the next patch does the rest."""
    assert calls(call) > 2 if call == "write" else calls(call) > 0
    for number in range(1, calls(call) + 1):
        inner = damaged()
        disk = FaultyDisk(inner, [])
        patch = patch_of(disk)
        disk.plan([Fault(call, disk.counts[call] + number, kind)])
        with pytest.raises(DiskError):
            patch.run()
        valid = [one for one in _valid(inner) if one not in records_of(GOOD)]
        assert not valid, "something looks good and is not"
        rounds = 0
        while damage_of(inner, END):
            patch_of(inner).run()
            rounds += 1
            assert rounds < 20
        assert contents(inner) == contents(GOOD)


def _valid(disk: MemoryDisk):
    """Every record that is valid by itself, wherever it is."""
    from ternmq.journal.recovery.lost import proven_from

    return list(proven_from(disk, segment_bases(disk), segment_bases(disk)[0]))


def test_the_range_may_reach_over_the_end_of_a_segment():
    disk = damaged()
    patch = patch_of(disk)
    assert patch.start < SECOND < patch.stop
    patch.run()
    assert contents(disk) == contents(GOOD)
    assert len(patch.kept) == 2
    saved = b"".join(disk.open(name).pread(1 << 20, 0) for name in patch.kept)
    was = contents(damaged())
    assert saved == was[0][patch.start :] + was[SECOND][: patch.stop - SECOND]


def test_nothing_outside_the_range_is_written():
    disk = damaged()
    other = records_of(GOOD)[-20]
    flip(disk, other.position + 20)
    before = contents(disk)
    patch = patch_of(disk)
    patch.run()
    after = contents(disk)
    for base, data in before.items():
        for at in range(len(data)):
            if data[at] != after[base][at]:
                assert patch.start <= base + at < patch.stop


def test_a_patch_is_durable_when_it_returns():
    disk = FaultyDisk(damaged(), [])
    patch = patch_of(disk)
    before = disk.counts["sync"]
    patch.run()
    assert disk.counts["sync"] >= before + 4, "two files of segments, two under repair/"
    assert not any(disk.unsynced.values())
