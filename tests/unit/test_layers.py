"""The import contracts of pyproject.toml really fail when a module breaks them.

Each case plants one line into a copy of the package and runs the checker on the copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent

LAYERS = "A package imports only packages below it"
CORE = "The core has no clock, no randomness, no threads, no network, no files"
DOORS = "The command line asks a broker as every client does, and meets its inside by three doors"
CODE = "Nothing that turns bytes into code, anywhere"
PIPELINE = (
    "The data pipeline asks a broker as every client does, and reads a journal's files by one door"
)
SPARK = "Only what hands things to Spark knows Spark; what decides can be tried without a Java"
DELTA = "Two modules know the library that writes the log of a table"
ROOMS = "A room of {} imports only rooms below it"
DEMO = "The demo is an application: it uses the public client library, nothing below it"


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(copy: Path, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / tool, *arguments],
        cwd=copy,
        # The copy goes before the installed package.
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def broken_contracts(copy: Path) -> set[str]:
    """Run import-linter on the copy; return the names of the contracts that it calls broken."""
    result = run(copy, "lint-imports", "--no-cache", "--no-logo")
    broken = set(re.findall(r"^(.+) BROKEN", result.stdout, re.MULTILINE))
    assert result.returncode == int(bool(broken)), result.stdout + result.stderr
    assert "Contracts:" in result.stdout, result.stdout + result.stderr
    return broken


def plant(copy: Path, module: str, line: str) -> None:
    path = copy / "src" / "ternmq" / module
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}\n{line}\n")


def test_the_package_as_it_is_keeps_every_contract(copy):
    assert broken_contracts(copy) == set()


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("model/planted.py", "import ternmq.record", LAYERS),
        ("record/planted.py", "import ternmq.journal", LAYERS),
        ("journal/planted.py", "from ternmq import broker", LAYERS),
        ("journal/planted.py", "def late():\n    import ternmq.broker", LAYERS),
        ("helpers/planted.py", "", LAYERS),  # a package that has no place
        ("wire/planted.py", "import ternmq.journal", LAYERS),
        ("broker/planted.py", "import ternmq.client", LAYERS),
        ("cli/planted.py", "from ternmq.broker import broker", DOORS),
        ("cli/planted.py", "def late():\n    import ternmq.journal.log.journal", DOORS),
        ("cli/planted.py", "from ternmq.server.engine import engine", DOORS),
        ("broker/planted.py", "import time", CORE),
        ("broker/planted.py", "import asyncio", CORE),
        ("broker/planted.py", "from random import Random", CORE),
        ("broker/planted.py", "def late():\n    from threading import Lock", CORE),
        ("broker/planted.py", "import os.path", CORE),
        ("journal/planted.py", "import socket", CORE),
        ("journal/planted.py", "import concurrent.futures", CORE),
        ("record/planted.py", "from datetime import datetime", CORE),
        ("model/planted.py", "import uuid", CORE),
        ("model/planted.py", "import pickle", CODE),
        ("server/planted.py", "import marshal", CODE),
        ("client/planted.py", "from subprocess import run", CODE),
        ("demo/planted.py", "from ternmq.client.connection.session import Session", DEMO),
        ("demo/planted.py", "import ternmq.broker", DEMO),
        ("demo/planted.py", "import subprocess", CODE),
        ("spark/planted.py", "from ternmq.broker import broker", PIPELINE),
        ("spark/planted.py", "from ternmq.journal.reader.reader import JournalReader", PIPELINE),
        ("spark/planted.py", "def late():\n    from pyspark.sql import SparkSession", SPARK),
        ("broker/planted.py", "import pyspark", SPARK),
        ("pipeline/planted.py", "from ternmq.server import app", PIPELINE),
        ("pipeline/planted.py", "from deltalake import DeltaTable", DELTA),
    ],
)
def test_a_planted_violation_is_caught(copy, module, line, broken):
    if "ternmq.client" in line:
        plant(copy, "client/planted.py", "")
    plant(copy, module, line)
    assert broken in broken_contracts(copy)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "planted",
    [
        {
            "broker/delivery": "ternmq.broker.operation.groups",
            "cli/terminal": "ternmq.cli.reach.connection",
            "client/connection": "ternmq.client.producer.producer",
            "journal/log": "ternmq.journal.index.index",
            "pipeline/stats": "ternmq.pipeline.trace.schema",
            "record/batch": "ternmq.record.page.frames",
            "server/commands": "ternmq.server.native.hub",
            "spark/broker": "ternmq.spark.topics.options",
        },
        {  # modules beside rooms, and rooms beside each other
            "broker/gate": "ternmq.broker.broker",
            "cli/topics": "ternmq.cli.groups.group",
            "client/admin": "ternmq.client.client",
            "journal/recovery": "ternmq.journal.reader.reader",
            "pipeline/report": "ternmq.pipeline.running.jobs",
            "record/fact": "ternmq.record.coalesce",
            "server/native": "ternmq.server.commands.dispatch",
            "spark/broker": "ternmq.spark.builder",
        },
    ],
)
def test_a_room_that_imports_one_that_is_not_below_it_is_caught(copy, planted, late):
    for room, above in planted.items():
        line = f"def late():\n    import {above}" if late else f"import {above}"
        plant(copy, f"{room}/planted.py", line)
    assert broken_contracts(copy) == {ROOMS.format(room.partition("/")[0]) for room in planted}


def test_a_room_without_a_place_is_caught(copy):
    packages = ("broker", "cli", "client", "journal", "pipeline", "record", "server", "spark")
    for package in packages:
        plant(copy, f"{package}/cellar/planted.py", "")
    assert broken_contracts(copy) == {ROOMS.format(package) for package in packages}


def test_every_package_with_rooms_has_an_order_of_them() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    held = {
        one["containers"][0].removeprefix("ternmq.")
        for one in contracts["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers" and one["exhaustive"]
    }
    source = ROOT / "src" / "ternmq"
    roomy = {path.parent.parent.name for path in source.glob("*/*/__init__.py")}
    assert roomy - held == {"wire"}, "its two rooms are bodies and control, siblings of its files"


def test_the_core_may_not_reach_the_clock_through_another_package(copy):
    plant(copy, "settings/planted.py", "import time")
    plant(copy, "broker/query/planted.py", "import ternmq.settings.planted")
    assert broken_contracts(copy) == {LAYERS, CORE}


def test_the_seams_may_use_the_machine_and_their_neighbours_may_not(copy):
    plant(copy, "journal/disk/real.py", "import os\nimport fcntl")
    plant(copy, "journal/log/worker.py", "import threading\nimport queue")
    assert broken_contracts(copy) == set()
    plant(copy, "journal/disk/real.py", "import threading")
    assert broken_contracts(copy) == {CORE}


@pytest.mark.parametrize(
    "line",
    [
        "import os\n\nos.system('true')",
        "import datetime\n\nnow = datetime.datetime.now()",
        "from . import errors",
        "eval('1')",
        "try:\n    pass\nexcept Exception:\n    pass",
        "print('hello')",
    ],
)
def test_ruff_catches_calls_that_no_module_may_make(copy, line):
    plant(copy, "model/planted.py", f'"""Planted."""\n\n{line}')
    arguments = ("check", "--no-cache", "--select=TID,S,BLE,T20", "src/ternmq/model/planted.py")
    result = run(copy, "ruff", *arguments)
    assert result.returncode == 1, result.stdout + result.stderr
