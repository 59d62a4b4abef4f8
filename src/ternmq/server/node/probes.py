"""The HTTP port of a broker in a broker group: one port in every role.

While the broker leads, its ``Health`` answers. Otherwise this module does, with what the broker
knows as a follower. The port stays open when the role changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Final

from ternmq.http.port import Answer, HttpPort
from ternmq.server.metrics.health import Health
from ternmq.server.metrics.metrics import process_families
from ternmq.server.telemetry.families import Numbers
from ternmq.server.telemetry.late_imports import load_exposition

PATHS: Final = ("/metrics", "/livez", "/readyz")


class Probes:
    """The port, and what answers while the broker does not lead. Loop only.

    Args:
        why_not: Returns why this broker takes no requests, in one line.
        numbers: Returns the metrics of a broker that does not lead.

    Attributes:
        port: Port at which it listens; 0: it does not.
        leading: The health of the broker that leads; None: it does not lead, or not yet.
    """

    def __init__(
        self, why_not: Callable[[], str], numbers: Callable[[], Iterable[Numbers]]
    ) -> None:
        self.port = 0
        self.leading: Health | None = None
        self._why_not = why_not
        self._numbers = numbers
        self._began = time.monotonic()
        self._port: HttpPort | None = None

    async def open(self, host: str, port: int, clients: str) -> None:
        """Listen.

        Args:
            host: The address.
            port: The port; 0: a free one.
            clients: The URL for clients.

        Raises:
            OSError: It cannot listen at the address.
        """
        self._port = HttpPort({path: self._answering(path) for path in PATHS}, clients)
        self.port = await self._port.start(host, port)

    async def close(self) -> None:
        """Stop listening."""
        if self._port is not None:
            await self._port.close()
            self._port = None

    def _answering(self, path: str) -> Callable[[], Awaitable[Answer]]:
        own = {"/metrics": self._metrics, "/livez": self._livez, "/readyz": self._readyz}[path]

        async def answer() -> Answer:
            leading = self.leading
            if leading is None:
                return await own()
            try:
                return await leading.paths[path]()
            except asyncio.CancelledError:
                # Its scrape is cancelled when it stops to lead; the scraper itself is still there.
                task = asyncio.current_task()
                if self.leading is leading or (task is not None and task.cancelling()):
                    raise
                return await own()

        return answer

    async def _metrics(self) -> Answer:
        try:
            await asyncio.to_thread(load_exposition)
            from ternmq.server.telemetry import exposition  # imported late, see `late_imports`
        except ImportError as missing:
            why = f"no metrics: {missing}\n"
            return Answer([why.encode()], HTTPStatus.INTERNAL_SERVER_ERROR)
        families = [*self._numbers(), *process_families(self._began)]
        return Answer([exposition.text(families)], content_type=exposition.CONTENT_TYPE)

    async def _livez(self) -> Answer:
        return Answer([b"ok\n"])

    async def _readyz(self) -> Answer:
        return Answer([f"{self._why_not()}\n".encode()], HTTPStatus.SERVICE_UNAVAILABLE)
