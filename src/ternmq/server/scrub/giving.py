"""The side that is asked: records of this broker's journal for another one of its group.

A connection whose first frame was SEGMENT_READ is answered once, and closed. It has a budget of its
own: few are answered at a time, each with little, by threads; the others are refused as busy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.pieces import PieceRead
from ternmq.model.errors import (
    Busy,
    CorruptJournal,
    DiskError,
    DiskReadError,
    FileMissing,
    JournalExpired,
    RefusedError,
    TernMQError,
    Unauthenticated,
    Unreadable,
)
from ternmq.model.secret import Secret
from ternmq.model.types import Position
from ternmq.server.scrub.figures import Extent
from ternmq.settings import Settings
from ternmq.wire.control import SegmentRead
from ternmq.wire.session import ServerSession

log = logging.getLogger("ternmq.server.replication")

AT_ONCE: Final = 2
"""Most requests that are answered at a time: one broker mends one range after the other."""
_TAKES_S: Final = 5.0
"""Seconds after which a connection is aborted: the other side has given up by then."""


class _Answered(asyncio.Protocol):
    """A connection from which nothing more is taken."""


class Giver:
    """Answers SEGMENT_READ. Loop only.

    Args:
        settings: Of the broker.
        disk: The data root.
        journal: Returns the number of the group's journal; 0: not known yet.
        extent: Returns which bytes may be given away; None: none.
        suspect: Called with the position of records that cannot be read here, either.
    """

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        *,
        journal: Callable[[], int],
        extent: Callable[[], Extent | None],
        suspect: Callable[[Position], None],
    ) -> None:
        self._settings = settings
        self._disk = disk
        self._journal = journal
        self._extent = extent
        self._suspect = suspect
        self._running: set[asyncio.Task[None]] = set()

    def take(self, transport: asyncio.Transport, session: ServerSession, address: str) -> None:
        """Answer a connection whose first frame was SEGMENT_READ, and close it.

        Args:
            transport: The connection; it is taken over here.
            session: It has the request.
            address: The other side's address, for logs.
        """
        asked = session.segment_read
        assert asked is not None
        transport.set_protocol(_Answered())
        try:
            extent = self._check(asked)
        except TernMQError as error:
            log.warning("%s at %s asked for records, and was refused: %s",
                        asked.broker, address, error)  # fmt: skip
            _leave(transport, session.refuse(error))
            return
        task = asyncio.create_task(self._give(transport, session, asked, extent))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _check(self, asked: SegmentRead) -> Extent:
        """Return which bytes may be given away.

        Raises:
            TernMQError: None to this one, or none now.
        """
        token, group = self._settings.cluster_token, self._settings.broker_group
        if token is None or Secret(asked.token) != token:
            raise Unauthenticated("the token is not that of the cluster")
        if asked.group != group:
            raise RefusedError(f"this broker belongs to the broker group {group}")
        if asked.journal != self._journal():
            raise RefusedError(f"{self._settings.name} has another journal")
        extent = self._extent()
        if extent is None:
            raise Busy(f"{self._settings.name} has no journal open now")
        if asked.position < extent.first:
            raise JournalExpired(f"{self._settings.name} has removed position {asked.position}")
        if asked.position >= extent.safe:
            raise Busy(f"{self._settings.name} does not have position {asked.position} for sure")
        if len(self._running) >= AT_ONCE:
            raise Busy(f"{self._settings.name} answers {AT_ONCE} brokers now")
        return extent

    async def _give(
        self,
        transport: asyncio.Transport,
        session: ServerSession,
        asked: SegmentRead,
        extent: Extent,
    ) -> None:
        position = Position(asked.position)
        job = PieceRead(self._disk, extent.segment_size, position, extent.safe, asked.most_bytes)
        name = self._settings.name
        try:
            await asyncio.to_thread(job.run)
        except (CorruptJournal, DiskReadError) as error:
            log.warning("records that %s needs are damaged here, too: %s", asked.broker, error)
            self._suspect(position)
            last = session.refuse(Unreadable(f"the copy of {name} is damaged there, too"))
        except FileMissing:
            last = session.refuse(JournalExpired(f"{name} has removed position {position}"))
        except DiskError as error:
            log.warning("records that %s needs cannot be read: %s", asked.broker, error)
            last = session.refuse(Busy(f"{name} cannot read its journal now"))
        else:
            last = session.lend(position, extent.epoch, job.data)
        task = asyncio.current_task()
        assert task is not None
        self._running.discard(task)  # whoever has the answer may ask for more at once
        _leave(transport, last)

    async def close(self) -> None:
        """End what is being answered."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


def _leave(transport: asyncio.Transport, last: bytes) -> None:
    transport.write(last)
    transport.close()
    asyncio.get_running_loop().call_later(_TAKES_S, transport.abort)
