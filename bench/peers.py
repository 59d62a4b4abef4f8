"""Measures other brokers beside this one, in the same rounds, with the same loads; see ``runner``.

    python bench/peers.py                 five rounds of every load
    python bench/peers.py --quick         a smoke run, nothing is written

A round of a load takes the raw disk, then one column after the other, in an order that chance
makes. A column is a broker and a client of it: the broker is started on an empty folder, loaded by
one client process, its figures are taken, it is stopped. What is the same for all:

* message sizes, the number of messages under way, connections; one topic or queue, one replica;
* the clock: wall time of the client, from before a message is made until its answer; the same part
  of each load comes before the clock begins, so that machines that compile have done so; so does
  the wait until a broker that listens can be used: topic, route, leader, 30 s at most;
* each broker is set up as its documentation asks where no answered message may be lost: an answer
  comes after a sync. ``perf`` counts the syncs (fsync, fdatasync, msync, sync_file_range) of the
  broker's process where it is there and may; it does not slow the process.

What differs, since the brokers do:

* **redis**: ``appendonly yes``, ``appendfsync always``, no snapshots; ``XADD``, ``XREADGROUP`` of
  1,000, one ``XACK`` of them whose answer is awaited. By redis-py with hiredis (more than one
  message under way on a connection is a pipeline, and the next begins when all its answers are
  there) and by rueidis in Go (commands of all goroutines share the connection).
* **rabbitmq**: a durable classic queue, persistent messages, confirms awaited; **rabbitmq_quorum**:
  a quorum queue of one member. By aio-pika and by amqp091-go. Prefetch of 1,000, acknowledged by
  the 500 (``multiple``): AMQP has no answer to an acknowledgement, so none is awaited.
* **nats**: JetStream in files with ``sync_interval: always``, one stream. By nats.go: answers
  awaited; ``Fetch`` of 1,000, of which the last is acknowledged for all and that answer awaited.
* **kafka**: one node in KRaft mode, ``acks=all``, ``log.flush.interval.messages=1``, one partition,
  the idempotent producer. By its Java client: ``linger.ms=0`` where each message is awaited, 1
  where 1,000 are under way, ``batch.size`` of 256 KiB; ``commitSync`` after each poll of 1,000 at
  most.
* **rocketmq**: ``SYNC_FLUSH``, one queue. By its Java client: only ``SEND_OK`` counts; 1,000 under
  way are one batch. Its consumer keeps offsets, the broker gets them every 5 s: none is awaited.
* **ternmq**: ``send``, ``send_many`` of 1,000, ``pull`` of 1,000 and ``ack``, whose answer comes
  after a sync.

In ``end-to-end`` messages are acknowledged one by one or by the poll, and no answer to that is
awaited before the next message. In ``footprint`` 1,000 topics are streams (Redis), queues
(RabbitMQ), subjects of one stream (NATS), topics of one partition (Kafka, RocketMQ).

A column is left out where its server, its client or what builds them is not there; ``versions``
then says why. ``BENCH_COLUMNS=ternmq,nats_go`` measures only these.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import peer_native
from broker_kit import broker_at, client_of
from core_kit import Figures, Measurement, Settings, folder
from core_machine import raw_disk
from peer_native import Absent
from peer_servers import PEERS, Server
from peer_syncs import counted
from runner import Suite, run

PYTHON: Final = Path(__file__).with_name("peer_clients.py")
OURS: Final = "ternmq"
_IDLE_S: Final = 2.0
_SMALL_SEGMENT: Final = "8MiB"


@dataclass(frozen=True)
class Column:
    """A broker and a client of it.

    Attributes:
        name: As figures name it.
        server: The peer's name; this broker's own, if it is that.
        verb: What the client's verbs begin with.
        command: Returns the client's command; raises ``Absent`` where there is none.
        share: Of the messages of a counted load: each broker has seconds to do, and none minutes.
        native: The peer's own client, which ``footprint`` takes before one in Python.
    """

    name: str
    server: str
    verb: str
    command: Callable[[], list[str]]
    share: float
    native: bool = False

    def missing(self) -> str:
        """Return why it cannot be measured; empty if it can."""
        try:
            self.command()
        except Absent as absent:
            return str(absent)
        return "" if self.server == OURS else PEERS[self.server].missing()

    @contextmanager
    def run(self, path: Path, segment: str = "256MiB") -> Iterator[Server]:
        """Run the broker with its data in a folder; ``segment`` is for this one's own journal."""
        if self.server != OURS:
            with PEERS[self.server].run(path) as server:
                yield server
            return
        began = time.monotonic()
        with broker_at(path / "data", given={"SEGMENT": segment}) as one:
            yield Server(one.pid, one.url, time.monotonic() - began)

    def load(self, server: Server, verb: str, load: Mapping[str, float]) -> Figures:
        """Run the client to its end; return what it found, and what the broker used meanwhile."""
        before = server.cpu_s()
        with counted(server.pid) as syncs:
            found = client_of(self.command(), server.url, f"{self.verb}_{verb}", **load)
        count = found.pop("count")
        found["server_cpu_us_each"] = (server.cpu_s() - before) * 1e6 / count
        if syncs.count is not None:
            found["syncs_each"] = syncs.count / count
        return found


def _python(*packages: str) -> list[str]:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise Absent(f"no Python package {package}")
    return [sys.executable, str(PYTHON)]


_GO: Final = peer_native.go_client
_KAFKA: Final = partial(peer_native.java_client, "kafka", "KafkaClient")
_ROCKETMQ: Final = partial(peer_native.java_client, "rocketmq", "RocketClient")
_QUORUM: Final = "rabbitmq_quorum"

COLUMNS: Final = (
    Column(OURS, OURS, OURS, _python, 1.0),
    Column("redis", "redis", "redis", partial(_python, "redis", "hiredis"), 0.2),
    Column("redis_go", "redis", "redis", _GO, 0.4, native=True),
    Column("rabbitmq", "rabbitmq", "rabbitmq", partial(_python, "aio_pika"), 0.02),
    Column("rabbitmq_go", "rabbitmq", "rabbitmq", _GO, 0.06, native=True),
    Column(_QUORUM, "rabbitmq", _QUORUM, partial(_python, "aio_pika"), 0.02),
    Column(f"{_QUORUM}_go", "rabbitmq", _QUORUM, _GO, 0.06, native=True),
    Column("nats_go", "nats", "nats", _GO, 0.02, native=True),
    Column("kafka_java", "kafka", "kafka", _KAFKA, 0.4, native=True),
    Column("rocketmq_java", "rocketmq", "rocketmq", _ROCKETMQ, 0.2, native=True),
)


def columns() -> list[Column]:
    """Return what is there, in an order that chance makes."""
    there = [one for one in chosen() if not one.missing()]
    return random.sample(there, len(there))


def chosen() -> list[Column]:
    """Return the columns that ``BENCH_COLUMNS`` names; all, if it is not set."""
    asked = os.environ.get("BENCH_COLUMNS")
    return [one for one in COLUMNS if asked is None or one.name in asked.split(",")]


def measure(settings: Settings, *, verb: str, load: Figures) -> Figures:
    """One round of a load: the raw disk, then every column."""
    found = _raw(settings)
    for column in columns():
        given = {key: _scaled(settings, column, key, value) for key, value in load.items()}
        with folder(settings) as path, column.run(path) as server:
            if verb == "consume":
                backlog = {"count": given["count"] + 2 * given["of"], "of": given["of"]}
                column.load(server, "bulk", {**backlog, "warm_count": 0})
            measured = column.load(server, verb, given)
        found |= {f"{column.name}_{key}": value for key, value in measured.items()}
    return found


def footprint(settings: Settings, *, count: int, topics: int) -> Figures:
    """One round of what a broker needs: each by its own client, or by Python where it has none."""
    found = _raw(settings)
    chosen = columns()
    native = {one.verb for one in chosen if one.native}
    for column in chosen:
        if not column.native and column.verb in native:
            continue
        # This broker makes its segments at full size: small ones, so that what is used shows.
        with folder(settings) as path, column.run(path, _SMALL_SEGMENT) as server:
            time.sleep(_IDLE_S)
            measured = {"start_s": server.start_s, "idle_mib": server.resident_mib()}
            several = {"count": settings.scaled(topics, 20), "of": 16}
            measured["topics_s"] = column.load(server, "topics", several)["seconds"]
            before = _allocated(path)
            messages = max(1000, int(settings.scaled(count, 1000) * column.share))
            bulk = {"count": messages, "of": 1000, "warm_count": 0}
            column.load(server, "bulk", bulk)
            measured["disk_bytes_each"] = (_allocated(path) - before) / messages
            seconds = {"seconds": 0.2 if settings.quick else 2.0, "warm": 0.0}
            column.load(server, "sends", {"connections": 16, "in_flight": 16, **seconds})
            measured["loaded_mib"] = server.peak_mib()
        found |= {f"{column.name}_{key}": value for key, value in measured.items()}
    return found


def _allocated(path: Path) -> int:
    """Return the bytes that the files of a folder take on the disk."""
    return sum(one.stat().st_blocks for one in path.rglob("*") if one.is_file()) * 512


def _raw(settings: Settings) -> Figures:
    raw = raw_disk(settings)
    return {
        "raw_p50_ms": raw["synced_1_kib_p50_us"] / 1e3,
        "raw_p99_ms": raw["synced_1_kib_p99_us"] / 1e3,
    }


def _scaled(settings: Settings, column: Column, key: str, value: float) -> float:
    if key in ("count", "warm_count"):
        quick = 3000 if key == "count" else 1000
        return quick if settings.quick else int(value * column.share)
    return 0.2 if settings.quick and key in ("seconds", "warm") else value


def peer_versions() -> dict[str, str]:
    """Return the versions of servers and clients; of what is left out, why.

    Only what a chosen column uses is asked, since asking builds it.
    """
    found = {}
    wanted = chosen()
    for server, peer in PEERS.items():
        if not any(column.server == server for column in wanted):
            found[f"{peer.name} server"] = "left out (not chosen)"
            continue
        try:
            found[f"{peer.name} server"] = peer.version()
        except Absent as absent:
            found[f"{peer.name} server"] = f"left out ({absent})"
    for package in ("redis", "hiredis", "aio-pika"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "left out (not installed)"
    native = [column for column in wanted if column.native]
    if native:
        for name, version in peer_native.go_modules().items():
            found[f"{name} (Go)"] = version
    for column in native:
        if why := column.missing():
            found[f"column {column.name}"] = f"left out ({why})"
    return found


def _one(name: str, about: str, verb: str, **load: float) -> Measurement:
    measured: Callable[[Settings], Figures] = partial(measure, verb=verb, load=load)
    shares = {one.name: one.share for one in COLUMNS}
    return Measurement(
        name,
        about,
        measured,
        options={"verb": verb, **load, **({"shares": shares} if "count" in load else {})},
    )


SUITE: Final = Suite(
    Path(__file__),
    "Measure other brokers beside this one.",
    (
        _one(
            "sends-256", "single sends of 1 KiB, each answered when durable; 16 connections x 16",
            "sends", connections=16, in_flight=16, seconds=2.5, warm=1.5,
        ),
        _one(
            "sends-1", "the same, one at a time on one connection",
            "sends", connections=1, in_flight=1, seconds=2.0, warm=1.5,
        ),
        _one(
            "bulk", "messages of 100 bytes, durable, at most 1,000 under way on one connection",
            "bulk", count=1_000_000, of=1000, warm_count=500_000,
        ),
        _one(
            "consume", "messages of 100 bytes of a backlog, by 1,000, acknowledged, one connection",
            "consume", count=600_000, of=1000, warm_count=200_000,
        ),
        _one(
            "end-to-end",
            "2,000 durable messages of 1 KiB a second, from the planned send to the consumer",
            "end_to_end", per_s=2000, seconds=2.5, warm=1.5,
        ),
        Measurement(
            "footprint",
            "start on an empty folder, memory (2 s after it; the most after 1,000 topics, the bulk "
            "load and 256 sends under way), 1,000 topics with a message each, bytes on disk per "
            "message of 100 bytes",
            partial(footprint, count=500_000, topics=1000),
            options={"count": 500_000, "topics": 1000, "segment_of_ternmq": _SMALL_SEGMENT},
        ),
    ),
    peer_versions,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
