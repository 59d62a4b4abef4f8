"""A proxy that loses the answers to some commands, and cuts the connection then."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from ternmq.wire.frames import ANSWER, HEADER, HEADER_BYTES


class LosingProxy:
    """Stands between a client and a broker, in threads of its own.

    Attributes:
        port: What to connect to.
        lose: Numbers of commands whose answers are lost.
        lost: How many were.
    """

    def __init__(self, port: int) -> None:
        self._there = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lose: set[int] = set()
        self.lost = 0
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _end(self._listener)
        for one in self._open:
            _end(one)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._there))
                self._open += here, there
                for work in (self._ask, self._answer):
                    threading.Thread(target=work, args=(here, there), daemon=True).start()

    def _ask(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(1 << 16):
                there.sendall(data)
        _end(here)
        _end(there)

    def _answer(self, here: socket.socket, there: socket.socket) -> None:
        kept = b""
        with contextlib.suppress(OSError):
            while data := there.recv(1 << 16):
                kept += data
                while len(kept) >= HEADER_BYTES:
                    length, _, command, flags, _, _ = HEADER.unpack_from(kept)
                    if len(kept) < length:
                        break
                    if command in self.lose and flags & ANSWER:
                        self.lost += 1
                        raise OSError("lost")
                    here.sendall(kept[:length])
                    kept = kept[length:]
        _end(here)
        _end(there)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
