"""Whose records a worker shows."""

from __future__ import annotations

import json
import logging

import pytest

from ternmq.cli.worker import logs
from ternmq.cli.worker.logs import FromTheApplication, WorkerFormatter

LIBRARY = json.__file__


def record(name: str, level: int, path: str) -> logging.LogRecord:
    return logging.LogRecord(name, level, path, 1, "said", (), None)


@pytest.mark.parametrize(
    ("name", "level", "path", "shown"),
    [
        ("anything", logging.INFO, __file__, True),
        ("shop.orders", logging.INFO, LIBRARY, True),  # an application that is installed
        ("shopping", logging.INFO, LIBRARY, False),
        ("ternmq.client", logging.INFO, LIBRARY, True),
        ("asyncio", logging.INFO, LIBRARY, False),
        ("asyncio", logging.WARNING, LIBRARY, True),
        ("httpx", logging.INFO, pytest.__file__, False),
        ("httpx", logging.ERROR, pytest.__file__, True),
    ],
)
def test_code_of_the_application_is_heard(name: str, level: int, path: str, shown: bool) -> None:
    assert FromTheApplication("shop").filter(record(name, level, path)) is shown


def test_a_terminal_gets_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_columns", lambda: 60)
    words = [f"word-{n:02}" for n in range(20)]
    said = logging.LogRecord("ternmq", logging.INFO, __file__, 1, " ".join(words), (), None)
    first, *rest = WorkerFormatter(terminal=True, numbered=False).format(said).splitlines()
    begin = first.index("word-00")
    assert len(rest) >= 2
    assert max(map(len, (first, *rest))) <= 60
    assert all(line.startswith(" " * begin + "word-") for line in rest)
    assert [word for line in (first, *rest) for word in line.split() if "word" in word] == words
    assert len(WorkerFormatter(terminal=False, numbered=False).format(said).splitlines()) == 1
