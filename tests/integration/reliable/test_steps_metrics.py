"""What orderly sessions report to Prometheus, while real sessions are done."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from ternmq import reliable
from ternmq.reliable import Outbox, SequenceStep
from ternmq.reliable.steps import collector as module
from ternmq.reliable.steps.course import State
from tests.black_box.process import wait_until
from tests.integration.reliable.test_steps import engine, make, quick, send, wait_for

__all__ = ["engine", "make", "quick"]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the sessions at each scrape."""
    monkeypatch.setattr(module, "COUNT_S", 0.0)
    monkeypatch.setattr(module, "_SHARE", 0)


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """Return the samples of sequences: name and state -> value."""
    found = {}
    for metric in registry.collect():
        for sample in metric.samples:
            if not sample.name.startswith("ternmq_sequence_"):
                continue
            assert (sample.labels["topic"], sample.labels["group"]) == ("transfers", "bank")
            state = sample.labels.get("state")
            found[sample.name + (f" {state}" if state else "")] = sample.value
    return found


def step(item: SequenceStep) -> None:
    if item.body == b"bad":
        raise ValueError("no money")


def test_sessions_and_their_steps_are_counted(real, make, engine, always, quick) -> None:
    undone: list[int] = []
    steps = make(
        step, lambda item: undone.append(item.number), on_failure="compensate", attempts=1,
        wait=0.05, give_up=0.1,
    )  # fmt: skip
    registry = CollectorRegistry()
    registry.register(reliable.collector(steps))
    assert set(samples(registry).values()) == {0}
    send(real.url, 1, 2, session="good")
    send(real.url, 2, 2, session="good")
    wait_for(engine, State.DONE, "good")
    send(real.url, 1, 3, session="undone")
    send(real.url, 2, 3, b"bad", session="undone")
    send(real.url, 3, 3, session="undone")
    wait_for(engine, State.UNDONE, "undone")
    send(real.url, 1, 2, session="half")
    wait_for(engine, State.INCOMPLETE, "half")
    steps.close()
    found = samples(registry)
    assert found["ternmq_sequence_items_total"] == 6
    assert found["ternmq_sequence_rejected_total"] == 0
    assert found["ternmq_sequence_steps_done_total"] == 3
    assert found["ternmq_sequence_steps_undone_total"] == len(undone) == 1
    assert found["ternmq_sequence_failures_total"] == 1
    assert found["ternmq_sequence_ended_total"] == 2
    assert found["ternmq_sequence_incomplete_total"] == 1
    assert found["ternmq_sequence_stopped_total"] == 0
    assert found["ternmq_sequence_sessions incomplete"] == 1
    assert found["ternmq_sequence_sessions running"] == 0
    assert "ternmq_sequence_sessions done" not in found


def test_sessions_that_stopped_and_messages_that_are_rejected(real, make, engine, always) -> None:
    steps = make(step, on_failure="stop")
    wait_until(lambda: steps._own is not None, "it has made an outbox for itself")
    outbox = Outbox(steps._client, engine)  # of the application, beside it
    registry = CollectorRegistry()
    registry.register(reliable.collector(outbox, steps))
    send(real.url, 1, 1, b"bad")
    wait_for(engine, State.STOPPED)
    send(real.url, 3, 2, session="wrong")
    send(real.url, 1, 1, session="good")
    wait_for(engine, State.DONE, "good")
    found = samples(registry)
    assert found["ternmq_sequence_sessions stopped"] == 1
    assert found["ternmq_sequence_stopped_total"] == 1
    assert found["ternmq_sequence_steps_done_total"] == 1
    assert any(metric.name == "ternmq_outbox_rows" for metric in registry.collect())
    outbox.close()


def test_a_database_that_cannot_be_read_leaves_the_sessions_out(
    real, make, engine, always, caplog
) -> None:
    steps = make(step)
    registry = CollectorRegistry()
    registry.register(reliable.collector(steps))
    send(real.url, 1, 1, session="first")
    wait_for(engine, State.DONE, "first")  # it runs: at its start, it looks for its tables
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE ternmq_sequence")
    with caplog.at_level(logging.WARNING, "ternmq.reliable"):
        found = samples(registry)
    assert found["ternmq_sequence_items_total"] == 1
    assert not any(name.startswith("ternmq_sequence_sessions") for name in found)
    assert "were not counted" in caplog.text
