"""Listening sockets that stay open while those who accept at them change.

A broker of a broker group listens at one address for its whole life: first for visitors, then for
clients, when it leads. Between the two nobody accepts for a moment. Connections that come then wait
in the kernel and are served a moment later, instead of being refused.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_BACKLOG: Final = 512
ACCEPTING_TURNS: Final = 6
"""Turns of the loop to wait. By asyncio's source it takes three from an accepted connection to its
peer; this is also enough for a transport to close."""


@dataclass(slots=True)
class Accepting:
    """Those who accept connections now.

    Attributes:
        servers: Of asyncio, one for each socket.
    """

    servers: list[asyncio.Server]

    @property
    def sockets(self) -> list[socket.socket]:
        """The sockets at which they accept."""
        return [each for one in self.servers for each in one.sockets]

    async def end(self) -> None:
        """Accept no more.

        What asyncio has accepted becomes a connection first: closing the server would lose it.
        """
        loop = asyncio.get_running_loop()
        for one in self.sockets:
            loop.remove_reader(one.fileno())
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        self.close()

    def close(self) -> None:
        """Accept no more, at once; the sockets of the doorway stay open."""
        for one in self.servers:
            one.close()


class Doorway:
    """The listening sockets of a broker. Loop only.

    Args:
        host: Host to listen at; empty: every interface.
        port: Port; 0: a free one.

    Attributes:
        port: The port.

    Raises:
        OSError: The broker cannot listen there.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        self._sockets: list[socket.socket] = []
        places = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        failure: OSError | None = None
        for family, kind, protocol, _, where in dict.fromkeys(places):
            try:
                self._sockets.append(self._listening(family, kind, protocol, str(where[0])))
            except OSError as error:
                failure = error
        if not self._sockets and failure is not None:
            raise failure

    def _listening(self, family: int, kind: int, protocol: int, host: str) -> socket.socket:
        """Return a socket that listens; the first one of port 0 decides on the port."""
        one = socket.socket(family, kind, protocol)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.setblocking(False)
            one.bind((host, self.port))
            one.listen(_BACKLOG)
        except OSError:
            one.close()
            raise
        self.port = int(one.getsockname()[1])
        return one

    async def accept(
        self, factory: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None
    ) -> Accepting:
        """Accept connections from now on, also those that came while nobody did."""
        loop = asyncio.get_running_loop()
        return Accepting(
            [
                await loop.create_server(factory, sock=one.dup(), ssl=tls, backlog=_BACKLOG)
                for one in self._sockets
            ]
        )

    def close(self) -> None:
        """Stop listening."""
        for one in self._sockets:
            one.close()
        self._sockets = []
