"""Requests to ZooKeeper: kazoo's threads do them, the loop waits for their answers.

kazoo calls back in threads of its own. Each answer is brought into the loop, and a request whose
answer does not come within the deadline is given up; it may still be done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from ternmq.cluster.coordination.port import Unknown
from ternmq.model.printing import printable

T = TypeVar("T")
_MOST_WHY: Final = 200


class Pending(Protocol):
    """What kazoo returns for a request that it has sent."""

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        """Have a function called, in a thread, when there is an answer."""
        ...

    def get(self) -> Any:  # noqa: ANN401  # the type depends on the request
        """Return the answer, or raise its error."""
        ...


async def answer(pending: Pending) -> Any:  # noqa: ANN401  # the type depends on the request
    """Return the answer to a request; raise what it was refused with."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def arrived(done: Pending) -> None:  # in a thread of kazoo
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(take, done)

    def take(done: Pending) -> None:
        if future.done():
            return  # given up
        try:
            future.set_result(done.get())
        except Exception as error:  # noqa: BLE001  # whoever waits gets it
            future.set_exception(error)

    pending.rawlink(arrived)
    return await future


async def asked(
    client: KazooClient, limit_s: float, ask: Callable[[], Awaitable[T]]
) -> T | Unknown:
    """Return what a function that makes requests returns; Unknown if an answer does not come.

    Without a connection nothing is asked: kazoo would keep the requests and send them later.

    Args:
        client: Of kazoo.
        limit_s: Longest time of all its requests together.
        ask: It handles the errors of ZooKeeper that are answers, such as a wrong version.
    """
    if not client.connected:
        return Unknown("there is no connection to ZooKeeper")
    try:
        async with asyncio.timeout(limit_s):
            return await ask()
    except TimeoutError:
        return Unknown(f"no answer of ZooKeeper within {limit_s:g} s")
    except (KazooException, OSError) as error:
        line = printable(" ".join(str(error).split()))
        return Unknown(
            f"{type(error).__name__}: {line[:_MOST_WHY]}" if line else type(error).__name__
        )
