"""Causes of dead letters; causes that differ only in names and numbers share a fingerprint.

A fingerprint is made of the exception's class and the message with everything replaced that differs
from one failure to the next: quoted texts, paths, addresses, ids, hexadecimal and other numbers.
Pure functions on rows of the trace; the job is ``job``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_hexdigest

from ternmq.client.content.causes import UNSAID_BY_NAME
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.spec import INSTANT, VERSION, Column, TableSpec
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.schema import TRACE

DEAD_LETTERS: Final = TableSpec(
    name="dead_letters",
    version=2,
    columns=(
        Column("topic", pa.string(), "name of the topic"),
        Column("group", pa.string(), "name of the group"),
        Column("fingerprint", pa.string(), "16 hexadecimal digits"),
        Column(
            "exception",
            pa.string(),
            "class of the exception; null if the reason names none",
            null=True,
        ),
        Column(
            "message",
            pa.string(),
            "message of the exception, normalised; if there is no reason, the cause in brackets",
        ),
        Column("cause", pa.string(), "why the broker made the messages dead letters", null=True),
        Column(
            "count",
            pa.int64(),
            "number of messages that became dead letters or were held because of it",
        ),
        Column("first", INSTANT, "time of the first one on that day"),
        Column("last", INSTANT, "time of the last one on that day"),
        Column("day_before", pa.int64(), "the count of the day before"),
        Column("sample_ids", pa.list_(pa.string()), "ids of the first five messages"),
        Column("sample_reason", pa.string(), "the first reason, not normalised", null=True),
        Column("day", pa.date32(), "the day, in UTC"),
        VERSION,
    ),
    partition_by=("day",),
    bounds=("first", "last"),
)
"""One row for each day, topic, group and fingerprint. In version 1, ``day`` was a text."""

SAMPLES: Final = 5
_LONGEST: Final = 300
_DAY_US: Final = 86_400_000_000
_SAME: Final = ("day", "topic", "group", "reason", "cause")
_PLACE: Final = ("time", "queue", "offset")
_CLASS: Final = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::\s*|$)")
_REPLACED: Final = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", "<text>"),
        (r"\b[a-z][a-z0-9+.-]*://\S+", "<address>"),
        (r"[\w.+-]+@[\w-]+\.[\w.-]+", "<address>"),
        (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<id>"),
        (r"\b[0-9a-f]{16}:[0-9a-f]+\b", "<id>"),
        (r"(?<![\w<])(?:[A-Za-z]:\\|~?/)[\w.@+~-]+(?:[\\/][\w.@+~-]*)*", "<path>"),
        (r"\b0[xX][0-9a-fA-F]+\b", "<number>"),
        (r"\b(?=[a-fA-F]*[0-9])(?=[0-9]*[a-fA-F])[0-9a-fA-F]{8,}\b", "<id>"),
        (r"(?<![A-Za-z\d])[-+]?\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+)?", "<number>"),
        (r"\d+", "<number>"),
        (r"\s+", " "),
    )
)


class Fingerprint(NamedTuple):
    """A cause of dead letters.

    Attributes:
        id: 16 hexadecimal digits.
        exception: The class; empty if the reason names none.
        message: The message, normalised.
    """

    id: str
    exception: str
    message: str


def fingerprint(reason: str | None, cause: str | None) -> Fingerprint:
    """Return the fingerprint of a failure.

    Args:
        reason: The consumer's reason; None: it gave none.
        cause: The broker's cause; used if there is no reason.
    """
    text = (reason or "").strip()
    if cause is not None and text == UNSAID_BY_NAME.get(cause):  # clients show it for no reason
        text = ""
    found = _CLASS.match(text)
    exception = found[1] if found else ""
    message = normalised(text[found.end() :] if found else text)
    if not text:
        message = f"({cause or 'unknown'})"
    return Fingerprint(xxh3_64_hexdigest(f"{exception}\n{message}".encode()), exception, message)


def normalised(text: str) -> str:
    """Return a text with the parts replaced that differ from one failure to the next."""
    for pattern, by in _REPLACED:
        text = pattern.sub(by, text)
    return text.strip()[:_LONGEST]


DEATHS: Final = pa.schema(
    [
        ("day", pa.int64()),
        ("topic", pa.string()),
        ("group", pa.string()),
        ("reason", pa.string()),
        ("cause", pa.string()),
        ("count", pa.int64()),
        ("last", INSTANT),
        ("earliest", pa.list_(pa.struct(
            [("time", INSTANT), ("queue", pa.int32()), ("offset", pa.int64()), ("id", pa.string())]
        ))),
    ]
)  # fmt: skip
"""Dead letters of some rows of the trace, counted: one row for each day, topic, group, reason and
cause. ``day`` is in days since 1970; ``earliest`` are the first deaths of the messages that died
first."""


def deaths(rows: pa.Table, begin: int, stop: int) -> pa.Table:
    """Count the dead letters in rows of the trace; return rows of ``DEATHS``.

    Each part of the trace can be counted on its own: ``of_day`` adds the counts.

    Args:
        rows: Rows with the columns ``COLUMNS``; those without a failure are ignored.
        begin: The first day, in days since 1970.
        stop: One above the last day.
    """
    found = _deaths(rows)
    day = pc.divide(found["time"].cast(pa.int64()), _DAY_US)
    found = found.append_column("day", day)
    inside = pc.and_(pc.greater_equal(day, begin), pc.less(day, stop))
    found = found.filter(inside).sort_by([(name, "ascending") for name in _PLACE])
    listed = (*_PLACE, "message_id")
    counted = found.group_by(list(_SAME), use_threads=False).aggregate(
        [([], "count_all"), ("time", "max"), *((name, "list") for name in listed)]
    )
    lists = [counted[f"{name}_list"].combine_chunks() for name in listed]
    values = [one.flatten() for one in lists]
    sizes = pc.list_value_length(lists[0]).to_pylist()
    cuts = itertools.accumulate(sizes, initial=0)
    earliest = [
        [
            dict(zip(("time", "queue", "offset", "id"), _row(values, at), strict=True))
            for at in _first(values[-1], start, stop)
        ]
        for start, stop in itertools.pairwise(cuts)
    ]
    columns = {
        **{name: counted[name] for name in _SAME},
        "count": counted["count_all"],
        "last": counted["time_max"],
        "earliest": pa.array(earliest, DEATHS.field("earliest").type),
    }
    return pa.table([columns[one.name].cast(one.type) for one in DEATHS], schema=DEATHS)


def _row(columns: Iterable[pa.Array], at: int) -> list[Any]:
    return [one[at].as_py() for one in columns]


def _first(ids: pa.Array, start: int, stop: int) -> list[int]:
    """Return the first death of each of the first messages: ``SAMPLES``, and one without an id."""
    known: dict[str | None, int] = {}
    for at in range(start, stop):
        known.setdefault(ids[at].as_py() or None, at)
        if len(known) > SAMPLES:
            break
    return list(known.values())


_Death = tuple[datetime, int, int, str | None]
"""Time, queue, offset, and the message's id."""


@dataclass(slots=True)
class _Count:
    fingerprint: Fingerprint
    cause: str | None
    reason: str | None
    count: int
    last: datetime
    earliest: list[_Death]

    def add(self, other: _Count) -> None:
        """Add the dead letters of another reason with the same fingerprint, or of other rows."""
        if _place(other.earliest[0]) < _place(self.earliest[0]):
            self.cause, self.reason = other.cause, other.reason
        self.count += other.count
        self.last = max(self.last, other.last)
        self.earliest = sorted(self.earliest + other.earliest, key=_place)

    def samples(self) -> list[str]:
        """Return the ids of the messages that died first."""
        return list(dict.fromkeys(id_ for *_, id_ in self.earliest if id_))[:SAMPLES]


def _place(death: _Death) -> tuple[datetime, int, int]:
    return death[:3]


def of_day(counted: pa.Table, day: str, before: Mapping[tuple[str, str, str], int]) -> pa.Table:
    """Return the dead letters of a day, by topic, group and fingerprint.

    Args:
        counted: Rows of ``DEATHS``, of all parts of the trace and any days.
        day: The day in UTC, as ``2026-11-21``.
        before: Counts of the day before, by topic, group and fingerprint.
    """
    number = (date.fromisoformat(day) - date(1970, 1, 1)).days
    found: dict[tuple[str, str, str], _Count] = {}
    for row in counted.filter(pc.equal(counted["day"], number)).to_pylist():
        earliest = [
            (one["time"], one["queue"], one["offset"], one["id"]) for one in row["earliest"]
        ]
        cause = fingerprint(row["reason"], row["cause"])
        new = _Count(cause, row["cause"], row["reason"], row["count"], row["last"], earliest)
        key = row["topic"], row["group"], cause.id
        if key in found:
            found[key].add(new)
        else:
            found[key] = new
    told = [
        {
            "topic": topic, "group": group, "fingerprint": id_,
            "exception": one.fingerprint.exception or None, "message": one.fingerprint.message,
            "cause": one.cause, "count": one.count, "first": one.earliest[0][0], "last": one.last,
            "day_before": before.get((topic, group, id_), 0), "sample_ids": one.samples(),
            "sample_reason": one.reason, "day": date.fromisoformat(day),
            "schema_version": DEAD_LETTERS.version,
        }
        for (topic, group, id_), one in sorted(found.items())
    ]  # fmt: skip
    return pa.Table.from_pylist(told, DEAD_LETTERS.schema)


def _deaths(rows: pa.Table) -> pa.Table:
    """Return a row for each time that a message became a dead letter or was held."""
    lists = rows["failures"].combine_chunks()
    flat = lists.flatten()
    parent = pc.list_parent_indices(lists)
    names = ["topic", "queue", "offset", "group", "message_id", "state"]
    found = rows.select(names).take(parent)
    for name in ("time", "outcome", "cause", "reason"):
        found = found.append_column(name, flat.field(name))
    return found.filter(pc.is_in(found["outcome"], value_set=pa.array(["dead", "held"])))


COLUMNS: Final = ("topic", "queue", "offset", "group", "message_id", "state", "failures")
"""The columns of the trace that are read."""


def rows_since(trace: Table, time_us: int) -> pa.Table:
    """Return rows of the trace with a failure, from files that changed at or after a time.

    They are in the order of their messages, whatever files they are in.
    """
    parts = [TRACE.schema.empty_table().select(list(COLUMNS))]
    for file in files_since(trace, time_us):
        rows = trace.read_files([file], COLUMNS)
        parts.append(rows.filter(pc.greater(pc.list_value_length(rows["failures"]), 0)))
    order = [(name, "ascending") for name in ("topic", "queue", "offset", "group")]
    return pa.concat_tables(parts).sort_by(order)


def files_since(trace: Table, time_us: int) -> list[DataFile]:
    """Return the files of the trace that changed at or after a time."""
    newest = [(one, one.high.get("state_time")) for one in trace.files()]
    return [one for one, time in newest if isinstance(time, int) and time >= time_us]


def places(rows: pa.Table, topic: str, group: str, wanted: str) -> list[tuple[int, int]]:
    """Return queue and offset of each dead letter of a group whose last failure has a fingerprint.

    Args:
        rows: Rows of the trace; ``rows_since(trace, 0)`` for all.
        topic: The topic.
        group: The group.
        wanted: The fingerprint's id.
    """
    lying = pc.is_in(rows["state"], value_set=pa.array(["dead", "held"]))
    there = pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["group"], group))
    found = []
    for row in rows.filter(pc.and_(lying, pc.fill_null(there, False))).to_pylist():
        last = row["failures"][-1] if row["failures"] else {"reason": None, "cause": None}
        if fingerprint(last["reason"], last["cause"]).id == wanted:
            found.append((row["queue"], row["offset"]))
    return sorted(found)


class Redriving(Protocol):
    """What redrives dead letters: ``client.deadletters`` of ``ternmq.sync``."""

    def redrive(
        self, topic: str, group: str, offsets: Iterable[int], *, queue: int, dry_run: bool = False
    ) -> Sequence[Any]:
        """Redrive dead letters, as ``ternmq.client.admin.deadletters`` does."""


def redrive(
    deadletters: Redriving, topic: str, group: str, chosen: Iterable[tuple[int, int]], *,
    dry_run: bool = False,
) -> list[Any]:  # fmt: skip
    """Redrive chosen dead letters; return the result for each.

    Messages that are no dead letters any more stay unchanged: the result says so.
    """
    by_queue: dict[int, list[int]] = {}
    for queue, offset in chosen:
        by_queue.setdefault(queue, []).append(offset)
    told: list[Any] = []
    for queue, offsets in sorted(by_queue.items()):
        told += deadletters.redrive(topic, group, offsets, queue=queue, dry_run=dry_run)
    return told
