"""A broker group of two processes on one machine, with a coordinator in SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Swapped
from ternmq.cluster.coordination.record import Leadership
from ternmq.cluster.coordination.wishes import Change, GroupSettings, Order
from tests.black_box.process import BrokerProcess, wait_until

TOKEN = "0123456789abcdef" * 2


class Pair:
    """A context manager: brokers ``a`` and ``b`` of one group; leaving ends them.

    Args:
        folder: Their folders and the coordinator's file are here.
        cluster: URL of the coordinator; empty: SQLite.
        http: Whether they have their HTTP ports.
        names: Of the brokers.
        settings: As environment, for all of them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cluster: str = "",
        http: bool = False,
        names: tuple[str, ...] = ("a", "b"),
        **settings: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.cluster = cluster or f"sqlite:///{folder / 'cluster.db'}"
        self._folder = folder
        self._http = http
        self.brokers: dict[str, BrokerProcess] = {}
        for name in names:
            self.add(name, **settings)

    def add(self, name: str, **settings: str) -> BrokerProcess:
        """Return another broker of the group; it is not started."""
        self.brokers[name] = BrokerProcess(
            "serve",
            self._folder / name,
            http=self._http,
            name=name,
            cluster=self.cluster,
            cluster_token=TOKEN,
            admin_token=TOKEN,
            segment="4MiB",
            reserve="4MiB",
            **settings,
        )
        return self.brokers[name]

    def __getitem__(self, name: str) -> BrokerProcess:
        return self.brokers[name]

    @property
    def url(self) -> str:
        """What clients connect to: all addresses, as the app ``admin``."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.brokers.values())
        return f"ternmq://admin:{TOKEN}@{hosts}"

    def start(self) -> Self:
        """Start all brokers, the first one first; return when there are as many copies."""
        first, *others = self.brokers.values()
        first.start()
        wait_until(lambda: "leads broker group" in first.log, "the first broker leads")
        for one in others:
            one.start()
        for name in list(self.brokers)[1:]:
            self.wait_for_member(name)
        return self

    def wait_for_member(self, name: str, times: int = 1) -> None:
        """Wait until a broker was taken in as a member, for so many times in all."""
        wait_until(
            lambda: (
                sum(one.log.count(f"with {name}: it has caught up") for one in self.all) >= times
            ),
            f"{name} is a member",
        )

    def ask(self, change: Change, broker: str) -> None:
        """Give an order, as `ternmq cluster` does."""

        async def give(group: Group) -> None:
            record = await group.read()
            assert isinstance(record, Leadership)
            order = Order(change=change, broker=broker, epoch=record.epoch)
            assert isinstance(await group.put_order(order), Swapped)

        self._as_operator(give)

    def set(self, settings: GroupSettings) -> None:
        """Change the settings of the group, and wait until every broker has read them."""

        async def put(group: Group) -> None:
            assert isinstance(await group.put_settings(settings), Swapped)

        self._as_operator(put)

    def record(self) -> Leadership:
        """Return the leadership record."""
        found: list[Leadership] = []

        async def read(group: Group) -> None:
            record = await group.read()
            assert isinstance(record, Leadership)
            found.append(record)

        self._as_operator(read)
        return found[0]

    def wait_for_primary(self, name: str) -> None:
        """Wait until a broker leads."""
        wait_until(lambda: self.record().primary == name, f"{name} leads")

    def _as_operator(self, work: Callable[[Group], Awaitable[None]]) -> None:
        async def run() -> None:
            coordinator = await open_coordinator(self.cluster)
            try:
                await work(Group(coordinator, "main", "operator", 1))
            finally:
                await coordinator.close()

        asyncio.run(run())

    @property
    def all(self) -> list[BrokerProcess]:
        """The brokers that were started once."""
        return [one for one in self.brokers.values() if (one.folder / "log").exists()]

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for one in reversed(self.brokers.values()):
            one.stop()
