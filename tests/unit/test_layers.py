"""The import contracts of pyproject.toml really fail when a module breaks them.

Lines are planted into a copy of the package, each in a module of its own, and the checker runs on
the copy. A run takes seconds, so one run has many planted lines: it must name the module of each.
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
DOORS = "The command line asks a broker as every client does, and meets its inside by few doors"
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
    return copied(tmp_path)


def copied(folder: Path) -> Path:
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


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


def broken_contracts(copy: Path) -> dict[str, str]:
    """Run import-linter on the copy; return what it says of each contract that it calls broken."""
    result = run(copy, "lint-imports", "--no-cache", "--no-logo")
    broken = set(re.findall(r"^(.+) BROKEN", result.stdout, re.MULTILINE))
    assert result.returncode == int(bool(broken)), result.stdout + result.stderr
    assert "Contracts:" in result.stdout, result.stdout + result.stderr
    _, _, said = result.stdout.partition("\nBroken contracts\n")
    found = re.split(r"^(.+)\n-+\n\n", said, flags=re.MULTILINE)[1:]
    assert set(found[::2]) == broken, result.stdout
    return dict(zip(found[::2], found[1::2], strict=True))


def plant(copy: Path, module: str, line: str) -> None:
    path = copy / "src" / "ternmq" / module
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}\n{line}\n")


def test_the_package_as_it_is_keeps_every_contract(copy):
    assert broken_contracts(copy) == {}


VIOLATIONS = {
    f"planted_{number}": case
    for number, case in enumerate(
        (
            ("model", "import ternmq.record", LAYERS),
            ("record", "import ternmq.journal", LAYERS),
            ("journal", "from ternmq import broker", LAYERS),
            ("journal", "def late():\n    import ternmq.broker", LAYERS),
            ("wire", "import ternmq.journal", LAYERS),
            ("broker", "import ternmq.client", LAYERS),
            ("cli", "from ternmq.broker import broker", DOORS),
            ("cli", "def late():\n    import ternmq.journal.log.journal", DOORS),
            ("cli", "from ternmq.server.engine import engine", DOORS),
            ("broker", "import time", CORE),
            ("broker", "import asyncio", CORE),
            ("broker", "from random import Random", CORE),
            ("broker", "def late():\n    from threading import Lock", CORE),
            ("broker", "import os.path", CORE),
            ("journal", "import socket", CORE),
            ("journal", "import concurrent.futures", CORE),
            ("record", "from datetime import datetime", CORE),
            ("model", "import uuid", CORE),
            ("model", "import pickle", CODE),
            ("server", "import marshal", CODE),
            ("client", "from subprocess import run", CODE),
            ("demo", "from ternmq.client.connection.session import Session", DEMO),
            ("demo", "import ternmq.broker", DEMO),
            ("demo", "import subprocess", CODE),
            ("spark", "from ternmq.broker import broker", PIPELINE),
            ("spark", "from ternmq.journal.reader.reader import JournalReader", PIPELINE),
            ("spark", "def late():\n    from pyspark.sql import SparkSession", SPARK),
            ("broker", "import pyspark", SPARK),
            ("pipeline", "from ternmq.server import app", PIPELINE),
            ("pipeline", "from deltalake import DeltaTable", DELTA),
        )
    )
}
"""A name that its module has, or its package -> package, line, and the contract that it breaks."""


@pytest.fixture(scope="module")
def violations(tmp_path_factory):
    copy = copied(tmp_path_factory.mktemp("violations"))
    for name, (package, line, _) in VIOLATIONS.items():
        plant(copy, f"{package}/{name}.py", line)
    return broken_contracts(copy)


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_planted_violation_is_caught(violations, name):
    package, line, broken = VIOLATIONS[name]
    assert re.search(rf"ternmq\.{package}\.{name} -> ", violations[broken]), (line, violations)


def test_a_package_without_a_place_is_caught(copy):
    plant(copy, "helpers/planted.py", "")
    assert "helpers" in broken_contracts(copy)[LAYERS]


ABOVE = [
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
]
"""Rooms -> modules that are not below them."""


def test_a_room_that_imports_one_that_is_not_below_it_is_caught(copy):
    expected: dict[str, set[str]] = {}
    for number, planted in enumerate(ABOVE):
        for room, above in planted.items():
            for name, line in (
                (f"planted_{number}", f"import {above}"),
                (f"late_{number}", f"def late():\n    import {above}"),
            ):
                plant(copy, f"{room}/{name}.py", line)
                contract = ROOMS.format(room.partition("/")[0])
                module = f"ternmq.{room.replace('/', '.')}.{name}"
                expected.setdefault(contract, set()).add(f"{module} -> {above} ")
    found = broken_contracts(copy)
    assert found.keys() == expected.keys()
    for contract, imports in expected.items():
        assert not [one for one in imports if one not in found[contract]], found[contract]


def test_a_room_without_a_place_is_caught(copy):
    packages = ("broker", "cli", "client", "journal", "pipeline", "record", "server", "spark")
    for package in packages:
        plant(copy, f"{package}/cellar/planted.py", "")
    assert broken_contracts(copy).keys() == {ROOMS.format(package) for package in packages}


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
    assert broken_contracts(copy).keys() == {LAYERS, CORE}


def test_the_seams_may_use_the_machine_and_their_neighbours_may_not(copy):
    plant(copy, "journal/disk/real.py", "import os\nimport fcntl")
    plant(copy, "journal/log/worker.py", "import threading\nimport queue")
    assert broken_contracts(copy) == {}
    plant(copy, "journal/disk/real.py", "import threading")
    assert broken_contracts(copy).keys() == {CORE}


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
def test_ruff_catches_calls_that_no_module_may_make(tmp_path, line):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "src" / "ternmq" / "model" / "planted.py"
    path.parent.mkdir(parents=True)
    path.write_text(f'"""Planted."""\n\n{line}\n')
    arguments = ("check", "--no-cache", "--select=TID,S,BLE,T20", "src/ternmq/model/planted.py")
    result = run(tmp_path, "ruff", *arguments)
    assert result.returncode == 1, result.stdout + result.stderr
