"""A broker group of two processes on one machine, with a coordinator in SQLite."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.black_box.process import BrokerProcess, wait_until

TOKEN = "0123456789abcdef" * 2


class Pair:
    """A context manager: brokers ``a`` and ``b`` of one group; leaving ends them.

    Args:
        folder: Their folders and the coordinator's file are here.
        cluster: URL of the coordinator; empty: SQLite.
        names: Of the brokers.
        settings: As environment, for all of them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cluster: str = "",
        names: tuple[str, ...] = ("a", "b"),
        **settings: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.brokers = {
            name: BrokerProcess(
                "serve",
                folder / name,
                name=name,
                cluster=cluster or f"sqlite:///{folder / 'cluster.db'}",
                cluster_token=TOKEN,
                admin_token=TOKEN,
                segment="4MiB",
                reserve="4MiB",
                **settings,
            )
            for name in names
        }

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
            lambda: sum(one.log.count(f"with {name}: it has caught up") for one in self.all)
            >= times,
            f"{name} is a member",
        )

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
