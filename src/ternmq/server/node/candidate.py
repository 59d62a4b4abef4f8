"""A broker of a group as one that would lead: whether it may ask to, and how it asks.

A primary is made only by a change of the record. A member may ask for it when no promise of it
holds any more; another broker only if an operator accepts the loss. The rules are in
``ternmq.cluster.replication``; here they meet what the coordinator says and what the folder has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from ternmq.cluster.coordination.loss import goes_first
from ternmq.cluster.coordination.port import Unknown
from ternmq.cluster.coordination.record import BadRecord, Leadership, Member, Writes
from ternmq.cluster.coordination.wishes import Change, Failover, Order
from ternmq.cluster.replication.forcing import forced
from ternmq.cluster.replication.standing import Loyalty, MayNotStand, succession
from ternmq.model.errors import SettingsError
from ternmq.server.node.folder import Folder, Holding
from ternmq.server.node.follower import Replica
from ternmq.server.node.sight import Sight
from ternmq.settings import Settings
from ternmq.settings.settings import Follower

log = logging.getLogger("ternmq.cluster")

_BEGINNING_US: Final = 60_000_000
"""Longest time that a new primary is given to recover its journal."""
AGAIN_S: Final = 0.25
"""Pause before a coordinator, or a primary, that did not answer is asked again."""


class Candidate:
    """This process as one that would lead. Loop only.

    Args:
        settings: Of the broker.
        me: This process, as a member.
        sight: What is known from the coordinator.
        folder: Its data folder.
        loyalty: What this process has promised.
        now_us: A clock that nobody sets.
        change: Changes the record; returns once the outcome is known.
        pause: Waits some seconds, or until the broker is stopped.

    Attributes:
        void: An order that could not be carried out, and was said so.
    """

    def __init__(
        self,
        settings: Settings,
        me: Member,
        sight: Sight,
        folder: Folder,
        loyalty: Loyalty,
        now_us: Callable[[], int],
        *,
        change: Callable[[Leadership], Awaitable[bool]],
        pause: Callable[[float], Awaitable[None]],
    ) -> None:
        self.void: Order | None = None
        self._settings = settings
        self._me = me
        self._sight = sight
        self._folder = folder
        self._loyalty = loyalty
        self._now_us = now_us
        self._change = change
        self._pause = pause

    # -- whether ----------------------------------------------------------------------------------

    def may_stand(self) -> bool:
        """Return whether this process is a member, and no promise of it holds any more."""
        record = self._sight.record
        by_hand = self._sight.settings.failover is Failover.OPERATOR
        return (
            record is not None
            and self._me in record.members
            and record.primary != self._settings.name
            and not self._begins(record)
            and (self._folder.is_whole or self._settings.follower is not Follower.SYNCED)
            and not self._sight.away  # else it would only stop to follow
            and (not by_hand or self._sight.ordered(Change.PROMOTE))
            and self._loyalty.may_stand(self._now_us())
        )

    @property
    def accepted(self) -> Order | None:
        """The order by which this broker leads although it may lack what was answered, or None."""
        order = self._sight.order
        if order is None or order.accepted is None or order == self.void:
            return None
        return order if self._sight.ordered(Change.PROMOTE) else None

    def may_be_forced(self, replica: Replica) -> bool:
        """Return whether an operator has it lead, and no word came from a primary for a lease.

        An order is refused for good if a broker is heard that has what was answered.
        """
        order, record = self.accepted, self._sight.record
        if order is None or record is None or self._me in record.members:
            return False
        first = goes_first(record, self._sight.running, self._settings.name)
        if not first and replica.figures().connected:
            first = record.primary
        if first:
            self.refuse(order, f"{first} runs, and has what was answered")
            return False
        return self._sight.sees and not self._sight.away and self._loyalty.may_stand(self._now_us())

    def _begins(self, record: Leadership) -> bool:
        """Return whether a reign is about to begin: its process is there, and recovers its journal.

        It is given time, since two members that stand by turns would never serve. Safety does not
        depend on this.
        """
        floor, there = record.floor, self._sight.present.get(record.primary)
        if there is None or (floor is not None and floor.epoch == record.epoch):
            return False
        return self._now_us() - self._sight.epoch_since_us < _BEGINNING_US

    # -- asking -----------------------------------------------------------------------------------

    async def stand(
        self, why: str, holding: Holding | None, writes: Writes | None = None
    ) -> Leadership | None:
        """Ask for the next epoch; return the record by which this broker leads, or None.

        Call it when this process has stopped to acknowledge. The progress is read before the
        record: whoever the record names has what was answered before, and the progress may be of a
        reign that has gone on without this broker.

        Args:
            why: For people.
            holding: What this broker's journal has.
            writes: Whether the group is to take new messages; None: as before.

        Raises:
            SettingsError: The data folder lacks what was answered.
        """
        try:
            progress = await self._sight.group.progress()
        except BadRecord as error:
            self._sight.disbelieve(error)
            await self._pause(AGAIN_S)
            return None
        record = await self._sight.look()
        if record is None or isinstance(progress, Unknown):
            await self._pause(AGAIN_S)
            return None
        if holding is not None and holding.floor != record.floor:
            return None  # the record has changed since; the journal is looked at again
        if record.primary != self._settings.name and not self.may_stand():
            return None  # another member was faster, or this one is none any more
        try:
            wanted = succession(
                record,
                self._me,
                self._sight.group.writer(),
                writes or record.writes,
                why,
                time.time_ns() // 1000,
            )
        except MayNotStand as error:
            log.info("%s", error)
            return None
        try:
            self._folder.check_to_lead(record, progress, holding)
        except SettingsError:
            if holding is None or self.accepted is None:
                raise
            return await self.force(holding)
        return wanted if await self._change(wanted) else None

    async def force(self, holding: Holding | None) -> Leadership | None:
        """Lead although messages that were answered may be missing, as an operator accepts.

        Call it when this process has stopped to acknowledge, and has synced all that it has.

        Args:
            holding: What this broker's journal has.

        Returns:
            The record by which this broker leads, or None; then the order is void, or was changed.
        """
        record, order, name = await self._sight.look(), self.accepted, self._settings.name
        if record is None or not self._sight.sees or order is None or order.accepted is None:
            await self._pause(AGAIN_S)
            return None
        end = 0 if holding is None else holding.end
        why = f"an operator accepted loss: {name} leads with a journal up to {end}"
        try:
            wanted = forced(
                record,
                self._me,
                None if holding is None else holding.held,
                self._sight.running,
                order.accepted,
                self._sight.group.writer(),
                record.writes,
                why,
                time.time_ns() // 1000,
            )
        except MayNotStand as error:
            self.refuse(order, str(error))
            return None
        log.warning("%s stands for primary: %s", name, why)
        return wanted if await self._change(wanted) else None

    def refuse(self, order: Order, why: str) -> None:
        """Note that an order is not carried out, also if what is in its way goes away later."""
        log.warning("an operator has %s lead and accepts loss; refused: %s", order.broker, why)
        self.void = order
