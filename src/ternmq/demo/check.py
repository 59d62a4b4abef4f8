"""The judge: ``python -m ternmq.demo.check FOLDER``.

A separate program. It reads the flights file and the files that each process of a run wrote to the
folder; it does not call the broker. It writes ``verdict.json`` beside them, prints what is wrong,
and exits with status 1 if anything is.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import msgspec

from ternmq.demo.flights import DataMissing, read
from ternmq.demo.judge.bookings import BookingsJudge
from ternmq.demo.judge.evidence import Expectation, GroupJudge, Kills, Occurrence
from ternmq.demo.judge.reminders import RemindersJudge
from ternmq.demo.judge.tables import TablesJudge
from ternmq.demo.judge.verdict import Fault, Finding, Verdict
from ternmq.demo.plan import EVERYBODY, GATE, TILL, Consumers
from ternmq.demo.records import (
    CASHIERS,
    CONDUCTOR,
    CONSUMERS,
    DEAD_LETTERS,
    PRODUCER,
    Acked,
    AnyRecord,
    Began,
    DeadLetter,
    Ended,
    Handled,
    Killed,
    Planted,
    Stored,
    TornFile,
    Unanswered,
    read_run,
)
from ternmq.demo.records import read as read_records
from ternmq.demo.report import lines_of

VERDICT: Final = "verdict.json"

_Judge = GroupJudge | RemindersJudge | BookingsJudge


class Folder:
    """The files of a run's processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kills: dict[str, list[int]] = {}
        for record in read_records(folder / CONDUCTOR):
            if isinstance(record, Killed):
                self.kills.setdefault(record.process, []).append(record.at_us)
        self._files: dict[str, list[tuple[str, Path]]] = {}
        for path in sorted(folder.glob(CONSUMERS)):
            began = next(read_records(path, killed=True), None)
            if isinstance(began, Began):
                self._files.setdefault(began.group, []).append((began.process, path))

    def occurrences(self, group: Consumers) -> Iterator[Occurrence]:
        """Yield the records of a group's processes, in the order of time.

        Raises:
            TornFile: The file of a process that was not killed is incomplete.
        """
        files = [self._process(name, path) for name, path in self._files.get(group.name, [])]
        return heapq.merge(*files, key=_time_of)

    def _process(self, process: str, path: Path) -> Iterator[Occurrence]:
        killed = process in self.kills
        whole = killed
        for record in read_records(path, killed=killed):
            if isinstance(record, Handled | Acked | Unanswered):
                yield Occurrence(process, record)
            elif isinstance(record, Ended):
                whole = True
        if not whole:
            raise TornFile(f"{path.name} has no end, and {process} was not killed")

    def dead(self, group: Consumers) -> Iterator[DeadLetter]:
        """Yield the dead letters of a group."""
        for record in read_records(self._folder / DEAD_LETTERS):
            if isinstance(record, DeadLetter) and record.group == group.name:
                yield record

    def paid(self) -> Iterator[AnyRecord]:
        """Yield the records of the cashiers, one after the other."""
        for path in sorted(self._folder.glob(CASHIERS)):
            yield from read_records(path, killed=path.name.split(".")[0] in self.kills)

    def sent(self) -> Iterator[AnyRecord]:
        """Yield the records of the producer."""
        return read_records(self._folder / PRODUCER)

    def add_sent(self, verdict: Verdict) -> None:
        """Add the producer's records to a verdict."""
        first = last = 0
        for record in self.sent():
            if isinstance(record, Stored):
                verdict.sent += record.sent
                verdict.stored += record.stored
                verdict.stored_before += record.duplicates
                first, last = first or record.at_us, record.at_us
            elif isinstance(record, Planted):
                verdict.planted = record.event
        if last > first:
            verdict.per_second = round(verdict.stored / (last - first) * 1e6, 1)


def _time_of(occurrence: Occurrence) -> int:
    record = occurrence.record
    return record.begun_us if isinstance(record, Handled) else record.at_us


def judge(folder: Path) -> Verdict:
    """Return the verdict on a run.

    Raises:
        DataMissing: The flights file is not installed.
        OSError, msgspec.DecodeError: The folder is not one of a run.
    """
    run = read_run(folder)
    flights = read(run.period)
    expected = Expectation(flights)
    verdict = Verdict(
        run,
        flights=len(flights),
        messages=sum(one.events for one in flights),
        without_aircraft=sum(one.events for one in flights if not one.tail),
    )
    written = Folder(folder)
    written.add_sent(verdict)
    verdict.kills = list(written.kills)
    reminders = RemindersJudge(flights, run, written.sent(), Kills(written.kills))
    verdict.reminders = reminders.reminders
    bookings = BookingsJudge(flights, run, written.paid(), Kills(written.kills))
    verdict.bookings = bookings.bookings
    own: dict[str, _Judge] = {GATE.name: reminders, TILL.name: bookings}
    for group in EVERYBODY:
        one = own.get(group.name) or GroupJudge(group, expected, run, Kills(written.kills))
        try:
            verdict.groups.append(one.judge(written.occurrences(group), written.dead(group)))
        except TornFile as error:
            one.find(Fault.TORN, "", str(error))
            verdict.groups.append(one.verdict)
        verdict.findings += one.findings
        counted = one.verdict
        verdict.finding_count += (
            counted.losses + counted.duplicates + counted.order_violations + counted.other_faults
        )
    if run.tables:
        tables = TablesJudge(folder, run, expected, verdict)
        verdict.tables = tables.judge()
        verdict.findings += tables.findings
        verdict.finding_count += verdict.tables.faults
    if verdict.sent != verdict.stored:
        told = f"{verdict.sent - verdict.stored} of {verdict.sent} messages got no receipt"
        verdict.findings.append(Finding(Fault.LOSS, "producer", "", told))
        verdict.finding_count += 1
    return verdict


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def main(folder: Path, *, as_json: bool) -> None:
    """Judge a run of the demo by what its processes wrote."""
    try:
        verdict = judge(folder)
    except (DataMissing, OSError, msgspec.DecodeError) as error:
        click.echo(f"ternmq demo: {error}", err=True)
        sys.exit(2)
    data = msgspec.json.encode(verdict)
    (folder / VERDICT).write_bytes(data)
    if as_json:
        click.echo(data)
    else:
        for line in lines_of(verdict):
            click.echo(line)
    sys.exit(0 if verdict.finding_count == 0 else 1)


if __name__ == "__main__":
    main()
