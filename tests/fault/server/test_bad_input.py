"""Bad input of every kind beside good load, which does not notice (BAD-2)."""

from __future__ import annotations

import functools
import random
import struct
import time
from pathlib import Path
from typing import Final

import msgspec
import pytest

from ternmq.model.errors import RefusedError
from ternmq.record.batch.batch import topic_seed
from ternmq.wire import bodies, frames
from ternmq.wire.bodies.checks import NO_QUEUE, padded
from ternmq.wire.bodies.pull import PULL
from ternmq.wire.bodies.send import SEND
from ternmq.wire.commands import Command
from tests.fault.processes import patience
from tests.fault.server.broker import Address, Broker
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load
from tests.fault.server.memory import memory_limit, oom_kills, put_into
from tests.fault.server.raw import Peer, batch
from tests.fault.server.tools import SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LIMIT: Final = 128 << 20
ROUNDS: Final = 5
SLOW_SENDERS: Final = 200
HANDSHAKE_S: Final = 2.0
GROWTH: Final = 48 << 20
"""Most memory that all of it may cost; the good load's own is in it."""
GOOD: Final = Plan(producers=4, window=4)

pack: Final = msgspec.msgpack.encode
FAILED: Final = {"topic": "orders", "group": "g", "queue": 0}
GROUPS: Final[tuple[dict[str, object], ...]] = (
    {"filter": "x = '" + "y" * 1_000_000 + "'"},
    {"filter": "(" * 10_000 + "a = 1" + ")" * 10_000},
    {"filter": "NOT " * 10_000 + "a = 1"},
    {"filter": "a = 1 OR " * 100 + "a = 1"},
    {"filter": "$nothing = 1"},
    {"filter": "a LIKE '%%%%%%%%'"},
    {"filter": "a = 1", "mode": "queue_lock"},
    {"group": "$b.x"},
    {"group": "$broadcast", "mode": "exclusive"},
    {"mode": "exclusive", "assign": [{"member": "*", "queues": [0]}]},
    {"mode": "owned", "assign": [{"member": "*", "queues": [10**9]}]},
    {"mode": "owned", "filter": "a = 1"},
)
"""Settings of groups, with which none is made."""
TOPICS: Final[tuple[dict[str, object], ...]] = (
    {"levels": 9}, {"levels": 0}, {"levels": -(2**63)}, {"levels": 2, "ordered": True},
    {"expires_us": -1}, {"expires_us": 2**64 - 1},
)  # fmt: skip
"""Settings of topics, likewise."""
NAMES: Final = (
    b"../../etc/passwd", b"..", b".", b"/", b"a/b", b"a\0b", b"a\nb", b"a b", b"\xff\xfe", b"",
    "pаypal".encode(), "orders\u200b".encode(), b"a" * 128, b"%2e%2e%2f", b"CON:", b"$",
)  # fmt: skip
"""Among them a Cyrillic letter that looks like an a, and a space that is not seen."""


def head(length: int, command: int = Command.SEND, flags: int = 0, id_: int = 1) -> bytes:
    """Return the first 16 bytes of a frame that says it is so long."""
    return frames.HEADER.pack(length, frames.MAGIC, command, flags, 0, id_)


@functools.cache
def million_headers() -> bytes:
    """Return a request with a million fields; larger than a frame may be."""
    fields = pack({f"header-{number}": "" for number in range(1_000_000)})
    return frames.pack(Command.GROUP_JOIN, 0, 1, fields)


def nested(depth: int) -> bytes:
    """Return msgpack of lists in lists."""
    return b"\x91" * depth + b"\x90"


def garbage(chance: random.Random) -> list[bytes]:
    """Return what is sent instead of HELLO, or after it; each must end its connection."""
    return [
        chance.randbytes(1000),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(64),
        b"\0" * 4096,
        b"\xff" * 4096,
        head(1 << 31),
        head((1 << 32) - 1),
        head(0),
        head(15),
        frames.HEADER.pack(64, frames.MAGIC, Command.SEND, 0xFF, 0, 1) + bytes(48),
        frames.HEADER.pack(16, frames.MAGIC, Command.PING, 0, 7, 1),
        million_headers(),
        frames.pack(Command.PING, 0, 1, b"") * 2000 + chance.randbytes(4096),
    ]


def requests(chance: random.Random) -> list[tuple[Command, bytes]]:
    """Return what an open connection may be asked; each must be refused, the connection goes on."""
    good = batch("orders", [b"x" * 100] * 10, 99, 0)
    at = len(good) - 400
    found: list[tuple[Command, bytes]] = [
        (Command.SEND, b""),
        (Command.SEND, good[: len(good) // 2]),
        (Command.SEND, good[:at] + chance.randbytes(50) + good[at + 50 :]),
        (Command.SEND, bodies.pack_send("orders", 4000, b"")),
        (Command.PULL, chance.randbytes(40)),
        (Command.SETTLE, chance.randbytes(80)),
        (Command.READ, b"\xff" * 32),
        (Command.EXTEND, b""),
        (Command.TOPIC_CREATE, nested(1_000_000)),
        (Command.TOPIC_CREATE, pack({"topic": "x", "spec": {"name": "x", "queues": 10**9}})),
        (Command.GROUP_JOIN, b"\xdf\xff\xff\xff\xff"),
        (Command.GROUP_JOIN, pack({f"header-{number}": "v" for number in range(100_000)})),
        (Command.GROUP_JOIN, b"\xdb\x7f\xff\xff\xff"),
        (Command.GROUP_JOIN, b"\x82\xa5topic\xa2\xff\xfe\xa5group\xa1g"),
        (Command.TOPIC_LIST, pack({"names": ["x"] * 100_000})),
        (Command.FIND, pack({"topic": "orders", "id": "zz:zz"})),
        (Command.FAILED_LIST, b"\x81\xa5after\xcf" + b"\xff" * 8),
        (Command.FAILED_QUERY, b"\x81\xa5after\xcf" + b"\xff" * 8),
        (Command.FAILED_QUERY, pack({**FAILED, "after": "-1"})),
        (Command.FAILED_QUERY, pack({**FAILED, "after": "9" * 300})),
        (Command.FAILED_QUERY, pack({**FAILED, "key": "k", "after": "1.2"})),
        (Command.FAILED_QUERY, pack({**FAILED, "id": "x" * 100_000})),
        (Command.FAILED_QUERY, pack({**FAILED, "key": "k", "id": "1:0"})),
        (Command.FAILED_QUERY, pack({**FAILED, "select": {"states": ["dread"] * 100_000}})),
        (Command.FAILED_QUERY, pack({**FAILED, "select": {"since_us": -(2**63)}})),
        (Command.FAILED_REDRIVE, pack({**FAILED, "only": {"states": ["dead"]}})),
        (Command.FAILED_DELETE, pack({**FAILED, "offsets": [], "only": {}})),
        (Command.APP_PUT, pack({"name": "../../x", "owner": "o", "grants": []})),
        *[(Command.GROUP_JOIN, pack({"topic": "orders", "group": "bad", **one})) for one in GROUPS],
        *[(Command.TOPIC_CREATE, pack({"topic": "bad", "spec": {"name": "bad", **one}}))
          for one in TOPICS],
    ]  # fmt: skip
    for name in NAMES:
        found += [
            (Command.TOPIC_CREATE, pack({"topic": raw(name), "spec": {"name": raw(name)}})),
            (Command.GROUP_JOIN, pack({"topic": "orders", "group": raw(name)})),
            (Command.PULL, PULL.pack(NO_QUEUE, 1, 0, 0, min(len(name), 255) | 1 << 8)
             + padded(name[:255] + b"g")),
            (Command.SEND, SEND.pack(NO_QUEUE, min(len(name), 255)) + padded(name)
             + hostile_batch(name)),
        ]  # fmt: skip
    return found


def raw(name: bytes) -> str:
    """Return a name as msgpack text; what is no UTF-8 becomes a letter of its own."""
    return name.decode("latin-1") if b"\xff" in name else name.decode()


def hostile_batch(name: bytes) -> bytes:
    seed = topic_seed(name.decode("latin-1"))
    return struct.pack("<Q", seed) * 8


def listing(folder: Path) -> list[tuple[str, int]]:
    """Return everything under a folder but the data folder's inside."""
    return sorted(
        (str(path), path.stat().st_mode)
        for path in folder.rglob("*")
        if "data/" not in str(path) and not path.name.startswith("history")
    )


def must_end(address: Address, data: bytes, *, hello: bool) -> None:
    """Send bytes that are no frames; the broker must close."""
    with Peer(address, hello=hello, name="bad") as peer:
        peer.send_what_fits(data)
        peer.last_words(10)


def must_refuse(address: Address, asked: list[tuple[Command, bytes]]) -> None:
    """Ask for what is not allowed; each is refused by name, and the connection lives."""
    with Peer(address, name="bad") as peer:
        for command, body in asked:
            with pytest.raises(RefusedError):
                pytest.fail(f"{command.name} {body[:60]!r}: {peer.ask(command, body)[:60]!r}")
        peer.ask(Command.PING)


@pytest.mark.timeout(120)
@pytest.mark.row("A8")
def test_bad_input_beside_good_load(memory_folder, verdicts):
    """Refused by name or closed; memory stays, nobody else is cut off, no other file is made."""
    chance = random.Random(51)
    data, record = memory_folder / "data", memory_folder / "history"
    settings = {**SMALL, "handshake_timeout": f"{int(HANDSHAKE_S)}s"}
    with (
        memory_limit(LIMIT) as group,
        Broker(data, memory_folder / "logs", **settings) as broker,
        Load(broker.ready(), record, GOOD) as load,
    ):
        put_into(group, broker)
        load.sent(500)
        before, resident = listing(memory_folder), broker.resident_bytes()
        began = time.monotonic()
        slow = [Peer(load.address, hello=False) for _ in range(SLOW_SENDERS)]
        drip(slow, head(100, Command.HELLO))
        half = half_frames(load.address)
        for _ in range(ROUNDS):
            for bytes_ in garbage(chance):
                must_end(load.address, bytes_, hello=False)
                must_end(load.address, bytes_, hello=True)
            must_refuse(load.address, requests(chance))
        load.sent(200)
        load.settled(50)
        grown = broker.resident_bytes() - resident
        for peer in slow:
            peer.last_words(HANDSHAKE_S + 10)
            peer.socket.close()
        for peer in half:
            assert not peer.cut
            peer.socket.close()
        assert load.losses == 0, "a good connection was lost"
        assert not load.counts.refused, load.counts.refused
        worst = load.worst_latency_s(began)
        load.stop_sending()
        assert listing(memory_folder) == before
        assert "Traceback" not in broker.log, broker.log
        broker.terminate()
        assert broker.wait() == 0, broker.log
        assert oom_kills(group) == 0
        print(f"grown by {grown >> 20} MB, worst send {worst:.2f} s")
    assert grown < GROWTH
    assert worst < 1.0 * patience()
    verdicts.sound(data, record)


def drip(peers: list[Peer], data: bytes) -> None:
    """Let each send one byte; the rest would come a byte in five seconds."""
    for peer in peers:
        peer.send(data[:1])


def half_frames(address: Address) -> list[Peer]:
    """Return good clients that have sent half of a large frame, and stay silent."""
    peers = [Peer(address, name=f"half{number}") for number in range(8)]
    for peer in peers:
        peer.send(head(1 << 20) + bytes(1 << 19))
    return peers
