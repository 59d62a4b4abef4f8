"""A range of offsets, read to its end or not at all."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ternmq.model.errors import (
    DataLoss,
    OffsetExpired,
    ReadIncomplete,
    UnknownQueue,
    UnknownTopic,
)
from ternmq.spark.decode import Decoder
from ternmq.spark.offsets import Span
from ternmq.spark.options import ReadOptions
from ternmq.spark.port import Port

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger("ternmq.spark")

_PIECE_BYTES: Final = 8 << 20


def read_span(
    port: Port,
    options: ReadOptions,
    span: Span,
    columns: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range as Arrow batches.

    Exactly these rows come, whatever the queue holds besides; the end that was planned is not
    lowered.

    Args:
        port: The broker.
        options: What the reader was told.
        span: The range.
        columns: The columns wanted.
        clock: Seconds.

    Raises:
        DataLoss: Rows of it are not kept any more, or the topic is another one.
        ReadIncomplete: No row came for ``maxWaitMs``.
    """
    decoder = Decoder(span.topic, span.queue, columns, options.batch_rows, options.batch_bytes)
    offset = span.start
    quiet_until = clock() + options.max_wait_ms / 1000
    while offset < span.stop:
        left_ms = int((quiet_until - clock()) * 1000)
        if left_ms <= 0:
            raise ReadIncomplete(
                f"{span}: nothing came from offset {offset} on for {options.max_wait_ms} ms"
            )
        wait_ms = min(options.poll_timeout_ms, left_ms)
        try:
            found = port.fetch(span.topic, span.queue, offset, span.stop, _PIECE_BYTES, wait_ms)
        except OffsetExpired:
            offset = _oldest(port, options, span, offset)
            continue
        except (UnknownTopic, UnknownQueue) as error:
            _lost(options, span, offset, span.stop, f"it is gone: {error.args[0]}")
            break
        if found.stop > found.start:
            yield from decoder.feed(found.records, offset, span.stop)
            offset = found.stop
            quiet_until = clock() + options.max_wait_ms / 1000
        elif found.next < offset:
            why = f"the queue ends at {found.next}: it is another one of the same name"
            _lost(options, span, offset, span.stop, why)
            break
    yield from decoder.flush()


def _oldest(port: Port, options: ReadOptions, span: Span, offset: int) -> int:
    """Return where to go on when an offset is not kept any more; never behind the range."""
    first = max(
        (one.first for one in port.ranges([span.topic]) if one.place == span.place),
        default=span.stop,
    )
    there = min(max(first, offset), span.stop)
    if there > offset:
        _lost(options, span, offset, there, f"the queue keeps nothing below {first}")
    return there


def _lost(options: ReadOptions, span: Span, start: int, stop: int, why: str) -> None:
    what = f"{stop - start} messages from offset {start} on, of {span}, cannot be read: {why}"
    if options.fail_on_data_loss:
        raise DataLoss(what)
    log.warning("%s", what)
