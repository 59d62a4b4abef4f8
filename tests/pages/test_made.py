"""What is made of the code is as the code is. ``make docs`` writes it anew."""

from __future__ import annotations

import re

import ternmq
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
