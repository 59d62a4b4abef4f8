"""The options of ``format("ternmq")`` as typed values, checked against each other.

``table`` lists the options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from ternmq.model.errors import OptionError
from ternmq.spark.broker import connecting
from ternmq.spark.broker.connecting import SERVERS, Broker
from ternmq.spark.broker.offsets import LATEST, Numbers, Offsets, Progress, TopicQueue
from ternmq.spark.schema import FIELDS, RANGES, kinds
from ternmq.spark.topics.table import Given, Start, Use, parse

_STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


@dataclass(slots=True, frozen=True)
class Topics:
    """Topics to read: names, a pattern of names, or single queues."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    places: tuple[TopicQueue, ...] = ()

    def __str__(self) -> str:
        if self.pattern:
            return f"topics like {self.pattern!r}"
        return "topics " + ", ".join(self.names or sorted({one.topic for one in self.places}))


@dataclass(slots=True, frozen=True)
class Bound:
    """The start or end of a read; exactly one of the values is set.

    Attributes:
        option: The option that gave it.
        where: A word.
        offsets: An offset for each queue.
        numbers: With ``offsets``: the numbers of topics, if they are the offsets of a query.
        times_us: A time for each queue.
        time_us: A time for all queues.
    """

    option: str
    where: Start | None = None
    offsets: Offsets | None = None
    times_us: Mapping[TopicQueue, int] | None = None
    time_us: int | None = None
    numbers: Numbers = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class ReadOptions:
    """Options of a reader."""

    broker: Broker
    topics: Topics
    start: Bound
    end: Bound
    strategy: str = "error"
    fail_on_data_loss: bool = True
    max_offsets: int = 1_000_000
    max_bytes: int = 256 << 20
    min_offsets: int = 0
    max_trigger_delay_ms: int = 900_000
    min_partitions: int = 0
    max_records: int = 2_000_000
    columns: tuple[str, ...] = ()
    key_type: str = "binary"
    value_type: str = "binary"
    headers_type: str = "array"
    emit: str = "messages"
    batch_rows: int = 10_000
    batch_bytes: int = 4 << 20
    pushdown: bool = False
    group: str = ""
    group_prefix: str = "spark-ternmq"
    report: bool = False
    poll_timeout_ms: int = 30_000
    max_wait_ms: int = 300_000
    retries: int = 3
    retry_interval_ms: int = 100
    watermark_cache_ms: int = 200

    @property
    def offered(self) -> dict[str, str]:
        """The columns that these options offer, with their types as Spark writes them."""
        return _offered(self.columns, self.key_type, self.value_type, self.headers_type)


@dataclass(slots=True, frozen=True)
class WriteOptions:
    """Options of a writer."""

    broker: Broker
    topic: str = ""
    writer: str = ""
    exactly_once: bool = True
    compression: str = "zstd"
    in_flight: int = 8
    ignore_unknown: bool = False


def read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """Parse the options of a batch or streaming read.

    Raises:
        OptionError: An option is not valid; names it.
    """
    given = parse(options, use)
    stream = use is Use.STREAM_READ
    emit = given.get("emit", "messages")
    found = ReadOptions(
        broker=broker_of(given),
        topics=_topics(given),
        start=_bound(given, _STARTS, Start.LATEST if stream else Start.EARLIEST),
        end=_bound(given, _ENDS, Start.LATEST),
        strategy=given.get("startingOffsetsByTimestampStrategy", "error"),
        fail_on_data_loss=given.get("failOnDataLoss", True),
        max_offsets=given.get("maxOffsetsPerTrigger", 1_000_000),
        max_bytes=given.get("maxBytesPerTrigger", 256 << 20),
        min_offsets=given.get("minOffsetsPerTrigger", 0),
        max_trigger_delay_ms=given.get("maxTriggerDelay", 900_000),
        min_partitions=given.get("minPartitions", 0),
        max_records=given.get("maxRecordsPerPartition", 2_000_000),
        columns=_columns(given, emit),
        key_type=given.get("keyType", "binary"),
        value_type=given.get("valueType", "binary"),
        headers_type=given.get("headersType", "array"),
        emit=emit,
        batch_rows=given.get("batchRows", 10_000),
        batch_bytes=given.get("batchBytes", 4 << 20),
        pushdown=given.get("pushdownFilters", False),
        group=given.get("group.id", ""),
        group_prefix=given.get("groupIdPrefix", "spark-ternmq"),
        report=given.get("reportProgress", stream),
        poll_timeout_ms=given.get("pollTimeoutMs", 30_000),
        max_wait_ms=given.get("maxWaitMs", 300_000),
        retries=given.get("fetchOffset.numRetries", 3),
        retry_interval_ms=given.get("fetchOffset.retryIntervalMs", 100),
        watermark_cache_ms=given.get("watermarkCacheMs", 200),
    )
    _fits(given, found, stream=stream)
    return found


def read_columns(options: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that options offer, for a batch or a stream: which is not known yet.

    Raises:
        OptionError: An option is not valid; names it.
    """
    given = parse(options, Use.READ)
    return _offered(
        _columns(given, given.get("emit", "messages")),
        given.get("keyType", "binary"),
        given.get("valueType", "binary"),
        given.get("headersType", "array"),
    )


def _offered(
    columns: tuple[str, ...], key_type: str, value_type: str, headers_type: str
) -> dict[str, str]:
    return kinds(columns, key_type, value_type, headers_type) if columns else dict(RANGES)


def _fits(given: Given, found: ReadOptions, *, stream: bool) -> None:
    """Check options against each other."""
    start = found.start
    if start.where is Start.GROUP and not found.group:
        raise OptionError("option startingOffsets=group: option group.id must name the group")
    if not stream and start.where is Start.LATEST:
        raise OptionError("option startingOffsets='latest': a batch read would read nothing")
    if not stream and start.offsets is not None and LATEST in start.offsets.values():
        raise OptionError("option startingOffsets: -1, the latest, is not for a batch read")
    if "startingOffsetsByTimestampStrategy" in given.parsed and not (
        start.times_us is not None or start.time_us is not None
    ):
        raise OptionError(
            "option startingOffsetsByTimestampStrategy: it has no effect without startingTimestamp "
            "or startingOffsetsByTimestamp"
        )
    if "maxTriggerDelay" in given.parsed and not found.min_offsets:
        raise OptionError("option maxTriggerDelay: it has no effect without minOffsetsPerTrigger")
    if found.min_offsets > found.max_offsets:
        raise OptionError(
            f"option minOffsetsPerTrigger={found.min_offsets}: it is above maxOffsetsPerTrigger, "
            f"{found.max_offsets}"
        )
    for bound in (start, found.end):
        _same_topics(found.topics, bound)


def _same_topics(topics: Topics, bound: Bound) -> None:
    """Check that a bound names the topics read, as far as that is known without a broker."""
    named = bound.offsets if bound.offsets is not None else bound.times_us
    if named is None or topics.pattern:
        return
    known = {place.topic for place in topics.places} | set(topics.names)
    for place in named:
        if place.topic not in known or (topics.places and place not in topics.places):
            raise OptionError(f"option {bound.option}: {place} is not among what is read")
    missing = known - {place.topic for place in named}
    if missing:
        raise OptionError(f"option {bound.option}: it does not name topic {min(missing)!r}")
    lacking = set(topics.places) - set(named)
    if lacking:
        raise OptionError(f"option {bound.option}: it does not name {min(lacking)}")


def _topics(given: Given) -> Topics:
    names = ("subscribe", "subscribePattern", "assign")
    there = [name for name in names if name in given.parsed]
    if len(there) != 1:
        raise OptionError(
            f"option {there[1]}: only one of {', '.join(names)} may be given"
            if there
            else f"option subscribe: one of {', '.join(names)} must say what to read"
        )
    return Topics(
        names=given.get("subscribe", ()),
        pattern=given.get("subscribePattern", ""),
        places=given.get("assign", ()),
    )


def _bound(given: Given, names: tuple[str, str, str], default: Start) -> Bound:
    """Return the start or end of a read; the first option in ``names`` wins."""
    by_time, by_times, by_offsets = names
    if by_time in given.parsed:
        return Bound(by_time, time_us=given.parsed[by_time])
    if by_times in given.parsed:
        return Bound(by_times, times_us=given.parsed[by_times])
    where = given.get(by_offsets, default)
    if isinstance(where, Start):
        return Bound(by_offsets, where=where)
    told = cast("Progress", where)
    return Bound(by_offsets, offsets=told.offsets, numbers=told.numbers)


def _columns(given: Given, emit: str) -> tuple[str, ...]:
    chosen: tuple[str, ...] = given.get("columns", ())
    added: list[str] = ["headers"] if given.get("includeHeaders", False) else []
    added += given.get("metadataFields", ())
    if emit == "ranges":
        for name in (
            "columns",
            "includeHeaders",
            "metadataFields",
            "keyType",
            "valueType",
            "headersType",
        ):
            if name in given.parsed:
                raise OptionError(f"option {name}: it has no effect with emit=ranges")
        return ()
    if not chosen:
        base = [one for one in FIELDS[:6] if emit == "messages" or one != "value"]
        return (*base, *added)
    if emit == "index" and {"value", "body"} & set(chosen):
        raise OptionError("option columns: emit=index has no column value")
    return (*chosen, *(one for one in added if one not in chosen))


def broker_of(given: Given) -> Broker:
    """Return the broker and the app.

    Raises:
        OptionError: An option is missing or not valid; names it.
    """
    if SERVERS not in given.parsed:
        raise OptionError(f"option {SERVERS}: the address of the broker is required: host:port")
    if "ternmq.token" in given.parsed and "ternmq.tokenFile" in given.parsed:
        raise OptionError("option ternmq.tokenFile: ternmq.token is given as well")
    ca = given.get("ternmq.ca", "")
    return Broker(
        addresses=connecting.addresses(
            SERVERS, given.parsed[SERVERS], tls=given.get("ternmq.tls", bool(ca)), ca=ca
        ),
        app=given.get("ternmq.app", ""),
        token=given.get("ternmq.token", ""),
        token_file=given.get("ternmq.tokenFile", ""),
        timeout_ms=given.get("ternmq.timeoutMs", 30_000),
    )


def write_options(options: Mapping[str, str], use: Use) -> WriteOptions:
    """Parse the options of a batch or streaming write.

    Raises:
        OptionError: An option is not valid; names it.
    """
    given = parse(options, use)
    writer = given.get("writerId", "")
    once = "exactly_once" if use is Use.STREAM_WRITE or writer else "at_least_once"
    exactly_once = given.get("delivery", once) == "exactly_once"
    if exactly_once and use is Use.BATCH_WRITE and not writer:
        raise OptionError(
            "option delivery=exactly_once: a batch write needs writerId, which identifies a "
            "second run of the same write"
        )
    if writer and not exactly_once:
        raise OptionError("option writerId: it has no effect with delivery=at_least_once")
    return WriteOptions(
        broker=broker_of(given),
        topic=given.get("topic", ""),
        writer=writer,
        exactly_once=exactly_once,
        compression=given.get("compression", "zstd"),
        in_flight=given.get("maxInFlight", 8),
        ignore_unknown=given.get("ignoreUnknownColumns", False),
    )
