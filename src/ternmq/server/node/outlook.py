"""What a broker of a broker group shows of itself and of the group, in each of its roles.

The node tells it what it reads and what it becomes. From that it makes the lines of ``/readyz``,
the metrics, the part of STATUS about the group, and the reasons of alarms. It decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ternmq.cluster.coordination.group import Presence
from ternmq.cluster.coordination.record import Leadership, Member, Writes
from ternmq.model.units import Address
from ternmq.model.words import lasting
from ternmq.server.metrics.health import Health
from ternmq.server.metrics.metrics import disk_families
from ternmq.server.node.figures import (
    BACKUP,
    FOLLOWER,
    PRIMARY,
    CopyFigures,
    GroupFigures,
    follower_families,
    group_families,
    primary_families,
)
from ternmq.server.node.probes import Probes
from ternmq.server.node.reasons import PATIENCE_S, Reasons
from ternmq.server.node.routes import routes_of
from ternmq.server.scrub.asking import Peer
from ternmq.server.scrub.donors import Donor
from ternmq.server.scrub.figures import scrub_families
from ternmq.server.telemetry.families import Numbers
from ternmq.settings.settings import Follower as FollowerKind
from ternmq.wire import control

if TYPE_CHECKING:
    from ternmq.broker.ledger.copies import Copies
    from ternmq.server.app import Server
    from ternmq.server.node.follower import Replica
    from ternmq.server.node.reigning import Reigning
    from ternmq.settings import Settings

log = logging.getLogger("ternmq.cluster")

_LOOK_S: Final = 1.0
_MOST_KNOWN: Final = 64
"""Most names of brokers that are remembered."""


class Outlook:
    """A broker's view of its group. Loop only.

    Args:
        settings: Of the broker.
        me: This process, as a member.
        now_us: A clock that nobody sets.

    Attributes:
        probes: The HTTP port.
    """

    def __init__(self, settings: Settings, me: Member, now_us: Callable[[], int]) -> None:
        self.probes = Probes(self.why_not_ready, self._follower_numbers)
        self._settings = settings
        self._me = me
        self._now_us = now_us
        self._record: Leadership | None = None
        self._present: Mapping[str, Presence] = {}
        self._known: set[str] = set()
        """Other brokers of the group that were recorded, or announced, in this life."""
        self._trouble = ""
        self._trouble_us = 0
        self._replica: Replica | None = None
        self._leading: tuple[Reigning, Server] | None = None
        self._reasons = Reasons(settings.broker_group)
        self._apart_us: int | None = None
        """Since when this broker follows and is no member."""
        self._told = False
        self._looking: asyncio.Task[None] | None = None

    # -- told by the node -------------------------------------------------------------------------

    async def open(self, clients: str) -> None:
        """Listen for probes, if the settings say where, and begin to look.

        Raises:
            OSError: The broker cannot listen at the address.
        """
        if self._settings.http is not None:
            await self.probes.open(self._settings.http.host, self._settings.http.port, clients)
        self._looking = asyncio.create_task(self._look_on())

    async def close(self) -> None:
        """Stop."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        await self.probes.close()

    def learned(self, record: Leadership | None, present: Mapping[str, Presence]) -> None:
        """Take note of what the coordinator says; None: the record is not known."""
        if record is not None:
            self._record = record
            self._know(one.broker for one in record.members)
        self._present = present
        self._know(present)

    def troubled(self, problem: str) -> None:
        """Take note of a problem with the coordinator; empty: there is none."""
        if problem and not self._trouble:
            self._trouble_us = self._now_us()
        self._trouble = problem

    def follows(self, replica: Replica | None) -> None:
        """Take note that this broker follows, or does not any more (None)."""
        self._replica = replica
        self._apart_us, self._told = None, False

    def leads(self, reigning: Reigning | None, server: Server | None) -> None:
        """Take note that this broker leads, or does not any more (None)."""
        self._leading = None if reigning is None or server is None else (reigning, server)
        self._reasons = Reasons(self._settings.broker_group)

    def _know(self, names: Iterable[str]) -> None:
        for name in names:
            if name != self._me.broker and len(self._known) < _MOST_KNOWN:
                self._known.add(name)

    def http_address(self) -> str:
        """Return HOST:PORT of the port for HTTP; empty: there is none."""
        http = self._settings.http
        return "" if http is None else str(Address(http.host, self.probes.port))

    # -- GroupView, for the broker that leads ------------------------------------------------------

    def answers(self, health: Health | None) -> int:
        """Have a broker that leads answer probes and scrapers; return the port."""
        self.probes.leading = health
        return self.probes.port

    def info(self) -> control.BrokerGroupInfo:
        """Return the part of STATUS about the group."""
        record = self._newest()
        if record is None:
            return control.BrokerGroupInfo(name=self._settings.broker_group)
        return control.BrokerGroupInfo(
            name=self._settings.broker_group,
            copies=len(record.members),
            takes_strict=self._takes_strict(),
            writes_open=self._writes_open(record),
            read_only=self._read_only(),
            since_us=record.at_us,
            why=record.why,
            followers=self.followers(),
        )

    @property
    def journal(self) -> int:
        """Number of the group's journal; 0: not known yet."""
        record = self._newest()
        return 0 if record is None else record.journal

    def routes(self) -> control.Routes | None:
        """Return the routes of the group, in every role; None: the record is not known yet."""
        record = self._newest()
        if record is None:
            return None
        return routes_of(
            self._settings.broker_group,
            record,
            self._present,
            up=self._leading is not None or record.primary in self._present,
            writes_open=self._writes_open(record),
        )

    def donors(self) -> Sequence[Donor]:
        """Return the other brokers that may have bytes that are damaged here, the best first.

        A follower asks the primary alone; the primary asks the others, members first.
        """
        record, mine = self._newest(), self._settings.name
        if record is None:
            return ()
        members = {one.broker for one in record.members}
        names = members | self._present.keys() if self._leading is not None else {record.primary}
        return [
            Peer(name, partial(self._presence, name), record.journal, self._settings)
            for name in sorted(names - {mine}, key=lambda name: (name not in members, name))
        ]

    def _presence(self, name: str) -> Presence | None:
        return self._present.get(name)

    def numbers(self) -> Iterable[Numbers]:
        """Return the metrics of the group, while this broker leads."""
        yield from group_families(self._group_figures())
        reason = "" if self._leading is None else self._copies_of(self._leading).reason
        yield from primary_families(self._takes_strict(), reason, self.followers())

    # -- lines and figures ------------------------------------------------------------------------

    def why_not_ready(self) -> str:
        """Return why this broker takes no requests of clients, while it does not lead."""
        record, mine = self._record, self._settings
        if record is None:
            why = self._trouble or "it has not read the leadership record yet"
            return f"{mine.name} has no role in broker group {mine.broker_group} yet: {why}"
        if self._leading is not None or record.primary == mine.name:
            return f"{mine.name} begins to lead broker group {mine.broker_group}"
        there = self._present.get(record.primary)
        primary = record.primary if there is None else f"{there.broker} at {there.address}"
        copy = self._copy()
        if not copy.connected:
            return f"follows {primary}, not connected; {self._standing()}"
        return f"follows {primary}, {copy.behind_bytes:,} bytes behind; {self._standing()}"

    def followers(self) -> list[control.FollowerInfo]:
        """Return the brokers that follow, and those that did or should, by name."""
        record = self._newest()
        found: dict[str, control.FollowerInfo] = {}
        primary = None if self._leading is None else self._leading[0].primary
        for one in [] if primary is None else primary.figures():
            found[one.broker] = control.FollowerInfo(
                broker=one.broker,
                kind=one.kind.value,
                member=one.member,
                behind_bytes=one.behind_bytes,
                heard_us=one.heard_us,
            )
        members = set() if record is None else {one.broker for one in record.members}
        self._know([*found, *members])
        for name in self._known - found.keys():
            found[name] = control.FollowerInfo(broker=name, member=name in members, connected=False)
        return [found[name] for name in sorted(found)]

    def missing(self) -> str:
        """Return which copies are missing, for people."""
        said = [self._missing(one) for one in self.followers() if not one.member]
        return "; ".join(said) or "no other broker of the group has been seen since the start"

    def _missing(self, one: control.FollowerInfo) -> str:
        if one.kind == BACKUP:
            return f"{one.broker} is a backup"
        if one.connected:
            return f"{one.broker} catches up, {one.behind_bytes:,} bytes behind"
        there = self._present.get(one.broker)
        if there is None:
            return f"{one.broker} does not run"
        return f"{one.broker} at {there.address} runs, and does not follow"

    def _newest(self) -> Leadership | None:
        """Return the record as the reign knows it, or as it was read."""
        if self._leading is not None and self._leading[0].primary is not None:
            return self._leading[0].primary.reign.record
        return self._record

    def _takes_strict(self) -> bool:
        leading = self._leading
        if leading is None or leading[0].primary is None:
            return False
        return leading[0].primary.reign.copies >= max(2, self._copies_of(leading).needed)

    def _read_only(self) -> str:
        leading = self._leading
        if leading is None or leading[0].primary is None:
            return ""
        return self._copies_of(leading).read_only

    @staticmethod
    def _copies_of(leading: tuple[Reigning, Server]) -> Copies:
        return leading[1].core.broker.ledger.copies

    def _writes_open(self, record: Leadership) -> bool:
        leading = self._leading
        if leading is None or leading[0].primary is None:
            return record.writes is Writes.OPEN
        return not leading[1].core.broker.ledger.copies.read_only

    @property
    def _is_backup(self) -> bool:
        return self._settings.follower is FollowerKind.BACKUP

    def _standing(self) -> str:
        if self._is_backup:
            return "it is a backup"
        return "its copy counts" if self._is_member() else "its copy does not count yet"

    def _is_member(self) -> bool:
        record = self._newest()
        members = () if record is None else record.members
        return self._me in members or Member(self._me.broker, 0) in members

    def _silent_us(self) -> int:
        return self._now_us() - self._trouble_us if self._trouble else 0

    def _copy(self) -> CopyFigures:
        return CopyFigures() if self._replica is None else self._replica.figures()

    def _group_figures(self) -> GroupFigures:
        record = self._newest()
        follows = BACKUP if self._is_backup else FOLLOWER
        role = follows if self._replica is not None else ""
        return GroupFigures(
            group=self._settings.broker_group,
            role=PRIMARY if self._leading is not None else role,
            epoch=0 if record is None else record.epoch,
            copies=0 if record is None else len(record.members),
            member=self._is_member(),
            writes_open=record is not None and self._writes_open(record),
            silent_s=self._silent_us() / 1e6,
        )

    def _follower_numbers(self) -> Iterable[Numbers]:
        yield from group_families(self._group_figures())
        copy = self._copy()
        yield from follower_families(copy)
        if self._replica is not None:
            yield from disk_families(self._replica.disk)
            yield from scrub_families(copy.scrub)

    # -- what needs a person ----------------------------------------------------------------------

    async def _look_on(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Find reasons for alarms. A follower's journal takes none, so it logs instead."""
        now_us = self._now_us()
        if self._leading is not None:
            reigning, server = self._leading
            record = self._newest()
            if record is not None and reigning.primary is not None:
                server.core.broker.alarming.of_group = self._reasons.look(
                    now_us / 1e6,
                    copies=len(record.members),
                    missing=self.missing(),
                    followers=self.followers(),
                    trouble=self._trouble,
                    read_only=server.core.broker.ledger.copies.read_only,
                )
        elif self._replica is not None and not self._is_backup:
            self._look_at_membership(now_us)

    def _look_at_membership(self, now_us: int) -> None:
        if self._is_member():
            if self._told:
                log.info("the copy of %s counts again", self._me.broker)
            self._apart_us, self._told = None, False
            return
        if self._apart_us is None:
            self._apart_us = now_us
        apart_us = now_us - self._apart_us
        if not self._told and apart_us >= PATIENCE_S * 1e6:
            self._told = True
            log.warning(
                "the copy of %s has not counted for %s: it %s",
                self._me.broker, lasting(apart_us), self.why_not_ready(),
            )  # fmt: skip
