"""What others put into a field never reaches a terminal as it is: every command, in a real pty."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ternmq.cli.worker.logs import WorkerFormatter
from ternmq.model.printing import printable, printable_lines
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.server.telemetry.logs import TextFormatter
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.black_box.process import DEADLINE, BrokerProcess
from tests.cli.conftest import CommandLine
from tests.integration.raw import RawClient

EVIL = "\x1b]0;owned\x07\x9b31m\u202egnp\r\n$ rm\x00\x85\u2028"
"""Sets a title, turns red (by a C1 control), turns the direction, begins another line."""
TURNED = "\u202egnp\u2028"
"""The most that HELLO lets through: it refuses control characters."""
PLANTED = re.compile("\x1b\\]|\x07|[\x80-\x9f]|[\u202a-\u202e\u2066-\u2069]|\u2028|\x00")


@pytest.fixture
def planted(broker: BrokerProcess, topic: str) -> Iterator[str]:
    """Plant it in every field that a producer or a consumer can set."""
    port = int(broker.url.rpartition(":")[2])
    with RawClient(port, library=TURNED, language=TURNED) as client:
        client.create(topic, ignore_ordering_keys=True)
        rows = [
            Row(
                b"body \x1b]0;owned\x07\xc2\x9b31m", key=f"key{EVIL}",
                ordering_key=f"order{EVIL}" if number else "",
                tag=f"tag{EVIL}", headers={f"name{EVIL}": f"value{EVIL}"},
                content_type=f"text/{EVIL}", application_id=f"id-{number}{EVIL}",
            )
            for number in range(4)
        ]  # fmt: skip
        client.call(Command.SEND, bodies.pack_send(topic, None, client.batch(topic, rows)))
        client.join(topic, "billing")
        pulled = client.pull(topic, "billing", most=1)
        client.settle(topic, "billing", pulled, Outcome.DEAD, reason=f"dead {EVIL}")
        pulled = client.pull(topic, "billing", most=1)
        client.settle(
            topic, "billing", pulled, Outcome.RETRY, delay_us=3_600_000_000, reason=f"late {EVIL}"
        )
        yield topic


def in_a_terminal(environment: dict[str, str], *arguments: object) -> str:
    """Return what a terminal is sent."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ternmq", *map(str, arguments)],
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**environment, "TERM": "xterm-256color", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(theirs)
    data = b""
    try:
        while True:
            piece = os.read(ours, 65_536)
            if not piece:
                break
            data += piece
    except OSError:
        pass  # the other end is closed: Linux says EIO
    os.close(ours)
    process.wait(DEADLINE)
    return data.decode()


COMMANDS: list[tuple[str, ...]] = [
    ("tail", "{topic}"),
    ("tail", "{topic}", "-n", "2"),
    ("consume", "{topic}", "-g", "other", "--wait", "0"),
    ("message", "get", "{topic}", "--offset", "1"),
    ("message", "find", "{topic}", "--key", "key{evil}"),
    ("message", "trace", "--topic", "{topic}", "--key", "key{evil}"),
    ("deadletter", "list", "{topic}", "billing"),
    ("deadletter", "show", "{topic}", "billing", "0"),
    ("retry", "list", "{topic}", "billing"),
    ("retry", "show", "{topic}", "billing", "1"),
    ("topic", "show", "{topic}"),
    ("group", "list", "{topic}"),
    ("group", "show", "{topic}", "billing"),
    ("group", "lag", "{topic}"),
    ("client", "list"),
    ("broker", "status"),
    ("broker", "status", "--metrics"),
    ("top", "--interval", "50ms", "-n", "2"),
    ("app", "list"),
    ("transaction", "list"),
    ("doctor",),
    ("topic", "show", "{evil}"),
    ("group", "show", "{topic}", "{evil}"),
    ("send", "{topic}", "x", "--tag", "{evil}"),
    ("send", "{topic}", "x", "--id", "{evil}"),
    ("message", "find", "{topic}", "--key", "{evil}"),
    ("app", "show", "{evil}"),
    ("{evil}",),
]


def test_no_command_sends_it_to_a_terminal(planted: str, environment: dict[str, str]) -> None:
    evil = EVIL.replace("\x00", "")  # no argument has one
    shown = 0
    for command in COMMANDS:
        words = [word.replace("{topic}", planted).replace("{evil}", evil) for word in command]
        seen = in_a_terminal(environment, *words)
        assert "Traceback" not in seen, command
        found = PLANTED.search(seen)
        assert found is None, (command, seen[max(0, found.start() - 80) : found.end() + 20])
        assert "\n$ rm" not in seen, command
        shown += r"\x1b]0;owned" in seen
    assert shown >= 10  # it was there to be shown


def test_json_is_exact(planted: str, cli: CommandLine) -> None:
    told = [json.loads(line) for line in cli("tail", planted, "--json").out.split("\n") if line]
    assert told[0]["headers"] == {f"name{EVIL}": f"value{EVIL}"}
    assert (told[0]["key"], told[0]["tag"]) == (f"key{EVIL}", f"tag{EVIL}")
    assert (told[1]["ordering_key"], told[1]["content_type"]) == (f"order{EVIL}", f"text/{EVIL}")
    dead = json.loads(cli("deadletter", "list", planted, "billing", "--json").out)
    assert dead["reason"] == f"dead {EVIL}"


def test_the_brokers_log_escapes_it(broker: BrokerProcess, planted: str) -> None:
    assert PLANTED.search(broker.log) is None


def test_lines_of_a_log() -> None:
    for formatter in (WorkerFormatter(terminal=True, numbered=False), TextFormatter()):
        error = ValueError(EVIL)
        record = logging.LogRecord(
            "x", logging.ERROR, __file__, 1, "reason %s", (EVIL,), (ValueError, error, None)
        )
        text = formatter.format(record)
        assert PLANTED.search(text) is None
        first, _, rest = text.partition("\n")
        assert r"reason \x1b]0;owned\x07" in first
        assert rest.startswith("ValueError: ")
        assert "\r" not in text


@pytest.mark.parametrize("text", ["plain", "grün 漢字 \u05d0", "", " "])
def test_what_is_printable_stays(text: str) -> None:
    assert printable(text) == text
    assert printable_lines(f"{text}\n{text}") == f"{text}\n{text}"


def test_every_control_is_escaped() -> None:
    for code in [*range(32), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]:
        assert printable(f"a{chr(code)}b").isprintable()
        assert json.loads(json.dumps(chr(code))) == chr(code)
