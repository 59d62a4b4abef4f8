"""The table of types of bodies in the guide: each goes there and back as the page says."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ternmq.sync
from ternmq.client.content.codecs import Codecs
from ternmq.testing import broker
from tests.pages.blocks import steps

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "produce.md"
HEAD = "| annotation | a body | is sent as |"


def rows() -> list[list[str]]:
    """Return annotation, body and what travels, of each row."""
    _, _, behind = PAGE.read_text(encoding="utf-8").partition(HEAD)
    lines = behind.partition("\n\n")[0].strip().splitlines()[1:]
    cells = [line.strip("| ").replace("\\|", "\0").split(" | ") for line in lines]
    return [[cell.replace("\0", "|").strip("`") for cell in row] for row in cells]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page defines above the table."""
    (block,) = [one.code for one in steps(PAGE) if "class Invoices(" in one.code]
    module = ModuleType("page_of_bodies")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)  # pydantic looks for it
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), vars(module))
    return vars(module)


@pytest.mark.parametrize(("annotation", "body", "travels"), rows(), ids=lambda cell: cell)
def test_a_type_goes_there_and_back(
    annotation: str, body: str, travels: str, names: dict[str, Any]
) -> None:
    codecs = Codecs()
    kind, value = eval(annotation, names), eval(body, names)
    codecs.check(kind)
    data, content_type = codecs.encode(value)
    assert data.decode() == travels
    decoded = codecs.decode(data, content_type, kind)
    assert decoded == value
    assert type(decoded) is type(value)


def test_each_of_them_can_be_sent(names: dict[str, Any]) -> None:
    kinds = [eval(annotation, names) for annotation, _, _ in rows()]
    values = [eval(body, names) for _, body, _ in rows()]
    with broker() as served, ternmq.sync.connect(served.url) as client:
        for value in values:
            client.send("bodies", value)
        got = client.pull("bodies", group="g", max_messages=len(values))
        decoded = [one.decode(kind) for one, kind in zip(got, kinds, strict=True)]
    assert decoded == values


def test_the_table_is_there() -> None:
    assert len(rows()) > 25
