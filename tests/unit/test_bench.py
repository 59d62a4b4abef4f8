"""The benchmarks run: every measurement in its smoke size, and the file they write."""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "core.py"


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH), *arguments], capture_output=True, text=True, check=False
    )


def names() -> list[str]:
    listed = run_bench("--list")
    assert listed.returncode == 0, listed.stderr
    return [line.split()[0] for line in listed.stdout.splitlines()]


def test_every_measurement_of_the_issue_is_there():
    assert set(names()) == {
        "append-single",
        "append-batch",
        "pull-batch",
        "pull-singles",
        "schedule-single",
        "scheduled-burst",
        "scheduled-1000000",
        "scheduled-10000000",
        "scheduled-state",
        "transaction-single",
        "transaction-settle",
        "transaction-state",
        "ordered-10",
        "ordered-1000",
        "ordered-100000",
        "header-filter",
        "locked",
        "groups-70",
        "topics-40000",
        "replay",
        "start",
        "longest-turn",
        "longest-turn-retention",
        "promotion",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen",
    [
        ("append-single", "append-batch", "pull-batch", "pull-singles"),
        ("ordered-10", "ordered-1000", "ordered-100000", "locked", "groups-70", "header-filter"),
        (
            "schedule-single",
            "scheduled-burst",
            "scheduled-1000000",
            "scheduled-10000000",
            "scheduled-state",
        ),
        ("transaction-single", "transaction-settle"),
        ("topics-40000", "replay"),
        ("start", "longest-turn", "longest-turn-retention", "promotion"),
    ],
    ids=lambda chosen: chosen[0],
)
def test_a_smoke_run_measures_and_writes_what_figures_need(chosen, tmp_path):
    out = tmp_path / "core.json"
    done = run_bench("--quick", "--data", str(tmp_path / "data"), "--out", str(out), *chosen)
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())["measurements"]
    assert set(written) == set(chosen)
    for result in written.values():
        assert {"cpu", "cores", "kernel"} <= set(result["machine"])
        assert {"python", "ternmq", "numpy"} <= set(result["versions"])
        assert {"synced_1_kib_p50_us", "synced_1_kib_p99_us", "written_mb_s"} == set(
            result["raw_disk"]
        )
        assert result["load_before"] >= 0
        assert 0 < result["pace_ms"]["shortest"] <= result["pace_ms"]["rounds"][0]
        for figure in result["figures"].values():
            assert {"median", "spread", "values"} <= set(figure)
            assert len(figure["values"]) == 1
    assert not list((tmp_path / "data").iterdir())  # it cleans up


@pytest.mark.slow
def test_scheduled_messages_are_measured(tmp_path):
    out = tmp_path / "schedule.json"
    done = subprocess.run(
        [sys.executable, str(BENCH.with_name("schedule.py")), "--quick", "--data",
         str(tmp_path / "data"), "--out", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())["measurements"]
    assert set(written) == {"lateness", "burst-mixed", "burst-same"}
    for result in written.values():
        assert result["figures"]["stored"]["median"] > 0
        assert result["figures"]["stored_early"]["median"] == 0
        assert result["figures"]["out_of_order"]["median"] == 0
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.slow
def test_transactions_are_measured(tmp_path):
    out = tmp_path / "transactions.json"
    done = subprocess.run(
        [sys.executable, str(BENCH.with_name("transactions.py")), "--quick", "--data",
         str(tmp_path / "data"), "--out", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())["measurements"]
    assert set(written) == {"sending-1", "sending-256", "moving-1", "moving-256"}
    for result in written.values():
        assert result["figures"]["transactions_per_s"]["median"] > 0
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_outbox_is_measured(tmp_path):
    out = tmp_path / "outbox.json"
    chosen = (
        "confirm-1-sqlite", "stored-sqlite", "backlog-keys-sqlite", "backlog-key-sqlite",
        "blocked-sqlite", "idle-sqlite",
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(BENCH.with_name("outbox.py")), "--quick", "--data",
         str(tmp_path / "data"), "--out", str(out), *chosen],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())["measurements"]
    assert set(written) == set(chosen)
    assert written["confirm-1-sqlite"]["figures"]["share"]["median"] > 0
    for backlog in ("backlog-keys-sqlite", "backlog-key-sqlite"):
        assert written[backlog]["figures"]["duplicates"]["median"] == 0
    assert written["blocked-sqlite"]["figures"]["share"]["median"] > 0
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.slow
def test_inboxes_are_measured(tmp_path):
    out = tmp_path / "inbox.json"
    done = subprocess.run(
        [sys.executable, str(BENCH.with_name("inbox.py")), "--quick", "--data",
         str(tmp_path / "data"), "--out", str(out), "memory"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())["measurements"]
    assert all(one["figures"]["share"]["median"] > 0 for one in written.values())


def test_measurements_that_were_not_run_keep_their_figures(tmp_path):
    out = tmp_path / "core.json"
    out.write_text(json.dumps({"measurements": {"replay": {"figures": {}}}}))
    done = run_bench("--quick", "--out", str(out), "append-single")
    assert done.returncode == 0, done.stderr
    assert list(json.loads(out.read_text())["measurements"]) == ["append-single", "replay"]


def test_an_unknown_measurement_is_refused():
    done = run_bench("--quick", "nothing")
    assert done.returncode == 2
    assert "nothing" in done.stderr


@pytest.mark.parametrize(
    ("paces", "kept", "left_out"),
    [
        ([1.0, 1.1, 1.1], [1, 2, 3], []),
        ([2.0, 1.1, 2.0, 1.0, 1.1], [2, 4, 5], [1, 3]),
        # Never steady: the best that there is.
        ([2.0, 1.5, 1.9, 1.0] + [2.0] * 14, [2, 3, 4], [1, *range(5, 19)]),
    ],
)
def test_steady_rounds_are_chosen_by_the_pace_of_the_machine(monkeypatch, paces, kept, left_out):
    monkeypatch.syspath_prepend(BENCH.parent)
    runner = importlib.import_module("runner")
    core_kit = importlib.import_module("core_kit")
    told = iter(paces)
    numbers = itertools.count(1)
    after: list[float] = []

    def figures(*_: object) -> dict[str, float]:
        after.append(next(told))
        return {"figure_us": float(next(numbers))}

    monkeypatch.setattr(runner, "pace_ms", lambda: after.pop() if after else 1.0)
    monkeypatch.setattr(runner, "raw_disk", lambda _: {})
    monkeypatch.setattr(runner, "_round", figures)
    one = core_kit.Measurement("name", "about", lambda _: {})
    suite = runner.Suite(BENCH, "about", [one])
    ((_, result),) = runner._measure(suite, [one], core_kit.Settings(rounds=3), steady=True)
    assert result["figures"]["figure_us"]["values"] == kept
    pace = result["pace_ms"]
    assert [one["figures"]["figure_us"] for one in pace["left_out"]] == left_out
    assert [paces[number - 1] for number in kept] == pace["rounds"]
    assert pace["slowed"] == sum(one > 1.15 for one in pace["rounds"])
    assert pace["steady"]


def test_a_figure_that_a_round_lacks_is_judged_by_the_others(monkeypatch):
    monkeypatch.syspath_prepend(BENCH.parent)
    runner = importlib.import_module("runner")
    core_kit = importlib.import_module("core_kit")
    one = core_kit.Measurement("name", "about", lambda _: {})
    rounds = [{"per_s": 1.0}, {"per_s": 3.0, "syncs_each": 2.0}, {"per_s": 2.0, "syncs_each": 4.0}]
    judged = runner._judge(one, rounds)
    assert judged["per_s"]["values"] == [1.0, 3.0, 2.0]
    assert judged["syncs_each"]["values"] == [2.0, 4.0]
    assert judged["syncs_each"]["median"] == 3.0


@pytest.mark.slow
def test_numbers_are_measured(tmp_path):
    out = tmp_path / "ids.json"
    done = subprocess.run(
        [sys.executable, str(BENCH.with_name("ids.py")), "--quick", "--data",
         str(tmp_path / "data"), "--out", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())["measurements"]
    assert set(written) == {"processes", "buffered"}
    assert written["processes"]["figures"]["blocks"]["median"] >= 8
    assert written["buffered"]["figures"]["each_us"]["median"] > 0
    assert not list((tmp_path / "data").iterdir())
