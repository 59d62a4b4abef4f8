"""``ternmq http``: a process that speaks HTTP, and asks the broker for its callers.

It has no right of its own and stores nothing: any number of them can run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from typing import Final

from aiohttp import web

from ternmq.http.api.app import KEEP_ALIVE_S, Api, Settings

log: Final = logging.getLogger("ternmq")

DRAIN_S: Final = 10.0
"""Seconds that running requests have when the server ends."""


async def run(settings: Settings, listening: Callable[[str, int], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: Where, and for which broker.
        listening: Called once with the address, when it takes requests.

    Raises:
        OSError: It cannot listen there.
    """
    api = Api(settings)
    runner = web.AppRunner(
        api.application(),
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_S,
        shutdown_timeout=DRAIN_S,
    )
    await runner.setup()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError):  # not in a main thread
            loop.add_signal_handler(number, ended.set)
    try:
        site = web.TCPSite(runner, settings.listen.host, settings.listen.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        listening(str(host), int(port))
        await ended.wait()
        log.info("this server ends: %d sessions", len(api.pool))
        api.stopping.set()
    finally:
        await runner.cleanup()
