"""What outboxes report to Prometheus: names, labels, and how often rows are counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from ternmq.reliable.outbox import collector as module
from ternmq.reliable.outbox.stats import OutboxStats
from tests.unit.reliable.outbox.test_table import insert, values


@dataclass
class Fake:
    """An outbox without threads."""

    database: AlchemyDatabase
    counts: OutboxStats = field(default_factory=OutboxStats)
    schema: str = ""

    def stats(self) -> OutboxStats:
        return self.counts


def collected(fake: Fake, registry: CollectorRegistry) -> dict[str, float]:
    """Return the samples of a fake's database: name and state -> value."""
    found = {}
    for metric in registry.collect():
        for sample in metric.samples:
            assert sample.labels["database"] == fake.database.name
            state = sample.labels.get("state")
            found[sample.name + (f" {state}" if state else "")] = sample.value
    return found


@pytest.fixture
def fake(database) -> Fake:
    return Fake(database, OutboxStats(written=5, sent=3, refused=1))


@pytest.fixture
def registry(fake) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(module.OutboxCollector([fake]))
    return made


def test_counts_of_the_process_are_always_reported(fake, registry) -> None:
    found = collected(fake, registry)
    assert found["ternmq_outbox_written_total"] == 5
    assert found["ternmq_outbox_sent_total"] == 3
    assert found["ternmq_outbox_refused_total"] == 1
    assert found["ternmq_outbox_leader"] == 0
    assert not any(name.startswith("ternmq_outbox_rows") for name in found)


def test_the_compensator_counts_the_rows(fake, registry, database) -> None:
    insert(database, values("a"), values("b"))
    fake.counts.leader = True
    found = collected(fake, registry)
    assert found["ternmq_outbox_rows sending"] == 2
    assert found["ternmq_outbox_rows failed"] == 0
    assert found["ternmq_outbox_oldest_seconds"] >= 0


def test_rows_are_counted_now_and_then(fake, registry, database, monkeypatch) -> None:
    fake.counts.leader = True
    now = 100.0
    monkeypatch.setattr(module, "steady_s", lambda: now)
    assert collected(fake, registry)["ternmq_outbox_rows sending"] == 0
    insert(database, values("a"))
    now += module.COUNT_S - 0.1
    assert collected(fake, registry)["ternmq_outbox_rows sending"] == 0
    now += 0.2
    assert collected(fake, registry)["ternmq_outbox_rows sending"] == 1


def test_a_database_that_cannot_be_read_leaves_the_rows_out(fake, registry, database) -> None:
    fake.counts.leader = True
    with database.writing() as work:
        work.run("DROP TABLE ternmq_outbox", {})
    found = collected(fake, registry)
    assert found["ternmq_outbox_leader"] == 1
    assert not any(name.startswith("ternmq_outbox_rows") for name in found)


def test_a_registry_that_describes_reads_no_database(fake) -> None:
    fake.counts.leader = True
    fake.database = None
    names = [one.name for one in module.OutboxCollector([fake]).describe()]
    assert "ternmq_outbox_rows" in names
    assert len(names) == len(set(names)) == 14


def test_the_page_for_operators_names_every_metric() -> None:
    page = Path(__file__).parents[4] / "docs" / "operate" / "outbox.md"
    text = page.read_text(encoding="utf-8")
    named = {one.name for one in module.OutboxCollector([]).describe()}
    assert [name for name in named if f"`{name}" not in text] == []
