"""Real coordinators on loopback: PostgreSQL, MariaDB, ZooKeeper, each in a temporary folder.

A server that the machine does not have is None; .ci/run installs all three. As root, a server runs
as ``nobody``: PostgreSQL refuses to be root.

``ZOOKEEPER_CLASSPATH``: the jars of another ZooKeeper than Debian's, as ``java -cp`` takes them.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import kazoo.client
import sqlalchemy as sa

from tests.black_box.process import free_port, wait_until

START_S: Final = 60
SESSION_S: Final = 2.0
"""Timeout of sessions with ZooKeeper in tests; its servers allow 1 s and more."""
_JARS: Final = Path("/usr/share/java")
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_FOR_LISTENING: Final = 0.05


class Server:
    """A process that can be stopped, continued and killed, with those that it started.

    Attributes:
        url: Of the coordinator.
        port: Where it listens, on loopback.
        start: Starts its process.
    """

    def __init__(self, url: str, port: int, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self.url = url
        self.port = port
        self._start = start
        self._process = start()

    def again(self) -> None:
        """Start a process with the same data after ``kill``; do not wait for anything."""
        self._process = self._start()

    @property
    def ended(self) -> bool:
        """Whether the process is over."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Have the processes keep their connections, and answer nothing."""
        pid = self._process.pid
        _stop(pid)
        for child in _children(pid):  # it makes no others any more
            with suppress(ProcessLookupError):
                _stop(child)

    def go_on(self) -> None:
        """Continue after ``stop``."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the processes at once."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        pid = self._process.pid
        if self._process.poll() is not None:
            return
        for one in [*_children(pid), pid]:
            with suppress(ProcessLookupError):
                os.kill(one, number)


def _stop(pid: int) -> None:
    """Stop a process; return when its last thread has stopped, which may take a moment."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _states(pid) <= set("TtZX"), f"process {pid} has stopped")


def _states(pid: int) -> set[str]:
    """Return the states of a process's threads; none if it ended."""
    found = set()
    for status in glob.glob(f"/proc/{pid}/task/*/stat"):
        with suppress(OSError):  # it ended meanwhile
            found.add(Path(status).read_text().rpartition(")")[2].split()[0])
    return found


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@contextmanager
def postgresql(before: Sequence[str] = ()) -> Iterator[Server | None]:
    """Run a PostgreSQL; yield None if the machine has none.

    Args:
        before: Words that go before the command of the server.
    """
    found = shutil.which("initdb") or max(glob.glob("/usr/lib/postgresql/*/bin/initdb"), default="")
    if not found:
        yield None
        return
    programs = Path(found).parent
    with _folder() as folder:
        data, port = folder / "data", free_port()
        _run([programs / "initdb", "-D", data, "-U", "ternmq", "-A", "trust", "--no-sync"], folder)
        settings = {
            "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder,
            "shared_buffers": "16MB", "max_connections": 200, "log_destination": "stderr",
        }  # fmt: skip
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        url = f"postgresql+psycopg://ternmq@127.0.0.1:{port}/postgres"
        command: list[str | Path] = [*before, programs / "postgres", "-D", data, *options]
        with _running(command, folder, url, port) as server:
            _wait(server, lambda: _connects(url))
            yield server


@contextmanager
def mariadb(before: Sequence[str] = ()) -> Iterator[Server | None]:
    """Run a MariaDB; yield None if the machine has none.

    Args:
        before: Words that go before the command of the server.
    """
    daemon = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    install = shutil.which("mariadb-install-db")
    if not daemon or not install:
        yield None
        return
    with _folder() as folder:
        data, port, first = folder / "data", free_port(), folder / "first.sql"
        _run(
            [install, "--no-defaults", f"--datadir={data}", "--skip-test-db",
             "--auth-root-authentication-method=normal"], folder,
        )  # fmt: skip
        first.write_text("CREATE DATABASE IF NOT EXISTS ternmq;\n")
        url = f"mysql+pymysql://root@127.0.0.1:{port}/ternmq"
        command = [
            *before, daemon, "--no-defaults", f"--datadir={data}", f"--port={port}",
            "--bind-address=127.0.0.1", f"--socket={folder}/socket", f"--pid-file={folder}/pid",
            f"--init-file={first}", "--innodb-buffer-pool-size=16M", "--skip-ssl",
        ]  # fmt: skip
        with _running(command, folder, url, port) as server:
            _wait(server, lambda: _connects(url))
            yield server


@contextmanager
def zookeeper(servers: int = 1) -> Iterator[list[Server] | None]:
    """Run one or more ZooKeepers, as one ensemble; yield None if the machine has none."""
    jars = _class_path()
    java = shutil.which("java")
    if not java or not jars:
        yield None
        return
    ports = [(free_port(), free_port(), free_port()) for _ in range(servers)]
    peers = [
        f"server.{number}=127.0.0.1:{peer}:{election};127.0.0.1:{client}\n"
        for number, (client, peer, election) in enumerate(ports, 1)
    ]
    with _folder() as folder, _several() as started:
        for number, (client, _, _) in enumerate(ports, 1):
            data = folder / str(number)
            data.mkdir()
            (data / "myid").write_text(str(number))
            alone = f"clientPort={client}\nclientPortAddress=127.0.0.1\n"
            settings = folder / f"{number}.cfg"
            settings.write_text(
                f"tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={data}\n"
                "admin.enableServer=false\nminSessionTimeout=1000\n4lw.commands.whitelist=srvr\n"
                + (alone if servers == 1 else "".join(peers))
            )
            for path in (data, data / "myid", settings):
                _given(path)
            command: list[str | Path] = [java, "-Xmx128m", "-cp", jars, _MAIN, settings]
            url = f"zk://127.0.0.1:{client}/ternmq"
            started.append(_start(command, folder, url, client))
        for server in started:
            wait_for_zookeeper(server)
        yield started


def _class_path() -> str:
    """Return the class path of a ZooKeeper; empty if the machine has none."""
    given = os.environ.get("ZOOKEEPER_CLASSPATH", "")
    jars = [_JARS / "zookeeper.jar", _JARS / "slf4j-nop.jar"]
    return given or (":".join(map(str, jars)) if all(one.exists() for one in jars) else "")


def wait_for_zookeeper(server: Server) -> None:
    """Wait until a ZooKeeper serves clients: it is part of an ensemble that has a leader."""
    _wait(server, partial(_serves, server.port))


def leads(server: Server) -> bool:
    """Return whether a ZooKeeper is the leader of its ensemble."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 5) as one:
        one.sendall(b"srvr")
        said = b""
        while more := one.recv(4096):
            said += more
        return b"Mode: leader" in said
    return False


def _serves(port: int) -> bool:
    client = kazoo.client.KazooClient(f"127.0.0.1:{port}", timeout=SESSION_S)
    try:
        client.start(timeout=2)
    except Exception:  # noqa: BLE001  # kazoo has its own kind for a timeout
        return False
    finally:
        client.stop()
        client.close()
    return True


def _connects(url: str) -> bool:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    try:
        engine.connect().close()
    except sa.exc.OperationalError:
        return False
    finally:
        engine.dispose()
    return True


def _user() -> dict[str, Any]:
    """Return how a process becomes another user's, if this one is root's."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": ()}


def _given(path: Path) -> None:
    """Have a path belong to the user of the servers."""
    user = _user()
    if user:
        os.chown(path, user["user"], user["group"])


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder that the user of the servers can reach; remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ternmq-coordinator-"))
    _given(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path) -> dict[str, str]:
    # A MariaDB that starts deletes the temporary tables of the others in the same folder.
    return {
        "PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8",
        "TMPDIR": str(folder),
    }  # fmt: skip


def _run(command: Sequence[str | Path], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, env=_environment(folder), check=False, timeout=START_S,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **_user(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode()


def _start(command: Sequence[str | Path], folder: Path, url: str, port: int) -> Server:
    def process() -> subprocess.Popen[bytes]:
        with (folder / f"log-{port}").open("ab") as log:
            return subprocess.Popen(
                command, cwd=folder, env=_environment(folder), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, **_user(),
            )  # fmt: skip

    return Server(url, port, process)


@contextmanager
def _several() -> Iterator[list[Server]]:
    started: list[Server] = []
    try:
        yield started
    finally:
        for server in started:
            server.kill()


@contextmanager
def _running(command: Sequence[str | Path], folder: Path, url: str, port: int) -> Iterator[Server]:
    with _several() as started:
        started.append(_start(command, folder, url, port))
        yield started[0]


def _wait(server: Server, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + START_S
    while not condition():
        assert not server.ended, f"the server ended: {server.url}"
        assert time.monotonic() < until, f"the server does not answer: {server.url}"
        time.sleep(_FOR_LISTENING)
