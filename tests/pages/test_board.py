"""The board and the alarms ask for metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from tests.pages import metrics
from tests.pages.made import DOCS

BOARD = DOCS / "operate" / "grafana.json"
ALARMS = DOCS / "operate" / "alarms.yml"


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BOARD.read_text(encoding="utf-8"))
    return found


def rules() -> list[dict[str, str]]:
    """Return each rule's fields; the file is written so that lines are enough to read it."""
    found = []
    for part in ALARMS.read_text(encoding="utf-8").split("- alert: ")[1:]:
        fields = dict(re.findall(r"^ +(\w+): (.+)$", part, re.MULTILINE))
        found.append(fields | {"alert": part.splitlines()[0]})
    return found


def queries() -> list[str]:
    of_panels = [one["expr"] for panel in board()["panels"] for one in panel.get("targets", [])]
    of_choices = [one["definition"] for one in board()["templating"]["list"] if "definition" in one]
    return of_panels + of_choices + [rule["expr"] for rule in rules()]


@pytest.mark.parametrize("query", queries())
def test_queries_name_metrics_and_labels_that_exist(query: str) -> None:
    named = set(re.findall(r"\bternmq_\w+", query))
    assert named <= metrics.names()
    assert named or re.match(r"up\b", query)
    assert query.count("(") == query.count(")")
    known = {label for one in metrics.families() for label in one.labels}
    known |= {"instance", "job"}  # Prometheus' own
    used = set(re.findall(r"(\w+)=~?\"", query))
    for listed in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        used |= set(listed.split(", "))
    assert used <= known


def test_counters_are_not_read_as_they_stand() -> None:
    """A counter begins anew with the broker: only its growth says something."""
    counters = [one.name for one in metrics.families() if one.kind == "counter"]
    for query in queries():
        for name in counters:
            bare = query.count(name)
            grown = len(re.findall(rf"\b(?:rate|increase)\({name}(?:{{[^}}]*}})?\[", query))
            assert bare == grown, query


def test_the_board_can_be_drawn() -> None:
    panels = board()["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_alarm_says_what_to_do_and_stands_on_the_page() -> None:
    page = (DOCS / "operate" / "alarms.md").read_text(encoding="utf-8")
    found = rules()
    assert len(found) > 10
    for rule in found:
        assert rule["severity"] if "severity" in rule else "severity" in rule["labels"]
        assert rule["summary"]
        assert rule["action"]
        assert f"`{rule['alert']}`" in page, rule["alert"]


def test_what_falls_behind_is_measured_by_all_that_waits() -> None:
    """The backlog of an ordered topic stands in `ready`, and its lag is 0."""
    (rule,) = [one for one in rules() if one["alert"] == "TernMQGroupFallsBehind"]
    waits, grows = rule["expr"].split(" and ")
    named = set(re.findall(r"ternmq_group_\w+", waits))
    assert named == {"ternmq_group_lag", "ternmq_group_ready"}
    assert named == set(re.findall(r"delta\((ternmq_group_\w+)\[30m\]\)", grows))


def test_what_stands_still_is_all_that_a_consumer_could_fetch() -> None:
    """A group whose last messages wait for a retry, and whose consumers are gone, has no lag."""
    (rule,) = [one for one in rules() if one["alert"] == "TernMQGroupStandsStill"]
    waits, _ = rule["expr"].split(" unless ")
    assert set(re.findall(r"ternmq_group_\w+", waits)) == {
        "ternmq_group_lag", "ternmq_group_ready", "ternmq_group_retries_due",
    }  # fmt: skip


def test_prometheus_takes_the_alarms() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        return  # the tests above have looked at every rule; this is one look more
    done = subprocess.run(
        [promtool, "check", "rules", str(ALARMS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
