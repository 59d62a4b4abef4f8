"""Checks of a request before anything of it is done: its host, its site, the size of its body.

A browser sends a simple POST of any page to any address, also to a loopback address, and a page can
make its own name mean this machine. Neither reaches a broker here: the name is checked, and so is
where the page is from. Bodies that are being read take at most ``BODIES_BYTES`` in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from aiohttp import web

from ternmq.http.api.problems import (
    BodyTooLarge,
    BodyTooSlow,
    OtherSite,
    UnsupportedType,
    WrongHost,
)
from ternmq.model.errors import Busy, InvalidRequest
from ternmq.model.units import Address

BODY_BYTES: Final = 64 << 20
"""Largest body of a request: a batch. A single message is bounded by the broker."""
BODIES_BYTES: Final = 256 << 20
"""Most bytes of all bodies that are being read or worked on."""
BODY_S: Final = 30.0
"""Seconds until a whole body must have arrived."""


class Guard:
    """Checks requests. Not thread-safe: use it in one loop.

    Args:
        hosts: Names that requests may be for, beside loopback addresses.
        local: Whether the server listens on a loopback address.
    """

    def __init__(self, hosts: Collection[str], *, local: bool) -> None:
        self._hosts = frozenset(one.lower() for one in hosts)
        self._local = local
        self._held = 0

    def check(self, request: web.Request) -> None:
        """Refuse what is for another server, or from another site.

        Raises:
            WrongHost, OtherSite.
        """
        host = request.host.lower()
        if self._local or self._hosts:
            name = _name_of(host)
            if name not in self._hosts and not Address(name, 0).is_loopback:
                raise WrongHost(
                    f"this server does not answer for {host[:100]!r}: name it with --host"
                )
        origin = request.headers.get("Origin", "")
        site = request.headers.get("Sec-Fetch-Site", "")
        if site in {"cross-site", "same-site"} or (
            origin and origin.lower().partition("://")[2] != host
        ):
            raise OtherSite("pages of other sites may not use this server")

    async def body(self, request: web.Request) -> bytes:
        """Read the body of a request; ``done`` gives its room back.

        Raises:
            UnsupportedType: It is compressed.
            BodyTooLarge, BodyTooSlow: It is larger, or slower, than is allowed.
            InvalidRequest: It is damaged.
            Busy: Other bodies take all the room.
        """
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise UnsupportedType("a compressed body is not taken")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                async for part in request.content.iter_any():
                    size += len(part)
                    self._held += len(part)
                    self._check_room(size)
                    parts.append(part)
        except TimeoutError:
            self.done(size)
            raise BodyTooSlow(f"the body did not arrive within {BODY_S:g} s") from None
        except web.RequestPayloadError as error:
            self.done(size)
            raise InvalidRequest(f"the body cannot be read: {error}") from error
        except BaseException:
            self.done(size)
            raise
        return b"".join(parts)

    def _check_room(self, size: int) -> None:
        if size > BODY_BYTES:
            raise BodyTooLarge(f"a body has at most {BODY_BYTES:,} bytes")
        if self._held > BODIES_BYTES:
            raise Busy("the bodies of other requests take all the room")

    def done(self, size: int) -> None:
        """Give the room of a body back."""
        self._held -= size


def _name_of(host: str) -> str:
    """Return a host without its port."""
    name, colon, port = host.rpartition(":")
    bare = name if colon and port.isdigit() else host
    return bare.strip("[]")
