"""Starts the brokers that this one is measured beside: on loopback, with folders of their own."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker_kit import ServerProcess

_START_S: Final = 90.0
_RABBIT: Final = (
    Path("/usr/lib/rabbitmq/bin/rabbitmq-server"),  # Debian: runs it as whoever asks
    Path("/usr/sbin/rabbitmq-server"),
)


class Server(ServerProcess):
    """A server that listens."""

    def __init__(self, pid: int, url: str) -> None:
        super().__init__(pid)
        self.url = url


@dataclass(frozen=True)
class Peer:
    """A broker of others.

    Attributes:
        name: As figures name it.
        package: The Python package that speaks to it.
        installed: Whether it is.
        run: Runs it for the length of a ``with`` block, with its data in a folder.
    """

    name: str
    package: str
    installed: Callable[[], bool]
    run: Callable[[Path], AbstractContextManager[Server]]


@contextmanager
def redis(path: Path) -> Iterator[Server]:
    """Run Redis."""
    port = _free_port()
    command = [
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(path),
        "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no",
    ]  # fmt: skip
    with _started(command, {}, path) as process:
        _listens(process, port)
        yield Server(process.pid, f"redis://127.0.0.1:{port}")


@contextmanager
def rabbitmq(path: Path) -> Iterator[Server]:
    """Run RabbitMQ, with a port mapper of Erlang that is its own."""
    port, mapper, between = _free_port(), _free_port(), _free_port()
    environment = {
        "HOME": str(path),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(between),
        "RABBITMQ_MNESIA_BASE": str(path / "data"),
        "RABBITMQ_LOG_BASE": str(path / "log"),
        "RABBITMQ_CONFIG_FILE": str(path / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(path / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    (path / "plugins").write_text("[].\n")
    epmd = ["epmd", "-port", str(mapper), "-address", "127.0.0.1"]
    with (
        _started(epmd, environment, path),
        _started([str(_rabbit_script())], environment, path) as process,
    ):
        _listens(process, port)
        yield Server(_beam_of(process.pid), f"amqp://guest:guest@127.0.0.1:{port}/")


def _rabbit_script() -> Path:
    return next(script for script in _RABBIT if script.exists())


def _beam_of(pid: int) -> int:
    """Return the process that is the Erlang machine: the script's last descendant of that name."""
    children = {
        int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()
    }
    family = {pid}
    while more := {one for one, parent in children.items() if parent in family} - family:
        family |= more
    for one in family:
        if "beam" in Path(f"/proc/{one}/comm").read_text():
            return one
    raise RuntimeError("RabbitMQ has no Erlang machine")


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@contextmanager
def _started(
    command: list[str], environment: dict[str, str], path: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command; its children end with it."""
    with (path / "out").open("ab") as out:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, cwd=path, stdout=out, stderr=out
        )
    try:
        yield process
    finally:
        for pid in (_beam_if_any(process.pid), process.pid):
            if pid is not None:
                _end(pid)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _beam_if_any(pid: int) -> int | None:
    try:
        return _beam_of(pid)
    except (RuntimeError, OSError):
        return None


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _listens(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"{process.args!r} does not listen")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _has_redis() -> bool:
    return shutil.which("redis-server") is not None


def _has_rabbitmq() -> bool:
    return shutil.which("epmd") is not None and any(script.exists() for script in _RABBIT)


def server_versions() -> dict[str, str]:
    """Return the versions of the servers that are installed, and of what speaks to them."""
    found: dict[str, str] = {}
    if _has_redis():
        told = subprocess.run(
            ["redis-server", "--version"], check=True, capture_output=True, text=True
        )
        found["redis-server"] = told.stdout.partition("v=")[2].partition(" ")[0]
    if _has_rabbitmq():
        folders = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
        found["rabbitmq-server"] = folders[-1].name.partition("-")[2] if folders else "unknown"
    for package in ("redis", "hiredis", "aio-pika"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


PEERS: Final = (
    Peer("redis", "redis", _has_redis, redis),
    Peer("rabbitmq", "aio_pika", _has_rabbitmq, rabbitmq),
    Peer("rabbitmq_quorum", "aio_pika", _has_rabbitmq, rabbitmq),
)
