"""The columns that can be written, their types, and checks of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ternmq.model.errors import OptionError
from ternmq.spark.schema import ALIASES
from ternmq.spark.topics.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT: Final = ("string", "binary")
_HEADERS: Final = (
    "array<struct<key:string,value:binary>>",
    "array<struct<key:string,value:string>>",
    "map<string,string>",
    "map<string,binary>",
)
WRITTEN: Final[dict[str, tuple[str, ...]]] = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "headers": _HEADERS,
    "tags": ("string",),
    "delay_until": ("timestamp",),
    "priority": ("int", "bigint", "smallint", "tinyint"),
    "expires_at": ("timestamp",),
    "order_key": _TEXT,
    "content_type": ("string",),
    "application_id": ("string",),
}
"""Columns and the types allowed for each."""
_NAMES: Final = {
    **{name: name for name in WRITTEN},
    **{alias: name for alias, name in ALIASES.items() if name in WRITTEN and name != "timestamp"},
}
"""The names that a column may have in a table, and its name here."""


def written(columns: Mapping[str, str], options: WriteOptions) -> tuple[str, ...]:
    """Return the columns to write, by their names in ``WRITTEN``.

    Args:
        columns: Columns of the table, with their types as Spark writes them.
        options: Options of the writer.

    Raises:
        OptionError: A column is missing, unknown, of a wrong type, or not supported yet.
    """
    if not {"value", "body"} & columns.keys():
        raise OptionError("column value: it is missing; it is the body of a message")
    unknown = [name for name in columns if name not in _NAMES]
    if unknown and not options.ignore_unknown:
        raise OptionError(
            f"column {unknown[0]}: it is no part of a message; select what is to be written, or "
            f"say ignoreUnknownColumns=true. There are: {', '.join(WRITTEN)}"
        )
    found: list[str] = []
    for given, kind in columns.items():
        name = _NAMES.get(given)
        if name is None:
            continue
        if name in found:
            raise OptionError(f"column {given}: it is the same as {name}; drop one of them")
        if kind not in WRITTEN[name]:
            raise OptionError(
                f"column {given}: its type is {kind}; {' or '.join(WRITTEN[name])} is required: "
                f"cast it"
            )
        found.append(name)
    if "application_id" in found and options.exactly_once:
        raise OptionError(
            "column application_id: rows of a transaction have no ids of their own, because the "
            "name of the transaction prevents duplicates; drop the column, or set "
            "delivery=at_least_once"
        )
    if not options.topic and "topic" not in found:
        raise OptionError("option topic: it is missing, and there is no column topic")
    return tuple(found)


def named(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of a table with the names of ``WRITTEN``."""
    names = batch.schema.names
    wanted = [_NAMES.get(name, name) for name in names]
    return batch if wanted == names else batch.rename_columns(wanted)
