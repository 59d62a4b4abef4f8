"""The HTTP port for machines: what it answers, and what it does not put up with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest

from ternmq.http import port as http_port
from ternmq.http.port import Answer, HttpPort

CLIENTS = "ternmq://127.0.0.1:1234"
ELSEWHERE = b"400 Bad Request; clients of TernMQ connect to ternmq://127.0.0.1:1234\n"
LARGE = b"x" * 5_000_000


def says(answer: Answer) -> Callable[[], Awaitable[Answer]]:
    async def say() -> Answer:
        return answer

    return say


PATHS = {
    "/ok": says(Answer([b"ok\n"])),
    "/no": says(Answer([b"wait\n"], HTTPStatus.SERVICE_UNAVAILABLE)),
    "/large": says(Answer([LARGE[:1_000_000], LARGE[1_000_000:]], content_type="application/x")),
}


PATHS_THERE = b": there are /ok, /no, /large\n"


def with_port(work: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        one = HttpPort(PATHS, CLIENTS)
        port = await one.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await work(port)
        finally:
            await one.close()

    asyncio.run(run())


async def ask(port: int, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_", "status", "ends"),
    [
        (b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK", b"\r\n\r\nok\n"),
        (b"GET /ok?a=b HTTP/1.0\r\n\r\n", b"200 OK", b"\r\n\r\nok\n"),
        (b"HEAD /ok HTTP/1.1\r\n\r\n", b"200 OK", b"close\r\n\r\n"),
        (b"GET /no HTTP/1.1\r\n\r\n", b"503 Service Unavailable", b"\r\n\r\nwait\n"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found", b"\r\n\r\n404 Not Found" + PATHS_THERE),
        (b"GET /../ok HTTP/1.1\r\n\r\n", b"404 Not Found", b"404 Not Found" + PATHS_THERE),
        (b"GET /\xff HTTP/1.1\r\n\r\n", b"404 Not Found", b"404 Not Found" + PATHS_THERE),
        (b"PUT /ok HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405 Method Not Allowed", b"ed\n"),
        (b"GET /ok\r\n\r\n", b"400 Bad Request", b"400 Bad Request\n"),
        (b"\r\n\r\n", b"400 Bad Request", ELSEWHERE),
        (b"\x20\x00\x00\x00T\x01", b"400 Bad Request", ELSEWHERE),
        (b"GET /ok HTTP/2\r\n\r\n", b"400 Bad Request", b"400 Bad Request\n"),
        (b"\x00\xff" * 40 + b"\r\n\r\n", b"400 Bad Request", ELSEWHERE),
    ],
)
def test_each_request_has_its_answer(request_: bytes, status: bytes, ends: bytes) -> None:
    async def work(port: int) -> None:
        for pieces in ([request_], [request_[at : at + 1] for at in range(len(request_))]):
            found = await ask(port, *pieces)
            assert found.startswith(b"HTTP/1.1 " + status + b"\r\n"), found
            assert found.endswith(ends), found

    with_port(work)


def test_a_large_answer_is_whole() -> None:
    async def work(port: int) -> None:
        head, body = (await ask(port, b"GET /large HTTP/1.1\r\n\r\n")).split(b"\r\n\r\n", 1)
        assert b"Content-Type: application/x" in head
        assert b"Content-Length: 5000000" in head
        assert body == LARGE

    with_port(work)


def test_a_head_that_does_not_end_is_refused() -> None:
    async def work(port: int) -> None:
        found = await ask(port, b"GET /ok HTTP/1.1\r\nX: " + b"x" * http_port.HEAD_BYTES)
        assert found.startswith(b"HTTP/1.1 431 "), found

    with_port(work)


def test_who_is_late_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_port, "PATIENCE_S", 0.05)

    async def work(port: int) -> None:
        assert await ask(port, b"GET /ok HTTP/1.1\r\n") == b""

    with_port(work)


def test_no_more_than_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_port, "MOST", 2)

    async def work(port: int) -> None:
        (oldest, gone), *held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        held.append(await asyncio.open_connection("127.0.0.1", port))
        assert await oldest.read() == b""  # who said nothing for longest made room
        gone.close()
        for reader, writer in held:
            writer.write(b"GET /ok HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"ok\n")
            writer.close()

    with_port(work)


def test_who_makes_room_for_others_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_port, "MOST", 1)

    async def work(port: int) -> None:
        oldest, gone = await asyncio.open_connection("127.0.0.1", port)
        _, latest = await asyncio.open_connection("127.0.0.1", port)
        assert await oldest.read() == b""
        for writer in (gone, latest):
            writer.close()

    with_port(work)
    assert caplog.records == []


def test_an_end_does_not_wait_for_anybody() -> None:
    async def work(port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET")
        await writer.drain()
        writer.close()

    with_port(work)
