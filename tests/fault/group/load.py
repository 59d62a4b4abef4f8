"""Workload W on clients that know several addresses, and leave a broker that says nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ternmq.wire.session import Answer, Push, Refusal
from tests.fault.group.tools import PLAN
from tests.fault.server.broker import Address
from tests.fault.server.client import Client
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load

SILENT_S: Final = 2.0
"""A broker that is asked for something and says nothing for so long is left: the next one is tried.
Long polls take ``PULL_WAIT_MS``."""
_LOOK_S: Final = 0.1


class GroupClient(Client):
    """One client instance that knows several brokers.

    Args:
        where: Called for the address before each try.
        silent_s: See ``SILENT_S``.
    """

    def __init__(self, where: Callable[[], Address], silent_s: float = SILENT_S) -> None:
        super().__init__(where)
        self._silent_s = silent_s
        self._heard = 0.0

    async def _once(self) -> None:
        watching = asyncio.create_task(self._watch())
        try:
            await super()._once()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        """Cut a connection on which nothing comes although something was asked."""
        self._heard = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            if self.connected.is_set() and not self._answers:
                self._heard = now
            elif now - self._heard > self._silent_s and self._writer is not None:
                self._writer.transport.abort()

    def _take(self, event: Answer | Refusal | Push) -> None:
        self._heard = time.monotonic()
        super()._take(event)


class GroupLoad(Load):
    """Producers and consumers that go to whichever broker leads.

    Args:
        addresses: Of all brokers; each client tries one after another.
        record: The history file.
        plan: See ``Plan``.
        number, seed: As of ``Load``.
        silent_s: See ``SILENT_S``. Longer where a lost connection is a failure: a busy machine may
            say nothing for that time.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        record: Path,
        plan: Plan = PLAN,
        *,
        number: int = 0,
        seed: int = 0,
        silent_s: float = SILENT_S,
    ) -> None:
        super().__init__(addresses[0], record, plan, number=number, seed=seed)
        self._silent_s = silent_s
        self._addresses = tuple(addresses)

    @property
    def noticed(self) -> int:
        """How many connections were lost by clients that work.

        The first client makes the topics and says nothing more: a broker cuts it off after a while.
        """
        return sum(client.losses for client in self.clients[1:])

    def _client(self) -> Client:
        turn = itertools.cycle(self._addresses)
        client = GroupClient(lambda: next(turn), self._silent_s)
        self.clients.append(client)
        self._task(client.run)
        return client
