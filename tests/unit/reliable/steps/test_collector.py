"""What orderly sessions report to Prometheus: the names, and the page that explains them."""

from __future__ import annotations

from pathlib import Path

from ternmq.reliable.steps import collector as module


def test_a_registry_that_describes_reads_no_database() -> None:
    names = [one.name for one in module.StepsCollector([]).describe()]
    assert "ternmq_sequence_sessions" in names
    assert len(names) == len(set(names)) == 9


def test_the_page_for_operators_names_every_metric() -> None:
    page = Path(__file__).parents[4] / "docs" / "operate" / "outbox.md"
    text = page.read_text(encoding="utf-8")
    named = {one.name for one in module.StepsCollector([]).describe()}
    assert [name for name in named if f"`{name}" not in text] == []
