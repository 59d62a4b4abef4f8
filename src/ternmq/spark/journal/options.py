"""Options of ``format("ternmq.journal")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from ternmq.model.errors import OptionError
from ternmq.spark.broker import values
from ternmq.spark.broker.connecting import SERVERS, Broker
from ternmq.spark.journal.events import COLUMNS
from ternmq.spark.topics.options import broker_of
from ternmq.spark.topics.table import CONNECTION, Option, Use, parse

EARLIEST: Final = -2
LATEST: Final = -1


def _position(name: str, text: str) -> int:
    word = text.strip().lower()
    if word in {"earliest", "latest"}:
        return EARLIEST if word == "earliest" else LATEST
    try:
        return values.count(name, text, least=0)
    except OptionError:
        raise values.wrong(name, text, "earliest, latest or a position is required") from None


def _path(name: str, text: str) -> str:
    if not text.strip():
        raise values.wrong(name, text, "it is empty")
    return text


def _columns(name: str, text: str) -> tuple[str, ...]:
    return values.words(name, text, tuple(COLUMNS))


_zero = partial(values.count, least=0)

TABLE: Final = CONNECTION + tuple(
    Option(*row)
    for row in (
        ("path", Use.READ, _path, "none",
         "read from this data folder, or a copy of one, instead of from a broker"),
        ("startingPosition", Use.READ, _position, "stream `latest`, batch `earliest`",
         "`earliest`, `latest`, or a position: the first record at or after it"),
        ("endingPosition", Use.BATCH_READ, _position, "`latest`",
         "`latest`, or a position: records that begin before it are read"),
        ("failOnDataLoss", Use.READ, values.flag, "true",
         ("if facts are no longer kept, the query fails; false: it continues with the oldest fact "
          "that is kept")),
        ("maxBytesPerTrigger", Use.STREAM_READ, values.size, "1g",
         "most bytes of the journal in a batch"),
        ("maxBytesPerPartition", Use.READ, values.size, "32m",
         "most bytes of the journal in a task"),
        ("columns", Use.READ, _columns, "all", "only these columns"),
        ("batchRows", Use.READ, values.count, "10000",
         "approximate number of rows of an Arrow batch"),
        ("watermarkCacheMs", Use.STREAM_READ, _zero, "200",
         "the end of the journal is requested again after this time"),
    )
)  # fmt: skip
_BY_NAME: Final = {option.name.lower(): option for option in TABLE}


@dataclass(slots=True, frozen=True)
class JournalOptions:
    """Options of a reader of the journal; either ``broker`` or ``path`` is set."""

    broker: Broker | None
    path: str
    start: int
    end: int = LATEST
    fail_on_data_loss: bool = True
    max_bytes: int = 1 << 30
    task_bytes: int = 32 << 20
    columns: tuple[str, ...] = tuple(COLUMNS)
    batch_rows: int = 10_000
    watermark_cache_ms: int = 200

    @property
    def offered(self) -> dict[str, str]:
        """The columns, with their types as Spark writes them."""
        return {name: COLUMNS[name] for name in self.columns}


def journal_columns(options: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that options select.

    Raises:
        OptionError: An option is not valid; names it.
    """
    given = parse(options, Use.READ, _BY_NAME)
    return {name: COLUMNS[name] for name in given.get("columns", ()) or COLUMNS}


def journal_options(options: Mapping[str, str], use: Use) -> JournalOptions:
    """Parse the options of a reader.

    Raises:
        OptionError: An option is not valid; names it.
    """
    given = parse(options, use, _BY_NAME)
    path = given.get("path", "")
    if bool(path) == (SERVERS in given.parsed):
        raise OptionError(
            "option path: a broker is named as well (bootstrap.servers)"
            if path
            else "option bootstrap.servers: a broker must be named, or a folder: .load(path)"
        )
    stream = use is Use.STREAM_READ
    start = given.get("startingPosition", LATEST if stream else EARLIEST)
    if start == LATEST and not stream:
        raise OptionError("option startingPosition='latest': a batch read would read nothing")
    if given.get("endingPosition", LATEST) == EARLIEST:
        raise OptionError("option endingPosition='earliest': nothing would be read")
    return JournalOptions(
        broker=None if path else broker_of(given),
        path=path,
        start=start,
        end=given.get("endingPosition", LATEST),
        fail_on_data_loss=given.get("failOnDataLoss", True),
        max_bytes=given.get("maxBytesPerTrigger", 1 << 30),
        task_bytes=given.get("maxBytesPerPartition", 32 << 20),
        columns=given.get("columns", ()) or tuple(COLUMNS),
        batch_rows=given.get("batchRows", 10_000),
        watermark_cache_ms=given.get("watermarkCacheMs", 200),
    )
