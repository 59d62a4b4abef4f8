"""A day that lasted minutes is drawn in seconds, out of the trace."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

from ternmq.pipeline.report.data import Report, gather
from ternmq.pipeline.report.page import page
from ternmq.pipeline.report.seconds import in_seconds
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.schema import TRACE
from tests.unit.pipeline.report_day import DAY, MIDNIGHT, make

SECOND = 1_000_000
TEN = MIDNIGHT + 10 * 3600 * SECOND


def row(offset: int, group: str | None, **told: object) -> dict[str, object]:
    """Return a row of the trace: stored at ten, one a second."""
    stored = TEN + offset * SECOND
    return {
        "topic": "orders", "topic_number": 1, "queue": 0, "offset": offset, "group": group,
        "stored_time": stored, "deliveries": 0, "attempts": 0, "state": "stored",
        "state_time": stored, "hour": f"{DAY}T10", "open": True, "round": 0, "position": 8 * offset,
        "schema_version": 1, **told,
    }  # fmt: skip


def done(offset: int, group: str, after_us: int) -> dict[str, object]:
    at = TEN + offset * SECOND + after_us
    return row(
        offset, group, first_delivered=at - 1000, last_delivered=at - 1000, deliveries=1,
        attempts=1, state="done", state_time=at, end_to_end_us=after_us, open=False,
    )  # fmt: skip


def failure(second: int, outcome: str) -> dict[str, object]:
    return {"time": TEN + second * SECOND, "attempt": 1, "outcome": outcome, "reason": "no"}


@pytest.fixture
def tables(tmp_path: Path) -> Folder:
    """Make a day of three minutes, with a trace of ten messages and two groups."""
    folder = make(tmp_path / "tables", 3, first=600)
    rows = [done(offset, "billing", 300_000) for offset in range(8)]
    died = row(
        8, "billing", first_delivered=TEN + 8 * SECOND, deliveries=2, state="dead",
        state_time=TEN + 12 * SECOND, failures=[failure(9, "retry"), failure(12, "dead")],
    )  # fmt: skip
    rows += [died, row(9, "billing"), *[row(offset, "search") for offset in range(9)]]
    rows.append(row(9, "search", state="skipped", state_time=TEN + 11 * SECOND))
    Table.open(folder, TRACE).append(pa.Table.from_pylist(rows, TRACE.schema))
    return folder


def counts(report: Report, name: str) -> list[int]:
    return [0 if one is None else one.counts[name] for one in report.steps]


def test_seconds(tables):
    report = gather(tables, DAY)
    assert in_seconds(tables, report)
    assert report.step_us == SECOND
    assert (report.begins[0], report.begins[-1]) == (TEN, TEN + 12 * SECOND)
    assert counts(report, "stored") == [1] * 10 + [0] * 3
    assert counts(report, "done") == [1] * 8 + [0] * 5
    assert counts(report, "delivered") == [1] * 9 + [0] * 4
    assert [at for at, one in enumerate(counts(report, "retried")) if one] == [9]
    assert [at for at, one in enumerate(counts(report, "dead")) if one] == [12]
    latencies = [one.latency if one else None for one in report.steps]
    same = dict.fromkeys(("p50", "p90", "p99", "max"), 300_000)
    assert latencies == [same] * 8 + [{}] * 5
    assert report.lags["orders", "billing"] == [0] * 9 + [1] * 4
    assert report.lags["orders", "search"] == [*range(1, 11), 10, 9, 9]
    html = page(report, TEN)
    assert "A step in the plots is 1 s." in html
    assert "10:00:12" in html


def test_a_longer_day_keeps_its_minutes(tmp_path):
    folder = make(tmp_path / "tables", 30)
    Table.open(folder, TRACE).append(pa.Table.from_pylist([row(1, "billing")], TRACE.schema))
    report = gather(folder, DAY)
    before = list(report.begins)
    assert not in_seconds(folder, report)
    assert (report.begins, report.step_us) == (before, 60 * SECOND)


def test_without_a_trace_minutes_are_shown(tmp_path):
    folder = make(tmp_path / "tables", 3)
    report = gather(folder, DAY)
    assert not in_seconds(folder, report)
    assert report.step_us == 60 * SECOND


def test_too_many_rows_are_not_read(tables, monkeypatch):
    monkeypatch.setattr("ternmq.pipeline.report.seconds._MOST_ROWS", 5)
    assert not in_seconds(tables, gather(tables, DAY))
