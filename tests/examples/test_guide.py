"""Every Python block of README.md and docs/guide is run in order, and prints what the page says.

The blocks of a page are one program. A block ``output`` after a block ``python`` is what that one
prints; ``python`` blocks without one print nothing. Each page has a broker of its own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ternmq.testing import broker
from tests.examples.conftest import ROOT

_BLOCK = re.compile(r"^```(python|output)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """Return (line, code, output) of each Python block."""
    text = page.read_text(encoding="utf-8")
    found: list[tuple[int, str, str]] = []
    for match in _BLOCK.finditer(text):
        if match[1] == "python":
            found.append((text.count("\n", 0, match.start()) + 1, match[2], ""))
        else:
            line, code, output = found.pop()
            assert not output, f"{page.name}: two outputs for the block at line {line}"
            found.append((line, code, match[2]))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = blocks(page)
    assert found, "a page of the guide shows something"
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where annotations are looked up
    with broker(manual=False) as running:
        monkeypatch.setenv("TERNMQ_URL", running.url)
        for line, code, output in found:
            # Empty lines before it: errors name the line of the page.
            exec(compile("\n" * line + code, str(page), "exec"), vars(module))
            assert capsys.readouterr().out == output, f"line {line}"
