"""``ternmq cluster dev``: a broker group on this machine, for trying things out."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ternmq.cli.broker import cluster_view
from ternmq.cli.commands import Command
from ternmq.cli.reach.connection import be_quiet, until_told
from ternmq.cli.reach.coordinators import CLUSTER, MAIN, Cluster, known
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed, Terminated
from ternmq.cluster.coordination.record import BadRecord
from ternmq.model.units import Address, read_address
from ternmq.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ternmq.demo.processes import Child, Processes

NAMES: Final = "abc"
_APART: Final = 100
"""From the port of one broker to that of the next."""
_RESTART_S: Final = 10.0
_LOOK_S: Final = 0.25
_BEGIN_S: Final = 60.0
_DEADLINE_S: Final = 2.0
"""Longest time that the coordinator, a file here, is waited for."""
_WELCOME: Final = """\
{count} brokers of one group run on this machine, with a SQLite file as coordinator.
{keeps}
Try, in another terminal:

    export TERNMQ_URL={url}
    export TERNMQ_APP=admin TERNMQ_TOKEN={token}
    export TERNMQ_CLUSTER={cluster}
    seq 1000 | ternmq send numbers --quiet
    ternmq cluster status
    kill -9 {pid}    # the primary: another broker takes over, nothing is lost
    ternmq tail numbers -n 3
    ternmq cluster switch --to {name}

A broker that ends is started again after {seconds:g} s. Ctrl-C ends all of them.
"""
_KEEPS: Final = "They keep their data in {folder}."
_FORGETS: Final = "Everything is deleted at the end; `--data DIR` keeps it."


@click.command(cls=Command)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the data of all brokers, kept at exit. Default: a temporary folder, deleted "
    "at exit.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:7117",
    show_default=True,
    help="Loopback address of the first broker. The ports of the next ones are 100 and 200 higher, "
    "and each serves HTTP at the next port. Port 0: free ports.",
)
@click.option(
    "--replicas",
    metavar="NUMBER",
    type=click.IntRange(1, len(NAMES) - 1),
    default=1,
    show_default=True,
    help="Number of brokers in addition to the primary.",
)
def dev(data: Path | None, listen: str, replicas: int) -> None:
    """Run a broker group on this machine for development: kill a broker, and see what happens.

    Each broker is a process. The output shows the address, app and token that clients need, and
    then each change: which broker is the primary, which copies count, which process has ended.
    Topics are created at first use.
    """
    import asyncio

    try:
        address = read_address(listen)
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}", click.get_current_context()) from error
    if not address.is_loopback:
        raise click.UsageError(
            f"--listen: {listen} is no loopback address; for brokers that other machines can "
            "reach, run `ternmq serve` on each",
            click.get_current_context(),
        )
    if data is not None and "?" in str(data.absolute()):
        raise click.UsageError(
            f"--data: {data.absolute()} has a '?', and the coordinator's URL cannot name a file "
            "there",
            click.get_current_context(),
        )
    from ternmq.demo.processes import ProcessFailed

    be_quiet()
    with ExitStack() as stack:
        folder = data
        if folder is None:
            prefix = "ternmq-cluster-dev-"
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            asyncio.run(
                until_told(_run(folder.resolve(), address, replicas, keeps=data is not None))
            )
        except (KeyboardInterrupt, Terminated):
            return
        except ProcessFailed as error:
            raise Failed(str(error)) from error
        except SettingsError as error:
            raise Failed(str(error), ExitCode.USAGE) from error
        except BadRecord as error:
            raise Failed(f"the coordinator returned a record that is not valid: {error}") from error


async def _run(folder: Path, listen: Address, replicas: int, *, keeps: bool) -> None:
    from ternmq.cluster.coordination.opening import open_coordinator
    from ternmq.demo.processes import Processes

    url = f"sqlite:///{folder / 'cluster.db'}"
    async with AsyncExitStack() as stack:
        processes = await stack.enter_async_context(Processes(folder, remove=not keeps))
        coordinator = await open_coordinator(url, deadline_s=_DEADLINE_S)
        stack.push_async_callback(coordinator.close)
        brokers = LocalBrokers(
            processes, Cluster(coordinator, MAIN), url, _addresses(listen, replicas + 1)
        )
        stack.push_async_callback(brokers.stop)
        await brokers.begin()
        click.echo(brokers.welcome(_KEEPS if keeps else _FORGETS), err=True)
        await brokers.watch()


class LocalBrokers:
    """The brokers of one group, each a process of this machine.

    Args:
        processes: Starts them, and ends them in any case.
        cluster: Their coordinator.
        url: Its URL.
        addresses: For each broker, the addresses for clients and for HTTP.
    """

    def __init__(
        self,
        processes: Processes,
        cluster: Cluster,
        url: str,
        addresses: list[tuple[Address, Address]],
    ) -> None:
        self._processes = processes
        self._cluster = cluster
        self._addresses = dict(zip(NAMES, addresses, strict=False))
        self._token = secrets.token_urlsafe(24)
        self._url = url
        self._children: dict[str, Child] = {}
        self._due: dict[str, float] = {}
        """Brokers that have ended, and when they are started again."""
        self._primary = ""

    async def begin(self) -> None:
        """Start all brokers; returns when one of them leads.

        Raises:
            ProcessFailed: One has ended.
            Failed: None leads.
        """
        self._say(f"starting brokers; their logs are in {self._processes.folder}")
        first, *others = self._addresses
        begun = known(await self._cluster.group.read()) is not None
        await self._start(first)
        if not begun:
            await self._led()  # by the first broker: it begins the group
        for name in others:
            await self._start(name)
        await self._led()

    async def _led(self) -> None:
        """Wait until a broker leads."""
        import asyncio

        until = time.monotonic() + _BEGIN_S
        while not self._primary:
            for child in self._children.values():
                child.check()
            said = await self._look()
            if time.monotonic() > until:
                raise Failed(f"no broker leads after {_BEGIN_S:g} s: {said}")
            await asyncio.sleep(_LOOK_S)

    def welcome(self, keeps: str) -> str:
        """Return what to try."""
        url = ",".join(str(address) for address, _ in self._addresses.values())
        return _WELCOME.format(
            count=len(self._addresses),
            keeps=keeps.format(folder=self._processes.folder),
            url=f"ternmq://{url}",
            token=self._token,
            cluster=shlex.quote(self._url),
            pid=self._children[self._primary].pid,
            name=self._primary,
            seconds=_RESTART_S,
        )

    async def watch(self) -> None:
        """Say what changes, and start a broker again that has ended; never returns."""
        import asyncio

        said = ""
        while True:
            for name in self._addresses:
                await self._see_to(name)
            line = await self._look()
            if line != said:
                self._say(line)
            said = line
            await asyncio.sleep(_LOOK_S)

    async def stop(self) -> None:
        """End all brokers, the primary last: so it does not hand over to one that ends, too."""
        for name in sorted(self._children, key=lambda one: one == self._primary):
            child = self._children[name]
            if child.running:
                await child.stop(listens=False)

    async def _see_to(self, name: str) -> None:
        child = self._children[name]
        due = self._due.get(name)
        if due is not None and time.monotonic() >= due:
            del self._due[name]
            await self._start(name)
        elif due is None and not child.running:
            self._say(f"{name} has ended: {child.end}; it is started again in {_RESTART_S:g} s")
            self._due[name] = time.monotonic() + _RESTART_S
            await self._processes.gone(child)

    async def _look(self) -> str:
        """Return what the coordinator says of the group, as a line."""
        try:
            view = await cluster_view.look(self._cluster)
        except Failed as error:
            return str(error)
        primary = view.record.primary
        leads = primary in view.present and not cluster_view.begins(view)
        self._primary = primary if leads else ""
        return cluster_view.headline(view)

    async def _start(self, name: str) -> None:
        listen, http = self._addresses[name]
        settings = {
            CLUSTER: self._url,
            "TERNMQ_CLUSTER_TOKEN": self._token,
            "TERNMQ_ADMIN_TOKEN": self._token,
            "TERNMQ_NAME": name,
            "TERNMQ_CREATE_TOPICS": "true",
            "TERNMQ_SEGMENT": "16MiB",  # the disk of someone who tries it may be small
        }
        others = {key: one for key, one in os.environ.items() if not key.startswith("TERNMQ_")}
        child = self._children[name] = await self._processes.start(
            name, "ternmq", "serve", "--data", str(self._processes.folder / name),
            "--listen", str(listen), "--http", str(http), env=others | settings,
        )  # fmt: skip
        self._say(f"{name} runs at {listen}: process {child.pid}")

    def _say(self, text: str) -> None:
        output.line(f"{time.strftime('%H:%M:%S')}  {text}")


def _addresses(first: Address, count: int) -> list[tuple[Address, Address]]:
    """Return the addresses for clients and for HTTP of each broker."""
    if first.port == 0:
        free = _free_ports(first.host, 2 * count)
        return [
            (Address(first.host, next(free)), Address(first.host, next(free))) for _ in range(count)
        ]
    ports = [first.port + _APART * number for number in range(count)]
    if ports[-1] + 1 > 0xFFFF:
        raise Failed(f"--listen: there is no port {ports[-1] + 1}", ExitCode.USAGE)
    return [(Address(first.host, one), Address(first.host, one + 1)) for one in ports]


def _free_ports(host: str, count: int) -> Iterator[int]:
    """Yield ports that are free now, all of them different."""
    with ExitStack() as stack:
        places = [
            stack.enter_context(closing(socket.create_server((host, 0)))) for _ in range(count)
        ]
        ports = [place.getsockname()[1] for place in places]
    yield from ports
