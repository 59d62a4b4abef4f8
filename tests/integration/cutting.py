"""A proxy of threads that cuts connections after some bytes of answers; for blocking clients."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from types import TracebackType
from typing import Self


class CuttingProxy:
    """Stands between a blocking client and a broker; a context manager.

    Attributes:
        url: What to connect to.
        cuts: Connections that were cut.
    """

    def __init__(self, port: int, *, seed: int, least: int, most: int) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self._least, self._most = least, most
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"ternmq://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._port))
                allowed = self._chance.randint(self._least, self._most)
                for pump in (
                    threading.Thread(target=self._ask, args=(client, there), daemon=True),
                    threading.Thread(
                        target=self._answer, args=(there, client, allowed), daemon=True
                    ),
                ):
                    pump.start()

    def _ask(self, client: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                there.sendall(data)
        _end(there)

    def _answer(self, there: socket.socket, client: socket.socket, allowed: int) -> None:
        with contextlib.suppress(OSError):
            while data := there.recv(4096):
                client.sendall(data[:allowed])
                allowed -= len(data)
                if allowed <= 0:
                    self.cuts += 1
                    break
        _end(client)
        _end(there)


def _end(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()
