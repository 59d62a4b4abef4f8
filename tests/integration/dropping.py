"""A proxy of threads that drops chosen one-way sends, and nothing else; for any client."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

from msgspec.structs import astuple

from ternmq.wire import frames
from ternmq.wire.commands import Command
from ternmq.wire.frames import Frame, FrameReader


class DroppingProxy:
    """Stands between clients and a broker; a context manager.

    Args:
        port: The broker's.
        chosen: Of the one-way sends, counted from 0, which are dropped.

    Attributes:
        url: What to connect to.
        seen: One-way sends that came.
        dropped: Those that were dropped.
    """

    def __init__(self, port: int, chosen: Callable[[int], bool]) -> None:
        self._port = port
        self._chosen = chosen
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"ternmq://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen = 0
        self.dropped = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=self._ask, args=(client, there), daemon=True).start()
                threading.Thread(target=self._answer, args=(there, client), daemon=True).start()

    def _ask(self, client: socket.socket, there: socket.socket) -> None:
        reader = FrameReader(1 << 30)
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                for frame in reader.feed(data):
                    if not self._drops(frame):
                        there.sendall(frames.pack(*astuple(frame)))
        _end(there)

    def _drops(self, frame: Frame) -> bool:
        if frame.command != Command.SEND or not frame.flags & frames.ONE_WAY:
            return False
        number, self.seen = self.seen, self.seen + 1
        drops = self._chosen(number)
        self.dropped += drops
        return drops

    def _answer(self, there: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := there.recv(65_536):
                client.sendall(data)
        _end(client)


def _end(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()
