"""What readers see of a broker that follows: its views while they are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ternmq.broker.standby import Standby
from ternmq.server.engine.clocks import Clocks, SystemClocks
from ternmq.server.reading.readers import Readers
from ternmq.settings import Settings
from ternmq.wire import control

if TYPE_CHECKING:
    from ternmq.server.node.follower import Replica


class Showing:
    """Hands clients that only read over to ``Readers``, if there are views. Loop only.

    Args:
        settings: Of the broker.
        clocks: Timers of readers that wait; None: the machine's.
        routes: Returns the routes; None: they are not known.
        why: Returns why this broker refuses what it does not answer.
    """

    def __init__(
        self,
        settings: Settings,
        clocks: Clocks | None,
        routes: Callable[[], control.Routes | None],
        why: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._clocks = clocks
        self._routes = routes
        self._why = why
        self._replica: Replica | None = None
        self._standby: Standby | None = None
        self._readers: Readers | None = None
        """Made for the first reader."""

    @property
    def readers(self) -> int:
        """Number of connections that read."""
        return 0 if self._readers is None else len(self._readers)

    def follows(self, replica: Replica | None) -> None:
        """Take note that this broker follows, or does not any more (None)."""
        self._replica = replica

    def take(self, transport: asyncio.Transport, received: bytes) -> bool:
        """Take over the connection of a client that only reads; return whether it is served.

        Args:
            transport: Of the connection.
            received: All bytes that have come: the frame with HELLO.
        """
        replica, standby = self._replica, self._standby
        if replica is None or standby is None or replica.copy is None:
            return False
        if replica.behind_us is None:
            return False
        if self._readers is None:
            self._readers = Readers(
                standby.view,
                self._settings,
                clocks=self._clocks or SystemClocks(asyncio.get_running_loop()),
                time_us=lambda: replica.broker_time_us or standby.time_us,
                behind_us=lambda: replica.behind_us or 0,
                epoch=replica.copy.last_epoch,
                journal=replica.journal,
                routes=self._routes,
                why=self._why,
            )
        self._readers.take(transport, received)
        return True

    # -- told by ``Applying`` ---------------------------------------------------------------------

    def there(self, standby: Standby) -> None:
        """Note that there are views."""
        self._standby = standby

    def grew(self) -> None:
        """Note that records were applied."""
        if self._readers is not None:
            self._readers.grew()

    def gone(self) -> None:
        """End the readers: the views are thrown away, or taken over."""
        self._standby = None
        readers, self._readers = self._readers, None
        if readers is not None:
            readers.end("this broker does not follow with these views any more")
