"""The parts of ``docs/protocol`` that are made of the code: tables of commands, structs, errors.

``python -m tests.unit.wire.control_tables`` writes them again, between their markers in the pages;
``test_docs.py`` fails when they are out of date.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import inspect as types

from ternmq.model import errors
from ternmq.wire.commands import ONE_WAY_COMMANDS, PUSHES, STREAM, TABLE, Command, Scope
from ternmq.wire.control import Checkpoint
from tests.unit.wire import example_frames

FOLDER: Final = Path(__file__).parents[3] / "docs" / "protocol"
_MARK: Final = re.compile(
    r"(<!-- begin (?P<name>\w+), made by tests/unit/wire/control_tables.py -->\n).*?"
    r"(<!-- end (?P=name) -->)",
    re.DOTALL,
)
_POWERS: Final = {2**32 - 1: "2^32 - 1", 2**63 - 1: "2^63 - 1", 2**64 - 1: "2^64 - 1"}

Struct = type[msgspec.Struct]


# ------------------------------------------------------------------------------ what stands where


def texts_of(kind: type) -> dict[str, str]:
    """Return the string below each field of a class, as one line."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    found: dict[str, str] = {}
    for before, after in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            text = " ".join(str(after.value.value).split())
            text = re.sub(r"\bNone\b", "nil", text).replace("``", "`").replace("|", "\\|")
            found[before.target.id] = text
    return found


def doc_of(kind: type) -> str:
    """Return a class's docstring with single backticks, paragraphs kept."""
    paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(one.split()) for one in paragraphs).replace("``", "`")


def structs_in(kind: types.Type) -> Iterator[Struct]:
    """Yield the structs that a type names."""
    if isinstance(kind, types.StructType):
        yield kind.cls
    elif isinstance(kind, types.UnionType):
        for one in kind.types:
            yield from structs_in(one)
    elif isinstance(kind, types.ListType | types.VarTupleType):
        yield from structs_in(kind.item_type)


def type_of(kind: types.Type) -> str:
    """Return how a field's type is written in the tables."""
    match kind:
        case types.StructType():
            return f"[{kind.cls.__name__}](#{kind.cls.__name__.lower()})"
        case types.UnionType():
            return " or ".join(type_of(one) for one in kind.types)
        case types.ListType() | types.VarTupleType():
            most = f", at most {kind.max_length:,}" if kind.max_length else ""
            return f"array of {type_of(kind.item_type)}{most}"
        case types.EnumType():
            return " or ".join(f'`"{one.value}"`' for one in kind.cls)
        case types.LiteralType():
            return " or ".join(f'`"{value}"`' for value in kind.values)
        case types.IntType():
            if kind.ge is None:
                return "int"
            return f"int, {kind.ge} to {_number(kind.le)}"
        case types.StrType():
            most = f", at most {kind.max_length:,}" if kind.max_length else ""
            return f"str{most}"
        case types.DictType():
            return f"map of {type_of(kind.key_type)} to {type_of(kind.value_type)}"
        case types.NoneType():
            return "nil"
        case types.BytesType():
            return "bin"
        case _:
            return type(kind).__name__.removesuffix("Type").lower()


def _number(value: object) -> str:
    if value is None:
        return _POWERS[2**64 - 1]
    assert isinstance(value, int)
    return _POWERS.get(value, f"{value:,}")


def default_of(field: types.Field) -> str:
    """Return how a field's default is written: empty for a field that must be there."""
    if field.default_factory is list:
        return "`[]`"
    value = field.default
    if value is msgspec.NODEFAULT and not field.required:
        return "`{}`" if field.default_factory is dict else "left out"
    if value is msgspec.NODEFAULT:
        return ""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, msgspec.Struct):
        return "all its defaults"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    if isinstance(value, int) and not isinstance(value, bool):
        return _POWERS.get(value, f"{value:,}")
    if isinstance(value, float):  # 0.0 == False
        return f"{value}"
    words = {None: "nil", False: "false", True: "true", "": '`""`'}
    return words.get(value, f'`"{value}"`' if isinstance(value, str) else str(value))


def table_of(kind: Struct) -> list[str]:
    """Return the table of a struct's fields; nothing for one without any."""
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    if not info.fields:
        return []
    texts = texts_of(kind)
    lines = ["| field | type | default | |", "|---|---|---|---|"]
    for field in info.fields:
        text = texts.get(field.encode_name, "")
        lines.append(
            f"| `{field.encode_name}` | {type_of(field.type)} | {default_of(field)} | {text} |"
        )
    return lines


def who_of(command: Command) -> str:
    """Return who may use a command."""
    policy = TABLE[command].policy
    if policy.scope is Scope.NOTHING:
        return "every app"
    rights = " or ".join(right.value for right in policy.rights)
    more = "; or manage on every topic and group" if policy.operators else ""
    return {
        Scope.TOPIC: f"{rights} on the topic",
        Scope.TOPICS: f"{rights} on each topic",
        Scope.GROUP: f"{rights} on the topic and group",
        Scope.ANY_TOPIC: f"{rights} on any topic",
        Scope.TRANSACTION: f"{rights} on every topic of the transaction; it belongs to its app",
        Scope.BROKER: f"{rights} on every topic and group",
    }[policy.scope] + more


# ------------------------------------------------------------------------------ the parts


def commands() -> Iterator[str]:
    """Yield the table of all commands."""
    yield "| number | command | body | answer | who | one-way |"
    yield "|---|---|---|---|---|---|"
    for command, entry in TABLE.items():
        page = "control.md" if entry.request else "messages.md"
        link = f"[{command.name}]({page}#{command.name.lower()})"
        request = entry.request.__name__ if entry.request else "by hand"
        answer = entry.answer.__name__ if entry.answer else "by hand"
        once = "yes" if command in ONE_WAY_COMMANDS else ""
        yield f"| {command.value} | {link} | {request} | {answer} | {who_of(command)} | {once} |"
    for command, push in PUSHES.items():
        link = f"[{command.name}](control.md#{command.name.lower()})"
        yield f"| {command.value} | {link} | {push.__name__} | a push | | |"
    for command in STREAM:
        link = f"[{command.name}](replication.md#{command.name.lower()})"
        yield f"| {command.value} | {link} | | | between brokers | |"


def control() -> Iterator[str]:
    """Yield every command that is msgpack, then every struct that their fields name."""
    inner: dict[Struct, None] = {}
    for command, entry in TABLE.items():
        if entry.request is None or entry.answer is None:
            continue
        yield f"### {command.name}"
        yield ""
        yield f"Number {command.value}. For: {who_of(command)}. {doc_of(entry.request)}"
        yield ""
        yield from _fields(entry.request)
        yield f"**Answer.** {doc_of(entry.answer)}"
        yield ""
        yield from _fields(entry.answer)
        _gather(entry.request, inner)
        _gather(entry.answer, inner)
    yield "## Pushes"
    yield ""
    for command, push in PUSHES.items():
        yield f"### {command.name}"
        yield ""
        yield f"Number {command.value}. {doc_of(push)}"
        yield ""
        yield from _fields(push)
    yield "## Structs"
    yield ""
    for kind in sorted(inner, key=lambda one: one.__name__):
        yield f"### {kind.__name__}"
        yield ""
        yield doc_of(kind)
        yield ""
        yield from _fields(kind)


def stream() -> Iterator[str]:
    """Yield every struct of the stream between brokers."""
    for command, entry in STREAM.items():
        for kind, what in ((entry.body, ""), (entry.answer, "**Answer.** ")):
            if kind is None:
                continue
            if not what:
                yield f"### {command.name}"
                yield ""
            yield what + doc_of(kind)
            yield ""
            yield from _fields(kind)
    yield "### Checkpoint"
    yield ""
    yield doc_of(Checkpoint)
    yield ""
    yield from _fields(Checkpoint)


def _fields(kind: Struct) -> Iterator[str]:
    lines = table_of(kind)
    if lines:
        yield from lines
        yield ""


def _gather(kind: Struct, into: dict[Struct, None]) -> None:
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    for field in info.fields:
        for one in structs_in(field.type):
            if one not in into:
                into[one] = None
                _gather(one, into)


def error_codes() -> Iterator[str]:
    """Yield the table of errors that travel."""
    yield "| code | name | what | retriable | routes | HTTP | what to do |"
    yield "|---|---|---|---|---|---|---|"
    for code, kind in errors.table().items():
        if not 100 <= code < 400:
            continue
        text = doc_of(kind).split("\n\n", maxsplit=1)[0]
        again = "yes" if kind.retriable else ""
        routes = "yes" if kind.refresh_routes else ""
        row = (str(code), kind.__name__, text, again, routes, str(kind.http), kind.hint)
        yield f"| {' | '.join(row)} |"


PARTS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "commands": commands,
    "control": control,
    "error_codes": error_codes,
    "stream": stream,
    **{name: partial(example_frames.dump, data) for name, data in example_frames.FRAMES.items()},
    **{
        name: partial(example_frames.dump, data)
        for name, data in example_frames.STREAM_FRAMES.items()
    },
}


def renewed(page: str) -> str:
    """Return a page with its made parts as they should be."""

    def fill(mark: re.Match[str]) -> str:
        lines = "\n".join(PARTS[mark["name"]]()).rstrip("\n")
        return f"{mark[1]}\n{lines}\n\n{mark[3]}"

    return _MARK.sub(fill, page)


def main() -> None:
    """Write the pages again."""
    for path in sorted(FOLDER.glob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = renewed(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
