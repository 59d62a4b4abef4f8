"""What one process reads and changes in the coordinator for its broker group."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from ternmq.cluster.coordination.port import Coordinator, Outcome, Stored, Swapped, Unknown
from ternmq.cluster.coordination.record import (
    Leadership,
    Progress,
    Reach,
    Writer,
    leadership_key,
    pack_progress,
    progress_key,
    unpack,
    unpack_progress,
)
from ternmq.cluster.coordination.resolving import WentBack, change
from ternmq.cluster.coordination.wishes import (
    GroupSettings,
    Order,
    order_key,
    pack_order,
    pack_settings,
    settings_key,
    unpack_order,
    unpack_settings,
)
from ternmq.model.errors import InvalidName
from ternmq.model.specs import check_name
from ternmq.model.units import read_address

_Name = Annotated[str, Meta(min_length=1, max_length=127)]


class Presence(msgspec.Struct, frozen=True):
    """What a running broker announces of itself.

    Attributes:
        group: Its broker group.
        broker: Its name.
        incarnation: Of its process.
        address: ``HOST:PORT`` at which clients and other brokers reach it.
        tls: Whether that port needs TLS.
        software: Its version, for people.
        reach: How far its copy reached when it last followed nobody; None: it did not say so.
    """

    group: _Name
    broker: _Name
    incarnation: Annotated[int, Meta(ge=0)]
    address: Annotated[str, Meta(min_length=1, max_length=300)]
    tls: bool = False
    software: Annotated[str, Meta(max_length=100)] = ""
    reach: Reach | None = None


async def everybody(coordinator: Coordinator) -> list[Presence] | Unknown:
    """Return the brokers of all groups that run, by group and name; rubbish is left out."""
    found = await coordinator.announced()
    if isinstance(found, Unknown):
        return found
    brokers = [
        one
        for name, value in found.items()
        if (one := _presence(value)) is not None and one.broker == name
    ]
    return sorted(brokers, key=lambda one: (one.group, one.broker))


_decode_presence = msgspec.msgpack.Decoder(Presence).decode


class Group:
    """The records of one broker group, as one process sees them. Loop only.

    Args:
        coordinator: The store.
        name: Name of the broker group.
        broker: Name of this broker.
        incarnation: Of this process.

    Raises:
        InvalidName: A name is not allowed.
    """

    def __init__(self, coordinator: Coordinator, name: str, broker: str, incarnation: int) -> None:
        self.name = name
        self.broker = check_name(broker, "a broker")
        self.incarnation = incarnation
        self._coordinator = coordinator
        self._key = leadership_key(name)
        self._progress_key = progress_key(name)
        self._counter = itertools.count(1)
        self._progress_version = 0
        self._newest = 0

    def writer(self) -> Writer:
        """Return the writer of a new change; no two changes have the same."""
        return Writer(self.broker, self.incarnation, next(self._counter))

    async def read(self) -> Leadership | Unknown | None:
        """Return the leadership record; None if there is none.

        Raises:
            BadRecord: The coordinator holds rubbish.
            WentBack: It holds an older version than this process has seen.
        """
        while True:
            newest = self._newest
            found = await self._coordinator.read(self._key)
            if isinstance(found, Unknown):
                return found
            record = None if found is None else unpack(found.value, found.version)
            version = 0 if record is None else record.version
            if version < newest:
                is_now = "is gone" if record is None else f"is at {version}"
                raise WentBack(f"{self._key} was at version {newest}, and {is_now}")
            if version >= self._newest:
                self._newest = version
                return record
            # It was overtaken by a newer answer, which came while this one was on its way.

    async def change(self, record: Leadership) -> Outcome:
        """Replace the record, and find out what became of it; as ``resolving.change``."""
        outcome = await change(self._coordinator, self._key, record)
        if isinstance(outcome, Swapped):
            self._newest = max(self._newest, outcome.version)
        return outcome

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Have a function called when the record may have changed; return what ends this."""
        return self._coordinator.watch(self._key, changed)

    # -- how far the reign is committed ----------------------------------------------------------

    async def progress(self) -> Progress | Unknown | None:
        """Return how far a reign said that it was committed; None if none said so.

        Raises:
            BadRecord: The coordinator holds rubbish.
        """
        found = await self._coordinator.read(self._progress_key)
        if not isinstance(found, Stored):
            return found
        self._progress_version = found.version
        return unpack_progress(found.value)

    async def put_progress(self, progress: Progress) -> None:
        """Store how far this reign is committed. A try that fails is made good by the next one."""
        value = pack_progress(progress)
        if self._progress_version:
            outcome = await self._coordinator.swap(
                self._progress_key, self._progress_version, value
            )
        else:
            outcome = await self._coordinator.create(self._progress_key, value)
        if isinstance(outcome, Swapped):
            self._progress_version = outcome.version
            return
        await self.progress()  # learn the version: the next try replaces it

    # -- what operators ask for ------------------------------------------------------------------

    async def settings(self) -> GroupSettings | Unknown:
        """Return the settings of the group: the defaults if nobody has set any.

        Raises:
            BadRecord: The coordinator holds rubbish.
        """
        found = await self._coordinator.read(settings_key(self.name))
        if isinstance(found, Unknown):
            return found
        return GroupSettings() if found is None else unpack_settings(found.value)

    async def put_settings(self, settings: GroupSettings) -> Outcome:
        """Replace the settings; refused if somebody else changes them at the same time."""
        return await self._put(settings_key(self.name), pack_settings(settings))

    async def order(self) -> Order | Unknown | None:
        """Return the newest order; None if there is none.

        Raises:
            BadRecord: The coordinator holds rubbish.
        """
        found = await self._coordinator.read(order_key(self.name))
        return found if not isinstance(found, Stored) else unpack_order(found.value)

    async def put_order(self, order: Order) -> Outcome:
        """Give an order; refused if somebody else gives one at the same time."""
        return await self._put(order_key(self.name), pack_order(order))

    async def _put(self, key: str, value: bytes) -> Outcome:
        found = await self._coordinator.read(key)
        if isinstance(found, Unknown):
            return found
        if found is None:
            return await self._coordinator.create(key, value)
        return await self._coordinator.swap(key, found.version, value)

    # -- who is there ----------------------------------------------------------------------------

    async def announce(
        self, address: str, *, tls: bool, software: str, reach: Reach | None = None
    ) -> None:
        """Show others that this broker runs, and where, for as long as this process lives.

        A later call replaces what an earlier one has shown.
        """
        presence = Presence(self.name, self.broker, self.incarnation, address, tls, software, reach)
        await self._coordinator.announce(self.broker, msgspec.msgpack.encode(presence))

    async def present(self) -> Mapping[str, Presence] | Unknown:
        """Return the brokers of this group that run, by name; rubbish is left out."""
        found = await everybody(self._coordinator)
        if isinstance(found, Unknown):
            return found
        return {one.broker: one for one in found if one.group == self.name}


def _presence(value: bytes) -> Presence | None:
    try:
        presence: Presence = _decode_presence(value)
        check_name(presence.broker, "a broker")
        read_address(presence.address)
    except (msgspec.MsgspecError, ValueError, InvalidName):
        return None
    return presence
