"""A small HTTP port for machines: ``/metrics``, ``/livez``, ``/readyz``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from ternmq.broker.query.messages import Queries
from ternmq.http.port import Answer, HttpPort
from ternmq.journal.cache.cold import WouldBlock
from ternmq.server.engine.engine import Core
from ternmq.server.metrics.groups import GroupSeries
from ternmq.server.metrics.metrics import BrokerCollector
from ternmq.server.telemetry.late_imports import Import, load_exposition


class Health:
    """The HTTP port and its three paths. Not thread-safe: call it from the broker's loop.

    Without ``start``, it answers at the port of a broker group's node, which has one in every role.

    Args:
        core: The broker.
        collector: The metrics of the broker as a whole.
        queries: Queries to the core, for the series of single groups.
        groups: Most groups that have series of their own.
        clients: The URL that clients of the broker connect to.
        ready: Returns why the broker takes no requests now; empty if it does.
    """

    def __init__(
        self,
        core: Core,
        collector: BrokerCollector,
        queries: Queries,
        groups: int,
        clients: str,
        ready: Callable[[], str],
    ) -> None:
        self._core = core
        self._queries = queries
        self._groups = groups
        self._ready = ready
        self._scrape: asyncio.Task[Answer] | None = None
        """The running scrape; requests that arrive meanwhile get the same answer."""
        self._collector = collector
        self._imported = False
        self.paths: Mapping[str, Callable[[], Awaitable[Answer]]] = {
            "/metrics": self._metrics, "/livez": self._livez, "/readyz": self._readyz
        }  # fmt: skip
        """Path -> what answers; for a port that belongs to somebody else."""
        self._port = HttpPort(self.paths, clients)

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port.

        Raises:
            OSError: The broker cannot listen at the address.
        """
        return await self._port.start(host, port)

    async def close(self) -> None:
        """Stop listening."""
        if self._scrape is not None:
            self._scrape.cancel()
        await self._port.close()

    async def _metrics(self) -> Answer:
        if self._scrape is None:
            self._scrape = asyncio.ensure_future(self._numbers())
            self._scrape.add_done_callback(self._scraped)
        return await asyncio.shield(self._scrape)

    def _scraped(self, scrape: asyncio.Task[Answer]) -> None:
        del scrape
        self._scrape = None

    async def _numbers(self) -> Answer:
        """Return the answer to a scrape; the loop does other work between its pieces."""
        await self._import_writer()
        try:
            from ternmq.server.telemetry import exposition  # imported late, see `late_imports`

            self._imported = True
        except ImportError as missing:
            why = f"no metrics: {missing}\n"
            return Answer([why.encode()], HTTPStatus.INTERNAL_SERVER_ERROR)
        series = GroupSeries(self._queries, self._groups)
        more = True
        while more:
            try:
                more = series.step()
            except WouldBlock as blocked:
                read = asyncio.Event()
                self._core.cold_reads.read(blocked, read.set)
                await read.wait()
            await asyncio.sleep(0)
        for error in series.failed:
            self._core.unreadable(error)
        whole = exposition.text(self._collector.collect())
        return Answer([whole, *series.text()], content_type=exposition.CONTENT_TYPE)

    async def _import_writer(self) -> None:
        if not self._imported:
            done = asyncio.Event()
            self._core.import_beside(Import("prometheus-client", load_exposition, done.set))
            await done.wait()

    async def _livez(self) -> Answer:
        return Answer([b"ok\n"])

    async def _readyz(self) -> Answer:
        why = self._ready()
        if why:
            return Answer([f"{why}\n".encode()], HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer([b"ok\n"])
