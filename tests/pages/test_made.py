"""What is made of the code is as the code is. ``make docs`` writes it anew."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq
import ternmq.reliable
from ternmq.model import errors
from tests.pages.made import DOCS, PARTS, everything


def test_pages_are_up_to_date() -> None:
    old = [
        str(path.relative_to(DOCS))
        for path, text in everything().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not old, f"run `make docs`: {old}"


def test_every_part_has_its_place() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    for part in PARTS:
        assert pages.count(f"<!-- begin {part}, made by `make docs` -->") == 1


def test_every_error_has_its_row() -> None:
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| \**(\w+)", page, re.MULTILINE)
    assert rows == [(str(code), kind.__name__) for code, kind in errors.table().items() if code]


def test_every_name_of_the_package_is_told_of() -> None:
    pages = "".join(
        (DOCS / "reference" / name).read_text(encoding="utf-8")
        for name in ("errors.md", "api/ternmq.md")
    )
    for name in ternmq.__all__:
        assert f"`ternmq.{name}`" in pages or f"**{name}**" in pages or name.startswith("_"), name


def test_every_name_of_reliable_is_told_of_and_listed() -> None:
    page = (DOCS / "reference" / "api" / "reliable.md").read_text(encoding="utf-8")
    for name in ternmq.reliable.__all__:
        assert f"## `ternmq.reliable.{name}`\n" in page, name
        assert name in dir(ternmq.reliable)
    assert "## `Row`\n" in page  # what `Outbox.rows` returns


_OF_PYTHON = frozenset({
    "Any", "AsyncGenerator", "AsyncIterator", "Callable", "Coroutine", "Exception", "False",
    "Future", "Iterable", "Iterator", "Literal", "Mapping", "None", "Self", "Sequence", "True",
    "Unpack",
    "Engine",  # of SQLAlchemy
    "Collector",  # of prometheus_client
    "Disk",  # of the journal: for tests of TernMQ itself
})  # fmt: skip


def test_every_type_in_a_signature_of_the_api_is_described() -> None:
    pages = [path.read_text(encoding="utf-8")
             for path in (DOCS / "reference" / "api").glob("*.md")]  # fmt: skip
    told = set(_OF_PYTHON)
    for page in pages:
        told |= {
            name.rpartition(".")[2] for name in re.findall(r"^#+ `([\w.]+)`", page, re.MULTILINE)
        }
        for line in re.findall(
            r"^\* (`[A-Z]\w+`(?:, `[A-Z]\w+`)*)(?::|, that is)", page, re.MULTILINE
        ):
            told |= set(re.findall(r"\w+", line))
    for page in pages:
        for block in re.findall(r"```py\n((?:async )?\w+\(.*?)```", page, re.DOTALL):
            named = set(re.findall(r"(?<![\w.'\"])[A-Z]\w+", block))
            assert named <= told, block


def test_no_example_of_the_api_is_cut() -> None:
    """What is fenced is Python as a whole, and no sign of another markup is left beside it."""
    pages = list((DOCS / "reference" / "api").glob("*.md"))
    assert pages
    for page in pages:
        lines = page.read_text(encoding="utf-8").splitlines()
        assert "::" not in lines, page
        assert not [line for line in lines if re.match(r"(Yield|Return|Raise):", line)], page
    around = (DOCS / "reference" / "api" / "ternmq.md").read_text(encoding="utf-8")
    found = re.search(
        r"### `Client.handler_middleware`.*?```py\n(@client.*?)```", around, re.DOTALL
    )
    assert found is not None
    compile(found[1], "handler_middleware", "exec")
    assert "yield  # the handler runs" in found[1]
    assert "time.monotonic() - began" in found[1]
