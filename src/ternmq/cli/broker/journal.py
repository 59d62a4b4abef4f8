"""``ternmq journal``: reads and repairs a journal on disk, of a stopped broker or a copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, Final

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import confirm
from ternmq.cli.reach.parameters import COUNT, OFFSET
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.output import Cell
from ternmq.cli.terminal.problems import near, not_found
from ternmq.client.forms import values
from ternmq.journal.reader.reader import JournalReader
from ternmq.journal.recovery.repair import (
    Damage,
    Inspection,
    LostRecord,
    inspect,
    losses,
    open_folder,
)
from ternmq.journal.recovery.repair import repair as mend
from ternmq.model.errors import CorruptJournal, FileMissing
from ternmq.model.printing import printable
from ternmq.model.types import Position
from ternmq.model.words import counted
from ternmq.record.fact.header import Kind

_KINDS: Final = [one.name for one in Kind]
_LOST_SHOWN: Final = 20
_HEADER: Final = ("position", "kind", "length", "epoch", "time_us", "durable", "crc")

_folder = click.argument(
    "data", metavar="DATA", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


class _KindName(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """A kind of record, in any case."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the kind's name."""
        name = str(value).upper()
        if name not in _KINDS:
            self.fail(
                f"{value!r} is not a kind of record{near(name, _KINDS)}; kinds: "
                f"{', '.join(_KINDS)}",
                param,
                ctx,
            )
        return name


@click.group(cls=Group)
def journal() -> None:
    """Inspect, check and repair a journal on disk.

    DATA is the data folder of a broker. `dump`, `index` and `verify` change nothing and can run
    while the broker runs, but they may see its latest writes incompletely. `repair` changes nothing
    while a broker uses the folder.
    """


@journal.command()
@_folder
@click.option(
    "--from",
    "start",
    type=OFFSET,
    help="Position of the first record to print. Default: the oldest.",
)
@click.option(
    "--kind",
    "kinds",
    type=_KindName(),
    multiple=True,
    help="Only records of this kind, such as MESSAGES. May be repeated.",
)
@click.option(
    "-n",
    "--limit",
    type=COUNT,
    help="Maximum number of records to print. Default: no limit.",
)
@output.ndjson_option
def dump(
    data: Path, start: int | None, kinds: tuple[str, ...], limit: int | None, as_json: bool
) -> None:
    """Print every record: position, kind, time and content, without message bodies."""
    with _reader(data) as reader:
        if start is not None and start < reader.first():
            raise click.UsageError(
                f"the oldest record kept is at {reader.first()}", click.get_current_context()
            )
        count = 0
        for record in reader.dump(None if start is None else Position(start)):
            if kinds and record["kind"] not in kinds:
                continue
            if as_json:
                output.json_line(record)
            else:
                click.echo(_line(record))
            count += 1
            if count == limit:
                break
        else:
            if start is not None and reader.fault and reader.position == start:
                raise click.UsageError(
                    f"no record begins at {start}{_around(reader, start)}",
                    click.get_current_context(),
                )
            _say_end(reader, count)


def _around(reader: JournalReader, position: int) -> str:
    """Return between which records a position is, as far as they can be read."""
    size, fault = reader.segment_size, reader.fault
    if position >= reader.limit():
        return f": the journal ends before {reader.limit()}"
    before: int | None = None
    for record in reader.records(Position(max(position - position % size, reader.first()))):
        if record.position > position:
            return f": the records around it begin at {before} and {record.position}"
        before = record.position
    return f" ({fault})" if before is None else f" ({fault}); the one before begins at {before}"


def _line(record: dict[str, object]) -> str:
    time_us = record["time_us"]
    assert isinstance(time_us, int)
    rest = {name: value for name, value in record.items() if name not in _HEADER}
    text = output.encoded_plain(rest).decode() if rest else ""
    return (
        f"{record['position']:>12}  {record['kind']:<9}  {values.iso(values.of_us(time_us))}"
        f"  epoch={record['epoch']}  bytes={record['length']}  {printable(text)}"
    ).rstrip()


def _say_end(reader: JournalReader, count: int) -> None:
    why = f": {reader.fault}" if reader.fault else ""
    output.note(f"{counted(count, 'record')}; the valid records end at {reader.position}{why}")


@journal.command()
@_folder
@output.ndjson_option
def index(data: Path, as_json: bool) -> None:
    """Print which positions, queues and offsets each index file covers.

    If an index file does not match the journal (`invalid`), nothing is lost: the broker
    rebuilds it when it starts.
    """
    with _reader(data) as reader:
        found = list(reader.indexes())
        names = {number: one.name for number, one in reader.names_around().topics.items()}
    for one in found:
        _name_topics(one, names)
    if as_json:
        for one in found:
            output.json_line(one)
        return
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        name = Path(str(one["file"])).name
        if not one["believed"]:
            rows.append((name, None, None, None, None, None, "invalid"))
            continue
        queues = one["queues"]
        assert isinstance(queues, list)
        rows += [
            (name, f"{one['start']}-{one['stop']}", _named(queue), queue["queue"],
             queue["first_offset"], queue["next_offset"], "valid")
            for queue in queues
        ]  # fmt: skip
    columns = ("file", "positions", "topic", "queue", "first", "next", "state")
    output.table(
        columns,
        rows,
        "there is no index yet: the broker creates one for each full segment",
        spare=("positions", "first", "file"),
    )


def _name_topics(index: dict[str, object], names: dict[int, str]) -> None:
    """Give each queue of an index file its topic's name; None if the journal does not name it."""
    queues = index.get("queues", [])
    assert isinstance(queues, list)
    for queue in queues:
        queue["topic_number"] = queue.pop("topic")
        queue["topic"] = names.get(queue["topic_number"])


def _named(queue: dict[str, Any]) -> str:
    return queue["topic"] or f"number {queue['topic_number']}"


def inspected(data: Path) -> Inspection:
    """Read a whole journal; return what is damaged. Raises as ``_reader``."""
    with _reader(data) as reader, busy("reading the journal"):
        return inspect(reader.disk)


@journal.command()
@_folder
@output.json_option
def verify(data: Path, as_json: bool) -> None:
    """Read the whole journal, and check that all durable data is intact.

    `positions` are the beginning of the first valid record and the end of the last one. `durable
    position` is the highest position that these records state as durable: everything below it
    must be intact. Records from there to the end are valid, too. They are the last ones that were
    written, and nothing in the journal states yet that they were synced.
    """
    found = inspected(data)
    if as_json:
        output.document(_plain(found))
    else:
        places = counted(len(found.damage), "place")
        output.details(
            [
                ("records", f"{found.record_count:,}"),
                ("positions", f"{found.first} to {found.valid_end}"),
                ("durable position", found.durable),
                ("epoch", found.epoch),
                ("segment size", output.size(found.segment_size)),
                ("state", f"damaged in {places}" if found.damage else "sound"),
            ]
        )
    if found.damage:
        if not as_json:
            click.echo()
            _show_damage(found)
        raise Failed(
            f"durable data is damaged: restore the file from a replica or a backup, or "
            f"`ternmq journal repair {quote(str(data))}`",
            ExitCode.UNSOUND,
        )


@journal.command()
@_folder
@click.option(
    "--donor",
    metavar="DATA",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Backup of the same journal: copy damaged data from it, without loss.",
)
@click.option(
    "--cut",
    is_flag=True,
    help="Do not ask: cut the journal at damage that the donor cannot repair, and lose all "
    "records after it.",
)
@click.option("--dry-run", is_flag=True, help="Only show the damage, and what a cut would lose.")
@output.json_option
def repair(data: Path, donor: Path | None, cut: bool, dry_run: bool, as_json: bool) -> None:
    """Repair damage: copy data from a donor, or cut the journal at the first damage.

    A cut requires your consent. The part that is cut off is kept under DATA/repair. Stop the broker
    first, and preferably work on a copy.
    """
    with _reader(data) as reader, busy("reading the journal"):
        found = inspect(reader.disk)
        lost = losses(reader.disk, found)
        names = _names(reader, found)
    if not found.damage:
        if as_json:
            output.document({"done": False, "damage": []})
        else:
            output.note("the journal is sound: there is nothing to repair")
        return
    if dry_run:
        _preview(found, lost, names, as_json=as_json)
        return
    disk = open_folder(str(data))
    source = None if donor is None else open_folder(str(donor), read_only=True)
    try:
        patched = found.damage
        if source is not None:
            try:
                report = mend(disk, donor=source)
            except CorruptJournal:
                report = None  # the donor repaired what it could; more damage is left
            if report is not None:
                _done(data, report.patched, None, [], [], names, as_json=as_json)
                return
            left = inspect(disk)
            patched = tuple(one for one in found.damage if one not in left.damage)
            found, lost = left, losses(disk, left)
        else:
            patched = ()
        if not cut:
            if as_json:
                raise Failed("nothing was cut: --json does not prompt: add --cut or --dry-run")
            _preview(found, lost, names, as_json=False)
            question = f"cut at {found.damage[0].start}, and lose everything after it?"
            confirm(question, yes=False, option="--cut")
        report = mend(disk, consent=True)
        _done(data, list(patched), report.cut, report.lost, report.saved, names, as_json=as_json)
    finally:
        disk.close()
        if source is not None:
            source.close()


def _names(reader: JournalReader, found: Inspection) -> dict[int, str]:
    """Return the names of topics by number, as many as the journal's intact records hold."""
    names = reader.names_around([one.stop for one in found.damage if one.next_crc is not None])
    return {number: one.name for number, one in names.topics.items()}


def _preview(
    found: Inspection, lost: list[LostRecord], names: dict[int, str], *, as_json: bool
) -> None:
    if as_json:
        output.document({"done": False, **_plain(found), "lost": _plain_lost(lost, names)})
        return
    _show_damage(found)
    click.echo()
    _show_lost(f"a cut at {found.damage[0].start} would lose", lost, names)


def _done(
    data: Path,
    patched: list[Damage],
    cut: int | None,
    lost: list[LostRecord],
    saved: list[str],
    names: dict[int, str],
    *,
    as_json: bool,
) -> None:
    if as_json:
        output.document(
            {
                "done": True,
                "mended": [{"start": one.start, "stop": one.stop} for one in patched],
                "cut": cut,
                "lost": _plain_lost(lost, names),
                "saved": saved,
            }
        )
        return
    for one in patched:
        output.note(f"repaired positions {one.start} to {one.stop} with data of the donor")
    if cut is not None:
        _show_lost(f"cut at {cut}; lost", lost, names)
        output.note("what was cut off is kept in " + ", ".join(str(data / one) for one in saved))


def _show_damage(found: Inspection) -> None:
    output.table(
        ("from", "to", "bytes", "file", "what is wrong"),
        [
            (one.start, one.stop, one.stop - one.start, _file(found, one.start), one.reason)
            for one in found.damage
        ],
    )


def _file(found: Inspection, position: int) -> str:
    base = position - position % found.segment_size
    return f"journal/{base:020d}.seg+{position - base}"


def _show_lost(what: str, lost: list[LostRecord], names: dict[int, str]) -> None:
    kinds = Counter(_kind(one.kind) for one in lost)
    messages = sum(one.count or 0 for one in lost)
    named = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    unknown = sum(_unknown(one) for one in lost)
    more = f", and those of {counted(unknown, 'damaged record')}" if unknown else ""
    least = "" if all(one.whole for one in lost) else "at least "
    output.note(f"{what} {counted(len(lost), 'record')} ({named or 'all unreadable'}), "
                f"with {least}{counted(messages, 'message')}{more}:")  # fmt: skip
    shown = [one for one in lost if one.count or _unknown(one)]
    output.table(
        ("position", "topic", "queue", "offsets", "state"),
        [
            (one.position, _topic(one, names), _queue(one), _offsets(one),
              "whole" if one.whole else "damaged")
            for one in shown[:_LOST_SHOWN]
        ],
    )  # fmt: skip
    if len(shown) > _LOST_SHOWN:
        output.note(f"and {len(shown) - _LOST_SHOWN:,} more (--json lists all)")


def _unknown(one: LostRecord) -> bool:
    """Whether a record may have held messages that no intact record tells of."""
    return not one.whole and one.count is None


def _topic(one: LostRecord, names: dict[int, str]) -> str:
    return "unknown" if one.topic is None else names.get(one.topic, f"number {one.topic}")


def _queue(one: LostRecord) -> str | int:
    if one.kind == Kind.SCHEDULED and one.whole:
        return "none yet"
    return "unknown" if one.queue is None else one.queue


def _offsets(one: LostRecord) -> str:
    if one.kind == Kind.SCHEDULED and one.whole:
        return f"{counted(one.count or 0, 'row')} due later"
    if one.first_offset is None or one.count is None:
        return "unknown"
    return f"{one.first_offset}-{one.first_offset + one.count - 1}"


def _kind(number: int) -> str:
    if not number:
        return "unreadable"
    try:
        return Kind(number).name
    except ValueError:
        return f"kind {number}"


def _plain(found: Inspection) -> dict[str, object]:
    return {
        "sound": not found.damage,
        "records": found.record_count,
        "first": found.first,
        "valid_end": found.valid_end,
        "durable": found.durable,
        "epoch": found.epoch,
        "segment_bytes": found.segment_size,
        "damage": [
            {"start": one.start, "stop": one.stop, "reason": one.reason,
             "file": _file(found, one.start)}
            for one in found.damage
        ],
    }  # fmt: skip


def _plain_lost(lost: list[LostRecord], names: dict[int, str]) -> list[dict[str, object]]:
    plain: list[dict[str, object]] = []
    for one in lost:
        told: dict[str, object] = {
            "kind": _kind(one.kind),
            "position": one.position,
            "length": one.length,
            "whole": one.whole,
        }
        if one.count is not None or _unknown(one):
            told |= {
                "topic": None if one.topic is None else names.get(one.topic),
                "topic_number": one.topic,
                "queue": one.queue,
                "first_offset": one.first_offset,
                "count": one.count,
            }
        plain.append(told)
    return plain


@contextmanager
def _reader(data: Path) -> Iterator[JournalReader]:
    """Open a journal for reading.

    Raises:
        Failed: There is none, or it is too damaged to open.
    """
    try:
        reader = JournalReader(str(data))
    except (FileMissing, CorruptJournal) as error:
        if not any((data / "journal").glob("*.seg")):
            raise not_found(
                f"there is no journal in {data}: name a broker's --data folder"
            ) from None
        raise Failed(str(error.args[0]), ExitCode.UNSOUND) from error
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show a spinner, in a terminal."""
    if not output.is_terminal():
        yield
        return
    with output.console(error=True).status(what):
        yield
