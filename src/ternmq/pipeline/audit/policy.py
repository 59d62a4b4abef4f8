"""What all parts of the audit's judgement share: the policy, verdicts, rows."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ternmq.pipeline.archive.columns import message_ids
from ternmq.pipeline.audit.schema import BUCKET_US
from ternmq.pipeline.audit.spans import Ints, Spans
from ternmq.pipeline.tables.spec import TableSpec

Row = dict[str, Any]
"""A row of ``schema.AUDIT`` or ``FINDINGS``, without the columns that all rows have."""


OWED: Final = "owed"
"""Of a row that is not final, whatever its verdict: true. It is no column."""


class Verdict(enum.StrEnum):
    """The verdict of a row: the worst that applies."""

    OPEN = "open"
    LOST = "lost"
    DOUBLED = "doubled"
    EXPIRED = "expired"
    UNVERIFIED = "unverified"
    LATE = "late"
    OK = "ok"


@dataclass(slots=True, frozen=True)
class Policy:
    """The rules of the judgement.

    Attributes:
        now_us: The time; facts up to it are known.
        grace_us: Time after the end of a window until it is judged; messages stored later are late.
        since_us: Facts before this time are missing: windows that begin before cannot be judged.
        most_named: Most messages named of one topic, tier and window.
        real_us: The real time, if ``now_us`` may be later: before it, nothing can be due.
        up_since_us: When the broker started; before that, it could deliver nothing.
    """

    now_us: int
    grace_us: int = BUCKET_US
    since_us: int = 0
    most_named: int = 10_000
    real_us: int | None = None
    up_since_us: int = 0

    def open(self, bucket_us: int) -> bool:
        """Return whether it is too early to judge a window."""
        return self.now_us <= bucket_us + BUCKET_US + self.grace_us

    def pending(self, bucket_us: int) -> bool:
        """Return whether messages that are due in a window may still be delivered."""
        now_us = self.now_us if self.real_us is None else min(self.now_us, self.real_us)
        return now_us <= max(bucket_us + BUCKET_US, self.up_since_us) + self.grace_us

    def whole(self, bucket_us: int) -> bool:
        """Return whether all facts about a window are known."""
        return bucket_us >= self.since_us


@dataclass(slots=True)
class Judged:
    """Rows for the tables."""

    rows: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)

    def add(self, other: Judged) -> None:
        """Append the rows and findings of another."""
        self.rows += other.rows
        self.findings += other.findings


class Topics:
    """The topics of a table, numbered; ``index`` holds the number for each row."""

    def __init__(self, numbers: Ints, names: dict[int, str]) -> None:
        self.numbers, inverse = np.unique(numbers, return_inverse=True)
        self.index: Ints = inverse.astype(np.int64)
        self.names = [names.get(number) for number in self.numbers.tolist()]

    def __len__(self) -> int:
        return len(self.numbers)

    def of(self, at: int) -> Row:
        """Return the columns that name a topic."""
        return {"topic": self.names[at], "topic_number": int(self.numbers[at])}


def names_of(*tables: pa.Table) -> dict[int, str]:
    """Return the names of topics by their numbers."""
    found: dict[int, str] = {}
    for one in tables:
        pairs = one.select(["topic_number", "topic"]).group_by(["topic_number", "topic"])
        for row in pairs.aggregate([]).to_pylist():
            if row["topic"] is not None:
                found[row["topic_number"]] = row["topic"]
    return found


def worst(*claims: tuple[object, Verdict]) -> Verdict:
    """Return the verdict of the first claim that is true; OK if none is."""
    return next((verdict for true, verdict in claims if true), Verdict.OK)


def expanded(some: Spans, most: int | None = None) -> Ints:
    """Return the numbers of spans, one by one; at most ``most``."""
    found: list[Ints] = []
    room = most
    for start, stop in zip(some.start.tolist(), some.stop.tolist(), strict=True):
        end = stop if room is None else min(stop, start + room)
        found.append(np.arange(start, end))
        if room is not None:
            room -= end - start
            if room <= 0:
                break
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def named(
    kind: str, producer: int, sequences: Ints, most: int, columns: Mapping[str, object]
) -> list[Row]:
    """Return a finding for each message of a producer, and one for those above ``most``."""
    some = sequences[:most]
    ids = message_ids(
        pa.array(np.full(len(some), producer), pa.int64()), pa.array(some, pa.int64())
    )
    found: list[Row] = [
        {
            "kind": kind,
            "producer_id": producer,
            "message_id": one,
            "sequence": sequence,
            "count": 1,
            **columns,
        }
        for one, sequence in zip(ids.to_pylist(), some.tolist(), strict=True)
    ]
    if rest := len(sequences) - len(some):
        detail = f"{rest} more, not named"
        found.append(
            {"kind": kind, "producer_id": producer, "count": rest, "detail": detail, **columns}
        )
    return found


def rows_of(spec: TableSpec, rows: Iterable[Row], bucket_us: int) -> pa.Table:
    """Return rows of a table about a window."""
    day = datetime.fromtimestamp(bucket_us // 1_000_000, UTC).date()
    common = {"bucket": bucket_us, "day": day, "schema_version": spec.version}
    listed = [{**row, **common} for row in rows]
    names = spec.schema.names
    columns = [
        pa.array([row.get(name) for row in listed], spec.schema.field(name).type) for name in names
    ]
    return pa.table(columns, schema=spec.schema)
