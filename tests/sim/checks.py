"""What must be true of every broker that was started on a crash image."""

from __future__ import annotations

import random
import traceback
from collections.abc import Mapping
from typing import Final
from unittest.mock import patch

from ternmq.broker.broker import Broker
from ternmq.broker.group.lease import LEASE_BITS
from ternmq.broker.schedule import rowpages
from ternmq.broker.start import Options, Started, open_broker
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.port import Disk
from ternmq.journal.index.feed import add_record
from ternmq.journal.index.index import Index
from ternmq.journal.index.tail import Place
from ternmq.journal.log.scan import scan
from ternmq.model.errors import TernMQError
from ternmq.record.fact.control import FLAG_CLEAN
from ternmq.record.fact.header import HEADER, HEADER_BYTES, Kind
from tests.sim.disk import ImageDisk
from tests.sim.portrait import Portrait, aged, difference, portrait
from tests.sim.reference import rows_of
from tests.sim.schedules import check_schedule
from tests.sim.tape import Tape, Violation

_EPOCH: Final = 3
_PAD: Final = 2


INDEX_CHECKED: Final = 0.1
"""Share of the images with index files whose index is compared with a rebuild."""


class Known:
    """What is known of a journal up to each of its records: what every image is judged by."""

    __slots__ = ("options", "portraits", "suspects", "tape", "wall_us")

    def __init__(
        self,
        tape: Tape,
        portraits: list[Portrait],
        suspects: list[int],
        options: Options,
        wall_us: int,
    ) -> None:
        self.tape = tape
        self.portraits = portraits
        self.suspects = suspects
        self.options = options
        self.wall_us = wall_us

    def at(self, count: int) -> Portrait:
        """Return the views after so many records (what a recovery adds changes no portrait)."""
        return self.portraits[min(count, len(self.portraits) - 1)]

    def suspect(self, count: int) -> int:
        """Return ``suspect_below`` after so many records."""
        if count < len(self.suspects):
            return self.suspects[count]
        found = self.suspects[-1]
        for record in self.tape.records[len(self.suspects) - 1 : count]:
            if record.kind == Kind.EPOCH and not record.body[4] & 3:
                found = record.position
        return found

    def clean(self, count: int) -> bool:
        """Return whether the first records end with a clean stop."""
        if not count:
            return False
        last = self.tape.records[count - 1]
        return bool(
            last.kind == Kind.MARK and last.flags & FLAG_CLEAN and last.durable == last.position
        )


class Judged:
    """A crash image that was opened and found lawful."""

    __slots__ = ("disk", "end", "started")

    def __init__(self, started: Started, disk: ImageDisk, end: int) -> None:
        self.started = started
        self.disk = disk
        self.end = end


def judge(
    known: Known,
    files: Mapping[str, bytes],
    whole_below: int,
    limit: int,
    demand: int,
    chance: random.Random,
) -> Judged:
    """Open an image and check what can be checked at once.

    Args:
        known: What the journal says.
        files: The image.
        whole_below: Below this position the image is known to hold what was written.
        limit: Records were written up to here.
        demand: Answers and deliveries rest on everything below.
        chance: For the broker's jitter.

    Raises:
        Violation: an invariant does not hold.
    """
    tape = known.tape
    end = tape.valid_end(files, whole_below, limit)
    if end < demand:
        raise Violation(
            f"loss: the image's records end at {end}, answers rest on what stands below {demand}"
        )
    disk = ImageDisk(files)
    started = start(disk, known, chance)
    count = tape.count_below(end)
    check_report(known, started, count, end)
    check_views(known, started, count)
    check_journal(known, started, disk, end)
    check_owed(started)
    check_opened(started)
    check_schedule(started.broker, started.broker.views.last_time_us)
    if any(name.startswith("index/") for name in files) and chance.random() < INDEX_CHECKED:
        check_index(started, disk)
    return Judged(started, disk, end)


def start(disk: Disk, known: Known, chance: random.Random) -> Started:
    """Open the broker; nothing that a crash leaves may keep it from starting."""
    many_pages = rowpages.MANY_PAGES if known.tape.end & 8 else 1  # both ways of counting rows
    try:
        with patch.object(rowpages, "MANY_PAGES", many_pages):
            return open_broker(disk, wall_us=known.wall_us, chance=chance, options=known.options)
    except TernMQError as error:
        raise Violation(f"it does not start: {type(error).__name__}: {error}") from error
    except Exception as error:
        where = "".join(traceback.format_exception(error)[-3:])
        raise Violation(f"starting raises {error!r}\n{where}") from error


def check_report(known: Known, started: Started, count: int, end: int) -> None:
    """The start found what there was."""
    report = started.report
    if report.fresh:
        if end > 0 and known.tape.records[count - 1].kind != Kind.SEGMENT:
            raise Violation(f"it began anew, records up to {end} are there")
        return
    if report.valid_end != end:
        raise Violation(f"recovery ends at {report.valid_end}, the records at {end}")
    if report.durable > end:
        raise Violation(f"recovery believes {report.durable} durable, records end at {end}")
    if report.clean != known.clean(count):
        raise Violation(f"clean is {report.clean}")
    epoch = known.tape.records[count - 1].epoch if count else 0
    if report.epoch <= epoch or started.broker.journal.epoch != report.epoch:
        raise Violation(f"epoch {report.epoch} after {epoch}")
    suspect = known.suspect(count) if report.clean else report.epoch_position
    if started.broker.views.suspect_below != suspect:
        raise Violation(f"suspect_below is {started.broker.views.suspect_below}, not {suspect}")


def check_views(known: Known, started: Started, count: int) -> None:
    """The state is equal to replay from nothing."""
    if started.report.fresh:
        count = 0
    views = started.broker.views
    expected = aged(known.at(count), views.last_time_us, views.limits.producer_idle_us)
    different = difference(portrait(views), expected)
    if different is not None:
        raise Violation(f"state after {count} records: {different}")


def check_journal(known: Known, started: Started, disk: ImageDisk, end: int) -> None:
    """The journal is what it was, then EPOCH, then zeros."""
    if started.report.fresh:
        return
    tape, journal = known.tape, started.broker.journal
    size = tape.segment_size
    position = int(journal.first)
    while position < journal.end:
        cell = disk.cells.get(f"journal/{position:020d}.seg")
        if cell is None or len(cell.data) != size:
            raise Violation(f"the segment at {position} is missing or has a wrong size")
        data = cell.data
        ours = min(size, end - position)
        if ours > 0 and data[:ours] != tape.data[position : position + ours]:
            raise Violation(f"the segment at {position} changed in recovery")
        used = min(size, journal.end - position)
        if data.count(0, used) != size - used:
            raise Violation(f"the segment at {position} is not blank behind {used}")
        position += size
    for base in range(position, position + 8 * size, size):
        cell = disk.cells.get(f"journal/{base:020d}.seg")
        if cell is not None and len(cell.data) != size:
            raise Violation(f"the spare at {base} is not whole")
        if cell is not None and cell.data.count(0) != len(cell.data):
            raise Violation(f"the spare at {base} is not blank")
    at = started.report.epoch_position
    base = at - at % size
    header = bytes(
        disk.cells[f"journal/{base:020d}.seg"].data[at - base : at - base + HEADER_BYTES]
    )
    if HEADER.unpack(header)[4] != _EPOCH or journal.durable != journal.end:
        raise Violation("it started without a durable EPOCH")


def check_owed(started: Started) -> None:
    """What is owed and no longer kept in order was copied forward."""
    broker = started.broker
    for (group, topic, queue), held in broker.views.progress.items():
        first = broker.views.catalog.topics[topic].queues[queue].first
        for offset in rows_of(held):
            if offset < first and _moved(broker, topic, queue, offset) is None:
                raise Violation(f"group {group}: {offset} of {topic}/{queue} is owed, kept nowhere")


def check_opened(started: Started) -> None:
    """What undecided transactions prepared is kept, and their rows are leased to them."""
    broker = started.broker
    lent = {
        lease.id
        for held in broker.views.progress.values()
        for lease in held.leases.values()
        if lease.id < 1 << LEASE_BITS
    }
    if not lent <= broker.views.checked.by_number.keys():
        raise Violation(f"rows are leased to {sorted(lent)}, which are not all undecided")
    for number, one in broker.views.checked.by_number.items():
        for ordinal, batch in one.batches.items():
            if batch.position < broker.journal.first:
                raise Violation(f"batch {ordinal} of transaction {number} is kept nowhere")


def _moved(broker: Broker, topic: int, queue: int, offset: int) -> Place | None:
    while True:
        try:
            return broker.index.moved(topic, queue, offset)
        except WouldBlock as blocked:
            blocked.job.run()


def check_index(started: Started, disk: Disk) -> None:
    """The index says what one rebuilt from the journal says."""
    journal = started.broker.journal
    built = Index(disk, segment_size=journal.segment_size, start=journal.first)
    for record in scan(disk, journal.first, segment_size=journal.segment_size):
        add_record(built, record)
    different = started.broker.index.coverage.equal(built.coverage)
    if different is not None:
        raise Violation(f"the index is not equal to a rebuild: {different}")
