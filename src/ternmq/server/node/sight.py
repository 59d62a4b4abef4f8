"""What a broker of a group knows from the coordinator: the record, who runs, what operators ask.

It is read at every hint of the coordinator and once a second. What was read last stays while the
coordinator is away. It decides nothing: ``node`` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ternmq.cluster.coordination.group import Group, Presence
from ternmq.cluster.coordination.port import Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import BadRecord, Leadership
from ternmq.cluster.coordination.wishes import Change, GroupSettings, Order
from ternmq.model.units import read_address
from ternmq.server.node.outlook import Outlook

log = logging.getLogger("ternmq.cluster")

PROBE_S: Final = 1.0
"""Longest wait for the coordinator's word who is there, and for a connection to one who is."""
_LOOK_S: Final = 1.0
"""Longest time between two readings of the record."""


class Sight:
    """The coordinator as one broker sees it. Loop only.

    Args:
        broker: The broker's name.
        outlook: Is told of what was read, and of problems with the coordinator.
        now_us: A clock that nobody sets.
        learned: Called with each record that was read.

    Attributes:
        group: The records of the broker group; set it before anything is read.
        record: The leadership record; None: it was not read yet.
        present: The brokers of the group that run, by name.
        settings: Of the broker group.
        order: The newest order of an operator.
        sees: Whether the newest reading said who runs.
        away: What is wrong with the coordinator; empty: nothing.
        epoch_since_us: When this process read of the present epoch first.
        news: Set whenever the record was read anew.
        hint: Set it to have everything read at once.
    """

    group: Group

    def __init__(
        self,
        broker: str,
        outlook: Outlook,
        now_us: Callable[[], int],
        learned: Callable[[Leadership], None],
    ) -> None:
        self.record: Leadership | None = None
        self.present: dict[str, Presence] = {}
        self.settings = GroupSettings()
        self.order: Order | None = None
        self.sees = False
        self.away = ""
        self.epoch_since_us = now_us()
        self.news = asyncio.Event()
        self.hint = asyncio.Event()
        self._broker = broker
        self._outlook = outlook
        self._now_us = now_us
        self._learned = learned
        self._rubbish = ""

    # -- reading ----------------------------------------------------------------------------------

    async def watch(self, after: Callable[[], Awaitable[None]]) -> None:
        """Read everything, at every hint and each second, until it is cancelled.

        Args:
            after: Called after each reading.
        """
        while True:
            self.hint.clear()
            try:
                await self.look()
                await after()
            except Exception:
                log.exception("reading the leadership record failed; it is tried again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self.hint.wait()

    async def look(self) -> Leadership | None:
        """Read the record and who is there, once.

        Return the record, or None if the coordinator has none or does not say.
        """
        try:
            found = await self.group.read()
            present = await self.group.present()
        except BadRecord as error:
            self.disbelieve(error)
            return None
        self.sees = not isinstance(present, Unknown)
        if not isinstance(present, Unknown):
            self.present = dict(present)
        await self._read_wishes()
        if isinstance(found, Unknown):
            self._say(f"the coordinator does not answer: {found.why}")
            return None
        self._say("")
        self._outlook.learned(found, self.present)
        if found is not None:
            if self.record is None or self.record.epoch != found.epoch:
                self.epoch_since_us = self._now_us()
            self.record = found
            self._learned(found)
        self.news.set()
        return found

    async def _read_wishes(self) -> None:
        """Read what operators ask for; nothing that is needed depends on it."""
        rubbish = ""
        try:
            settings = await self.group.settings()
            if not isinstance(settings, Unknown):
                self.settings = settings
            order = await self.group.order()
            if not isinstance(order, Unknown):
                self.order = order
        except BadRecord as error:
            rubbish = str(error)
        if rubbish and rubbish != self._rubbish:
            log.error("what operators asked for cannot be read: %s", rubbish)
        self._rubbish = rubbish

    def disbelieve(self, error: BadRecord) -> None:
        """Note that the coordinator returned rubbish."""
        self._say(f"the coordinator returned a record that is not valid: {error}")

    def _say(self, problem: str) -> None:
        """Log a problem with the coordinator when it begins, and when it ends."""
        if problem and not self.away:
            log.warning("%s; nothing that runs depends on it, but no change is possible", problem)
        elif self.away and not problem:
            log.info("the coordinator answers again")
        self.away = problem
        self._outlook.troubled(problem)

    # -- what was read ----------------------------------------------------------------------------

    @property
    def running(self) -> Mapping[str, int]:
        """Incarnations of the brokers that run, by name."""
        return {one.broker: one.incarnation for one in self.present.values()}

    def ordered(self, change: Change) -> bool:
        """Return whether an operator asks for a change of the primary of this epoch.

        To be promoted is asked of the broker that is to lead, to switch of the one that leads.
        """
        order, record = self.order, self.record
        if order is None or record is None or order.epoch != record.epoch:
            return False
        mine = order.broker == self._broker
        return order.change is change and mine == (change is Change.PROMOTE)

    # -- changing ---------------------------------------------------------------------------------

    async def change(self, record: Leadership) -> bool | None:
        """Try to change the record; return whether it was done, None if that is not known."""
        try:
            outcome = await self.group.change(record)
        except BadRecord as error:
            self.disbelieve(error)
            return None
        if isinstance(outcome, Swapped):
            self.record = record
            return True
        if isinstance(outcome, Refused):
            return False
        self._say(f"the coordinator does not answer: {outcome.why}")
        return None


async def listens(there: Presence) -> bool:
    """Return whether somebody accepts connections where a broker said that it is."""
    address = read_address(there.address)
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True
