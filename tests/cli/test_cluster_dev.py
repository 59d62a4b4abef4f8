"""``ternmq cluster dev``: brokers of one group, each a process; one is killed, nothing is lost."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ternmq.sync
from ternmq.cli.terminal.exits import ExitCode
from tests.black_box.process import DEADLINE, free_port, wait_until
from tests.cli.conftest import CommandLine, Processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * DEADLINE)]


class Trial:
    """A run of the command, and what it has printed."""

    def __init__(self, processes: Processes, *arguments: str) -> None:
        self.lines: list[str] = []
        self.welcome = ""
        self.process = processes.start(
            "cluster", "dev", "--listen", "127.0.0.1:0", *arguments, stdin=subprocess.DEVNULL
        )
        self._readers = [threading.Thread(target=one) for one in (self._read, self._read_welcome)]
        for one in self._readers:
            one.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.decode().rstrip())

    def _read_welcome(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.welcome += line.decode()

    def says(self, pattern: str, times: int = 1) -> None:
        """Wait until so many lines match."""
        wait_until(
            lambda: self.process.poll() is not None or self._matching(pattern) >= times,
            pattern,
            4 * DEADLINE,
        )
        assert self._matching(pattern) >= times, self.lines

    def _matching(self, pattern: str) -> int:
        return sum(re.search(pattern, line) is not None for line in self.lines)

    def exported(self, name: str) -> str:
        """Return a variable of the welcome."""
        wait_until(lambda: "Ctrl-C ends all" in self.welcome, "the welcome", 4 * DEADLINE)
        found = re.search(rf"\b{name}=(\S+)", self.welcome)
        assert found is not None
        return found[1]

    def pid(self, name: str) -> int:
        """Return the newest process of a broker."""
        found = [re.search(rf" {name} runs at .*: process (\d+)$", line) for line in self.lines]
        return int([one for one in found if one is not None][-1][1])

    def client(self) -> ternmq.sync.Client:
        return ternmq.sync.connect(
            self.exported("TERNMQ_URL"), app="admin", token=self.exported("TERNMQ_TOKEN"),
            timeout=DEADLINE,
        )  # fmt: skip

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(2 * DEADLINE)
        self.close()
        return status

    def close(self) -> None:
        for one in self._readers:
            one.join(DEADLINE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def temporary(processes: Processes, tmp_path: Path) -> Iterator[Path]:
    """The folder for temporary files of the command; at the end nothing is left in it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    processes.environment |= {"TMPDIR": str(folder)}
    yield folder
    assert list(folder.iterdir()) == []


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("temporary")
def test_the_primary_is_killed_and_comes_back(processes: Processes) -> None:
    trial = Trial(processes)
    trial.says(r"two copies: a \(primary\), b")
    with trial.client() as client:
        client.send("numbers", 1)
        killed = trial.pid("a")
        os.kill(killed, signal.SIGKILL)
        trial.says("a has ended: killed by SIGKILL; it is started again in 10 s")
        trial.says(r"one copy: b \(primary\) is the only member")
        client.send("numbers", 2)
        trial.says(r"two copies: b \(primary\), a")
        assert trial.pid("a") != killed
        got = client.pull("numbers", group="readers", max_messages=2, wait=DEADLINE)
        assert list(got.bodies) == [b"1", b"2"]
    pids = [trial.pid(name) for name in "ab"]
    assert trial.end() == 0
    assert not any(map(runs, pids))
    assert "Traceback" not in trial.welcome


@pytest.mark.usefixtures("temporary")
def test_what_it_says_to_try_works(processes: Processes) -> None:
    folder = Path(processes.environment["TMPDIR"]) / "a folder"
    trial = Trial(processes, "--data", str(folder))
    trial.says(r"two copies: a \(primary\), b")
    trial.exported("TERNMQ_URL")
    commands = re.findall(r"^    (.+)$", trial.welcome, re.MULTILINE)
    assert [one.split()[0] for one in commands] == [
        *["export"] * 3, "seq", "ternmq", "kill", "ternmq", "ternmq",
    ]  # fmt: skip
    script = "\n".join(
        [
            f'ternmq() {{ {shlex.quote(sys.executable)} -m ternmq "$@"; }}',
            *commands[:-1],
            "until ternmq cluster status | grep '^two copies: b'; do sleep 0.2; done",
            commands[-1],
        ]
    )
    tried = subprocess.run(
        ["sh", "-ec", script],
        env=processes.environment, capture_output=True, text=True, timeout=4 * DEADLINE,
        check=False,
    )  # fmt: skip
    assert tried.returncode == 0, tried.stderr
    assert "two copies: a (primary), b" in tried.stdout
    assert re.search(r"\b1000\b", tried.stdout), "the newest message is shown"
    assert "a is the primary of epoch" in tried.stderr
    assert trial.end() == 0
    shutil.rmtree(folder)


@pytest.mark.usefixtures("temporary")
def test_a_folder_is_kept_and_used_again(processes: Processes, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    for number in range(2):
        trial = Trial(processes, "--data", str(folder), "--replicas", "2")
        trial.says(r"three copies: . \(primary\), ., .")
        assert f"They keep their data in {folder}." in trial.welcome
        with trial.client() as client:
            client.send("numbers", number)
            got = client.pull("numbers", group=f"readers-{number}", max_messages=9, wait=DEADLINE)
            assert list(got.bodies) == [b"0", b"1"][: number + 1]
        assert trial.end(signal.SIGINT) == 0
    assert {one.name for one in folder.iterdir()} >= {"a", "b", "c", "cluster.db"}


@pytest.mark.usefixtures("temporary")
def test_what_was_started_ends_with_it(processes: Processes) -> None:
    """Also if it is killed and cannot end anything itself."""
    trial = Trial(processes)
    trial.says(" b runs at")
    pids = [trial.pid(name) for name in "ab"]
    trial.process.kill()
    trial.process.wait(DEADLINE)
    wait_until(lambda: not any(map(runs, pids)), "the brokers have ended", DEADLINE)
    temporary = Path(processes.environment["TMPDIR"])
    wait_until(lambda: not list(temporary.iterdir()), "the folder is removed", DEADLINE)
    trial.close()


@pytest.mark.usefixtures("temporary")
def test_a_port_that_is_taken_is_said(processes: Processes) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        process = processes.start(
            "cluster", "dev", "--listen", f"127.0.0.1:{port}", stdin=subprocess.DEVNULL
        )
        _, said = process.communicate(timeout=4 * DEADLINE)
    assert process.returncode == ExitCode.FAILED, said
    assert b"a ended with status" in said
    assert str(port).encode() in said


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("0.0.0.0:7117", "is no loopback address; for brokers that other machines can reach"),
        ("127.0.0.1", "--listen: is not HOST:PORT"),
        ("127.0.0.1:65500", "--listen: there is no port 65601"),
    ],
)
def test_addresses_that_cannot_be(cli: CommandLine, listen: str, said: str) -> None:
    shown = cli("cluster", "dev", "--listen", listen, code=ExitCode.USAGE)
    assert said in shown.err.replace("\n", " ")


def test_a_folder_that_no_url_names(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "what?"
    shown = cli("cluster", "dev", "--data", str(folder), code=ExitCode.USAGE)
    assert "the coordinator's URL cannot name a file there" in shown.err.replace("\n", " ")
    assert not folder.exists()
