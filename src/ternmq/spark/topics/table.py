"""The table of options: which exist, how each is parsed, and checks of given ones.

Kafka's names are used where the meaning is the same. Case does not matter (Spark passes names in
lower case); errors and documents write them as this table does. An option that is unknown, or is
given where it has no effect, is an ``OptionError`` that names it.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ternmq.model.errors import OptionError
from ternmq.spark.broker import connecting, values
from ternmq.spark.broker.connecting import SERVERS
from ternmq.spark.broker.offsets import EARLIEST, Progress
from ternmq.spark.schema import FIELDS, METADATA

Parser = Callable[[str, str], Any]


class Use(enum.Flag):
    """The operations of a source or sink."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    STREAM = STREAM_READ | STREAM_WRITE
    ALL = READ | WRITE


_TOLD: Final = {
    Use.BATCH_READ: "a batch read",
    Use.STREAM_READ: "a streaming read",
    Use.BATCH_WRITE: "a batch write",
    Use.STREAM_WRITE: "a streaming write",
    Use.READ: "reading",
    Use.WRITE: "writing",
}


_PUSHDOWN: Final = (
    "filter while reading; requires `spark.sql.python.filterPushdown.enabled=true`. Use it "
    "for one query of a DataFrame only: Spark applies the filters of this query to the next one, "
    "even if that query has none"
)


@dataclass(slots=True, frozen=True)
class Option:
    """A row of the table."""

    name: str
    use: Use
    parse: Parser
    default: str
    """The default as the documents show it."""
    about: str


class Start(enum.Enum):
    """Where a new query begins, unless at offsets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"


def _start(name: str, text: str) -> Start | Progress:
    word = text.strip().lower()
    for one in Start:
        if one.value == word:
            return one
    if not word.startswith("{"):
        raise values.wrong(
            name,
            text,
            'earliest, latest, group or offsets such as {"orders": {"0": 5}} is required',
        )
    return values.offsets(name, text)


def _end(name: str, text: str) -> Start | Progress:
    if text.strip().lower() == "latest":
        return Start.LATEST
    if not text.strip().startswith("{"):
        raise values.wrong(
            name, text, 'latest, or offsets such as {"orders": {"0": 5}} is required'
        )
    found = values.offsets(name, text)
    for place, offset in found.offsets.items():
        if offset == EARLIEST:
            raise values.wrong(name, text, f"{place} cannot end at -2, the earliest")
    return found


def _choice(*among: str) -> Parser:
    return partial(_chosen, among=among)


def _chosen(name: str, text: str, among: tuple[str, ...]) -> str:
    return values.choice(name, text, among)


def _words(among: Iterable[str]) -> Parser:
    return partial(_some, among=tuple(among))


def _some(name: str, text: str, among: tuple[str, ...]) -> tuple[str, ...]:
    return values.words(name, text, among)


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise values.wrong(name, text, "it is empty")
    return text.strip()


def _writer(name: str, text: str) -> str:
    if not 1 <= len(text.encode()) <= 128:
        raise values.wrong(name, text, "1 to 128 bytes are required")
    return text


_zero = partial(values.count, least=0)

CONNECTION: Final = tuple(
    Option(*row)
    for row in (
        (SERVERS, Use.ALL, _text, "required (not with the option `path` of `ternmq.journal`)",
         "`host:port,...`, or URLs; `ternmq.bootstrap.servers` is another name of this option"),
        ("ternmq.app", Use.ALL, connecting.app, "none", "the app to connect as"),
        ("ternmq.token", Use.ALL, _text, "`TERNMQ_TOKEN`",
         "the token of this app; `ternmq.tokenFile` is safer"),
        ("ternmq.tokenFile", Use.ALL, _text, "none",
         "a file with the token; it must exist on every machine that reads or writes"),
        ("ternmq.tls", Use.ALL, values.flag, "false", "use TLS"),
        ("ternmq.ca", Use.ALL, _text, "the system's", "file with the certificates to trust"),
        ("ternmq.timeoutMs", Use.ALL, values.count, "30000",
         "how long a request may take, including further tries"),
    )
)  # fmt: skip
"""The broker and the app: options of every source and sink."""
TABLE: Final = CONNECTION + tuple(
    Option(*row)
    for row in (
        ("subscribe", Use.READ, values.topics, "required: this or one of the next two",
         "topics, separated by commas"),
        ("subscribePattern", Use.READ, values.pattern, "",
         ("a regular expression that must match the whole name of a topic; it is evaluated again "
          "for each batch")),
        ("assign", Use.READ, values.assigned, "", 'topics and their queues: `{"orders": [0, 1]}`'),
        ("topic", Use.WRITE, values.topic, "column `topic`", "the topic for all rows"),
        ("startingOffsets", Use.READ, _start, "stream `latest`, batch `earliest`",
         'start of a new query: `earliest`, `latest`, `group`, or `{"orders": {"0": 5}}`'),
        ("startingTimestamp", Use.READ, values.time_us, "none",
         ("instead of `startingOffsets`: rows stored at or after this time; ms since 1970, or "
          "ISO 8601 with zone")),
        ("startingOffsetsByTimestamp", Use.READ, values.times, "none",
         'instead of `startingOffsets`: a time for each queue, `{"orders": {"0": 1700000000000}}`'),
        ("startingOffsetsByTimestampStrategy", Use.READ, _choice("error", "latest"), "`error`",
         ("if a queue has no row since this time: `error` fails; `latest` starts at the end of the "
          "queue")),
        ("endingOffsets", Use.BATCH_READ, _end, "`latest`", "`latest`, or offsets as above"),
        ("endingTimestamp", Use.BATCH_READ, values.time_us, "none",
         "instead of `endingOffsets`: rows stored before this time"),
        ("endingOffsetsByTimestamp", Use.BATCH_READ, values.times, "none",
         "instead of `endingOffsets`: a time for each queue"),
        ("failOnDataLoss", Use.READ, values.flag, "true",
         ("if rows are no longer kept, or a topic was created again, the query fails; false: the "
          "query logs this and continues")),
        ("maxOffsetsPerTrigger", Use.STREAM_READ, values.count, "1000000",
         "most rows of a batch, divided among the queues by their backlogs"),
        ("maxBytesPerTrigger", Use.STREAM_READ, values.size, "256m",
         "most bytes of a batch of Spark, rounded to whole batches as the broker stored them"),
        ("minOffsetsPerTrigger", Use.STREAM_READ, values.count, "none",
         "a batch waits for at least this number of rows"),
        ("maxTriggerDelay", Use.STREAM_READ, values.duration_ms, "15m",
         "the longest wait for `minOffsetsPerTrigger`"),
        ("minPartitions", Use.READ, values.count, "none", "approximate minimum number of tasks"),
        ("maxRecordsPerPartition", Use.READ, values.count, "2000000", "most rows of a task"),
        ("columns", Use.READ, _words(FIELDS), "the default ones",
         "only these columns, in this order"),
        ("includeHeaders", Use.READ, values.flag, "false", "add the column `headers`"),
        ("metadataFields", Use.READ, _words(METADATA), "none", "add these columns"),
        ("keyType", Use.READ, _choice("binary", "string"), "`binary`",
         "type of the column `key`: `binary` or `string`"),
        ("valueType", Use.READ, _choice("binary", "string"), "`binary`",
         "type of the column `value`: `binary` or `string`"),
        ("headersType", Use.READ, _choice("array", "map"), "`array`",
         ("type of the column `headers`: `array` as in Kafka's source, `map` as in the pipeline's "
          "tables")),
        ("emit", Use.READ, _choice("messages", "ranges", "index"), "`messages`",
         "`messages`; `ranges`: one row per range of offsets; `index`: messages without `value`"),
        ("batchRows", Use.READ, values.count, "10000",
         "approximate number of rows of an Arrow batch"),
        ("batchBytes", Use.READ, values.size, "4m", "approximate size of an Arrow batch"),
        ("pushdownFilters", Use.BATCH_READ, values.flag, "false",
         _PUSHDOWN),
        ("groupIdPrefix", Use.STREAM_READ, values.group, "`spark-ternmq`",
         "beginning of the name of the group that shows the progress"),
        ("group.id", Use.READ, values.group, "none",
         "the whole name of this group; also the group of `startingOffsets=group`"),
        ("reportProgress", Use.STREAM_READ, values.flag, "true",
         "report the progress of the query to the broker"),
        ("isolationLevel", Use.READ, _choice("read_committed"), "`read_committed`",
         "no other value is allowed"),
        ("pollTimeoutMs", Use.READ, values.count, "30000", "longest wait of one request for rows"),
        ("maxWaitMs", Use.READ, values.count, "300000",
         "a task that receives no row for this time fails"),
        ("fetchOffset.numRetries", Use.READ, _zero, "3", "how often offsets are requested again"),
        ("fetchOffset.retryIntervalMs", Use.READ, _zero, "100", "pause before such a request"),
        ("watermarkCacheMs", Use.STREAM_READ, _zero, "200",
         "the ends of queues are requested again after this time"),
        ("writerId", Use.WRITE, _writer, "stream: the query's id; batch: none",
         "name of the writer of transactions; with it, a batch write is stored once"),
        ("delivery", Use.WRITE, _choice("exactly_once", "at_least_once"),
         "stream, and batch with `writerId`: `exactly_once`",
         "`at_least_once`: after a failure, rows can be stored twice"),
        ("ackMode", Use.WRITE, _choice("all"), "`all`",
         "no other value is allowed: every row is durable (not on topics with durability `fast`)"),
        ("compression", Use.WRITE, _choice("zstd", "lz4", "none"), "`zstd`",
         "compression of bodies"),
        ("maxInFlight", Use.WRITE, values.count, "8",
         "number of batches that are sent before the first one is answered"),
        ("ignoreUnknownColumns", Use.WRITE, values.flag, "false",
         "ignore columns that are not part of a message"),
    )
)  # fmt: skip

_BY_NAME: Final = {option.name.lower(): option for option in TABLE}
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options that Spark passes along with ours."""


@dataclass(slots=True)
class Given:
    """Given options, parsed and checked one by one, by the names of the table."""

    use: Use
    parsed: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any) -> Any:  # noqa: ANN401 - of many types
        """Return the value given, or the default."""
        return self.parsed.get(name, default)


def parse(options: Mapping[str, str], use: Use, table: Mapping[str, Option] | None = None) -> Given:
    """Parse options; the result has the names of the table.

    Args:
        options: Names, in any case, and texts.
        use: The operation.
        table: Options by lower-case name; None: those of topics.

    Raises:
        OptionError: One is unknown, misplaced or not valid; names the first.
    """
    table = _BY_NAME if table is None else table
    given = Given(use)
    for key, text in options.items():
        low = key.lower()
        if low in _SPARKS_OWN:
            continue
        if low == "path" and low not in table:
            what = "subscribe" if use & Use.READ else "topic"
            raise OptionError(f"option path={text!r}: topics have no path; say {what}={text!r}")
        low = SERVERS if low == f"ternmq.{SERVERS}" else low
        option = table.get(low)
        if option is None:
            raise OptionError(f"option {key}: there is no such option{_close(low, table)}")
        if not option.use & use:
            raise OptionError(
                f"option {option.name}: it has no meaning for {_TOLD[use]}, only for "
                f"{_meant(option)}"
            )
        if option.name in given.parsed:
            raise OptionError(f"option {option.name}: it is given twice")
        given.parsed[option.name] = option.parse(option.name, str(text))
    return given


def _close(name: str, table: Mapping[str, Option]) -> str:
    near = difflib.get_close_matches(name, table, 1, 0.7)
    return f"; did you mean {table[near[0]].name}?" if near else ""


def _meant(option: Option) -> str:
    return _TOLD.get(option.use) or " and ".join(
        told
        for use, told in _TOLD.items()
        if use in option.use and use not in (Use.READ, Use.WRITE)
    )
