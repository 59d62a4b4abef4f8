"""Every block of the page about tables is run, and prints what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.pages.blocks import agrees, steps

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "tables.md"


@pytest.mark.timeout(900)
def test_the_page(spark, real, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TERNMQ_URL", real.url)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    found = steps(PAGE)
    for step in found:
        if step.kind == "console":
            program, *arguments = shlex.split(step.code)
            assert program == "ternmq"
            ended = subprocess.run(
                [sys.executable, "-m", "ternmq", *arguments],
                capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            assert ended.returncode == 0, ended.stderr
            assert agrees(step.output, ended.stdout + ended.stderr), f"line {step.line}"
            continue
        code = re.sub(r"localhost:7117", f"127.0.0.1:{real.port}", step.code)
        exec(compile("\n" * step.line + code, str(PAGE), "exec"), vars(module))
        printed = capsys.readouterr().out
        assert agrees(step.output, printed), f"line {step.line}: {printed}"
