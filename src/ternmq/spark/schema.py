"""The columns that can be read and written, as Arrow and Spark write them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ternmq.model.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_MAP: Final = "map<string,string>"
_KINDS: dict[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": _HEADERS,
    "message_id": "string",
    "born_timestamp": "timestamp",
    "tags": "string",
    "producer": "string",
    "delay_until": "timestamp",
    "attempt": "int",
    "txn_id": "string",
    "crc": "bigint",
    "order_key": "string",
    "content_type": "string",
    "application_id": "string",
    "priority": "int",
    "expires_at": "timestamp",
}
ALIASES: Final = {
    "body": "value",
    "queue": "partition",
    "stored_time": "timestamp",
    "born_time": "born_timestamp",
    "tag": "tags",
    "ordering_key": "order_key",
}
"""The names that the pipeline's tables have for these columns, which can be used instead."""
_KINDS |= {alias: _KINDS[name] for alias, name in ALIASES.items()}
FIELDS: Final = tuple(_KINDS)
"""All columns that can be read; the first six are the default."""
METADATA: Final = FIELDS[7:]
"""Columns of the option ``metadataFields``."""
_BYTES: Final = ("binary", "string")
_EITHER: Final = {"key": _BYTES, "value": _BYTES, "body": _BYTES, "headers": (_HEADERS, _MAP)}
"""Columns that can have one of several types."""
RANGES: Final = {"topic": "string", "partition": "int", "start": "bigint", "end": "bigint"}
"""The columns of ``emit=ranges``."""


def kinds(
    columns: Sequence[str],
    key_type: str = "binary",
    value_type: str = "binary",
    headers_type: str = "array",
) -> dict[str, str]:
    """Return the type of each column, as Spark writes it."""
    own = {"key": key_type, "value": value_type, "body": value_type}
    own["headers"] = _MAP if headers_type == "map" else _HEADERS
    return {name: own.get(name, _KINDS[name]) for name in columns}


def ddl(columns: Mapping[str, str]) -> str:
    """Return columns in the form of Spark's schemas."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


@functools.cache
def _arrow_kinds() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "binary": pa.binary(),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        _MAP: pa.map_(pa.string(), pa.string()),
        _HEADERS: pa.list_(
            pa.field(
                "element",
                pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]),
            )
        ),
    }


def arrow(columns: Mapping[str, str]) -> pa.Schema:
    """Return columns as an Arrow schema, exactly as Spark expects it."""
    import pyarrow as pa

    types = _arrow_kinds()
    return pa.schema([pa.field(name, types[kind]) for name, kind in columns.items()])


def projected(
    chosen: Mapping[str, str], offered: Mapping[str, str], *, others: bool = True
) -> dict[str, str]:
    """Check and return the columns of a schema that the user gave.

    Args:
        chosen: Names and types as Spark writes them (``simpleString``).
        offered: Columns that the options offer; ``key`` and ``value`` are allowed as binary and as
            string, ``headers`` as an array and as a map.
        others: Also allow other columns of messages, which no option requested.

    Raises:
        OptionError: A column does not exist, or has another type.
    """
    found: dict[str, str] = {}
    for name, kind in chosen.items():
        wanted = offered.get(name) or (_KINDS.get(name) if others else None)
        if wanted is None:
            raise OptionError(
                f"schema: there is no column {name!r}; there are {', '.join(offered)}"
            )
        either = kind in _EITHER.get(name, ())
        if kind != wanted and not either:
            raise OptionError(f"schema: column {name!r} is of type {wanted}, not {kind}")
        found[name] = kind
    return found
