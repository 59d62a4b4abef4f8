"""Check whether the broker can listen at its addresses, before a start writes any file.

The check releases the addresses at once, so another process may still take them: then the start
itself fails.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Final

from ternmq.model.units import Address
from ternmq.settings import Settings

_WHY_NOT: Final = {
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "this user may not listen at that port",
}


def why_not(settings: Settings) -> str | None:
    """Return why this broker cannot listen at its addresses, for the user; None if it can.

    Reasons: another process listens there, this machine has no such address, or the port is for the
    superuser. A start would find the same, but only after making the files of a new journal.
    """
    for name, address in (("listen", settings.listen), ("http", settings.http)):
        if address is None:
            continue
        try:
            places = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            return f"{name} = {address}: {error.strerror}; --{name} names another"
        found = [_why_not_at(*place) for place in places]
        if errno.EADDRINUSE in found:
            return _in_use(address)
        if None not in found:  # else the machine lacks a family, and the listener leaves it out
            number = found[0] if found[0] is not None else 0
            why = _WHY_NOT.get(number, os.strerror(number))
            return f"{name} = {address}: {why}; --{name} names another"
    return None


def _why_not_at(
    family: int, kind: int, protocol: int, _: str, where: tuple[Any, ...]
) -> int | None:
    """Return the errno of binding there; None if it succeeds."""
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(where)
    except OSError as error:
        return error.errno
    return None


def _in_use(address: Address) -> str:
    return f"{address} is in use; is another broker running? --listen and --http name others"
