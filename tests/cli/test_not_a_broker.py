"""A port where another program listens is told apart from one where nobody does."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

import ternmq
from ternmq.cli.terminal.problems import text_of
from ternmq.client.admin.admin_client import AdminClient
from ternmq.model.errors import CannotConnect
from tests.asynchronous import until
from tests.black_box.process import free_port
from tests.cli.conftest import CommandLine


@contextmanager
def silent() -> Iterator[str]:
    """Listen, and never say anything: as a web server does that waits for the end of a line."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"ternmq://127.0.0.1:{listener.getsockname()[1]}"


def impatient(url: str) -> ternmq.Client:
    return ternmq.Client(replace(ternmq.connect(url).options, connect_timeout=0.2))


async def _failure(url: str) -> CannotConnect:
    client = impatient(url)
    try:
        with pytest.raises(CannotConnect) as raised:
            await client.connect()
    finally:
        await client.close()
    return raised.value


def test_something_listens_there() -> None:
    with silent() as url:
        said = text_of(asyncio.run(_failure(url)))
    assert "but got no answer in time: if it is the broker, it is blocked" in said
    assert "; if another program listens there, set" in said
    assert "ternmq dev" not in said


def test_nobody_listens_there() -> None:
    said = text_of(asyncio.run(_failure(f"ternmq://127.0.0.1:{free_port()}")))
    assert "(connection refused): `ternmq dev` starts one" in said


@pytest.mark.parametrize("listens", [True, False])
def test_a_worker_says_why_it_waits(caplog: pytest.LogCaptureFixture, *, listens: bool) -> None:
    caplog.set_level(logging.WARNING, "ternmq")

    async def work(url: str) -> None:
        client = impatient(url)

        @client.handler("orders", group="g")
        async def on_order(order: str) -> None:
            raise AssertionError(order)

        running = asyncio.ensure_future(client.run())
        await until(lambda: "waiting for it" in caplog.text)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()

    with silent() as url:
        asyncio.run(work(url if listens else f"ternmq://127.0.0.1:{free_port()}"))
    if listens:
        assert "waiting for it (connected to ternmq://127.0.0.1:" in caplog.text
        assert "but got no answer in time)" in caplog.text
    else:
        assert "waiting for it (connection refused)" in caplog.text


@pytest.mark.parametrize(("given", "most"), [("100ms", 0.1), ("3s", 3.0), ("1m", 5.0)])
def test_a_command_waits_no_longer_for_a_connection_than_its_timeout(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, given: str, most: float
) -> None:
    """Five seconds are the most that a client waits for a connection, not the least."""
    seen: list[float] = []

    async def connect(client: ternmq.Client) -> None:
        seen.append(client.options.connect_timeout)
        raise CannotConnect("not now")

    monkeypatch.setattr(AdminClient, "connect", connect)
    cli("topic", "list", "--timeout", given, code=3)
    assert seen == [most]


def test_a_command_and_a_port_that_says_nothing(cli: CommandLine) -> None:
    with silent() as url:
        ended = cli("topic", "list", "--timeout", "100ms", "--url", url, code=3)
    assert "but got no answer in time" in ended.err
