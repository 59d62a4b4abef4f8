"""Measures other brokers beside this one, in the same round, with the same loads; see ``runner``.

    python bench/peers.py                 five rounds of every load
    python bench/peers.py --quick         a smoke run, nothing is written

Each round takes the raw disk, then one broker after the other, in an order that chance makes:
started, loaded, its figures taken, stopped. Same message sizes, same numbers in flight, one client
process, and each set up as its documentation asks for where no answered message may be lost:

* **redis**: ``appendonly yes``, ``appendfsync always``, no snapshots; redis-py with hiredis (its
  parser in C). What is in flight on a connection is a pipeline. ``XADD``; ``XREADGROUP`` of 1,000
  and one ``XACK`` of them.
* **rabbitmq**: a durable classic queue, persistent messages, publisher confirms awaited;
  **rabbitmq_quorum**: the same with a quorum queue of one replica, which is what its documentation
  advises for data safety. aio-pika, since confirms in flight want asyncio. Consumed with a prefetch
  of 1,000, acknowledged by the 1,000 (``multiple``).

Redis and RabbitMQ are used where ``redis-server`` and ``rabbitmq-server`` and the Python packages
``redis[hiredis]`` and ``aio-pika`` are installed; else they are left out, and ``left_out`` says so.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from broker_kit import broker, client
from core_kit import Figures, Measurement, Settings, folder
from core_machine import raw_disk
from peer_servers import PEERS, Peer, Server, server_versions
from runner import Suite, run

CLIENTS: Final = Path(__file__).with_name("peer_clients.py")
OURS: Final = "ternmq"
SHARES: Final = {OURS: 1.0, "redis": 0.2, "rabbitmq": 0.04, "rabbitmq_quorum": 0.04}
"""Of the messages of a load: so that each broker has seconds to do, and none has minutes."""


def measure(settings: Settings, *, verb: str, load: Figures) -> Figures:
    """One round: the raw disk, then every broker there is, in an order that chance makes."""
    raw = raw_disk(settings)
    found: Figures = {
        "raw_p50_ms": raw["synced_1_kib_p50_us"] / 1e3,
        "raw_p99_ms": raw["synced_1_kib_p99_us"] / 1e3,
    }
    there = {OURS: partial(_server, settings)}
    there |= {peer.name: partial(_peer, settings, peer) for peer in PEERS if _there(peer)}
    measured: dict[str, Figures] = {}
    for name in random.sample(list(there), len(there)):
        given = {key: _scaled(settings, name, key, value) for key, value in load.items()}
        with there[name]() as server:
            measured[name] = _load(server, name, verb, given)
    for name in there:
        found |= {f"{name}_{key}": value for key, value in measured[name].items()}
    found["left_out"] = float(sum(not _there(peer) for peer in PEERS))
    return found


def _load(server: Server, name: str, verb: str, load: Figures) -> Figures:
    if verb == "consume":
        of = load["of"]
        client(server.url, f"{name}_bulk", CLIENTS, count=load["count"] + 20 * of, of=of)
    before = server.cpu_s()
    found = client(server.url, f"{name}_{verb}", CLIENTS, **load)
    found["server_cpu_us_each"] = (server.cpu_s() - before) * 1e6 / found.pop("count")
    return found


@contextmanager
def _server(settings: Settings) -> Iterator[Server]:
    with broker(settings) as one:
        yield Server(one.pid, one.url)


@contextmanager
def _peer(settings: Settings, peer: Peer) -> Iterator[Server]:
    with folder(settings) as path, peer.run(path) as server:
        yield server


def _scaled(settings: Settings, name: str, key: str, value: float) -> float:
    if key == "count":
        return 5000 if settings.quick else int(value * SHARES[name])
    return 1.0 if settings.quick and key == "seconds" else value


def _there(peer: Peer) -> bool:
    return peer.installed() and importlib.util.find_spec(peer.package) is not None


def _one(name: str, about: str, verb: str, **load: float) -> Measurement:
    measured: Callable[[Settings], Figures] = partial(measure, verb=verb, load=load)
    return Measurement(
        name,
        about,
        measured,
        options={"verb": verb, **load, **({"shares": SHARES} if "count" in load else {})},
    )


SUITE: Final = Suite(
    Path(__file__),
    "Measure other brokers beside this one.",
    (
        _one(
            "sends-256", "single sends of 1 KiB, each answered when durable; 16 connections x 16",
            "sends", connections=16, in_flight=16, seconds=5.0,
        ),
        _one(
            "sends-1", "the same, one at a time on one connection",
            "sends", connections=1, in_flight=1, seconds=4.0,
        ),
        _one(
            "bulk", "messages of 100 bytes, durable, 1,000 in flight on one connection",
            "bulk", count=1_000_000, of=1000,
        ),
        _one(
            "consume", "messages of 100 bytes of a backlog, by 1,000, acknowledged, one connection",
            "consume", count=1_000_000, of=1000,
        ),
    ),
    server_versions,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
