"""Checks the SQL that a user gives a replay: each text is one expression of a suitable type.

A text is put into a query between brackets. It must also be an expression on its own: then it
cannot close the brackets, and the conditions beside it always apply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import duckdb

from ternmq.model.errors import OptionError

SETTABLE: Final = ("body", "key", "ordering_key", "tag", "headers", "content_type")
_NESTED: Final = frozenset({"struct", "list", "array", "map"})
_OFFSET: Final = re.compile(r'(?<!")\boffset\b(?!")', re.IGNORECASE)


def condition(
    database: duckdb.DuckDBPyConnection, text: str, rows: str, given: Mapping[str, object]
) -> str:
    """Return a condition, ready for a query.

    Args:
        database: A connection of DuckDB.
        text: The user's text.
        rows: Query of the rows to which it applies.
        given: Values of its parameters.

    Raises:
        OptionError: It is not a condition.
    """
    option = f"--where {text!r}"
    _type_of(database, option, text, rows, given, "::boolean")
    return f"({text}\n)"


def value(
    database: duckdb.DuckDBPyConnection,
    column: str,
    text: str,
    rows: str,
    given: Mapping[str, object],
) -> str:
    """Return the expression for a column's new value, cast to the column's type.

    Args:
        database: A connection of DuckDB.
        column: One of ``SETTABLE``.
        text: The user's text.
        rows: Query of the rows to which it applies.
        given: Values of its parameters.

    Raises:
        OptionError: It fails, or its type does not suit the column.
    """
    option = f"--set {column} {text!r}"
    kind = _type_of(database, option, text, rows, given, "")
    id_ = kind.id.lower()
    expression = f"({text}\n)"
    if column == "headers":
        if id_ == "null":
            return f"{expression}::map(varchar, varchar)"
        if id_ != "map" or "BLOB" in str(kind):
            raise OptionError(
                f"{option}: headers are a map of texts, such as map {{'name': 'value'}}; this "
                f"value is of type {kind}"
            )
        return f"{expression}::map(varchar, varchar)"
    if column != "body":
        if id_ in _NESTED or id_ == "union":
            raise OptionError(f"{option}: the {column} is a text; this value is of type {kind}")
        return f"decode{expression}" if id_ == "blob" else f"{expression}::varchar"
    if id_ == "null":
        raise OptionError(f"{option}: the body cannot be NULL; '' is an empty body")
    if id_ in _NESTED:
        return f"to_json({expression})::varchar"
    if id_ not in {"blob", "varchar"}:
        raise OptionError(
            f"{option}: a body is a text, bytes, or (as JSON) a struct, a list or a map; this "
            f"value is of type {kind}: write ({text})::varchar to use it as a text"
        )
    return expression


def _type_of(
    database: duckdb.DuckDBPyConnection,
    option: str,
    text: str,
    rows: str,
    given: Mapping[str, object],
    cast: str,
) -> Any:  # noqa: ANN401 - what comes from the library is not checked
    """Return the type of an expression; check that it is one."""
    try:
        statements = database.extract_statements(f"select {text}\n")
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise OptionError(f"{option}: one expression is required, not several statements")
        if statements[0].named_parameters:
            raise OptionError(f"{option}: it has a parameter ('?' or '$name'); write the value")
        alone = database.sql(f"select {text}\n from ({rows}) limit 0", params=given)  # noqa: S608
        if len(alone.columns) != 1:
            raise OptionError(f"{option}: one value is required, not {len(alone.columns)}")
        # A condition may contain neither aggregates nor functions that return several rows.
        inside = f"select 1 from ({rows}) where ({text}\n){cast} is null limit 0"  # noqa: S608
        database.sql(inside, params=given).fetchall()
        found = database.sql(f"select ({text}\n){cast} from ({rows}) limit 0", params=given)  # noqa: S608
        return found.types[0]
    except duckdb.Error as error:
        if isinstance(error, duckdb.IOException):  # of the archive's file, or of one in the text
            database.sql(f"select 1 from ({rows}) limit 0", params=given)  # noqa: S608
        said = " ".join(str(error).partition("LINE")[0].split())
        if isinstance(error, duckdb.BinderException) and "aggregate" in said:
            said = "one value for each message is required, and this is an aggregate of several"
        if isinstance(error, duckdb.ParserException) and _OFFSET.search(text):
            said += '; the column offset is written "offset", since SQL has a word of that name'
        raise OptionError(f"{option}: {said}") from None
