"""The unit and the container file say what the settings and the broker know."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.cli.terminal.exits import ExitCode
from ternmq.cli.worker.processes import FOR_GOOD
from ternmq.settings import Mode, load
from ternmq.settings.fields import ALL_FIELDS
from tests.pages.made import DOCS

FOLDER = DOCS / "operate"
UNIT = FOLDER / "ternmq.service"
PROGRAM = "/opt/ternmq/bin/ternmq"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    assert text.count(PROGRAM) == 1
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace(PROGRAM, sys.executable), encoding="utf-8")
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert not said, said


def test_the_page_the_unit_and_the_exit_codes_agree() -> None:
    text = UNIT.read_text(encoding="utf-8")
    page = (FOLDER / "install.md").read_text(encoding="utf-8")
    assert PROGRAM.rpartition("/")[0] + "/pip" in page
    assert "RestartPreventExitStatus=2" in text
    assert "TimeoutStopSec=60" in text
    assert "`TimeoutStopSec=60`" in page


_TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_toml_on_the_pages_is_made_of_settings(page: Path) -> None:
    for block in re.findall(
        r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        for key, value in tomllib.loads(block).items():
            named = [f"{key}.{inner}" for inner in value] if isinstance(value, dict) else [key]
            assert set(named) <= set(ALL_FIELDS), named


def test_systemd_takes_the_unit_of_workers(tmp_path: Path) -> None:
    text = (FOLDER / "ternmq-worker@.service").read_text(encoding="utf-8")
    page = (FOLDER / "from-dev-to-serve.md").read_text(encoding="utf-8")
    for name in re.findall(r"^(WORKER|TERNMQ_[A-Z]+)=", page.replace("    ", ""), re.MULTILINE):
        assert f"{name}=" in text, name
    stops = f"{ExitCode.USAGE:d} {ExitCode.NOT_ALLOWED:d} {ExitCode.UNSOUND:d}"
    assert f"RestartPreventExitStatus={stops}\n" in text
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "ternmq-worker@.service"
    unit.write_text(text.replace("/opt/shop/bin/ternmq", sys.executable), encoding="utf-8")
    named = tmp_path / "ternmq-worker@billing.service"
    named.symlink_to(unit)
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(named)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if "ternmq-worker" in line]
    assert not said, said


def test_the_compose_file_starts_what_there_is(tmp_path: Path) -> None:
    """Its command and environment, as the image would run them; Docker is not asked."""
    text = (FOLDER / "compose.yml").read_text(encoding="utf-8")
    found = re.search(r"command: (\[.*\])", text)
    assert found is not None
    arguments = json.loads(found[1])
    assert arguments[-2:] == ["--listen", "0.0.0.0:7117"]
    token = re.search(r"TERNMQ_ADMIN_TOKEN: (\S+)", text)
    assert token is not None
    assert f"TERNMQ_TOKEN: {token[1]}" in text
    settings = load(
        environ={"TERNMQ_ADMIN_TOKEN": token[1], "TERNMQ_LOG_FORMAT": "json"},
        flags={"data": str(tmp_path), "listen": arguments[-1]},
        mode=Mode(arguments[0]),
    )
    assert settings.auth


def test_compose_reads_the_file() -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("needs docker-compose")
    done = subprocess.run(
        [program, "-f", str(FOLDER / "compose.yml"), "config"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "dockerfile: docs/operate/Containerfile" in done.stdout
    assert done.stdout.count("stop_grace_period: ") == 2  # the worker drains, too


@pytest.mark.parametrize("file", ["ternmq.service", "Containerfile", "install.md", "compose.yml"])
def test_variables_are_settings(file: str) -> None:
    known = {"TERNMQ_" + key.upper().replace(".", "_") for key in ALL_FIELDS}
    named = set(re.findall(r"\bTERNMQ_[A-Z_]+", (FOLDER / file).read_text(encoding="utf-8")))
    assert named <= known | {"TERNMQ_URL", "TERNMQ_APP", "TERNMQ_TOKEN", "TERNMQ_CONFIG"}


def test_the_page_says_what_a_supervisor_does_with_each_exit_status() -> None:
    page = (DOCS / "guide" / "consume.md").read_text(encoding="utf-8")
    for_good = ", ".join(str(int(code)) for code in sorted(FOR_GOOD))
    assert f"| {for_good} (" in page
    assert f"{ExitCode.FAILED:d}: an error; {ExitCode.NOT_FOUND:d}: no such topic" in page
