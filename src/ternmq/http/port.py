"""HTTP for probes and scrapers: a few fixed paths, one answer a connection.

Requests are GET or HEAD without a body; their headers are ignored. Probes and scrapers need no more
of HTTP, and every broker and worker saves the memory and the start-up time of a whole library. If
more is needed one day (a body, a session, an upgrade), use a library instead of extending this
file.

The second line of every answer of a broker is ``TernMQ-Clients: URL``, the address for clients. A
TernMQ client that connects to this port by mistake is answered with 400, and can show its user that
address.

A peer has ``PATIENCE_S`` for the whole exchange and ``HEAD_BYTES`` for its request; there are at
most ``MOST`` peers. Beyond that, a new peer replaces the one that has waited longest without
sending a whole request, so that idle connections keep no probe out. If all have sent one, the new
peer is closed without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

PATIENCE_S: Final = 10.0
HEAD_BYTES: Final = 8192
MOST: Final = 64
CLIENTS: Final = "TernMQ-Clients"
"""Name of the header; ``ternmq.wire.session`` looks for it if an HTTP answer arrives instead of
WELCOME."""
_TEXT: Final = "text/plain; charset=utf-8"
_LEFT_BYTES: Final = 65_536


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        body: The body in pieces; the loop does other work between them.
        status: Status of the answer.
        content_type: Type of the body.
    """

    body: Sequence[bytes]
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _TEXT


class HttpPort:
    """Listens and answers. Not thread-safe: call it from one loop.

    Args:
        paths: Path -> function that makes the answer; it may not raise anything but
            ``CancelledError``.
        clients: The URL that clients of the broker connect to; empty: this is no broker's port.
    """

    def __init__(
        self, paths: Mapping[str, Callable[[], Awaitable[Answer]]], clients: str = ""
    ) -> None:
        self._paths = paths
        self._clients = clients
        self._peers: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], None] = {}
        """Peers that have not sent a whole request yet, oldest first."""
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port.

        Raises:
            OSError: It cannot listen at the address.
        """
        self._listener = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, and end all exchanges."""
        if self._listener is not None:
            self._listener.close()
        for peer in self._peers:
            peer.cancel()
        await asyncio.gather(*self._peers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._peers) >= MOST:
            if not self._silent:
                writer.transport.abort()
                return
            oldest = next(iter(self._silent))
            self._forget(oldest)
            oldest.cancel()
        self._peers.add(task)
        self._silent[task] = None
        try:
            # A peer that is late, gone, or sends an incomplete request gets no answer. Nobody but
            # this port cancels the task, and asyncio would log it as an error of a callback.
            with contextlib.suppress(
                TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.CancelledError
            ):
                async with asyncio.timeout(PATIENCE_S):
                    await self._exchange(reader, writer)
        finally:
            self._forget(task)
            writer.transport.abort()  # all is written, or the peer does not read it

    def _forget(self, peer: asyncio.Task[None]) -> None:
        self._peers.discard(peer)
        self._silent.pop(peer, None)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, answer = await self._asked(reader)
        clients = f"{CLIENTS}: {self._clients}\r\n" if self._clients else ""
        head = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
            f"{clients}"
            f"Content-Type: {answer.content_type}\r\n"
            f"Content-Length: {sum([len(piece) for piece in answer.body])}\r\n"
            "Allow: GET, HEAD\r\nConnection: close\r\n\r\n"
        )
        writer.transport.set_write_buffer_limits(high=0)  # drain: until the kernel has all of it
        writer.write(head.encode("ascii"))
        if method != b"HEAD":
            for piece in answer.body:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        await writer.drain()
        writer.write_eof()
        # If the peer still sends, a close now would reset the connection, and the answer would be
        # lost: so its remaining bytes are read first, up to a bound.
        left = _LEFT_BYTES
        while left > 0 and (some := await reader.read(left)):
            left -= len(some)

    async def _asked(self, reader: asyncio.StreamReader) -> tuple[bytes, Answer]:
        """Read a request; return its method and the answer."""
        begin = await reader.readexactly(3)
        if not begin.isalpha():  # another protocol: its peer may wait without ever sending CRLF
            told = f"; clients of TernMQ connect to {self._clients}" if self._clients else ""
            return b"", _refusal(HTTPStatus.BAD_REQUEST, told)
        try:
            rest = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return b"", _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        task = asyncio.current_task()
        assert task is not None
        self._silent.pop(task, None)
        return await self._answer((begin + rest).split(b"\r\n", 1)[0])

    async def _answer(self, line: bytes) -> tuple[bytes, Answer]:
        """Return the method and the answer for a request's first line."""
        method, _, rest = line.partition(b" ")
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return method, _refusal(HTTPStatus.BAD_REQUEST)
        if method not in {b"GET", b"HEAD"}:
            return method, _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        path = target.split(b"?", 1)[0].decode("ascii", "replace")
        asked = self._paths.get(path)
        if asked is None:
            return method, _refusal(HTTPStatus.NOT_FOUND, f": there are {', '.join(self._paths)}")
        return method, await asked()


def _refusal(status: HTTPStatus, more: str = "") -> Answer:
    return Answer([f"{status.value} {status.phrase}{more}\n".encode()], status)
