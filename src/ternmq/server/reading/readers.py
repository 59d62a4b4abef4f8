"""All readers of a broker that follows, from the first one until its views are thrown away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ternmq.broker.copyview import CopyView
from ternmq.model.errors import JournalError
from ternmq.model.version import __version__
from ternmq.server.desk.desk import ReadingDesk
from ternmq.server.desk.routing import Routing
from ternmq.server.engine.clocks import Clocks
from ternmq.server.native.connection import Connection
from ternmq.server.native.hub import Hub
from ternmq.server.reading.commands import CopyCommands
from ternmq.server.reading.core import CopyCore
from ternmq.server.telemetry.counters import Counters
from ternmq.settings import Settings
from ternmq.wire import control, frames
from ternmq.wire.port import Joined

log = logging.getLogger("ternmq.server")

_SWEEP_S: Final = 1.0


class Readers:
    """Those who read from a copy. Loop only.

    Args:
        view: The copy.
        settings: Of the broker.
        clocks: Timers of the loop.
        time_us: Returns broker time, as the primary has it.
        behind_us: Returns how far the copy is behind.
        epoch: Of the newest record of the copy.
        journal: Number of the group's journal.
        routes: Returns the routes; None: they are not known.
        why: Returns why this broker refuses what it does not answer.
    """

    def __init__(
        self,
        view: CopyView,
        settings: Settings,
        *,
        clocks: Clocks,
        time_us: Callable[[], int],
        behind_us: Callable[[], int],
        epoch: int,
        journal: int,
        routes: Callable[[], control.Routes | None],
        why: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._epoch = epoch
        self._journal = journal
        self._routes = routes
        core = self._core = CopyCore(view, clocks, time_us, self._failed)
        desk = self._desk = ReadingDesk(core, settings, Counters())
        self._routing = Routing(desk, self._known_routes)
        self._commands = desk.commands = CopyCommands(
            desk,
            auth=settings.auth,
            welcome=self._welcome,
            routing=self._routing,
            why=why,
            behind_us=behind_us,
        )
        self._hub = Hub(desk)
        self._sweeper = core.loop.call_later(_SWEEP_S, self._sweep)

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._hub.peers)

    def take(self, transport: asyncio.Transport, received: bytes) -> None:
        """Take over a connection whose HELLO states ``reads``.

        Args:
            transport: Of the connection.
            received: All bytes that have come: the frame with HELLO.
        """
        connection = Connection(self._hub)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if not connection.closed:
            connection.get_buffer(len(received))[: len(received)] = received
            connection.buffer_updated(len(received))

    def grew(self) -> None:
        """Note that records were applied."""
        if self._desk.waiting.taken:
            self._core.touch()

    def end(self, why: str) -> None:
        """Close all connections; the views may be changed by others afterwards.

        Args:
            why: For the log.
        """
        self._desk.draining = True
        self._sweeper.cancel()
        self._hub.stopped = True
        self._hub.abandon(why)
        self._core.close()

    # -- parts ------------------------------------------------------------------------------------

    def _known_routes(self) -> control.Routes:
        routes = self._routes()
        return control.Routes(group=self._settings.broker_group) if routes is None else routes

    def _welcome(self, joined: Joined) -> control.Welcome:
        settings, limits = self._settings, self._core.broker.limits
        return control.Welcome(
            version=frames.VERSION,
            broker=settings.name,
            session=joined.session,
            resumed=joined.resumed,
            epoch=self._epoch,
            now_us=self._core.now_us(),
            heartbeat_us=settings.heartbeat_us,
            frame_bytes=settings.frame_bytes,
            body_bytes=settings.body_bytes,
            pull_messages=limits.pull_messages,
            pull_bytes=limits.pull_bytes,
            send_timeout_us=limits.send_timeout_us,
            software=f"ternmq {__version__}",
            routes=True,
            journal=self._journal,
            follows=True,
        )

    def _sweep(self) -> None:
        loop = self._core.loop
        self._hub.sweep(loop.time())
        self._commands.close_revoked()
        self._routing.look()
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)

    def _failed(self, error: JournalError) -> None:
        self._hub.abandon(f"the copy has failed: {error}")
