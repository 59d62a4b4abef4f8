"""docs/promises.md and tests/fault/README.md name tests that exist, and commands that there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from tests.pages.made import DOCS

ROOT = DOCS.parent
PAGE = (DOCS / "promises.md").read_text(encoding="utf-8")
SCENARIOS = (ROOT / "tests" / "fault" / "README.md").read_text(encoding="utf-8")


@cache
def named_in(path: Path) -> set[str]:
    """Return the names of the tests of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


@pytest.mark.parametrize(
    "named", sorted(set(re.findall(r"`(tests/[^`]+\.py(?:::\w+)?)`", PAGE + SCENARIOS)))
)
def test_the_test_is_there(named: str) -> None:
    path, _, function = named.partition("::")
    assert (ROOT / path).is_file()
    assert not function or function in named_in(ROOT / path)


def test_every_promise_names_a_test() -> None:
    rows = [
        line for line in PAGE.splitlines() if line.startswith("| ") and "what tries" not in line
    ]
    assert len(rows) > 40
    for row in rows:
        if row.startswith("| planted fault"):
            continue
        assert "tests/" in row or "make " in row, row


def test_a_scenario_that_a_test_names_is_in_the_table() -> None:
    named = {
        case
        for path in (ROOT / "tests").rglob("*.py")
        for case in re.findall(r"\b(?:DUR|ORD|TXN|RTY|OVL|BAD|SEC)-\d\b", path.read_text("utf-8"))
    }
    table = set(re.findall(r"^\| ([A-Z]{3}-\d) \|", SCENARIOS, re.MULTILINE))
    assert named <= table
    assert len(named) > 10


def test_the_verbs_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        for verb in re.findall(r"`?make ([a-z-]+)`", page.read_text(encoding="utf-8")):
            assert re.search(rf"^{verb}:", makefile, re.MULTILINE), f"{page.name}: make {verb}"


def test_every_page_is_in_the_table_of_contents() -> None:
    """A reader finds every page from docs/README.md; decisions and the protocol have lists too."""
    contents = (DOCS / "README.md").read_text(encoding="utf-8")
    listed = {(DOCS / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", contents)}
    for page in DOCS.rglob("*.md"):
        if page.parent.name not in {"adr", "protocol"} and page.name != "README.md":
            assert page.resolve() in listed, page.relative_to(DOCS)
