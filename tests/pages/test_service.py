"""The unit and the container file say what the settings and the broker know."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
        return  # a container often has none; the rest of this file looks at the unit all the same
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


@pytest.mark.parametrize("file", ["ternmq.service", "Containerfile", "install.md"])
def test_variables_are_settings(file: str) -> None:
    known = {"TERNMQ_" + key.upper().replace(".", "_") for key in ALL_FIELDS}
    named = set(re.findall(r"\bTERNMQ_[A-Z_]+", (FOLDER / file).read_text(encoding="utf-8")))
    assert named <= known | {"TERNMQ_URL", "TERNMQ_APP", "TERNMQ_TOKEN", "TERNMQ_CONFIG"}
