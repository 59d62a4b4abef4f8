"""A connection to another broker of the group, for one SEGMENT_READ."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from ternmq.cluster.coordination.group import Presence
from ternmq.model.errors import InvalidRequest, ProtocolError, SettingsError
from ternmq.model.types import Position
from ternmq.model.units import read_address
from ternmq.server.scrub.donors import DonorFailed
from ternmq.settings import Settings
from ternmq.wire.bodies import Bytes
from ternmq.wire.control import SegmentRead
from ternmq.wire.segments import SegmentAsk
from ternmq.wire.session import Refusal

_ANNOUNCED_S: Final = 2.0
"""How long a broker that was just started may take until it is known where it listens."""
_LOOK_S: Final = 0.05
_PATIENCE_S: Final = 5.0
"""Longest wait for a connection and the answer."""


class _Asking(asyncio.Protocol):
    """The connection; ``answer`` gets what comes."""

    def __init__(self, request: SegmentRead, segment_bytes: int) -> None:
        self.answer: asyncio.Future[Bytes | Refusal] = asyncio.get_running_loop().create_future()
        self._ask = SegmentAsk(segment_bytes)
        self._opening = self._ask.ask(request)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._opening)

    def data_received(self, data: bytes) -> None:
        """Take the answer."""
        if self.answer.done():
            return
        try:
            answer = self._ask.receive(data)
        except ProtocolError as error:
            self.answer.set_exception(DonorFailed(f"its answer cannot be read: {error}"))
            return
        if answer is not None:
            self.answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that no answer comes."""
        del exc
        if not self.answer.done():
            self.answer.set_exception(DonorFailed("it closed the connection"))


@dataclass(frozen=True, slots=True)
class Peer:
    """Another broker of the group, as a donor. Loop only.

    Attributes:
        name: Its name.
        find: Returns what it announces; None: nothing.
        journal: Number of the group's journal.
        settings: Of this broker.
    """

    name: str
    find: Callable[[], Presence | None]
    journal: int
    settings: Settings

    async def read(self, position: Position, segment_bytes: int) -> bytes:
        """Return records from ``position`` on; see ``Donor``."""
        connection: _Asking | None = None
        there = await self._announced()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                address = read_address(there.address)
                connection = _Asking(self._request(position), segment_bytes)
                asking = connection
                await asyncio.get_running_loop().create_connection(
                    lambda: asking, address.host, address.port, ssl=self._tls(there)
                )
                answer = await connection.answer
        except TimeoutError as error:
            raise DonorFailed("it does not answer") from error
        except OSError as error:
            raise DonorFailed(f"it cannot be reached: {error.strerror or error}") from error
        except (InvalidRequest, SettingsError, ValueError) as error:
            raise DonorFailed(f"it cannot be asked: {error}") from error
        finally:
            if connection is not None:
                connection.answer.cancel()
                if connection.transport is not None:
                    connection.transport.abort()
        if isinstance(answer, Refusal):
            raise DonorFailed(str(answer.error.args[0]) if answer.error.args else "it refuses")
        return answer.records

    def _request(self, position: Position) -> SegmentRead:
        token = self.settings.cluster_token
        assert token is not None
        return SegmentRead(
            token=token.reveal(),
            group=self.settings.broker_group,
            journal=self.journal,
            broker=self.settings.name,
            position=position,
        )

    async def _announced(self) -> Presence:
        until = asyncio.get_running_loop().time() + _ANNOUNCED_S
        while (there := self.find()) is None:
            if asyncio.get_running_loop().time() > until:
                raise DonorFailed("it does not run")
            await asyncio.sleep(_LOOK_S)
        return there

    def _tls(self, there: Presence) -> ssl.SSLContext | None:
        if not there.tls:
            return None
        return ssl.create_default_context(cafile=self.settings.cluster_ca)
