"""A small HTTP port for machines: ``/metrics``, ``/livez``, ``/readyz``."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from ternmq.server.metrics import BrokerCollector


class Health:
    """The HTTP port. Loop only.

    Args:
        collector: The numbers.
        ready: Returns why the broker takes no requests now, empty when it does.
    """

    def __init__(self, collector: BrokerCollector, ready: Callable[[], str]) -> None:
        self._ready = ready
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port.

        Raises:
            OSError: The address cannot be had.
        """
        app = web.Application(client_max_size=4096)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        await site.start()
        self._runner = runner
        address = runner.addresses[0]
        return int(address[1])

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def _livez(self, request: web.Request) -> web.Response:
        del request
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        del request
        why = self._ready()
        return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)
