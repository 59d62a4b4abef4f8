"""The command line beside a broker process: called in this process, or as one of its own."""

from __future__ import annotations

import itertools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ternmq.sync
from ternmq.cli import main
from ternmq.cli.pipeline import priority
from ternmq.cli.pipeline.priority import Priority
from tests.black_box.process import DEADLINE, BrokerProcess
from tests.cli.workers import Start, Worker
from tests.databases import database, servers

__all__ = ["database", "servers"]

_numbers = itertools.count(1)


@dataclass(slots=True, frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Its objects, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """Its table, as awk sees it, without the header."""
        return [line.split() for line in self.out.splitlines()[1:]]


@dataclass(slots=True)
class CommandLine:
    """Calls commands in this process.

    An error must be one line that begins with the program's name; no command shows a traceback.
    """

    capture: pytest.CaptureFixture[str]
    url: str

    def __call__(self, *arguments: object, code: int = 0) -> Ended:
        self.capture.readouterr()
        found = main.run([str(one) for one in arguments])
        out, err = self.capture.readouterr()
        ended = Ended(int(found), out, err)
        assert ended.code == code, ended
        assert "Traceback" not in err
        if code:
            assert err.splitlines()[-1].startswith("ternmq: "), err
            assert err.count("ternmq: ") == 1 or "was not stored" in err, err
        return ended


@dataclass(slots=True)
class Processes:
    """Starts commands as a shell does."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(
        self, *arguments: object, program: Sequence[str] | None = None, **more: Any
    ) -> subprocess.Popen[bytes]:
        """Start one, or another program; what it reads and says are pipes."""
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            [*(program or (sys.executable, "-m", "ternmq")), *map(str, arguments)],
            cwd=self.folder, env=self.environment, **(pipes | more),
        )  # fmt: skip

    def run(self, *arguments: object, data: bytes = b"", code: int = 0) -> Ended:
        """Run one to its end."""
        process = self.start(*arguments)
        out, err = process.communicate(data, DEADLINE)
        ended = Ended(process.returncode, out.decode(), err.decode())
        assert ended.code == code, ended
        assert "Traceback" not in ended.err
        assert "Fatal Python error" not in ended.err
        return ended


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess("dev", tmp_path_factory.mktemp("cli"), http=True, segment="4MiB") as one:
        yield one


@pytest.fixture
def quiet() -> Iterator[None]:
    """Undo what a command does to the library's log, for tests that come later."""
    log = logging.getLogger("ternmq")
    before = log.handlers[:], log.propagate
    yield
    log.handlers[:], log.propagate = before


@pytest.fixture
def environment(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Only this broker, no context of whoever runs the tests, a terminal of 100 columns."""
    for name in list(os.environ):
        if "TERNMQ" in name:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TERNMQ_URL", broker.url)
    monkeypatch.setenv("TERNMQ_RETENTION_WATERMARK", "0.98")  # of brokers that a test starts
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    return dict(os.environ)


@pytest.fixture
def cli(
    environment: dict[str, str], quiet: None, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(capsys, environment["TERNMQ_URL"])


@pytest.fixture
def processes(environment: dict[str, str], tmp_path: Path) -> Processes:
    return Processes(tmp_path, environment)


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def start(processes: Processes, topic: str) -> Iterator[Start]:
    """Write ``shop.py`` and start a worker of it."""
    started: list[Worker] = []

    def begin(code: str, *arguments: object) -> Worker:
        (processes.folder / "shop.py").write_text(code.format(topic=topic))
        started.append(Worker(processes, *arguments))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(DEADLINE)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ternmq.sync.Client]:
    """What has happened besides, or is to be seen beside the command line."""
    with ternmq.sync.connect(broker.url) as one:
        yield one


@pytest.fixture(autouse=True)
def priorities(monkeypatch: pytest.MonkeyPatch) -> list[Priority]:
    """What commands that run in this process would have taken: the tests keep theirs."""
    taken: list[Priority] = []
    monkeypatch.setattr(priority, "take", taken.append)
    return taken
