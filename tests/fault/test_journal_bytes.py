"""A journal damaged at every byte of its last 64 KiB, the durable position inside them (DUR-7).

A real worker makes the journal: its last 24 KiB or so were written and never synced. Then, on
copies: cut, zeros, noise. What recovery must say is worked out here from the records alone. Every
position goes through ``find_end``; a sample is opened, drained, and repaired.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.index.open import hints
from ternmq.journal.log.scan import RawRecord, scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.ending import find_end
from ternmq.journal.recovery.repair import inspect, repair
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Position
from ternmq.record.batch.batch import Batch
from ternmq.record.fact.header import HEADER_BYTES, Kind
from ternmq.record.fact.messages import unpack
from tests.fault.history import read
from tests.fault.messages import identity_of
from tests.fault.processes import Verdicts, Worker, run
from tests.fault.tools import ALL_BYTES
from tests.fault.verify import Drainer

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LAST = 64 << 10
SEGMENT = 128 << 10
NOISE_BYTES = 16
SECTOR = 512
PLACES = {"in the middle of a segment": 350_000, "across two segments": 395_000}
QUIET = {Kind.PAD, Kind.SEGMENT, Kind.MARK}

Damage = Literal["cut", "zeros", "noise"]
DAMAGES: tuple[Damage, ...] = ("cut", "zeros", "noise")


@dataclass(frozen=True)
class Made:
    """A journal, and what its records say.

    Attributes:
        folder: Of the broker.
        image: The segment files.
        records: All of them, from the first.
        hint: A STATE set that the index remembers.
        place: Where syncs ended.
    """

    folder: Path
    image: dict[str, bytes]
    records: list[RawRecord]
    hint: Position
    place: int

    @property
    def end(self) -> int:
        return self.records[-1].end

    @property
    def durable(self) -> int:
        return max(record.durable for record in self.records)


def made_by_a_worker(folder: Path, place: int) -> Made:
    worker = run(
        folder / "data",
        folder / "history",
        scenario="tail",
        place=place,
        segment=SEGMENT,
        reserve=SEGMENT,
        state=32 << 10,
        messages=10**9,
        window=10**9,
    )
    assert worker.code == -9, worker.log
    return loaded(folder / "data", place)


def loaded(folder: Path, place: int = 0) -> Made:
    image = {
        f"journal/{path.name}": path.read_bytes() for path in sorted((folder / "journal").iterdir())
    }
    disk = MemoryDisk(image)
    return Made(folder, image, list(scan(disk, 0)), hints(RealDisk(folder))[0].begin, place)


@pytest.fixture(scope="module", params=list(PLACES))
def made(request, tmp_path_factory) -> Made:
    return made_by_a_worker(tmp_path_factory.mktemp("journal"), PLACES[request.param])


def test_the_durable_position_is_inside(made):
    assert made.end - LAST < made.durable < made.end - (16 << 10)
    assert made.image[segment_name(0)] != made.image[segment_name(SEGMENT)]


# ------------------------------------------------------------------------------------- damaging


class Damaged:
    """A journal in memory that is damaged in place and made whole again.

    Args:
        made: The journal.
    """

    def __init__(self, made: Made) -> None:
        self.made = made
        self.disk = MemoryDisk(made.image)
        self._before: list[tuple[int, bytes]] = []

    def damage(self, kind: Damage, position: int) -> tuple[int, int]:
        """Damage the journal at a position; return the range whose bytes may differ now."""
        end = self.made.end
        stop = {"cut": end, "zeros": position + SECTOR, "noise": position + NOISE_BYTES}[kind]
        stop = min(stop, end)
        for at, data in self._pieces(position, stop):
            self._before.append((at, data))
            noise = random.Random(at).randbytes(len(data)) if kind == "noise" else b""
            self._put(at, bytes(a ^ (b | 1) for a, b in zip(data, noise, strict=True))
                      if noise else bytes(len(data)))  # fmt: skip
        return position, stop

    def mend(self) -> None:
        """Take the damage back."""
        for at, data in self._before:
            self._put(at, data)
        self._before = []

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        while start < stop:
            base = start - start % SEGMENT
            upto = min(stop, base + SEGMENT)
            file = self.disk.open(segment_name(base))
            yield start, file.pread(upto - start, start - base)
            start = upto

    def _put(self, position: int, data: bytes) -> None:
        base = position - position % SEGMENT
        self.disk.open(segment_name(base)).pwrite(data, position - base)


class Expected(NamedTuple):
    """What recovery must find."""

    end: int
    """X."""
    durable: int
    """D."""
    hurt_end: int
    """End of the last damaged record, 0 if none is."""

    @property
    def corrupt(self) -> bool:
        """Whether bytes that were durable are damaged."""
        return self.durable > self.end


class Oracle:
    """Says, from the sound records alone, what recovery must find in a damaged journal."""

    def __init__(self, made: Made) -> None:
        self._records = made.records
        self._whole = b"".join(made.image[name] for name in sorted(made.image))
        self._at = [0] * (LAST + 1)
        low = made.end - LAST
        self._low = low
        number = 0
        for position in range(low, made.end + 1):
            while number + 1 < len(made.records) and made.records[number + 1].position <= position:
                number += 1
            self._at[position - low] = number
        self.before = [0]
        for record in made.records:
            self.before.append(max(self.before[-1], record.durable))
        self.after = [0] * (len(made.records) + 1)
        for at in range(len(made.records) - 1, -1, -1):
            self.after[at] = max(self.after[at + 1], made.records[at].durable)

    def says(self, kind: Damage, start: int, stop: int) -> Expected:
        """Return what is to be found in the journal with that damage."""
        first = self._at[start - self._low]
        hurt = self._cut(first, start) if kind == "cut" else self._local(first, kind, start, stop)
        records = self._records
        if not hurt:
            return Expected(records[-1].end, self.before[-1], 0)
        between = [records[n].durable for n in range(hurt[0], hurt[-1]) if n not in hurt]
        return Expected(
            records[hurt[0]].position,
            max(self.before[hurt[0]], self.after[hurt[-1] + 1], *between),
            records[hurt[-1]].end,
        )

    def _local(self, first: int, kind: Damage, start: int, stop: int) -> list[int]:
        hurt: list[int] = []
        for number in range(first, len(self._records)):
            if self._records[number].position >= stop:
                break
            if self._is_hurt(number, kind, start, stop):
                hurt.append(number)
        return hurt

    def _cut(self, first: int, start: int) -> list[int]:
        """All behind a cut are hurt; the one that it goes through only if it has bytes there."""
        whole = not self._is_hurt(first, "cut", start, self._records[first].end)
        return list(range(first + whole, len(self._records)))

    def _is_hurt(self, number: int, kind: Damage, start: int, stop: int) -> bool:
        record = self._records[number]
        covered = HEADER_BYTES if record.kind == Kind.PAD else record.length
        low, high = max(start, record.position), min(stop, record.position + covered)
        if low >= high:
            return False
        return kind == "noise" or any(self._whole[low:high])


def checked(folder: Path, step: int, part: int, parts: int) -> list[str]:
    """Damage a share of the positions; return what recovery got wrong."""
    made = loaded(folder)
    damaged, oracle = Damaged(made), Oracle(made)
    low = made.end - LAST
    wrong: list[str] = []
    for position in range(low + part * step, made.end, parts * step):
        for number, kind in enumerate(DAMAGES):
            if not ALL_BYTES and position // step % len(DAMAGES) != number:
                continue  # each byte has one of the damages
            expected = oracle.says(kind, *damaged.damage(kind, position))
            problem = compare(made, damaged.disk, made.hint if position % 2 else None, expected)
            damaged.mend()
            if problem and len(wrong) < 10:
                wrong.append(f"{kind} at {position} of {made.end}: {problem}")
    return wrong


def compare(made: Made, disk: MemoryDisk, hint: Position | None, expected: Expected) -> str:
    """Return what ``find_end`` says wrongly."""
    end, durable, hurt_end = expected
    try:
        ending = find_end(disk, hint)
    except CorruptJournal as error:
        base = end - end % SEGMENT
        if not expected.corrupt:
            return f"refused, though all that was durable ({durable}) ends before {end}: {error}"
        if (error.file, error.byte) != (segment_name(base), end - base):
            return f"names {error.file} byte {error.byte}, not the record at {end}"
        return ""
    assert ending is not None
    found = ending.valid_end, ending.durable
    if expected.corrupt:
        # A start from a STATE set behind the damage does not read it: what does, will refuse it.
        if hurt_end <= ending.start and found == (made.end, made.durable):
            return ""
        return f"accepted from {ending.start}, though {durable} was durable and {end} is damaged"
    if found != (end, durable):
        return f"X, D are {ending.valid_end}, {ending.durable}; should be {end}, {durable}"
    return ""


@pytest.mark.timeout(600)
def test_damage_at_every_byte(made):
    """In CI each byte (or every third) is damaged in one way; FAULT_ALL_BYTES=1: each in all."""
    step = 1 if ALL_BYTES or made.place == min(PLACES.values()) else 3
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        shares = [pool.submit(checked, made.folder, step, part, 2) for part in range(2)]
        wrong = [problem for share in shares for problem in share.result()]
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------------------------- opened whole


def rows_below(made: Made, end: int) -> dict[tuple[int, int, int], bytes]:
    """Return the messages of the records before a position, by topic, queue and offset."""
    rows: dict[tuple[int, int, int], bytes] = {}
    for record in made.records:
        if record.kind == Kind.MESSAGES and record.end <= end:
            stored = unpack(record.body)
            batch = Batch(stored.batch)
            for offset in range(stored.first_offset, stored.first_offset + stored.count):
                body = batch.body(stored.row_of(offset))
                rows[stored.topic, stored.queue, offset] = body
    return rows


def rows_of(drainer: Drainer) -> dict[tuple[int, int, int], bytes]:
    numbers = {name: topic.number for name, topic in drainer.broker.views.catalog.by_name.items()}
    return {
        (numbers[name], queue, offset): row.body for (name, queue, offset), row in drainer.stored()
    }


def sample(made: Made, seed: int, count: int) -> list[tuple[Damage, int]]:
    """Return places of damage: both sides of D, its very edge, the last byte, anywhere."""
    chance = random.Random(seed)
    low = made.end - LAST
    places = [low, made.durable - 1, made.durable, made.durable + 1, made.end - 1]
    places += [chance.randrange(low, made.end) for _ in range(count)]
    return [(kind, place) for place in places for kind in DAMAGES]


def opened_or_refused(disk: MemoryDisk, end: int) -> Drainer | None:
    """Open a damaged journal; None if it is refused, which must name the right byte."""
    try:
        return Drainer(disk)
    except CorruptJournal as error:
        named = error.file, error.byte
    assert named == (segment_name(end - end % SEGMENT), end % SEGMENT)
    return None


def records_of(image: dict[str, bytes], end: int) -> dict[str, bytes]:
    """Return the bytes of the journal below a position: behind the last record there may be others.

    Damage that lies before the newest STATE set is met only after the end was mended: what a kill
    left behind it is zeros by then, and half-made spares are gone.
    """
    bases = {segment_name(base): base for base in range(0, end, SEGMENT)}
    return {name: image[name][: end - base] for name, base in bases.items() if name in image}


def test_what_is_opened_is_the_longest_prefix(made):
    """At or above D: opens with exactly the whole records before the damage, and goes on."""
    damaged, oracle = Damaged(made), Oracle(made)
    opened = refused = unseen = 0
    for kind, position in sample(made, 1, 8):
        expected = oracle.says(kind, *damaged.damage(kind, position))
        end = expected.end
        disk = MemoryDisk(damaged.disk.image())
        damaged.mend()
        if expected.corrupt:
            before = disk.image()
            drainer = opened_or_refused(disk, end)
            if drainer is None:
                refused += 1
                assert records_of(disk.image(), made.end) == records_of(before, made.end)
                continue
            # Behind the STATE set that it starts from all is well; the damage is met when read.
            unseen += 1
            assert expected.hurt_end <= drainer.shell.report.start
            assert inspect(disk).damage[0].start == end
            with contextlib.suppress(CorruptJournal):  # where it is in a message
                assert rows_of(drainer) == rows_below(made, made.end)
            continue
        opened += 1
        drainer = Drainer(disk)
        assert drainer.shell.report.valid_end == end
        rows = rows_of(drainer)
        assert rows == rows_below(made, end)
        assert all(identity_of(body) is not None for body in rows.values())
        assert len(list(drainer.drain())) > 0
    assert opened > 10
    assert refused > 0
    assert refused + unseen > 3


def test_repair_gives_the_longest_prefix_and_says_what_is_missing(made):
    """Below D: from a donor all of it; by consent what stands before, and a list of the rest."""
    damaged, oracle = Damaged(made), Oracle(made)
    count = 0
    for kind, position in sample(made, 2, 10):
        start, stop = damaged.damage(kind, position)
        expected = oracle.says(kind, start, stop)
        end = expected.end
        image = damaged.disk.image()
        damaged.mend()
        if not expected.corrupt:
            continue
        count += 1
        with_donor = MemoryDisk(image)
        assert repair(with_donor, donor=MemoryDisk(made.image)).patched
        assert rows_of(Drainer(with_donor)) == rows_below(made, made.end)
        disk = MemoryDisk(image)
        report = repair(disk, consent=True)
        assert report.cut == end
        behind = [one for one in made.records if one.position >= end and one.kind not in QUIET]
        told_by_neighbours = [one for one in report.lost if not one.whole and one.count is not None]
        found = {
            (one.position, one.kind): one for one in report.lost if one not in told_by_neighbours
        }
        hit = {one.position for one in told_by_neighbours if one.kind == Kind.MESSAGES}
        assert not {at for at, _ in found} & hit, "a record is either told of or it is not"
        for one in told_by_neighbours:  # their offsets stand in records that the damage hit
            rows = {
                offset
                for record in behind
                if record.kind == Kind.MESSAGES and record.position < stop and record.end > start
                for stored in [unpack(record.body)]
                if (stored.topic, stored.queue) == (one.topic, one.queue)
                for offset in range(stored.first_offset, stored.first_offset + stored.count)
            }
            assert one.first_offset is not None
            assert one.count is not None
            assert rows == set(range(one.first_offset, one.first_offset + one.count))
        gone = {
            (one.position, one.kind) for one in behind if one.position >= stop or one.end <= start
        }
        told = {(one.position, one.kind) for one in behind}
        # where the damage hit the header of a record without offsets, its kind is unknown: 0
        told |= {(end, 0)} if end < stop else set()
        assert gone <= found.keys() <= told
        for one in behind:
            if one.kind == Kind.MESSAGES and (one.position, one.kind) in gone:
                stored = unpack(one.body)
                lost = found[one.position, one.kind]
                assert (lost.topic, lost.queue, lost.first_offset, lost.count, lost.whole) == (
                    stored.topic, stored.queue, stored.first_offset, stored.count, True,
                )  # fmt: skip
        assert report.saved
        assert rows_of(Drainer(disk)) == rows_below(made, end)
    assert count > 5


# ---------------------------------------------------------------------------- a real start


@pytest.mark.row("C7")
@pytest.mark.parametrize("damage", ["garbage", "garbage appended", "bytes cut", "file cut"])
def test_a_broker_starts_after_a_torn_tail(damage, memory_folder, verdicts: Verdicts):
    """Garbage behind the end, or bytes gone from it: it starts, says where it cut, and goes on."""
    made = made_by_a_worker(memory_folder, 350_000)
    data, record = memory_folder / "data", memory_folder / "history"
    middle = next(one for one in made.records if one.position > made.durable)
    base = made.end - made.end % SEGMENT
    assert middle.position > base, "the tail is in one segment"
    path = data / segment_name(base)
    with path.open("r+b") as file:
        if damage == "garbage":
            file.seek(made.end - base)
            file.write(random.Random(7).randbytes(min(5000, SEGMENT - (made.end - base))))
            kept = made.end
        elif damage == "garbage appended":
            file.seek(made.end - base)
            file.write(b"torn")
            file.seek(0, os.SEEK_END)
            file.write(random.Random(7).randbytes(5000))
            kept = made.end
        elif damage == "bytes cut":
            file.seek(middle.position + 60 - base)
            file.write(bytes(made.end - middle.position - 60))
            kept = middle.position
        else:
            file.truncate(middle.position + 60 - base)
            kept = middle.position
    with Worker(data, record, messages=10**9) as worker:
        worker.answered(200)
        worker.kill()
    assert f"cut {kept} to " in worker.log
    begun = [line for line in read(record) if line["op"] == "begin"][-1]
    assert begun["cut"][0] == kept
    assert path.stat().st_size == SEGMENT + 5000 * (damage == "garbage appended")
    verdicts.sound(data, record, power=True)  # what was answered unsynced is cut, or may be
