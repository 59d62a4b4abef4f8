"""What machines ask: /metrics, /livez, /readyz; and what the process logs."""

from __future__ import annotations

import json
import logging
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ternmq.record.fact.facts import Outcome
from ternmq.server.metrics import groups
from ternmq.server.telemetry.logs import JsonFormatter, TextFormatter
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient


def get(one: InProcessBroker, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{one.http_port}{path}", timeout=10
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def numbers(one: InProcessBroker) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    status, text = get(one, "/metrics")
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_numbers_say_what_happened() -> None:
    with broker(settings={"http": "127.0.0.1:0"}) as one, RawClient(one.port) as client:
        client.send("orders", "a", "b", "c")
        client.join("orders", "billing")
        delivery = client.pull("orders", "billing", 2)
        client.settle("orders", "billing", delivery, Outcome.DONE, ((0, 1),))
        client.settle("orders", "billing", delivery, Outcome.RETRY, ((1, 2),), 60_000_000, "no")
        back = client.pull("orders", "billing", 1)
        client.settle("orders", "billing", back, Outcome.RELEASED, ((2, 3),))
        with pytest.raises(Exception, match="no topic"):
            client.read("nothing", 0)
        found = numbers(one)
        group = (("group", "billing"), ("topic", "orders"))
        assert found["ternmq_messages_sent_total", ()] == 3
        assert found["ternmq_delivered_total", group] == 3
        assert found["ternmq_group_lag", group] == 0
        assert found["ternmq_group_ready", group] == 1
        assert found["ternmq_group_retrying", group] == 1
        assert found["ternmq_settled_total", (*group[:1], ("outcome", "done"), *group[1:])] == 1
        assert found["ternmq_settled_total", (*group[:1], ("outcome", "retry"), *group[1:])] == 1
        assert found["ternmq_refusals_total", (("error", "UnknownTopic"),)] == 1
        assert found["ternmq_connections", ()] == 1
        assert found["ternmq_syncs_total", ()] > 0
        assert found["ternmq_resident_bytes", ()] > 1e6


def test_a_scrape_says_why_there_are_no_metrics(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "ternmq.server.telemetry.exposition", raising=False)
    monkeypatch.delattr("ternmq.server.telemetry.exposition", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with broker(settings={"http": "127.0.0.1:0"}) as one, RawClient(one.port) as client:
        status, text = get(one, "/metrics")
        assert (status, text[:12]) == (500, "no metrics: ")
        assert "prometheus_client" in text
        assert "prometheus-client cannot be imported" in caplog.text
        assert get(one, "/livez") == (200, "ok\n")
        client.send("orders", "a")  # nothing else is the worse for it
        monkeypatch.undo()
        assert numbers(one)["ternmq_messages_sent_total", ()] == 1


def test_it_is_alive_and_ready_and_nothing_else_is_there() -> None:
    with broker(settings={"http": "127.0.0.1:0"}) as one:
        assert get(one, "/livez") == (200, "ok\n")
        assert get(one, "/readyz") == (200, "ok\n")
        assert get(one, "/")[0] == 404
        assert get(one, "/../etc/passwd")[0] == 404


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("ternmq.server", logging.WARNING, __file__, 1, message, (), None)
    made.__dict__.update(extra)
    return made


def test_log_lines_are_json_with_what_was_given() -> None:
    line = JsonFormatter().format(record("it\nbroke", topic="orders", count=3))
    told = json.loads(line)
    assert "\n" not in line
    assert (told["level"], told["message"], told["topic"], told["count"]) == (
        "warning", "it\nbroke", "orders", 3,
    )  # fmt: skip


def test_log_lines_for_people_hide_no_line_breaks() -> None:
    line = TextFormatter().format(record("name 'a\nERROR forged'"))
    assert "\n" not in line
    assert "\\n" in line


def test_scrapes_at_once_and_while_topics_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "PIECE_QUEUES", 3)
    settings = {"http": "127.0.0.1:0", "metrics_groups": 30}
    with broker(settings=settings) as one, RawClient(one.port) as client:
        for number in range(40):
            client.create(f"t{number:02}")
            client.join(f"t{number:02}", "g")
        assert numbers(one)["ternmq_groups_left_out", ()] == 10
        with ThreadPoolExecutor(4) as pool:
            scrapes = [pool.submit(numbers, one) for _ in range(12)]
            for number in range(0, 40, 2):
                gone = control.TopicDelete(topic=f"t{number:02}")
                client.manage(Command.TOPIC_DELETE, gone, control.Nothing)
            for scrape in scrapes:
                found = scrape.result()
                assert found["ternmq_connections", ()] == 1
        lags = [labels for name, labels in numbers(one) if name == "ternmq_group_lag"]
        assert [dict(labels)["topic"] for labels in lags] == [f"t{n:02}" for n in range(1, 40, 2)]
