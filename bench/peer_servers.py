"""Starts the brokers that this one is measured beside: on loopback, with folders of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import peer_native
from broker_kit import ServerProcess
from peer_native import Absent

_START_S: Final = 120.0
_RABBIT: Final = (
    "usr/lib/rabbitmq/bin/rabbitmq-server",  # Debian: runs it as whoever asks
    "usr/sbin/rabbitmq-server",
)
_INSIDE: Final = Path("/mnt")
_ENTER: Final = (
    'mount -t proc proc "$0/proc" && mount --bind "$1" "$0/mnt" && shift && exec chroot "$0" "$@"'
)
_HEAP: Final = ["-Xms1g", "-Xmx1g"]


class Server(ServerProcess):
    """A server that listens.

    Attributes:
        url: For clients.
        start_s: From its start until it took a connection.
    """

    def __init__(self, pid: int, url: str, start_s: float) -> None:
        super().__init__(pid)
        self.url = url
        self.start_s = start_s


@dataclass(frozen=True)
class Peer:
    """A broker of others.

    Attributes:
        name: As figures name it.
        version: Returns its version; raises ``Absent`` where it is not installed.
        run: Runs it for the length of a ``with`` block, with its data in a folder.
    """

    name: str
    version: Callable[[], str]
    run: Callable[[Path], AbstractContextManager[Server]]

    def missing(self) -> str:
        """Return why it cannot be run; empty if it can."""
        try:
            self.version()
        except Absent as absent:
            return str(absent)
        return ""


# ------------------------------------------------------------------------------- another system


def _root() -> Path | None:
    """Return the root of another system whose Redis and RabbitMQ are to be run, if one is named."""
    given = os.environ.get("BENCH_ROOT")
    return Path(given).resolve() if given else None


def _within(path: Path) -> tuple[list[str], Path]:
    """Return what runs a command in that system, if one is named, and its path of the data folder.

    The folder is mounted there for that command alone; the command keeps its process id.
    """
    root = _root()
    if root is None:
        return [], path
    return ["unshare", "--mount", "sh", "-c", _ENTER, str(root), str(path)], _INSIDE


def _told(command: list[str]) -> str:
    root = _root()
    where = [] if root is None else ["chroot", str(root)]
    return subprocess.run([*where, *command], check=True, capture_output=True, text=True).stdout


def _in_root(*names: str) -> str:
    """Return the path of the first of some programs that is there, as the system sees it."""
    root = _root() or Path("/")
    for name in names:
        if (root / name).exists():
            return f"/{name}"
    raise Absent(f"no {Path(names[0]).name} on this machine")


# ------------------------------------------------------------------------------------------ Redis


def redis_version() -> str:
    """Return it."""
    told = _told([_in_root("usr/bin/redis-server", "usr/local/bin/redis-server"), "--version"])
    return told.partition("v=")[2].partition(" ")[0]


@contextmanager
def redis(path: Path) -> Iterator[Server]:
    """Run Redis: each answer after a sync of the file that commands are appended to."""
    port = _free_port()
    within, data = _within(path)
    command = [
        *within, _in_root("usr/bin/redis-server", "usr/local/bin/redis-server"),
        "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data),
        "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no",
    ]  # fmt: skip
    with _started(command, {}, path) as process:
        taken = _listens(process, port, path)
        yield Server(process.pid, f"redis://127.0.0.1:{port}", taken)


# --------------------------------------------------------------------------------------- RabbitMQ


def rabbitmq_version() -> str:
    """Return it."""
    _in_root(*_RABBIT)
    _in_root("usr/bin/epmd")
    at = (_root() or Path("/")) / "usr/lib/rabbitmq/lib"
    folders = sorted(at.glob("rabbitmq_server-*"))
    return folders[-1].name.partition("-")[2] if folders else "unknown"


@contextmanager
def rabbitmq(path: Path) -> Iterator[Server]:
    """Run RabbitMQ, with a port mapper of Erlang that is its own."""
    port, mapper, between = _free_port(), _free_port(), _free_port()
    within, data = _within(path)
    environment = {
        "HOME": str(data),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(between),
        "RABBITMQ_MNESIA_BASE": str(data / "data"),
        "RABBITMQ_LOG_BASE": str(data / "log"),
        "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    (path / "plugins").write_text("[].\n")
    (path / "rabbitmq.conf").write_text("")
    epmd = [*within, _in_root("usr/bin/epmd"), "-port", str(mapper), "-address", "127.0.0.1"]
    with (
        _started(epmd, environment, path),
        _started([*within, _in_root(*_RABBIT)], environment, path) as process,
    ):
        taken = _listens(process, port, path)
        yield Server(_beam_of(process.pid), f"amqp://guest:guest@127.0.0.1:{port}/", taken)


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


# ------------------------------------------------------------------------------------------- NATS


def nats_version() -> str:
    """Return it."""
    command = [peer_native.nats_server(), "--version"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return told.strip().rpartition("v")[2]


@contextmanager
def nats(path: Path) -> Iterator[Server]:
    """Run NATS with JetStream: each answer after a sync."""
    port = _free_port()
    settings = path / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\n'
        f'jetstream {{ store_dir: "{path / "data"}", sync_interval: always }}\n'
    )
    with _started([peer_native.nats_server(), "-c", str(settings)], {}, path) as process:
        taken = _listens(process, port, path)
        yield Server(process.pid, f"nats://127.0.0.1:{port}", taken)


# ------------------------------------------------------------------------------------------ Kafka

_KAFKA: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
log.flush.interval.messages=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
# As kafka-server-start.sh gives them.
_KAFKA_JAVA: Final = [
    *_HEAP, "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
]  # fmt: skip


def kafka_version() -> str:
    """Return it."""
    return peer_native.jar_version("kafka", "kafka-clients")


@contextmanager
def kafka(path: Path) -> Iterator[Server]:
    """Run Kafka, broker and controller in one process: each message is synced before its answer."""
    port, controller = _free_port(), _free_port()
    settings = path / "server.properties"
    settings.write_text(_KAFKA.format(port=port, controller=controller, data=path / "data"))
    java = peer_native.java_server("kafka")
    made = [
        *java, "kafka.tools.StorageTool", "format", "-t", "bench-bench-bench-benchA",
        "-c", str(settings),
    ]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True, cwd=path)
    command = [java[0], *_KAFKA_JAVA, *java[1:], "kafka.Kafka", str(settings)]
    with _started(command, {}, path) as process:
        taken = _listens(process, port, path)
        yield Server(process.pid, f"kafka://127.0.0.1:{port}", taken)


# --------------------------------------------------------------------------------------- RocketMQ

_ROCKETMQ: Final = """\
brokerClusterName=bench
brokerName=bench
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort={port}
haListenPort={between}
namesrvAddr=127.0.0.1:{names}
storePathRootDir={data}
storePathCommitLog={data}/commitlog
maxTransferCountOnMessageInMemory=1000
waitTimeMillsInSendQueue=30000
diskMaxUsedSpaceRatio=98
"""


def rocketmq_version() -> str:
    """Return it."""
    return peer_native.jar_version("rocketmq", "rocketmq-broker")


@contextmanager
def rocketmq(path: Path) -> Iterator[Server]:
    """Run RocketMQ, a name server and a broker; what is measured of its process is the broker's."""
    names, port, between = _free_port(), _free_port(), _free_port()
    (path / "names.conf").write_text(f"listenPort={names}\nbindAddress=127.0.0.1\n")
    (path / "broker.conf").write_text(
        _ROCKETMQ.format(port=port, between=between, names=names, data=path / "data")
    )
    java = peer_native.java_server("rocketmq")
    environment = {"ROCKETMQ_HOME": str(path)}
    home = f"-Duser.home={path}"
    starts = "org.apache.rocketmq"
    namer = [java[0], "-Xmx256m", home, *java[1:], f"{starts}.namesrv.NamesrvStartup"]
    command = [java[0], *_HEAP, home, *java[1:], f"{starts}.broker.BrokerStartup"]
    with _started([*namer, "-c", str(path / "names.conf")], environment, path) as first:
        _listens(first, names, path)
        with _started([*command, "-c", str(path / "broker.conf")], environment, path) as process:
            taken = _listens(process, port, path)
            yield Server(process.pid, f"rocketmq://127.0.0.1:{names}", taken)


# -------------------------------------------------------------------------------------- processes


@contextmanager
def _started(
    command: list[str], environment: dict[str, str], path: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command; it is killed at the end, with what it runs: its data is of no more use."""
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
        process.wait()


def _beam_if_any(pid: int) -> int | None:
    try:
        return _beam_of(pid)
    except (RuntimeError, OSError):
        return None


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _listens(process: subprocess.Popen[bytes], port: int, path: Path) -> float:
    """Wait until it takes a connection; return how long that took."""
    began = time.monotonic()
    while time.monotonic() < began + _START_S:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.002)
        else:
            return time.monotonic() - began
    told = (path / "out").read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{process.args!r} does not listen: {told}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer("redis", redis_version, redis),
        Peer("rabbitmq", rabbitmq_version, rabbitmq),
        Peer("nats", nats_version, nats),
        Peer("kafka", kafka_version, kafka),
        Peer("rocketmq", rocketmq_version, rocketmq),
    )
}
