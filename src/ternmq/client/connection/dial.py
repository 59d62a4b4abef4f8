"""Connects a protocol of asyncio to the broker, also while the interpreter ends."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from ternmq.client.connection.address import Address

_NO_EXECUTOR: Final = ("can't register atexit after shutdown", "cannot schedule new futures")
"""What Python says when executors take no more work: there is no other sign of it, since the main
thread counts as alive while it waits for the threads of a pool."""


async def connected(
    loop: asyncio.AbstractEventLoop, address: Address, protocol: asyncio.BaseProtocol
) -> None:
    """Connect to the first of the host's addresses that accepts it.

    asyncio looks a name up in a thread of an executor. When the main thread has ended, executors
    take no more work; a client of ``ternmq.sync`` has to connect all the same, for the messages
    that are not sent yet and for the threads that still run. Its loop then looks the name up
    itself.

    Raises:
        OSError: No address accepts the connection, or the host's name has none.
    """
    context = address.ssl_context()
    try:
        await loop.create_connection(lambda: protocol, address.host, address.port, ssl=context)
    except RuntimeError as error:
        if not any(text in str(error) for text in _NO_EXECUTOR):
            raise
    else:
        return
    failure = OSError("the host's name has no address")
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    try:
        for family, _, _, _, place in found:
            try:
                await loop.create_connection(
                    lambda: protocol,
                    str(place[0]),
                    address.port,
                    family=family,
                    ssl=context,
                    server_hostname=None if context is None else address.host,
                )
            except OSError as error:
                failure = error
            else:
                return
        raise failure
    finally:
        del failure  # see ``raising``
