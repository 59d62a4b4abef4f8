"""A broker in a process of its own, connections to it, and what the tests of rows share."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

import ternmq.sync
from tests.asynchronous import pytest_pyfunc_call
from tests.black_box.process import BrokerProcess
from tests.black_box.stranger import Stranger

__all__ = ["pytest_pyfunc_call"]

TOKEN = "the-token-of-the-admin-of-this-test"
_topics = count(1)
_LISTENING = re.compile(r"^listening on (\S+):(\d+)$", re.MULTILINE)


@dataclass(slots=True)
class Broker:
    """A running broker."""

    process: subprocess.Popen[bytes]
    address: tuple[str, int]
    folder: Path
    """Holds the data folder, and nothing else."""

    def rss_bytes(self) -> int:
        """Return how much memory it has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
        return int(kib) * 1024

    def files(self) -> set[str]:
        """Return what stands beside the data folder, and in it but the journal's own."""
        return {
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.suffix != ".seg"
        }


def start(folder: Path, **settings: str) -> Broker:
    """Start a broker, and wait until it listens."""
    environment = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
    process = subprocess.Popen(
        [sys.executable, "-m", "ternmq", "serve", "--data", str(folder / "data"),
         "--listen", "127.0.0.1:0", "--http", "off"],
        stdout=subprocess.PIPE,
        cwd=folder,
        env=environment | {
            "TERNMQ_ADMIN_TOKEN": TOKEN, "TERNMQ_SEGMENT": "4MiB",
            "TERNMQ_RETENTION_WATERMARK": "0.98",  # the disk may be full of other things
            **{f"TERNMQ_{name.upper()}": value for name, value in settings.items()},
        },
    )  # fmt: skip
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    said = ""
    until = time.monotonic() + 30
    while (found := _LISTENING.search(said)) is None:
        ready, _, _ = select.select([process.stdout], [], [], max(0, until - time.monotonic()))
        data = process.stdout.read() if ready else None
        if not data:
            process.kill()
            process.wait()
            process.stdout.close()
            raise AssertionError(f"the broker did not listen: {said!r}")
        said += data.decode()
    return Broker(process, (found[1], int(found[2])), folder)


def stop(broker: Broker) -> int:
    """End a broker as an operator does; return its exit status."""
    broker.process.send_signal(signal.SIGTERM)
    try:
        return broker.process.wait(30)
    finally:
        if broker.process.poll() is None:
            broker.process.kill()
            broker.process.wait()
        assert broker.process.stdout is not None
        broker.process.stdout.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Yield a broker with short time limits."""
    running = start(tmp_path_factory.mktemp("broker"), handshake_timeout="1s", heartbeat="1s")
    yield running
    assert running.process.poll() is None, "the broker ended"
    assert stop(running) == 0


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[..., Stranger]]:
    """Yield a function that connects, and says HELLO unless told otherwise."""
    made: list[Stranger] = []

    def connect(*, hello: bool = True, **fields: object) -> Stranger:
        stranger = Stranger(broker.address)
        made.append(stranger)
        if hello:
            known = {"app": "admin", "token": TOKEN, "client": os.urandom(16).hex()}
            stranger.hello(**(known | fields))
        return stranger

    yield connect
    for one in made:
        one.socket.close()


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Yield a broker that makes topics at first use and asks for no tokens."""
    with BrokerProcess("dev", tmp_path_factory.mktemp("dev"), http=True) as broker:
        yield broker


@pytest.fixture
def client(dev: BrokerProcess) -> Iterator[ternmq.sync.Client]:
    """Yield a client of it."""
    with ternmq.sync.connect(dev.url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    """Return the name of a topic that no other test has."""
    return f"topic-{next(_topics)}"
