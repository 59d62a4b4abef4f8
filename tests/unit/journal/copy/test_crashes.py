"""The power goes at every operation of the disk: what was said to be durable is there.

``SimDisk`` writes down what is done to it, and ``Medium`` says what a power cut at any moment may
leave of it: writes that no sync covers are there or not, sector by sector, in any order, and so are
names. Each image is opened as a copy, and as a journal of its own; a part of them on disks whose
power goes again meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

import pytest

from ternmq.journal.copy.copy import Copy
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.copy_file import read_note
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.recovery.ending import find_end
from ternmq.journal.recovery.recovery import open_journal
from ternmq.journal.recovery.repair import inspect
from ternmq.model.errors import DiskError, JournalFailed
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import Kind
from tests.sim.disk import SimDisk
from tests.sim.medium import Medium
from tests.unit.journal.copy.kit import (
    NEW,
    OLD,
    PARTED,
    SIZE,
    History,
    Record,
    begun,
    dirt_behind,
    follow,
    opened,
    records_of,
)

Image = dict[str, bytes]
DRAWS = 3
EXHAUSTIVE = 16
"""Crash points with at most so many outcomes are tried in all of them."""
AGAIN = 0.006
"""Share of the images that are opened on a disk whose power goes again."""


@dataclass(frozen=True)
class Promise:
    """What holds from an operation on.

    Attributes:
        durable: All records below are there.
        histories: The records are the beginning of one of these.
        first: No segment below this base was removed.
    """

    durable: int
    histories: tuple[History, ...]
    first: int = 0


@dataclass
class Run:
    """A disk that notes what was promised when."""

    disk: SimDisk
    promises: list[tuple[int, Promise]] = field(default_factory=list)

    def promise(self, promise: Promise) -> None:
        self.promises.append((self.disk.at, promise))

    def also(self, image: Image) -> None:
        """Allow the records of one more journal, which is what the run comes to."""
        last = History(MemoryDisk(image))
        self.promises = [
            (at, replace(one, histories=(*one.histories, last))) for at, one in self.promises
        ]

    def at(self, number: int) -> Promise:
        return next(one for at, one in reversed(self.promises) if at <= number)


# ------------------------------------------------------------------------------------ what happens


def started(image: Image | None = None) -> tuple[Run, Medium]:
    medium = Medium(image)
    return Run(medium.disk()), medium


def writing() -> tuple[Run, Medium]:
    """A copy is begun, written and synced, and sometimes killed before a sync."""
    run, medium = started()
    run.promise(Promise(0, (OLD,)))
    copy = begun(run.disk)
    for number, batch in enumerate(OLD.batches(count=9)):
        batch.to(copy)
        copy.tell(committed=copy.durable, told=Epoch(2))
        job = copy.next_sync()
        if number % 3 and job is not None:
            job.run()
            copy.synced(job)
            run.promise(Promise(copy.durable, (OLD,)))
        elif job is not None:
            copy.close()
            copy = opened(run.disk)
            run.promise(Promise(copy.durable, (OLD,)))
    copy.sync_all()
    run.promise(Promise(copy.durable, (OLD,)))
    return run, medium


def writing_from_a_later_segment() -> tuple[Run, Medium]:
    run, medium = started()
    run.promise(Promise(0, (OLD,), first=SIZE))
    copy = begun(run.disk, Position(SIZE))
    for batch in islice(OLD.batches(SIZE, count=9), 6):
        batch.to(copy)
        copy.sync_all()
        run.promise(Promise(copy.durable, (OLD,), first=SIZE))
    return run, medium


def cutting() -> tuple[Run, Medium]:
    """A copy is cut where the histories part, and follows the other one."""
    run, medium = started()
    copy = begun(run.disk)
    follow(copy, OLD)
    copy.sync_all()
    run.promise(Promise(PARTED, (OLD, NEW)))
    copy.cut(PARTED)
    run.promise(Promise(PARTED, (NEW,)))
    for batch in NEW.batches(PARTED, count=20):
        batch.to(copy)
        copy.sync_all()
        run.promise(Promise(copy.durable, (NEW,)))
    return run, medium


def removing() -> tuple[Run, Medium]:
    """The oldest segments are removed; the state that takes their place is not looked at here."""
    run, medium = started()
    copy = begun(run.disk)
    follow(copy, OLD)
    copy.sync_all()
    promise = Promise(copy.durable, (OLD,), first=3 * SIZE)
    run.promise(promise)
    copy.remove_below(Position(3 * SIZE), needs=OLD.end)
    copy.tell(told=Epoch(9))
    copy.sync_all()
    return run, medium


def converting() -> tuple[Run, Medium]:
    """An ordinary folder, with bytes of a write that was lost in parts, becomes a copy."""
    disk = MemoryDisk(OLD.image)
    base = OLD.end - OLD.end % SIZE
    for offset in range(OLD.end - base + 56, SIZE, 1024):
        disk.open(segment_name(base)).pwrite(b"left" * 20, offset)
    run, medium = started(disk.image())
    run.promise(Promise(OLD.end, (OLD,)))
    copy = opened(run.disk)
    run.promise(Promise(OLD.end, (OLD,)))
    copy.tell(told=Epoch(5))
    copy.sync_all()
    return run, medium


def promoting() -> tuple[Run, Medium]:
    """A copy becomes a journal of its own."""
    run, medium = started()
    copy = begun(run.disk)
    follow(copy, OLD, OLD.end - 900)
    copy.sync_all()
    durable = copy.durable
    follow(copy, OLD)
    copy.close()
    run.promise(Promise(durable, (OLD,)))
    journal, _ = open_journal(run.disk, wall_us=1, reserve_bytes=0)
    run.promise(Promise(journal.durable, ()))
    journal.append(Kind.COUNTS, b"more", 1)
    journal.flush()
    journal.sync_now()
    run.promise(Promise(journal.durable, ()))
    run.also(_image(run.disk))
    return run, medium


def promoting_in_a_cut() -> tuple[Run, Medium]:
    """A copy that is being cut is opened as a journal of its own."""
    run, medium = started()
    copy = begun(run.disk)
    follow(copy, OLD)
    copy.sync_all()
    run.promise(Promise(PARTED, (OLD,)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.disk, "remove", _failing)
        with pytest.raises(JournalFailed, match="cutting"):
            copy.cut(PARTED)
    journal, report = open_journal(run.disk, wall_us=1, reserve_bytes=0)
    assert report.valid_end == PARTED
    run.promise(Promise(journal.durable, ()))
    run.also(_image(run.disk))
    return run, medium


def _failing(name: str) -> None:
    raise DiskError(name)


def _image(disk: SimDisk) -> Image:
    return {name: bytes(inode.data) for name, inode in disk.files.items()}


# ------------------------------------------------------------------------------------ what is left


def images(run: Run, medium: Medium, chance: random.Random) -> Iterator[tuple[int, Image]]:
    """Yield what a power cut may leave, and the number of operations before it."""
    seen: set[object] = set()
    begin = medium.at
    for at in range(len(run.disk.log) + 1):
        if at:
            medium.feed(run.disk.log[at - 1])
        if begin + at < run.promises[0][0]:
            continue
        ways = 1
        for width in medium.widths():
            ways *= width
        draws = [medium.none(), medium.everything(), medium.only_names(), medium.last_name()]
        if ways <= EXHAUSTIVE:
            draws += medium.all_draws()
        else:
            draws += [medium.draw(chance) for _ in range(DRAWS)]
        for draw in draws:
            if len(draw.names) != len(medium.name_ops):
                continue
            key = id(run.at(begin + at)), medium.key(draw)  # another promise: another question
            if key not in seen:
                seen.add(key)
                yield begin + at, medium.image(draw)


def judged(found: list[Record], end: int, promise: Promise) -> None:
    """Check that records are the beginning of a history, and reach what was promised."""
    assert end >= promise.durable or (promise.durable == promise.first and not found)
    first = found[0][0] if found else 0
    assert first <= promise.first
    assert any(
        found == [one for one in history.records if first <= one[0] < end]
        for history in promise.histories
    )


def as_copy(image: Image, promise: Promise) -> None:
    disk = MemoryDisk(image)
    before = find_end(disk)
    assert disk.image() == image
    copy = Copy.open(disk, reserve_bytes=0)
    if copy is None:
        assert before is None
        assert promise.durable == 0
        copy = begun(disk, Position(promise.first))
        follow(copy, promise.histories[0])
    else:
        assert before is not None
        assert copy.end == copy.durable == before.valid_end
        judged(records_of(disk, copy.end), copy.end, promise)
        assert not dirt_behind(disk, copy.end)
        assert inspect(disk).damage == ()
        note = read_note(disk)
        assert note is not None
        assert (note.synced, note.cut_to) == (copy.end, None)
    copy.close()
    again = opened(disk)
    assert again.end == copy.end


def as_journal(image: Image, promise: Promise) -> None:
    disk = MemoryDisk(image)
    before = find_end(disk)
    if before is None:
        assert promise.durable == 0
        return
    if before.first > 0:
        return  # no STATE set: the records alone are not the broker's state
    journal, report = open_journal(disk, wall_us=1, reserve_bytes=0)
    judged(records_of(disk, report.valid_end), report.valid_end, promise)
    assert read_note(disk) is None
    journal.append(Kind.COUNTS, b"one more", 2)
    journal.flush()
    journal.sync_now()
    end = journal.end
    journal.close()
    found = find_end(disk)
    assert found is not None
    assert (found.valid_end, found.dirt, found.copy) == (end, (), None)


def again(image: Image, promise: Promise, chance: random.Random) -> None:
    """The power goes while the folder is opened."""
    ways: list[Callable[[SimDisk], object]] = [
        lambda disk: Copy.open(disk, reserve_bytes=0),
        lambda disk: open_journal(disk, wall_us=1, reserve_bytes=0),
    ]
    for number, opening in enumerate(ways):
        if find_end(MemoryDisk(image)) is None:
            continue
        if number and segment_bases(MemoryDisk(image))[0]:
            continue
        run, medium = started(image)
        run.promise(promise)
        opening(run.disk)
        whole = History(MemoryDisk(_image(run.disk)))
        own = Promise(promise.durable, (*promise.histories, whole), promise.first)
        for at, left in images(run, medium, chance):
            del at
            as_copy(left, own)
            as_journal(left, own)


@pytest.mark.parametrize(
    "happening",
    [
        writing,
        writing_from_a_later_segment,
        cutting,
        removing,
        converting,
        promoting,
        promoting_in_a_cut,
    ],
)
def test_what_was_promised_is_there_after_a_power_cut(happening):
    chance = random.Random(happening.__name__)
    run, medium = happening()
    count = 0
    for at, image in images(run, medium, chance):
        promise = run.at(at)
        count += 1
        try:
            as_copy(image, promise)
            as_journal(image, promise)
            if chance.random() < AGAIN:
                again(image, promise, chance)
        except BaseException as error:
            error.add_note(f"{happening.__name__}: operation {at} of {run.disk.at}, {promise}")
            raise
    assert count > 12
