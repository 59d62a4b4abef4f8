"""The command as a process: pipes that close, signals, standard input, what it imports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ternmq.sync
from ternmq.cli.reach.connection import until_told
from ternmq.cli.terminal.exits import Terminated
from ternmq.cli.worker.processes import send
from tests.black_box.process import DEADLINE, BrokerProcess, free_port, wait_until
from tests.cli.conftest import CommandLine, Processes


def test_a_reader_that_goes_away_ends_it_quietly(
    cli: CommandLine, processes: Processes, topic: str
) -> None:
    cli("send", topic, *range(2000))
    for command in (
        ["tail", topic, "-n", 2000],
        ["tail", topic, "-n", 5, "-f"],
        ["top", "--json", "--interval", "20ms"],
    ):
        process = processes.start(*command)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 141, command


def test_messages_printed_to_a_pipe_that_broke_are_not_acked(
    cli: CommandLine, processes: Processes, topic: str
) -> None:
    cli("topic", "create", topic)
    cli("group", "create", topic, "g")
    process = processes.start("consume", topic, "-g", "g", "--raw")
    assert process.stdout is not None
    process.stdout.close()
    process.communicate(timeout=30)
    assert process.returncode == 141
    cli("send", topic, "kept")
    assert cli("consume", topic, "-g", "g", "--wait", "0", "--raw").out == "kept\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_quietly(
    cli: CommandLine, processes: Processes, topic: str, number: signal.Signals, code: int
) -> None:
    cli("send", topic, "one")
    for command in (
        ["tail", topic, "-f"],
        ["consume", topic, "-g", "g", "--json"],
        ["send", topic, "--json"],
    ):
        process = processes.start(*command)
        assert process.stdin is not None
        assert process.stdout is not None
        if command[0] == "send":
            process.stdin.write(b"line\n")
            process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert process.returncode == code, (command, out, err)
        # The group is made by the first that consumes.
        assert b"Traceback" not in err
        assert not err or command[0] == "consume", (command, err)
    assert cli("consume", topic, "-g", "g", "--wait", "0", "--raw").out.count("one") == 0


def test_rich_is_imported_only_for_a_terminal(environment: dict[str, str]) -> None:
    code = (
        "import sys, ternmq; from ternmq.cli import main; main.run(sys.argv[1:]);"
        "print(sorted(m for m in ('rich', 'uvloop', 'ternmq.server.app',"
        " 'ternmq.cli.topics.topic') if m in sys.modules), file=sys.stderr)"
    )
    for arguments, loaded in (
        (["--help"], "[]"),
        (["topic", "list"], "['ternmq.cli.topics.topic']"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert done.stderr.splitlines()[-1] == loaded


def test_descriptors_that_are_closed(processes: Processes, topic: str) -> None:
    command = shlex.join([sys.executable, "-m", "ternmq"])
    for line, code in (
        (f"{command} topic list >&-", 0),
        (f"{command} topic list >&- 2>&-", 0),
        (f"{command} send {topic} <&-", 0),
    ):
        done = subprocess.run(
            ["bash", "-c", line], env=processes.environment, cwd=processes.folder,
            capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, (line, done)
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written(processes: Processes, unbuffered: str) -> None:
    """Buffered, as usual, it is noticed at the end; unbuffered by the command that writes."""
    processes.environment["PYTHONUNBUFFERED"] = unbuffered
    with open("/dev/full", "wb") as full:
        process = processes.start("topic", "list", stdout=full)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"Traceback" not in err
    assert err.count(b"No space left") == 1


def test_dev_says_what_to_try_and_forgets(tmp_path: Path, environment: dict[str, str]) -> None:
    kept = {name: value for name, value in environment.items() if "TERNMQ" not in name}
    folder = tmp_path / "temporary"
    folder.mkdir()
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "ternmq", "dev", "--listen", f"127.0.0.1:{port}", "--http", "off"],
        env=kept | {"TMPDIR": str(folder)}, cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == f"listening on 127.0.0.1:{port}\n".encode()
    assert len(os.listdir(folder)) == 1
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert b"on disk" not in err
    assert b"ternmq send greetings" in err
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve"], b""),
        (["serve", "--listen", "nowhere"], b"HOST:PORT"),
        (["serve", "--config", "none.toml"], b"none.toml"),
        (["serve", "--data", "file"], b"file"),
        (["dev", "--listen", "256.256.256.256:1"], b""),
    ],
)
def test_brokers_that_cannot_start(
    tmp_path: Path,
    environment: dict[str, str],
    broker: BrokerProcess,
    arguments: list[str],
    said: bytes,
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "data").mkdir()
    kept = {name: value for name, value in environment.items() if "TERNMQ" not in name}
    taken = ["--listen", f"127.0.0.1:{broker.port}", "--http", "off"]
    command = [*arguments, *([] if "--listen" in arguments else taken)]
    done = subprocess.run(
        [sys.executable, "-m", "ternmq", *command],
        env=kept | {"TERNMQ_DATA": "data"} if arguments == ["serve"] else kept,
        cwd=tmp_path, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode in {1, 2}
    assert b"Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith(b"ternmq: ")]
    assert len(errors) == 1, done.stderr
    assert said in errors[0]


def test_a_signal_ends_a_command_that_reads_fast_input(
    processes: Processes, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic)

    def stored() -> int:
        return client.admin.topic(topic).queues[0].next

    lines = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
    try:
        for _ in range(4):
            before = stored()
            process = processes.start("send", topic, "-q", stdin=lines.stdout)
            wait_until(lambda: stored() > before, "it sends")  # noqa: B023
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=DEADLINE)
            assert (process.returncode, err) == (143, b"")
    finally:
        lines.kill()
        lines.wait()
        assert lines.stdout is not None
        lines.stdout.close()


def test_a_signal_arrives_while_the_pipe_of_the_loop_is_full() -> None:
    async def fill_and_wait() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                asyncio.get_running_loop()._csock.send(bytes(4096))  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(DEADLINE)
        raise AssertionError("the signal was lost")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated):
        asyncio.run(until_told(fill_and_wait()))
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_process_that_ended_is_left_to_asyncio() -> None:
    """``send_signal`` of asyncio would wait for it, and asyncio would report another status."""

    class Ended:
        returncode = None

        def __init__(self) -> None:
            with subprocess.Popen([sys.executable, "-c", ""]) as process:
                self.pid = process.pid

        def send_signal(self, number: int) -> None:
            raise AssertionError(number)

    send(Ended(), signal.SIGTERM)  # type: ignore[arg-type]
