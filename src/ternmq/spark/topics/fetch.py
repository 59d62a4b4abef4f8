"""Reads a range of offsets to its end, or fails."""

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
from ternmq.spark.broker.offsets import OffsetRange, another
from ternmq.spark.broker.port import Fetched, Port, QueueState
from ternmq.spark.topics.decode import Decoder
from ternmq.spark.topics.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger("ternmq.spark")


def read_span(
    port: Port,
    options: ReadOptions,
    span: OffsetRange,
    columns: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range as Arrow batches.

    The result is exactly these rows, whatever else the queue holds; the planned end is never
    lowered.

    Args:
        port: The broker.
        options: Options of the reader.
        span: The range.
        columns: The columns to return.
        clock: Returns seconds.

    Raises:
        DataLoss: Rows of the range are gone, or the topic is another one of the same name.
        ReadIncomplete: No row arrived for ``maxWaitMs``.
    """
    decoder = Decoder(span.topic, columns, options.batch_rows, options.batch_bytes)
    offset = span.start
    while offset < span.stop:
        try:
            for found in _pieces(port, options, span, offset, clock):
                # Records are whole: they may hold rows of the next piece, which brings them again.
                yield from decoder.feed(found.records, offset, found.stop)
                offset = found.stop
        except OffsetExpired:
            state = _state(port, span)
            if state is None:
                _lost(options, span, offset, "it is gone")
                break
            if span.number not in (0, state.number):
                _lost(options, span, offset, another(span.topic, span.number, state.number))
                break
            offset = _oldest(options, span, offset, state.first)
        except (UnknownTopic, UnknownQueue) as error:
            _lost(options, span, offset, f"it is gone: {error.args[0]}")
            break
        except _AnotherQueueError as error:
            _lost(options, span, offset, str(error))
            break
    yield from decoder.flush()


class _AnotherQueueError(Exception):
    """The queue ends before the range to read."""


def _pieces(
    port: Port, options: ReadOptions, span: OffsetRange, offset: int, clock: Callable[[], float]
) -> Iterator[Fetched]:
    """Yield pieces with rows, to the end of the range.

    Raises:
        ReadIncomplete: None arrived for ``maxWaitMs``.
    """
    patience = options.max_wait_ms / 1000
    until = clock() + patience
    wait_ms = min(options.poll_timeout_ms, options.max_wait_ms)
    for found in port.fetch(span, offset, wait_ms):
        if found.stop > found.start:
            yield found
            offset = found.stop
            until = clock() + patience
        elif found.next < offset:
            raise _AnotherQueueError(
                f"the queue ends at {found.next}: it is another one of the same name"
            )
        elif clock() >= until:
            raise ReadIncomplete(
                f"{span}: no message from offset {offset} on was received for "
                f"{options.max_wait_ms} ms"
            )


def _state(port: Port, span: OffsetRange) -> QueueState | None:
    """Return the state of the range's queue; None: it does not exist."""
    return next((one for one in port.ranges([span.topic]) if one.place == span.place), None)


def _oldest(options: ReadOptions, span: OffsetRange, offset: int, first: int) -> int:
    """Return where to continue after an expired offset; at most the end of the range."""
    there = min(max(first, offset), span.stop)
    if there > offset:
        _lost(options, span, offset, f"the queue keeps nothing below {first}", there)
    return there


def _lost(
    options: ReadOptions, span: OffsetRange, start: int, why: str, stop: int | None = None
) -> None:
    """Fail or log that rows ``[start, stop)`` are missing; by default to the end of the range."""
    missing = (span.stop if stop is None else stop) - start
    what = f"{missing} messages from offset {start} on, of {span}, cannot be read: {why}"
    if options.fail_on_data_loss:
        raise DataLoss(what)
    log.warning("%s", what)
