"""``ternmq pipeline report``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from tests.cli.conftest import CommandLine
from tests.unit.pipeline.report_day import DAY, make


@pytest.mark.row("R16")
def test_a_day_becomes_a_page(cli: CommandLine, tmp_path: Path) -> None:
    make(tmp_path / "tables", 5, first=600)
    page = tmp_path / "day.html"
    cli("pipeline", "report", "--tables", tmp_path / "tables", "--day", DAY, "-o", page)
    html = page.read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert f"<h1>{DAY}</h1>" in html


def test_what_cannot_be_reported_is_said_in_one_line(cli: CommandLine, tmp_path: Path) -> None:
    told = ("pipeline", "report", "--tables", tmp_path / "tables")
    assert "no statistics of 2026-11-21" in cli(*told, "--day", DAY, code=1).err
    assert "'Monday' is no day" in cli(*told, "--day", "Monday", code=2).err
    make(tmp_path / "tables", 5)
    away = tmp_path / "no" / "folder.html"
    assert "cannot be written" in cli(*told, "--day", DAY, "-o", away, code=1).err
    assert not away.exists()
