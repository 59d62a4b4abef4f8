"""What a person sees and types, in a real terminal: tmux."""

from __future__ import annotations

import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until
from tests.cli.conftest import CommandLine

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="needs tmux")


class Terminal:
    """A shell in a terminal of 100 columns and 30 lines, of its own tmux server."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._runs = 0
        self._name = f"ternmq-{secrets.token_hex(6)}"
        self._environment = {**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self._environment.pop("TMUX", None)
        self._environment.pop("COLUMNS", None)
        self._environment.pop("NO_COLOR", None)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30",
                   "-c", str(folder), "bash --norc --noprofile")  # fmt: skip
        self.keys("PS1='$ '; clear", "Enter")
        self.wait("$")

    def _tmux(self, *arguments: str) -> str:
        assert TMUX is not None
        return subprocess.run(
            [TMUX, "-L", self._name, *arguments],
            env=self._environment, capture_output=True, text=True, check=True, timeout=30,
        ).stdout  # fmt: skip

    def keys(self, *keys: str) -> None:
        """Type."""
        self._tmux("send-keys", *keys)

    def run(self, *arguments: object) -> None:
        """Type a command, and what tells how it ended: ``ended:`` and its status."""
        self._runs += 1
        words = [sys.executable, "-m", "ternmq", *map(str, arguments)]
        self.keys("clear; " + shlex.join(words) + f"; echo ended{self._runs}:$?", "Enter")

    def screen(self, *, colours: bool = False) -> str:
        """Return what is seen now."""
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def wait(self, *texts: str) -> str:
        """Wait until all of these are seen; ``ended:`` is that of the last command."""
        texts = tuple(text.replace("ended:", f"ended{self._runs}:") for text in texts)
        seen = ""

        def there() -> bool:
            nonlocal seen
            seen = self.screen()
            return all(text in seen for text in texts)

        try:
            wait_until(there, f"{texts} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{seen}") from None
        return seen

    def resize(self, columns: int, lines: int) -> None:
        """Make it larger or smaller."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def end(self) -> None:
        """End the shell and all in it."""
        self._tmux("kill-server")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with few topics: not all fit on a screen."""
    with BrokerProcess("dev", tmp_path_factory.mktemp("terminal"), segment="4MiB") as one:
        yield one


@pytest.fixture
def terminal(tmp_path: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    one = Terminal(tmp_path, environment)
    yield one
    one.end()


@pytest.fixture
def filled(cli: CommandLine, topic: str, client: ternmq.sync.Client) -> str:
    cli("topic", "create", topic)
    cli("send", topic, *[f"message {n}" for n in range(10)])
    cli("group", "create", topic, "billing")
    client.pull(topic, group="billing", max_messages=1).reject(reason="no [bold]m\x1b[31money")
    return topic


def test_top_is_drawn_anew_and_q_gives_the_terminal_back(
    terminal: Terminal, cli: CommandLine, filled: str
) -> None:
    terminal.run("top", "--interval", "100ms")
    terminal.wait("q quits", filled, "billing", "messages", "traffic", " 9 ")
    cli("send", filled, *range(5))
    terminal.wait(" 15 ", " 14 ")
    terminal.resize(60, 20)
    terminal.wait("q quits", "billing")
    terminal.resize(100, 30)
    terminal.keys("q")
    seen = terminal.wait("ended:0")
    assert "traffic" not in seen  # it had a screen of its own


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (60, 15), (120, 40)])
def test_top_with_more_than_a_terminal_shows(
    terminal: Terminal, broker: BrokerProcess, cli: CommandLine, topic: str,
    columns: int, lines: int,
) -> None:  # fmt: skip
    for n in range(12):
        cli("send", f"{topic}-of-many-{n}", "x")
        cli("group", "create", f"{topic}-of-many-{n}", f"group-{n}")
    terminal.resize(columns, lines)
    terminal.run("top", "--interval", "100ms")
    seen = terminal.wait("q quits", "(page 1 of ", "  group  ", " lag ")
    assert "q quits" in seen.rstrip("\n").split("\n")[lines - 1]
    terminal.keys("Space")
    terminal.wait("(page 2 of ")
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        terminal.wait("these figures are ")
    finally:
        broker.process.send_signal(signal.SIGCONT)
    terminal.wait("q quits")
    terminal.keys("q")
    terminal.wait("ended:0")


@pytest.mark.parametrize("command", ["top", "lag"])
def test_old_figures_are_marked(
    terminal: Terminal, broker: BrokerProcess, filled: str, command: str
) -> None:
    words = ["top"] if command == "top" else ["group", "lag", filled, "--watch"]
    end = "q quits" if command == "top" else "Ctrl-C ends it"
    terminal.run(*words, "--interval", "100ms")
    terminal.wait("billing", end)
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        terminal.wait("billing", "these figures are ", "old: the broker does not answer")
    finally:
        broker.process.send_signal(signal.SIGCONT)
    terminal.wait("billing", end)
    terminal.keys("C-c")
    terminal.wait("ended:130")


def test_ctrl_c_ends_what_goes_on(terminal: Terminal, filled: str) -> None:
    terminal.run("top", "--interval", "100ms")
    terminal.wait("q quits")
    terminal.keys("C-c")
    assert "Traceback" not in terminal.wait("ended:130")
    terminal.run("tail", filled, "-f")
    terminal.wait("message 9")
    terminal.keys("C-c")
    assert "Traceback" not in terminal.wait("ended:130")


def test_lag_is_watched(terminal: Terminal, cli: CommandLine, filled: str) -> None:
    terminal.run("group", "lag", filled, "--watch", "--interval", "100ms")
    terminal.wait("billing", "in/s", "unchanged", "Ctrl-C ends it", " 9 ")
    cli("consume", filled, "-g", "billing", "--wait", "0")
    seen = terminal.wait("done")
    assert seen.count("billing") == 1  # drawn over, not below
    terminal.keys("C-c")
    terminal.wait("ended:130")


def test_tables_have_weight_and_others_words_stay_words(terminal: Terminal, filled: str) -> None:
    terminal.run("deadletter", "list", filled, "billing")
    seen = terminal.wait("ended:0")
    assert r"no [bold]m\x1b[31money" in seen
    coloured = terminal.screen(colours=True)
    assert "\x1b[1mplace" in coloured
    assert "\x1b[31m" not in coloured
    terminal.resize(40, 30)
    terminal.run("group", "list", filled)
    seen = terminal.wait("ended:0")
    assert "running" in seen  # no name is cut: lines are longer than the terminal


def test_long_lines_are_folded_between_words(
    terminal: Terminal, cli: CommandLine, topic: str
) -> None:
    words = [f"word-number-{n:03}" for n in range(40)]
    cli("send", topic, " ".join(words))
    terminal.resize(80, 30)
    terminal.run("tail", topic)
    seen = terminal.wait("ended:0")
    assert [word for word in words if word not in seen] == []
    terminal.run("doctor", "--data", "/dev/shm")  # a short path: what has no blanks stays whole
    seen = terminal.wait("ended:")
    for line in seen.splitlines():
        if line.strip() and not line.startswith(("ok ", "warn ", "fail ", "ended", "$")):
            assert line.startswith(" " * 20), seen  # under what it goes on with


def test_questions(terminal: Terminal, cli: CommandLine, filled: str) -> None:
    terminal.run("topic", "delete", filled)
    terminal.wait(f"this deletes topic {filled} with 10 messages and 1 group;", "[y/N]:")
    terminal.keys("n", "Enter")
    terminal.wait("nothing was changed", "ended:1")
    terminal.run("group", "reset", filled, "billing", "--to", "earliest")
    terminal.wait("goes on at", "[y/N]:")
    terminal.keys("C-c")
    terminal.wait("ended:130")
    assert cli("group", "lag", filled).rows[0][2] == "9"
    terminal.run("group", "reset", filled, "billing", "--to", "earliest")
    terminal.wait("[y/N]:")
    terminal.keys("y", "Enter")
    terminal.wait("ended:0")
    assert cli("group", "lag", filled).rows[0][2] == "10"


def test_typing_messages(terminal: Terminal, cli: CommandLine, topic: str) -> None:
    terminal.run("send", topic)
    terminal.wait("Ctrl-D ends")
    terminal.keys("first", "Enter", "second", "Enter")
    terminal.wait("second")
    terminal.keys("C-d")
    terminal.wait(f"stored 2 messages in {topic}", "ended:0")
    assert cli("tail", topic, "--raw").out == "first\nsecond\n"


def test_progress_goes_away_when_it_is_done(terminal: Terminal) -> None:
    terminal.run("bench", "send", "--duration", "5m", "--size", "100B", "--in-flight", 1)
    terminal.wait("sending", "%")
    terminal.keys("C-c")
    assert "sending" not in terminal.wait("ended:130")
    terminal.run("topic", "list")
    assert "bench-" not in terminal.wait("ended:0")
