"""The tables of columns in the reference page, made of the pipeline's descriptions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa

from ternmq.pipeline.running.jobs import all_tables
from ternmq.pipeline.tables.spec import TableSpec

_PLAIN: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.date32(): "date",
}


def kind_of(kind: pa.DataType) -> str:
    """Return a type as Spark writes it."""
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_map(kind):
        return f"map<{kind_of(kind.key_type)},{kind_of(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{kind_of(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{one.name} {kind_of(one.type)}' for one in kind)}>"
    return _PLAIN[kind]


def table_of(spec: TableSpec) -> str:
    """Return the table of columns of a table."""
    lines = ["| column | type | null | what |", "|---|---|---|---|"]
    lines += [
        f"| `{one.name}` | {kind_of(one.type)} | {'yes' if one.null else ''} | {one.about} |"
        for one in spec.columns
    ]
    return "\n".join(lines)


def parts() -> dict[str, Callable[[], str]]:
    """Return what makes the part of each table, by the name of the part."""
    return {f"table_{spec.name}": partial(table_of, spec) for spec in all_tables()}
