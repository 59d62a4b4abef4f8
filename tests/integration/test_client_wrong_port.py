"""A port that is not the broker's for clients, and the other way round: what it is, is said."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ternmq
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.testing import broker
from tests.integration.client_shapes import API


async def told_by(api: API, url: str) -> list[ternmq.TernMQError]:
    """Return what both kinds of client are told at an address."""
    found: list[ternmq.TernMQError] = []
    with pytest.raises(ternmq.TernMQError) as told:
        async with api.connect(url, timeout=5):
            pass
    found.append(told.value)

    def bulk() -> None:
        with Bulk(BulkOptions(url=url, tries=1)) as one:
            one.connect()

    with pytest.raises(ternmq.TernMQError) as told:
        await asyncio.to_thread(bulk)
    return [*found, told.value]


@contextlib.asynccontextmanager
async def speaking(words: bytes) -> AsyncIterator[int]:
    """A port that says something when it hears something."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(words)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_the_http_port_is_said_to_be_one(api: API) -> None:
    with broker(settings={"http": "127.0.0.1:0"}) as one:
        for error in await told_by(api, f"ternmq://127.0.0.1:{one.http_port}"):
            assert type(error) is ternmq.NotABroker
            assert str(error) == (
                f"ternmq://127.0.0.1:{one.http_port}: this is a broker's HTTP port; "
                f"clients connect to {one.url}"
            )
        for error in await told_by(api, f"ternmqs://127.0.0.1:{one.port}"):
            assert type(error) is ternmq.NotABroker
            assert "does not use TLS" in str(error)
            assert f"connect to {one.url} if a broker without TLS listens there" in str(error)


async def test_any_other_http_port_is_said_to_be_one(api: API) -> None:
    hostile = b"HTTP/1.1 400 Bad Request\r\nTernMQ-Clients: ternmq://x\x1b]0;y\x07\r\n\r\n"
    for words in (b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n\r\n", hostile):
        async with speaking(words) as port:
            for error in await told_by(api, f"ternmq://127.0.0.1:{port}"):
                assert type(error) is ternmq.NotABroker
                assert "this is an HTTP port, such as" in str(error)
                assert "7117, unless" in str(error)
                assert "\x1b" not in str(error)


async def test_another_protocol_is_shown(api: API) -> None:
    async with speaking(b"SSH-2.0-OpenSSH\x1b]0;x\x07\r\n") as port:
        for error in await told_by(api, f"ternmq://127.0.0.1:{port}"):
            assert type(error) is ternmq.NotABroker
            assert "not a broker listens there: its first bytes are b'SSH-2.0-" in str(error)
            assert "\x1b" not in str(error)


async def test_a_port_with_tls(api: API, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(  # noqa: ASYNC221 - nothing else runs in this loop yet
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    with broker(
        settings={"tls_cert": str(certificate), "tls_key": str(key), "http": "127.0.0.1:0"}
    ) as one:
        for error in await told_by(api, f"ternmq://127.0.0.1:{one.port}"):
            assert "ternmqs://" in str(error)
        for error in await told_by(api, f"ternmq://127.0.0.1:{one.http_port}"):
            assert f"clients connect to ternmqs://127.0.0.1:{one.port}" in str(error)
        for error in await told_by(api, f"ternmqs://127.0.0.1:{one.port}"):
            assert "certificate is not trusted" in str(error)


@pytest.mark.parametrize("http", ["off", "127.0.0.1:0"])
async def test_http_on_the_port_for_clients_is_answered_with_a_line(
    http: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ternmq")
    with broker(settings={"http": http}) as one:
        for words in (b"GET / HTTP/1.0\r\n\r\n", b"POST /v1/x HTTP/1.1\r\nHost: x\r\n\r\n{}"):
            reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
            writer.write(words)
            answer = (await reader.read()).decode()
            writer.close()
            head, _, body = answer.partition("\r\n\r\n")
            assert head.startswith("HTTP/1.1 400 ")
            assert f"Content-Length: {len(body)}" in head
            where = f"http://127.0.0.1:{one.http_port}" if http != "off" else "HTTP is off"
            assert where in body
            assert body.count("\n") == 1
        assert " broke the protocol: HTTP on the port for clients" in caplog.text
        async with ternmq.connect(one.url) as client:
            assert (await client.send("t", b"x")).durable


async def test_the_log_says_that_a_client_tried_tls(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ternmq")
    with broker() as one:
        with pytest.raises(ternmq.NotABroker):
            await ternmq.connect(one.url.replace("ternmq://", "ternmqs://")).connect()
        assert " broke the protocol: a TLS handshake (ternmqs:// or https://), but" in caplog.text


async def test_an_error_that_is_raised_is_not_logged(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    async with speaking(b"220 mail ESMTP\r\n") as port:
        client = api.connect(f"ternmq://127.0.0.1:{port}", timeout=5)
        with pytest.raises(ternmq.NotABroker):
            await client.send("t", b"x")
        await client.close()
    assert [one.message for one in caplog.records if one.levelno > logging.INFO] == []


async def test_a_send_to_a_silent_port_names_the_address_and_the_likely_cause(api: API) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"ternmq://127.0.0.1:{silent.getsockname()[1]}"
        client = api.connect(url, timeout=0.5)
        with pytest.raises(
            ternmq.CannotConnect, match=f"not sent within .*connected to {url}"
        ) as told:
            await client.send("t", b"x")
        assert "if another program listens there" in str(told.value)
        await client.close()
