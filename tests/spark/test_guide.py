"""Every block of the page about tables is run, and prints what the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.pages.blocks import agrees, steps

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "tables.md"


@pytest.mark.timeout(900)
def test_the_page(spark, real, monkeypatch, capsys):
    monkeypatch.setenv("TERNMQ_URL", real.url)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    found = steps(PAGE)
    assert {one.kind for one in found} == {"python"}
    for step in found:
        code = re.sub(r"localhost:7117", f"127.0.0.1:{real.port}", step.code)
        exec(compile("\n" * step.line + code, str(PAGE), "exec"), vars(module))
        printed = capsys.readouterr().out
        assert agrees(step.output, printed), f"line {step.line}: {printed}"
