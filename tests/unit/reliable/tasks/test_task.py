"""Tasks: what can be one."""

from __future__ import annotations

import logging
import threading
from functools import partial
from pathlib import Path

import pytest

import ternmq
from ternmq.reliable import every
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase


async def awaited() -> None:
    pass


class Awaited:
    async def __call__(self) -> None:
        pass


def generator():
    yield


async def asynchronous_generator():
    yield


def of(first, second=None) -> None:
    pass


def named(*, wanted) -> None:
    pass


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (awaited, "`async def`"),
        (partial(awaited), "`async def`"),
        (Awaited(), "`async def`"),
        (generator, "yield"),
        (asynchronous_generator, "yield"),
        (of, "'first'"),
        (named, "'wanted'"),
    ],
)
def test_what_would_never_run_is_refused_when_it_is_declared(function, said, tmp_path) -> None:
    with pytest.raises(ternmq.InvalidHandler, match=rf"task 'report' .*{said}"):
        every(f"sqlite:///{tmp_path}/shop.db", "report", seconds=60)(function)


@pytest.mark.parametrize("function", [print, partial(of, 1), lambda *all, **more: None, dict])
def test_what_can_be_called_without_arguments_is_a_task(function, tmp_path) -> None:
    assert every(f"sqlite:///{tmp_path}/shop.db", "report", seconds=60)(function).name == "report"


def test_a_coroutine_that_a_run_returns_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, logged = f"sqlite:///{tmp_path}/shop.db", threading.Event()
    prepare(AlchemyDatabase(url))

    def made() -> object:
        return awaited()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.set()

    heard = Heard(logging.ERROR)
    logging.getLogger("ternmq.reliable").addHandler(heard)
    try:
        with every(url, "report", seconds=0.05)(made):
            assert logged.wait(30)
    finally:
        logging.getLogger("ternmq.reliable").removeHandler(heard)
    assert "has returned a coroutine" in str(caplog.records[0].exc_info[1])  # type: ignore[index]
