"""The benchmarks run: every measurement in its smoke size, and the file they write."""

from __future__ import annotations

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
        "ordered-10",
        "ordered-1000",
        "ordered-100000",
        "groups-70",
        "topics-40000",
        "replay",
        "start",
        "longest-turn",
        "longest-turn-retention",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen",
    [
        ("append-single", "append-batch", "pull-batch", "pull-singles"),
        ("ordered-10", "ordered-1000", "ordered-100000", "groups-70"),
        ("topics-40000", "replay"),
        ("start", "longest-turn", "longest-turn-retention"),
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
        for figure in result["figures"].values():
            assert {"median", "spread", "values"} <= set(figure)
            assert len(figure["values"]) == 1
    assert not list((tmp_path / "data").iterdir())  # it cleans up


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
