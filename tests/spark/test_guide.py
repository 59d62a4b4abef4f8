"""Every block of the pages about tables is run, and prints what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.spark.running_page import run_page

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", ["tables.md", "analysis.md"])
def test_the_page(spark, real, monkeypatch, tmp_path, page):
    monkeypatch.setenv("TERNMQ_URL", real.url)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    run_page(GUIDE / page, real.port, module)


@pytest.mark.row("R7")
@pytest.mark.timeout(900)
def test_the_analysis_by_the_reader_of_delta(real, delta, tmp_path):
    """A process of its own, since jars are loaded only at the start of a session."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.running_page", str(GUIDE / "analysis.md"),
         str(real.port), delta],
        env={
            **os.environ, "TERNMQ_URL": real.url, "NO_COLOR": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.splitlines() == ["done 500", "stored 100"]
