"""The verdict on a broker group: nothing lost, invented, repeated, out of order; equal copies."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final, NamedTuple

from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.recovery.ending import find_end
from ternmq.model.errors import JournalError
from tests.fault.group.brokers import Brokers, wait
from tests.fault.processes import Verdicts

_TRIES: Final = 20


class Extent(NamedTuple):
    """What a folder's journal covers."""

    first: int
    end: int
    segment: int


def extent(data: Path) -> Extent:
    """Return where the journal of a folder begins and ends; a broker may be writing it."""
    for _ in range(_TRIES):
        # What is written while it is read looks like damage, and a file may go away.
        with contextlib.suppress(JournalError):
            return _extent(data)
    return _extent(data)


def _extent(data: Path) -> Extent:
    ending = find_end(RealDisk(data, read_only=True))
    assert ending is not None, f"{data} has no journal"
    return Extent(ending.first, ending.valid_end, ending.segment_size)


def differences(one: Path, other: Path) -> list[str]:
    """Return where two folders differ up to the smaller end, from the larger beginning on."""
    mine, its = extent(one), extent(other)
    assert mine.segment == its.segment
    begin, end = max(mine.first, its.first), min(mine.end, its.end)
    assert begin < end, f"{one} has {mine}, {other} has {its}"
    found = []
    common = set(segment_bases(RealDisk(one, read_only=True)))
    common &= set(segment_bases(RealDisk(other, read_only=True)))
    for base in sorted(common):
        count = min(mine.segment, end - base)
        if count <= 0:
            continue
        left, right = (_head(folder / segment_name(base), count) for folder in (one, other))
        if left != right:
            at = next(at for at in range(count) if left[at : at + 1] != right[at : at + 1])
            found.append(f"{one} and {other} differ at {base + at} of {begin} to {end}")
    return found


def _head(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)


def at_rest(brokers: Brokers) -> None:
    """Wait until every copy has what the primary has now; then kill all brokers."""
    primary = brokers.primary
    goal = extent(brokers.data[primary]).end
    for name in brokers.running:
        wait(lambda name=name: extent(brokers.data[name]).end >= goal, f"{name} has {goal}")
    brokers.kill(*brokers.running)


def sound(brokers: Brokers, verdicts: Verdicts, record: Path) -> dict[str, Any]:
    """Kill the brokers once all copies have everything; compare all of it; return the verdict.

    What a topic of durability ``fast`` answered may be gone with a primary.
    """
    primary = brokers.primary
    brokers.wait_until_whole()
    at_rest(brokers)
    for name in brokers.names:
        if name != primary:
            assert not (found := differences(brokers.data[primary], brokers.data[name])), found
    return verdicts.sound(brokers.data[primary], record, power=True)
