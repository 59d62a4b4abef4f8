"""The processes of a broker group as the tests handle them, and what the coordinator says of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Unknown
from ternmq.cluster.coordination.record import BadRecord, Leadership, Member
from tests.black_box.process import free_port
from tests.fault.processes import DEADLINE, wait_until
from tests.fault.server.broker import APP, TOKEN, Address, Broker
from tests.fault.server.tools import SMALL

CLUSTER_TOKEN: Final = "0123456789abcdef" * 2
GROUP: Final = "main"
_ANSWER_S: Final = 2.0
"""Longest wait for a coordinator that does not answer."""


class Brokers:
    """A context manager: broker processes of one group; leaving kills them.

    Args:
        folder: For logs, and for what is not put elsewhere.
        cluster: URL of the coordinator; empty: SQLite.
        names: Of the brokers.
        later: Those of them that the test starts itself.
        data: Folders of some brokers' data; else in ``folder``.
        clusters: URLs of the coordinator as some brokers reach it.
        advertise: Where others reach some brokers.
        before: What starts some brokers.
        settings: Of all, by key.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cluster: str = "",
        names: tuple[str, ...] = ("a", "b"),
        later: tuple[str, ...] = (),
        data: Mapping[str, Path] | None = None,
        clusters: Mapping[str, str] | None = None,
        advertise: Mapping[str, str] | None = None,
        before: Mapping[str, Sequence[str]] | None = None,
        **settings: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.file = folder / "cluster.db"
        self.cluster = cluster or f"sqlite:///{self.file}"
        self.names = names
        self._later = later
        self.ports = {name: free_port() for name in names}
        self.data = {name: folder / name / "data" for name in names} | dict(data or {})
        self.running: dict[str, Broker] = {}
        self._clusters = dict(clusters or {})
        self._advertise = dict(advertise or {})
        self._before = dict(before or {})
        self._settings = {**SMALL, "log_level": "info", **settings}
        self._past: dict[str, set[int]] = {name: set() for name in names}
        """Incarnations of processes that have ended."""

    # -- processes --------------------------------------------------------------------------------

    def begin(self, name: str, **settings: str) -> Broker:
        """Start a broker; do not wait for anything."""
        record = self.record()
        if record is not None:
            mine = {one.incarnation for one in record.members if one.broker == name}
            self._past[name] |= mine - {0}  # 0: every process of a synced follower
        given = {**self._settings, **settings}
        if name in self._advertise:
            given["advertise"] = self._advertise[name]
        one = self.running[name] = Broker(
            self.data[name],
            self.folder / name / "logs",
            before=self._before.get(name, ()),
            listen=f"127.0.0.1:{self.ports[name]}",
            name=name,
            cluster=self._clusters.get(name, self.cluster),
            cluster_token=CLUSTER_TOKEN,
            **given,
        )
        return one

    def start(self, name: str, **settings: str) -> Broker:
        """Start a broker; return when it listens."""
        one = self.begin(name, **settings)
        one.ready()
        return one

    def kill(self, *names: str) -> None:
        """SIGKILL brokers."""
        for name in names:
            self.running.pop(name).kill()

    def __getitem__(self, name: str) -> Broker:
        return self.running[name]

    def log(self, name: str) -> str:
        """What all processes of a broker have said."""
        logs = sorted((self.folder / name / "logs").glob("*.err"), key=lambda one: int(one.stem))
        return "".join(one.read_text(errors="replace") for one in logs)

    def address(self, name: str) -> Address:
        """Where a broker listens."""
        return Address("127.0.0.1", self.ports[name])

    @property
    def addresses(self) -> list[Address]:
        """Where all of them listen."""
        return [self.address(name) for name in self.names]

    @property
    def url(self) -> str:
        """What clients connect to."""
        return url_of(*self.addresses)

    def __enter__(self) -> Self:
        try:
            first, *others = self.names
            self.start(first)
            self.wait_for_primary(first)
            for name in others:
                if name not in self._later:
                    self.start(name)
            self.wait_until_whole()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in self.running.values():
            one.kill()
        if kind is not None:  # pytest shows it with the failure
            for name in self.names:
                print(f"--- {name}\n{self.log(name)[-6000:]}")
        for name in self.names:
            assert "Traceback" not in self.log(name), self.log(name)[-6000:]

    # -- the record -------------------------------------------------------------------------------

    def record(self) -> Leadership | None:
        """Return the leadership record; None if the coordinator does not say."""
        return asyncio.run(self._read())

    async def _read(self) -> Leadership | None:
        coordinator = await open_coordinator(self.cluster)
        group = Group(coordinator, GROUP, "operator", 1)
        try:
            async with asyncio.timeout(_ANSWER_S):
                while isinstance(found := await group.read(), Unknown):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)  # ZooKeeper: there is no connection yet
        except (BadRecord, TimeoutError):
            return None
        finally:
            await coordinator.close()
        return found

    @property
    def primary(self) -> str:
        """Name of the recorded primary."""
        record = self.record()
        assert record is not None
        return record.primary

    @property
    def other(self) -> str:
        """Name of the one that is not the recorded primary."""
        primary = self.primary
        return next(name for name in self.names if name != primary)

    def lives(self, member: Member) -> bool:
        """Whether a member is the process that runs now."""
        return member.broker in self.running and member.incarnation not in self._past[member.broker]

    def is_whole(self) -> bool:
        """Whether every broker that was started is a member, with the process that runs now."""
        record = self.record()
        if record is None:
            return False
        here = {one.broker for one in record.members if self.lives(one)}
        return here == set(self.running)

    def wait_until_whole(self, seconds: float = DEADLINE) -> None:
        """Wait until every broker that runs is a member."""
        wait(self.is_whole, f"{sorted(self.running)} are the members", seconds)

    def wait_for_primary(self, name: str, seconds: float = DEADLINE) -> None:
        """Wait until the process of a broker that runs now leads."""

        def leads() -> bool:
            record = self.record()
            return (
                record is not None
                and record.primary == name
                and any(one.broker == name and self.lives(one) for one in record.members)
            )

        wait(leads, f"{name} leads", seconds)


def wait(condition, what: str, seconds: float = DEADLINE) -> None:
    """Wait for something whose asking costs something."""
    with contextlib.suppress(StopIteration):
        wait_until(_rarely(condition), what, seconds)


def _rarely(condition):
    """Return a condition that is asked for every 25th time that somebody asks."""
    count = 0

    def asked() -> bool:
        nonlocal count
        count += 1
        return count % 25 == 1 and condition()

    return asked


def url_of(*addresses: Address) -> str:
    """Return the URL of clients of some addresses."""
    return f"ternmq://{APP}:{TOKEN}@" + ",".join(f"{one.host}:{one.port}" for one in addresses)
