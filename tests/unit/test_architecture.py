"""Packages and ARCHITECTURE.md name every module, and none that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ternmq.cli.commands import TABLE

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ternmq"
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
COMMANDS = {entry.target.partition(":")[0] for entry in TABLE.values()}
"""Modules of ``cli`` that the table of commands names."""

WHOLE = (
    "access",
    "broker",
    "cli",
    "client",
    "cluster",
    "demo",
    "journal",
    "model",
    "pipeline",
    "record",
    "reliable",
    "server",
    "settings",
    "spark",
    "testing",
    "wire",
)
"""Packages whose docstring names every module."""


ROOMS = sorted(
    path.parent.relative_to(SOURCE).as_posix()
    for name in WHOLE
    for path in (SOURCE / name).glob("*/__init__.py")
)
"""Folders of packages. The package's docstring names them, theirs name their modules."""


def said(package: Path) -> str:
    """Return a package's docstring."""
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def modules(package: Path) -> set[str]:
    found = {path.stem for path in package.glob("*.py")} - {"__init__"}
    return found | {path.parent.name for path in package.glob("*/__init__.py")}


@pytest.mark.parametrize("name", [*WHOLE, *ROOMS])
def test_a_package_names_its_modules(name: str) -> None:
    package = SOURCE / name
    named = set(re.findall(r"``(\w+)[.`]", said(package)))
    if name.startswith("cli"):
        named |= {command.rpartition(".")[2] for command in COMMANDS}
    assert sorted(modules(package) - named) == []


@pytest.mark.parametrize("name", [*WHOLE, *ROOMS])
def test_what_a_package_names_to_be_read_is_there(name: str) -> None:
    _, found, order = said(SOURCE / name).partition("Reading order")
    order = order.partition("Invariant")[0]
    # Words in code of more than one part (``ternmq.toml``), options and names of ours are none.
    named = set(re.findall(r"``([a-z][a-z_]*)``", order)) - {"ternmq"}
    assert found or name in ROOMS
    assert sorted(named - modules(SOURCE / name)) == []


def test_no_folder_is_too_large_to_be_looked_over() -> None:
    folders = {SOURCE, *(path.parent for path in SOURCE.rglob("__init__.py"))}
    sizes = {folder.relative_to(SOURCE).as_posix(): len(modules(folder)) for folder in folders}
    assert {name: size for name, size in sizes.items() if size > 20} == {}


def test_the_files_that_the_architecture_names_are_there() -> None:
    folders = "|".join(path.parent.name for path in SOURCE.glob("*/__init__.py"))
    named = re.findall(rf"`((?:{folders})/(?:\w+/)*\w+(?:\.py|/))`", ARCHITECTURE)
    assert len(named) > 50
    assert [path for path in named if not (SOURCE / path).exists()] == []


def test_the_architecture_names_every_package() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= set(re.findall(r"`src/ternmq/(\w+)`", ARCHITECTURE))


def test_the_architecture_names_every_room() -> None:
    rooms = ARCHITECTURE.partition("## The rooms")[2].partition("## Words")[0]
    parts = re.split(r"\*\*`(\w+)`\*\*", rooms)
    named = dict(zip(parts[1::2], parts[2::2], strict=True))
    missing = [
        room
        for room in ROOMS
        if not room.startswith("wire/")
        and f"`{room.partition('/')[2]}`" not in named[room.partition("/")[0]]
    ]
    assert missing == []


def test_the_architecture_names_the_modules_of_sync() -> None:
    """The docstring of that package is a page for users."""
    (row,) = re.findall(r"^\| `src/ternmq/sync` \|(.*)$", ARCHITECTURE, re.MULTILINE)
    assert modules(SOURCE / "sync") == set(re.findall(r"`(\w+)`", row))
