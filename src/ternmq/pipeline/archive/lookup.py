"""Finds messages in the archive: by id, by key, by place.

DuckDB reads the files. The log tells which files can hold the message (topic, day, bounds of
offsets and times); bounds and bloom filters tell which row groups can. No Spark, no Java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from ternmq.model.errors import InvalidRequest
from ternmq.pipeline.archive.finding import Finding
from ternmq.pipeline.archive.rewrite import may_have, queue_of
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table

DEFAULT_LIMIT: Final = 32
MAX_LIMIT: Final = 1000
_ID: Final = re.compile(r"([0-9a-f]{16}):([0-9a-f]{1,16})")
"""A message's id as ``ternmq.client.content.message.message_id`` writes it."""


@dataclass(slots=True, frozen=True)
class Archived:
    """A message of the archive; ``ternmq.pipeline.archive.schema`` describes the columns."""

    topic: str
    topic_number: int
    queue: int
    offset: int
    message_id: str
    producer_id: int
    sequence: int
    key: str | None
    ordering_key: str | None
    tag: str | None
    content_type: str | None
    application_id: str | None
    born_time: datetime
    stored_time: datetime
    position: int
    headers: Mapping[str, str]
    body: bytes
    body_crc: int
    day: date
    schema_version: int


_TIMES: Final = frozenset({"born_time", "stored_time"})
# Times as numbers: DuckDB needs another package for values with a time zone.
_CHOSEN: Final = ", ".join(
    f'epoch_us("{name}")' if name in _TIMES else f'"{name}"' for name in ARCHIVE.stored.names
)


class Lookup:
    """Searches the archive. Not thread-safe.

    Args:
        tables: The folder of all tables.
        storage: Options of the Delta library for an object store.

    Raises:
        TableError: There is no archive.
    """

    def __init__(self, tables: Folder, storage: Mapping[str, str] | None = None) -> None:
        self._table = Table.open(tables, ARCHIVE, create=False, storage=storage)
        self._finding = Finding(self._table.folder)

    def refresh(self) -> None:
        """Load commits made since it was opened."""
        self._table.refresh()

    def close(self) -> None:
        """Close the database; drops its cache."""
        self._finding.close()

    def by_id(self, message_id: str) -> Archived | None:
        """Return the message with an id, as it is printed: ``producer:sequence``, hexadecimal.

        Raises:
            InvalidRequest: The text is not a message id.
        """
        match = _ID.fullmatch(message_id)
        if match is None:
            raise InvalidRequest(
                f"{message_id!r} is no message id; it looks like 018f3a2b4c5d6e7f:1a"
            )
        producer, sequence = (_signed(int(part, 16)) for part in match.groups())
        # With bounds on the numbers, fewer row groups are read than with the text's filter alone.
        where = "message_id = $id and producer_id = $producer and sequence = $sequence"
        given = {"id": message_id, "producer": producer, "sequence": sequence}
        found = self._found(self._table.files(), where, given, 1)
        return found[0] if found else None

    def at(self, topic: str, queue: int, offset: int) -> Archived | None:
        """Return the message at a place; the newest, if an earlier topic had the same name."""
        files = [
            one
            for one in self._table.files()
            if may_have(one, topic)
            and _inside(one, "queue", queue)
            and (queue_of(one) is None or _inside(one, "offset", offset))
        ]
        where = 'topic = $topic and queue = $queue and "offset" = $offset'
        given = {"topic": topic, "queue": queue, "offset": offset}
        found = self._found(files, where, given, 1)
        return found[0] if found else None

    def by_key(
        self,
        key: str,
        *,
        topic: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> list[Archived]:
        """Return messages with a key, newest first.

        Args:
            key: The key.
            topic: Only of this topic.
            since_us: Only stored at or after this, µs since 1970.
            until_us: Only stored before this.
            limit: Most messages returned.
        """
        return self._by_text("key", key, topic, since_us, until_us, limit)

    def by_application_id(
        self, application_id: str, *, topic: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> list[Archived]:
        """Return messages with an identifier of the application's own, newest first."""
        return self._by_text("application_id", application_id, topic, None, None, limit)

    def _by_text(
        self,
        column: str,
        text: str,
        topic: str | None,
        since_us: int | None,
        until_us: int | None,
        limit: int,
    ) -> list[Archived]:
        if not 1 <= limit <= MAX_LIMIT:
            raise InvalidRequest(f"limit must be 1 to {MAX_LIMIT}, not {limit}")
        files = [one for one in self._table.files() if may_have(one, topic)]
        where, given = f"{column} = $text", {"text": text}
        bounds: dict[str, int | str] = {}
        if topic is not None:
            where += " and topic = $topic"
            bounds["topic"] = topic
        if since_us is not None:
            files = [one for one in files if _last(one) >= since_us]
            where += " and stored_time >= make_timestamptz($since)"
            bounds["since"] = since_us
        if until_us is not None:
            files = [one for one in files if _first(one) < until_us]
            where += " and stored_time < make_timestamptz($until)"
            bounds["until"] = until_us
        return self._found(files, where, {**given, **bounds}, limit)

    def _found(
        self, files: Sequence[DataFile], where: str, given: Mapping[str, object], limit: int
    ) -> list[Archived]:
        """Return rows, newest first."""
        behind = (
            f"where {where} order by stored_time desc, topic_number desc, position desc, "
            f'"offset" desc limit {limit}'
        )
        return [_archived(*one) for one in self._finding.rows(files, _CHOSEN, behind, given)]


def _archived(file: DataFile, values: Sequence[Any]) -> Archived:
    row = dict(zip(ARCHIVE.stored.names, values, strict=True))
    for name in _TIMES:
        seconds, micros = divmod(row[name], 1_000_000)
        row[name] = datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
    row["headers"] = dict(row["headers"] or {})
    day = date.fromisoformat(file.partition["day"])
    return Archived(day=day, **row)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _inside(one: DataFile, name: str, value: int) -> bool:
    low, high = one.low[name], one.high[name]
    return isinstance(low, int) and isinstance(high, int) and low <= value <= high


def _first(one: DataFile) -> int:
    low = one.low["stored_time"]
    return low if isinstance(low, int) else 0


def _last(one: DataFile) -> int:
    high = one.high["stored_time"]
    return high if isinstance(high, int) else 1 << 62
