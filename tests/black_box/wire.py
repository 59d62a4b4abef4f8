"""A wire between client and broker that a test can freeze, cut and count: a proxy of TCP bytes."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from types import TracebackType
from typing import Self


class Wire:
    """A context manager: whoever connects to ``url`` talks to the broker through it.

    Args:
        port: Where the broker listens.

    Attributes:
        up_bytes: From clients to the broker so far.
        down_bytes: From the broker to clients.
        connections: That were made.
        lost: Answers to this command are thrown away; 0: none. Set it while nothing is under way.
        lost_count: How many were.
        delay_s: How much later each piece of an answer arrives.
        deaf: All that comes from the other side is thrown away.
        thrown_bytes: How much was.
    """

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._ups: set[socket.socket] = set()
        self._stranded: set[socket.socket] = set()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="wire", daemon=True)
        self._limit: int | None = None
        self._begun: dict[socket.socket, bytes] = {}
        """Of a connection to the broker: the first bytes of a frame that is not whole yet."""
        self.frozen = self.deaf = False
        self.thrown_bytes = 0
        self.lost = self.lost_count = 0
        self.delay_s = 0.0
        self.up_bytes = self.down_bytes = self.connections = 0

    @property
    def url(self) -> str:
        """What to connect to."""
        return f"ternmq://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """End every connection."""
        with self._lock:
            for one in list(self._pairs):
                self._drop(one)

    def strand(self) -> int:
        """Have the connections that there are carry nothing more, and not end; return how many.

        New ones work: as when a device in between has forgotten the old ones. ``cut`` ends all.
        """
        with self._lock:
            fresh = [one for one in self._pairs if one not in self._stranded]
            for one in fresh:
                self._selector.unregister(one)
            self._stranded.update(fresh)
            return len(fresh) // 2

    def cut_after(self, down_bytes: int) -> None:
        """End the connection when it has carried so many more bytes to the client."""
        self._limit = down_bytes

    def _work(self) -> None:
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.01):
                with self._lock:
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    if one is self._listener:
                        self._accept()
                    elif one in self._pairs and one not in self._stranded and not self.frozen:
                        self._carry(one)
            if self.frozen:
                self._ended.wait(0.01)

    def _accept(self) -> None:
        down, _ = self._listener.accept()
        try:
            up = socket.create_connection(self._to, 5)
        except OSError:
            down.close()
            return
        self.connections += 1
        for one, other in ((down, up), (up, down)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)
        self._ups.add(up)

    def _carry(self, one: socket.socket) -> None:
        try:
            data = one.recv(65536)
            if data and one in self._ups and self.deaf:
                self.thrown_bytes += len(data)
                return
            if data and one in self._ups:
                if self._limit is not None and len(data) >= self._limit:
                    self._pairs[one].sendall(data[: self._limit])
                    self._limit, data = None, b""
                elif self._limit is not None:
                    self._limit -= len(data)
                self.down_bytes += len(data)
                self._ended.wait(self.delay_s)
                if self.lost or one in self._begun:
                    kept = self._without_lost(one, data)
                    self._pairs[one].sendall(kept)
                    return
            else:
                self.up_bytes += len(data)
            if data:
                self._pairs[one].sendall(data)
                return
        except OSError:
            pass
        self._drop(one)

    def _without_lost(self, one: socket.socket, data: bytes) -> bytes:
        """Return the whole frames of what came, without those that are to be lost."""
        data = self._begun.pop(one, b"") + data
        kept = b""
        while len(data) >= 16:
            length, _, command = struct.unpack_from("<IBB", data)
            if len(data) < length:
                break
            if command == self.lost:
                self.lost_count += 1
            else:
                kept += data[:length]
            data = data[length:]
        if data:
            self._begun[one] = data
        return kept

    def _drop(self, one: socket.socket) -> None:
        other = self._pairs.get(one)
        for each in (one, other):
            if each is not None and self._pairs.pop(each, None) is not None:
                if each not in self._stranded:
                    self._selector.unregister(each)
                self._stranded.discard(each)
                self._ups.discard(each)
                self._begun.pop(each, None)
                each.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(10)
        self.cut()
        self._selector.close()
        self._listener.close()
