"""The rows of a table as parts of messages, checked against the limits of messages.

Every way that sends columns uses this module: Spark's writer, a replay of the archive. The limits
are those of ``client.prepare`` (``client.content.validation``), with the same errors; whole columns
are checked at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ternmq.client.content.validation import (
    MAX_HEADER_BYTES,
    MAX_ID_BYTES,
    MAX_TEXT_BYTES,
    check_body,
    check_properties,
    check_size,
)
from ternmq.model.errors import InvalidRequest, RowError
from ternmq.model.specs import check_tag

if TYPE_CHECKING:
    import pyarrow as pa

TEXTS: Final[tuple[str, ...]] = ("key", "order_key", "tags", "content_type", "application_id")
_MOST: Final = {"application_id": MAX_ID_BYTES}
_FIRST: Final = 60
"""Characters of a header's name shown in an error."""


@dataclass(frozen=True, slots=True)
class Words:
    """Names of columns and hints for errors, as the user of the source knows them.

    Attributes:
        names: Other names of columns; the default is ``column`` and the name.
        no_order_key: What to do if an order key is not allowed.
        order_key: What to do if one is missing.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    no_order_key: str = "drop the column"
    order_key: str = ""

    def of(self, column: str) -> str:
        """Return the name of a column for errors."""
        return self.names.get(column) or f"column {column}"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table.

    Attributes:
        bodies: The body of each row.
        texts: Columns of texts, "" for none.
        headers: The headers of each row; None: the table has no such column.
        due_us: When each row is due, in µs since 1970, 0: at once; None: there is no such column.
        priorities: The priority of each row; None: there is no such column.
        expiry_us: When each row expires, in µs since 1970, 0: never; None: there is no such column.
    """

    bodies: list[bytes]
    texts: dict[str, list[str]]
    headers: list[Mapping[str, str]] | None
    due_us: list[int] | None = None
    priorities: list[int] | None = None
    expiry_us: list[int] | None = None

    def some(self, chosen: Sequence[int]) -> Rows:
        """Return some of the rows."""
        return Rows(
            [self.bodies[row] for row in chosen],
            {name: [values[row] for row in chosen] for name, values in self.texts.items()},
            None if self.headers is None else [self.headers[row] for row in chosen],
            None if self.due_us is None else [self.due_us[row] for row in chosen],
            None if self.priorities is None else [self.priorities[row] for row in chosen],
            None if self.expiry_us is None else [self.expiry_us[row] for row in chosen],
        )


def taken(
    table: pa.RecordBatch, columns: frozenset[str], words: Words, most_body: int | None
) -> Rows:
    """Return the rows of a table, if all of them can be messages.

    Args:
        table: The rows.
        columns: The columns to write.
        words: Their names for errors.
        most_body: Size of the largest body that the broker accepts; None: not known.

    Raises:
        RowError: A row cannot be a message.
        MessageTooLarge, InvalidRequest: A row exceeds a limit of messages.
    """
    body = _body(table, words)
    sizes = _sizes(body)
    if most_body is not None and len(sizes):
        check_body(int(sizes.max()), most_body)
    properties = np.zeros(table.num_rows, np.int64)
    texts: dict[str, list[str]] = {}
    for name in TEXTS:
        if name in columns:
            column = _text_column(table, name, words)
            sizes = _sizes(column)
            _within(words.of(name), sizes, _MOST.get(name, MAX_TEXT_BYTES))
            properties += sizes
            if name == "tags":
                _check_tags(column, words)
            found: list[str] = column.to_pylist()
            texts[name] = found
    headers = None
    if "headers" in columns:
        headers = _headers(table, words)
        properties += _header_sizes(table, words)
    if table.num_rows:
        check_properties(int(properties.max()))
    due_us = _times(table, "delay_until", 0) if "delay_until" in columns else None
    priorities = _priorities(table) if "priority" in columns else None
    # What expired before 1970 has expired, too; 0 would be never.
    expiry_us = _times(table, "expires_at", 1) if "expires_at" in columns else None
    return Rows(body.to_pylist(), texts, headers, due_us, priorities, expiry_us)


def _body(table: pa.RecordBatch, words: Words) -> pa.Array:
    import pyarrow as pa

    column = table.column("value")
    if column.null_count:
        raise RowError(
            f"{words.of('value')}: a row has null; a message has a body, which may be empty"
        )
    return column.cast(pa.binary())


def _text_column(table: pa.RecordBatch, name: str, words: Words) -> pa.Array:
    """Return a column of texts, "" for null."""
    import pyarrow as pa

    try:
        column = table.column(name).cast(pa.string())
    except pa.ArrowInvalid:
        raise RowError(f"{words.of(name)}: a row is not UTF-8; a {name} is a text") from None
    return column.fill_null("")


def _times(table: pa.RecordBatch, name: str, least: int) -> list[int]:
    """Return the times of a column in µs since 1970, 0 for null, ``least`` for all before it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = table.column(name).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    found: list[int] = pc.fill_null(
        pc.max_element_wise(times, least, skip_nulls=False), 0
    ).to_pylist()
    return found


def _priorities(table: pa.RecordBatch) -> list[int]:
    """Return the priority of rows, 0 for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: list[int] = pc.fill_null(table.column("priority").cast(pa.int64()), 0).to_pylist()
    return found


def _sizes(column: pa.Array) -> np.ndarray:
    """Return the size of each value of a column in bytes, 0 for null."""
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.binary_length(column), 0)
    return cast("np.ndarray", sizes.to_numpy(zero_copy_only=False).astype(np.int64))


def _within(name: str, sizes: np.ndarray, most: int) -> None:
    if len(sizes):
        check_size(name, int(sizes.max()), most)


def _check_tags(column: pa.Array, words: Words) -> None:
    """Refuse tags that no filter could name; each distinct one is checked once."""
    for tag in column.unique().to_pylist():
        try:
            check_tag(tag)
        except InvalidRequest as error:
            raise InvalidRequest(f"{words.of('tags')}: {error}") from None


def _header_sizes(table: pa.RecordBatch, words: Words) -> np.ndarray:
    """Return the size of each row's headers in bytes, after checking each header's limit."""
    column = table.column("headers")
    offsets = column.offsets.to_numpy()
    pairs = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    names, values = pairs.field(0), pairs.field(1)
    of_names, of_values = _sizes(names), _sizes(values)
    _within(f"{words.of('headers')}: a header's name", of_names, MAX_TEXT_BYTES)
    if len(of_values):
        largest = int(of_values.argmax())
        shown = str(_text(names[largest].as_py()))[:_FIRST]
        check_size(
            f"{words.of('headers')}: header {shown!r}", int(of_values[largest]), MAX_HEADER_BYTES
        )
    ends = np.concatenate(([0], np.cumsum(of_names + of_values)))
    at = offsets - offsets[0]
    return cast("np.ndarray", ends[at[1:]] - ends[at[:-1]])


def _headers(table: pa.RecordBatch, words: Words) -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = []
    for row in table.column("headers").to_pylist():
        pairs: list[tuple[Any, Any]] = []
        for one in row or ():
            pairs.append((one["key"], one["value"]) if isinstance(one, dict) else one)
        try:
            headers = {_text(key): _text(value) for key, value in pairs}
        except (UnicodeDecodeError, TypeError):
            raise RowError(
                f"{words.of('headers')}: names and values are texts in UTF-8, none of them null"
            ) from None
        if len(headers) < len(pairs):
            raise RowError(
                f"{words.of('headers')}: header {_twice(pairs)!r} is named twice; a message has "
                "one value for each name"
            )
        found.append(headers)
    return found


def _twice(pairs: list[tuple[Any, Any]]) -> str:
    """Return the first name that comes again, as much of it as an error shows."""
    names = [_text(key) for key, _ in pairs]
    return next(name for name in names if names.count(name) > 1)[:_FIRST]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(value)
    return value
