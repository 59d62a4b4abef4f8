"""``ternmq pipeline report``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.schema import TRACE
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
    assert "'Monday' is not a day" in cli(*told, "--day", "Monday", code=2).err
    make(tmp_path / "tables", 5)
    away = tmp_path / "no" / "folder.html"
    assert "cannot be written" in cli(*told, "--day", DAY, "-o", away, code=1).err
    assert not away.exists()


@pytest.mark.row("R7", "R9", "R13", "R16")
def test_from_a_broker_to_the_page(
    cli: CommandLine, client: ternmq.sync.Client, topic: str, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    client.send_many(topic, [b"%d" % n for n in range(100)])
    # More than any other test's: the page shows the causes of most dead letters.
    client.pull(topic, group="billing", max_messages=83).reject(reason="KeyError: 'cents'")
    client.pull(topic, group="billing").ack()
    told = ("--tables", tables)
    cli(
        "pipeline", "run", "--once", "--engine", "local", "--jobs", "trace,stats,deadletters", *told
    )
    trace = Table.open(Folder(str(tables)), TRACE, create=False)
    rows = trace.read(["topic", "state", "hour"]).to_pylist()
    states = Counter(row["state"] for row in rows if row["topic"] == topic)
    assert states == {"done": 17, "dead": 83}
    page = tmp_path / "day.html"
    day = max(row["hour"] for row in rows if row["topic"] == topic)[:10]
    cli("pipeline", "report", *told, "--day", day, "-o", page)
    html = page.read_text(encoding="utf-8")
    for text in (topic, "billing", "KeyError: &lt;text&gt;", "the audit has not run"):
        assert text in html
