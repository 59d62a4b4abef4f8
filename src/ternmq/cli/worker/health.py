"""The health port of a worker: ``/livez``, ``/readyz`` and ``/metrics`` over HTTP.

The process that was started first has the port, and answers for all processes. With a supervisor
the port is in the supervisor's loop; else it is in a thread of its own, so that it answers although
the client's loop is stuck.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Final

from ternmq.cli.terminal.exits import Failed
from ternmq.cli.worker.board import Board
from ternmq.http.port import Answer, HttpPort
from ternmq.model.units import Address

log: Final = logging.getLogger("ternmq")

Paths = Mapping[str, Callable[[], Awaitable[Answer]]]
_WHY_NOT: Final = {
    errno.EADDRINUSE: "is in use",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "this user may not listen at that port",
}


class Port:
    """An HTTP port of a command. Not thread-safe: use it in one loop.

    Args:
        paths: As for ``HttpPort``.
        option: The option that names the address.
        what: What it serves, for the log.
    """

    def __init__(self, paths: Paths, option: str, what: str) -> None:
        self._port = HttpPort(paths)
        self._option = option
        self._what = what
        self._paths = ", ".join(paths)

    async def start(self, address: Address) -> None:
        """Listen, and log where.

        Raises:
            Failed: It cannot listen there.
        """
        try:
            port = await self._port.start(address.host, address.port)
        except OSError as error:
            unknown = isinstance(error, socket.gaierror)
            why = None if unknown else _WHY_NOT.get(error.errno or 0)
            raise Failed(
                f"{self._option} {address}: {why or error.strerror or error}; name another address"
            ) from error
        log.info("%s: http://%s%s", self._what, Address(address.host, port), self._paths)

    async def close(self) -> None:
        """Stop listening."""
        await self._port.close()


class HealthPort(Port):
    """The port of a worker."""

    def __init__(self, board: Board) -> None:
        self._board = board
        super().__init__(
            {"/livez": self._livez, "/readyz": self._readyz, "/metrics": self._metrics},
            "--http",
            "health and metrics",
        )

    async def _livez(self) -> Answer:
        return _answer(self._board.not_live(time.monotonic()))

    async def _readyz(self) -> Answer:
        now = time.monotonic()
        return _answer(self._board.not_ready(now))

    async def _metrics(self) -> Answer:
        from ternmq.cli.worker import metrics  # imports prometheus-client

        text = metrics.text(self._board, time.monotonic())
        return Answer([text], content_type=metrics.CONTENT_TYPE)


def _answer(why: str) -> Answer:
    if why:
        return Answer([f"{why}\n".encode()], HTTPStatus.SERVICE_UNAVAILABLE)
    return Answer([b"ok\n"])


@contextlib.asynccontextmanager
async def listening(address: Address | None, board: Board) -> AsyncIterator[None]:
    """Serve the port in the running loop; without an address, serve none.

    Raises:
        Failed: It cannot listen there.
    """
    if address is None:
        yield
        return
    port = HealthPort(board)
    await port.start(address)
    try:
        yield
    finally:
        await port.close()


@contextlib.contextmanager
def beside(address: Address, port: Port) -> Iterator[None]:
    """Serve the port in a thread of its own, which does not keep the process alive.

    Raises:
        Failed: It cannot listen there.
    """
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(port.start(address))
    except BaseException:
        loop.close()
        raise

    def serve() -> None:
        loop.run_forever()
        loop.run_until_complete(port.close())
        loop.close()

    thread = threading.Thread(target=serve, name="ternmq-health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
