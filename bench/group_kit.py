"""A broker group of processes on this machine, as measurements start and end it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from broker_kit import ServerProcess

from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Swapped
from ternmq.cluster.coordination.record import Leadership
from ternmq.cluster.coordination.wishes import Change, Order

TOKEN: Final = "0123456789abcdef" * 2
PATIENCE_S: Final = 20.0
T = TypeVar("T")


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Broker(ServerProcess):
    """A broker of a group, or one that is alone, that listens."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        super().__init__(process.pid)
        self.process = process
        self.port = port


class BrokerGroup:
    """Brokers of one group; without names, one broker that is alone.

    Args:
        path: Their folders are here.
        names: Of the brokers.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.names = names
        self.running: dict[str, Broker] = {}
        self._path = path
        self._ports: dict[str, int] = {}
        self._cluster = f"sqlite:///{path / 'cluster.db'}"

    @property
    def url(self) -> str:
        """What clients connect to."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        return f"ternmq://admin:{TOKEN}@{hosts}"

    def start(self, name: str, *, alone: bool = False, http: str = "off", **more: str) -> None:
        """Start a broker, at the port that it had; ``more`` are settings of it."""
        folder = self._path / name
        given = {
            "TERNMQ_ADMIN_TOKEN": TOKEN, "TERNMQ_SEGMENT": "256MiB", "TERNMQ_LOG_LEVEL": "info",
            "TERNMQ_RETENTION_WATERMARK": "0.98", "TERNMQ_NAME": name,
            "TERNMQ_CREATE_TOPICS": "true",
        }  # fmt: skip
        given |= {f"TERNMQ_{key.upper()}": value for key, value in more.items()}
        if not alone:
            given |= {"TERNMQ_CLUSTER": self._cluster, "TERNMQ_CLUSTER_TOKEN": TOKEN}
        folder.mkdir(exist_ok=True)
        with (folder / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ternmq", "serve", "--data", str(folder / "data"),
                 "--listen", f"127.0.0.1:{self._ports.get(name, 0)}", "--http", http],
                stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **given},
            )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"{name} did not start: {(folder / 'log').read_text()[-2000:]}")
        self._ports[name] = int(line.rpartition(":")[2])
        self.running[name] = Broker(process, self._ports[name])

    def kill(self, name: str) -> None:
        """Kill a broker."""
        one = self.running.pop(name)
        one.process.kill()
        one.process.wait(60)

    def close(self) -> None:
        """End all brokers."""
        for one in self.running.values():
            one.process.terminate()
        for one in self.running.values():
            one.process.wait(60)

    # -- the record -------------------------------------------------------------------------------

    def record(self) -> Leadership | None:
        """Return the leadership record."""

        async def read(group: Group) -> Leadership | None:
            found = await group.read()
            return found if isinstance(found, Leadership) else None

        return self._asked(read)

    def switch(self, to: str) -> None:
        """Order a switch."""

        async def order(group: Group) -> None:
            record = await group.read()
            assert isinstance(record, Leadership)
            asked = Order(change=Change.SWITCH, broker=to, epoch=record.epoch)
            assert isinstance(await group.put_order(asked), Swapped)

        self._asked(order)

    def wait(self, primary: str, copies: int) -> None:
        """Wait until a broker leads, with so many copies."""
        until = time.monotonic() + PATIENCE_S
        while True:
            found = self.record()
            floor = None if found is None else found.floor
            if (
                found is not None
                and floor is not None
                and (found.primary, len(found.members)) == (primary, copies)
                and floor.epoch == found.epoch
            ):
                return
            if time.monotonic() > until:
                raise TimeoutError(f"{primary} does not lead {copies} copies: {found}")
            time.sleep(0.02)

    def _asked(self, work: Callable[[Group], Awaitable[T]]) -> T:
        async def run() -> T:
            coordinator = await open_coordinator(self._cluster)
            try:
                return await work(Group(coordinator, "main", "operator", 1))
            finally:
                await coordinator.close()

        return asyncio.run(run())


@contextmanager
def brokers(path: Path, *names: str) -> Iterator[BrokerGroup]:
    """Run brokers for the length of a ``with`` block: a group that has as many copies."""
    group = BrokerGroup(path, names)
    try:
        for number, name in enumerate(names, 1):
            group.start(name, alone=len(names) == 1)
            if len(names) > 1:
                group.wait(names[0], number)
        yield group
    finally:
        group.close()
