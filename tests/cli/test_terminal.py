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
    terminal.run(*words, "--interval", "100ms")
    terminal.wait("billing", "q quits")
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        terminal.wait("billing", "these figures are ", "old: the broker does not answer")
    finally:
        broker.process.send_signal(signal.SIGCONT)
    terminal.wait("billing", "q quits")
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
    terminal.wait("billing", "in/s", "unchanged", "q quits", " 9 ")
    cli("consume", filled, "-g", "billing", "--wait", "0")
    seen = terminal.wait("done")
    assert seen.count("billing") == 1  # drawn over, not below
    terminal.keys("C-c")
    terminal.wait("ended:130")


def test_all_groups_can_be_seen_while_lag_is_watched(
    terminal: Terminal, cli: CommandLine, topic: str
) -> None:
    cli("send", topic, "x")
    for n in range(20):
        cli("group", "create", topic, f"group-{n:02}", "--start", "latest")
    cli("group", "create", topic, "the-last")
    terminal.resize(60, 15)
    terminal.run("group", "lag", topic, "--watch", "--interval", "100ms")
    seen = terminal.wait("q quits", "(page 1 of ", "the-last", "no room for members")
    pages = int(seen.split("(page 1 of ")[1].split(")")[0])
    for page in range(2, pages + 1):
        terminal.keys("Space")
        seen += terminal.wait(f"(page {page} of {pages})")
    assert [n for n in range(20) if f"group-{n:02}" not in seen] == []
    assert seen.index("the-last") < seen.index("group-00"), "the only one that is behind"
    terminal.keys("q")
    terminal.wait("ended:0")


@pytest.mark.parametrize("columns", [72, 60, 50, 40])
def test_no_row_of_clients_is_wrapped(
    terminal: Terminal, client: ternmq.sync.Client, columns: int
) -> None:
    client.connect()
    terminal.resize(columns, 40)
    terminal.run("client", "list")
    seen = terminal.wait("ended:0")
    assert " connected" in seen
    assert "no room for library" in seen
    assert "or --json shows it" in " ".join(seen.split())


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
    assert "running" in seen  # no word is cut: lines are longer than the terminal


def test_scheduled_messages_in_a_narrow_terminal(
    terminal: Terminal, cli: CommandLine, topic: str
) -> None:
    for number in range(3):
        cli("send", topic, "x", "-k", f"a-long-key-{number}", "--id", f"reminder-{number}",
            "--delay", f"{number + 1}d")  # fmt: skip
    terminal.run("delay", "list", topic, "--since", "now")
    seen = terminal.wait("ended:0", "reminder-0")
    assert [seen.index(f"reminder-{number}") for number in range(3)] == sorted(
        seen.index(f"reminder-{number}") for number in range(3)
    )
    terminal.resize(70, 30)
    terminal.run("delay", "list", topic, "--since", "now")
    seen = terminal.wait("ended:0", "a-long-key-2", "no room for ordering key")
    terminal.run("delay", "list", topic)
    seen = terminal.wait("ended:0", "hour", "messages")
    assert seen.count(":00Z") == 3
    terminal.run("delay", "cancel", topic, "reminder-0", "reminder-9")
    terminal.wait("cancelled 1 message of", "reminder-9: ", "1 of 2 messages was not", "ended:4")
    terminal.run("topic", "delete", topic)
    terminal.wait("with 0 messages and 2 scheduled messages;", "[y/N]:")
    terminal.keys("n", "Enter")
    terminal.wait("ended:1")


NARROW = {
    "group list {topic}": ("group", "running"),
    "group show {topic} billing": ("queue", "cursor", "ready"),
    "deadletter list {topic} billing": ("place", "reason", "card expired"),
    "deadletter show {topic} billing 0": ("attempt", "cause", "card expired"),
    "group reset {topic} billing --to earliest --dry-run": ("goes on at", "forgotten"),
    "broker status": ("oldest file", "open messages"),
}
"""Commands, and words that are whole at any width."""


@pytest.mark.parametrize("columns", [80, 40])
def test_no_output_is_cut_or_wrapped_by_the_letter(
    terminal: Terminal, client: ternmq.sync.Client, topic: str, columns: int
) -> None:
    """Columns are left out and named; a table that is wider still keeps its words whole."""
    client.admin.create_topic(topic)
    client.send(topic, b"x", key="customer-1", id="an-id-of-the-application")
    client.pull(topic, group="billing").reject(reason="card expired")
    terminal.resize(columns, 60)
    for command, texts in NARROW.items():
        terminal.run(*command.replace("{topic}", topic).split())
        seen = terminal.wait("ended:0", *texts)
        assert all(len(line) <= columns for line in seen.splitlines()), seen


def test_very_long_names_in_a_terminal(terminal: Terminal, cli: CommandLine, topic: str) -> None:
    name = f"{topic}-{'x' * 90}-eu"
    cli("topic", "create", name)
    for end in ("1", "2"):
        cli("group", "create", name, f"billing-of-{'y' * 90}-{end}")
    terminal.resize(80, 30)
    for command in ("list", "lag"):
        terminal.run("group", command, name)
        seen = terminal.wait("ended:0", "values with … are shortened")
        rows = [line for line in seen.splitlines() if "billing-" in line and "…" in line]
        assert ["y-1 " in row or "y-2 " in row for row in rows[-2:]] == [True, True], seen
    cli("topic", "delete", name, "--yes")


@pytest.mark.parametrize("command", ["deadletter", "retry"])
def test_reasons_in_a_narrow_terminal(
    terminal: Terminal, cli: CommandLine, topic: str, client: ternmq.sync.Client, command: str
) -> None:
    """The reason is what readers look for: other columns go before its words are broken."""
    cli("topic", "create", topic, "--ordered")
    for number in range(3):
        client.send(topic, "x", key=f"customer-{number}", ordering_key=f"customer-{number}")
    reason = "ValueError: this card was declined by the bank"
    for one in client.pull(topic, group="billing"):
        if command == "retry":
            one.retry(3600, reason=reason)
        else:
            one.reject(reason)
    terminal.resize(80, 30)
    terminal.run(command, "list", topic, "billing")
    seen = terminal.wait("ended:0", "no room for ordering key")
    assert [word for word in reason.split() if seen.count(word) < 3] == []
    assert "customer-2" in seen


def test_a_group_that_is_paused_is_seen_in_a_narrow_terminal(
    terminal: Terminal, cli: CommandLine, topic: str
) -> None:
    cli("topic", "create", topic)
    for name in ("one-of-the-groups", "other-of-the-groups"):
        cli("group", "create", topic, name)
    terminal.resize(80, 24)
    terminal.run("group", "lag", topic, "--watch", "--interval", "100ms")
    seen = terminal.wait("q quits", "one-of-the-groups", "no room for members, state")
    assert "space shows" not in seen
    cli("group", "pause", topic, "other-of-the-groups")
    terminal.wait("paused", "running", "no room for members, leased")
    terminal.keys("q")
    terminal.wait("ended:0")


def test_long_lines_are_folded_between_words(
    terminal: Terminal, cli: CommandLine, topic: str
) -> None:
    words = [f"word-number-{n:03}" for n in range(40)]
    cli("send", topic, " ".join(words))
    terminal.resize(80, 30)
    for command in (("tail", topic), ("message", "find", topic, "--since", "1h")):
        terminal.run(*command)
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
    terminal.run("topic", "delete", filled)
    terminal.wait("[y/N]:")
    terminal.keys("C-d")
    terminal.wait("ternmq: nothing was changed", "ended:130")
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
