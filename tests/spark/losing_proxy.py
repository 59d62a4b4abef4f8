"""A proxy that loses answers to some commands and cuts the connection, or ends at a question."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from ternmq.wire.frames import ANSWER, HEADER, HEADER_BYTES


class LosingProxy:
    """Stands between a client and a broker, in threads of its own.

    Attributes:
        port: What to connect to.
        lose: Numbers of commands whose answers are lost.
        lost: How many were.
        end_at: Of commands by number, how many still reach the broker. With the next one everything
            ends, as if whoever asked had died there: nothing is passed on any more, either way.
        ended: It has.
    """

    def __init__(self, port: int) -> None:
        self._there = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lose: set[int] = set()
        self.lost = 0
        self.end_at: dict[int, int] = {}
        self.ended = threading.Event()
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
        self._end()

    def _end(self) -> None:
        self.ended.set()
        _end(self._listener)
        for one in self._open:
            _end(one)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._there))
                self._open += here, there
                if self.ended.is_set():
                    self._end()
                for work in (self._ask, self._answer):
                    threading.Thread(target=work, args=(here, there), daemon=True).start()

    def _ask(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for frame, command, _ in _frames(here):
                left = self.end_at.get(command)
                if left == 0:
                    self._end()
                    break
                if left is not None:
                    self.end_at[command] = left - 1
                there.sendall(frame)
        _end(here)
        _end(there)

    def _answer(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for frame, command, flags in _frames(there):
                if command in self.lose and flags & ANSWER:
                    self.lost += 1
                    break
                here.sendall(frame)
        _end(here)
        _end(there)


def _frames(line: socket.socket) -> Iterator[tuple[bytes, int, int]]:
    """Yield frames with their commands and flags, to the end of what comes."""
    kept = b""
    while data := line.recv(1 << 16):
        kept += data
        while len(kept) >= HEADER_BYTES:
            length, _, command, flags, _, _ = HEADER.unpack_from(kept)
            if len(kept) < length:
                break
            yield kept[:length], command, flags
            kept = kept[length:]


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
