"""A client written from docs/protocol alone: nothing of ternmq, only ``socket`` and ``struct``.

Where it and the pages disagree, one of them is wrong.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

HELLO, PING, BYE, CANCEL = 1, 2, 3, 4
SEND, PULL, SETTLE, EXTEND, READ, PREPARE, JOURNAL_READ = 10, 11, 12, 13, 14, 15, 16
TRANSACTION_COMMIT, TRANSACTION_ABORT, TRANSACTION_LIST = 80, 81, 82
TOPIC_CREATE, TOPIC_LIST, GROUP_JOIN, APP_PUT = 30, 33, 40, 70
GROUP_LIST, GROUP_COMMIT, GROUP_LEAVE = 43, 46, 49
QUEUE_RANGES, HOLD_PUT, HOLD_DELETE, HOLD_LIST, JOURNAL_CATALOG = 90, 91, 92, 93, 94
TRANSACTION_PREPARE, TRANSACTION_READ, TRANSACTION_SETTLE, TRANSACTION_MOVE = 17, 18, 19, 48
TRANSACTION_DECIDE, TRANSACTION_SHOW, CHECKER_OFFER, TRANSACTION_CHECK_AGAIN = 83, 84, 85, 89
PRODUCER_GROUP_PUT, PRODUCER_GROUP_LIST, PRODUCER_GROUP_DELETE = 86, 87, 88
SCHEDULE_CANCEL, SCHEDULE_LIST, SCHEDULE_HOURS = 95, 96, 97
FAILED_QUERY = 56
NUMBERS_TAKE = 21
ANSWER, REFUSAL, ONE_WAY, PUSH = 1, 3, 4, 8
DRAIN = 100
QUEUES_ASSIGNED = 105
ANY = 2**32 - 1


# ---------------------------------------------------------------------------------------- msgpack


def pack(value: Any) -> bytes:
    """Return a value as msgpack, never in the shortest form."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return (
            b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
        )
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return b"\xdb" + struct.pack(">I", len(data)) + data
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    parts = [pack(part) for pair in value.items() for part in pair]
    return b"\xdf" + struct.pack(">I", len(value)) + b"".join(parts)


_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_SIZES = {
    0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I"),
    0xD9: ("str", ">B"), 0xDA: ("str", ">H"), 0xDB: ("str", ">I"),
    0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip


def unpack(data: bytes) -> Any:
    """Return the value that msgpack bytes hold."""
    value, end = _value(data, 0)
    assert end == len(data)
    return value


def _value(data: bytes, at: int) -> tuple[Any, int]:
    first = data[at]
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 256, at
    if first in {0xC0, 0xC2, 0xC3}:
        return {0xC0: None, 0xC2: False, 0xC3: True}[first], at
    if first in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[first], data, at)
        return number, at + struct.calcsize(_NUMBERS[first])
    if first in _SIZES:
        kind, form = _SIZES[first]
        (size,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
    elif first < 0x90:
        kind, size = "map", first & 0x0F
    elif first < 0xA0:
        kind, size = "array", first & 0x0F
    else:
        kind, size = "str", first & 0x1F
    if kind in {"str", "bin"}:
        raw = data[at : at + size]
        return raw.decode() if kind == "str" else raw, at + size
    items: list[Any] = []
    for _ in range(size * (2 if kind == "map" else 1)):
        item, at = _value(data, at)
        items.append(item)
    return dict(zip(items[::2], items[1::2], strict=True)) if kind == "map" else items, at


# ------------------------------------------------------------------------------- batch and record


def crc32c(data: bytes) -> int:
    """Return CRC-32C, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def zeros(size: int) -> bytes:
    """Return the zeros that follow so many bytes, up to a multiple of 8."""
    return bytes(-size % 8)


def make_batch(topic: str, bodies: list[bytes], producer: int, sequence: int) -> bytes:
    """Return a batch of messages that have nothing but bodies."""
    ends = [0]
    for body in bodies:
        ends.append(ends[-1] + len(body))
    column = struct.pack(f"<{len(ends)}i", *ends) + b"".join(bodies)
    column += zeros(len(column))
    table = struct.pack("<II", 56, 0)
    rest = struct.pack(
        "<IBBHIIQQq",
        56 + len(column), 1, 0, 1, 1 << 14, len(bodies), producer, sequence, 1_700_000_000_000_000,
    )  # fmt: skip
    after = rest + table + column
    return struct.pack("<II", 0x31424D54, crc32c(topic.encode() + after)) + after


def read_batch(topic: str, batch: bytes) -> list[bytes]:
    """Return the bodies of a batch of whatever columns, uncompressed."""
    magic, crc, length, version, compression, columns, flags, count, *_ = struct.unpack_from(
        "<IIIBBHIIQQq", batch
    )
    assert (magic, version, compression) == (0x31424D54, 1, 0)
    assert length == len(batch)
    assert crc == crc32c(topic.encode() + batch[8:])
    starts = struct.unpack_from(f"<{columns}I", batch, 48)
    start = starts[(flags & 0x3FFF).bit_count()]
    ends = struct.unpack_from(f"<{count + 1}i", batch, start)
    base = start + 4 * (count + 1)
    return [batch[base + ends[row] : base + ends[row + 1]] for row in range(count)]


class JournalPage:
    """The answer to a JOURNAL_READ, its records taken apart."""

    def __init__(self, body: bytes) -> None:
        self.position, self.next, self.oldest, self.durable, flags, _ = struct.unpack_from(
            "<QQQQII", body
        )
        self.expired = bool(flags & 1)
        self.records: list[tuple[int, int, bool, bytes]] = []
        """Position, kind, made for the answer, body."""
        at = 40
        while at < len(body):
            crc, magic, length, version, kind, flags, position = struct.unpack_from(
                "<IIIBBHQ", body, at
            )
            assert (magic, version, length % 8) == (0x31524D54, 1, 0)
            assert crc32c(body[at + 4 : at + length]) == crc
            self.records.append((position, kind, bool(flags >> 15), body[at + 48 : at + length]))
            at += length
        assert at == len(body)


def journal_body(position: int, max_bytes: int = 0, wait_ms: int = 0, flags: int = 0) -> bytes:
    """Return the body of a JOURNAL_READ."""
    return struct.pack("<QIIII", position, max_bytes, wait_ms, flags, 0)


def read_records(topic: str, data: bytes) -> dict[int, bytes]:
    """Return offset -> body of all rows in records of kind MESSAGES."""
    found: dict[int, bytes] = {}
    while data:
        crc, magic, length, version, kind = struct.unpack_from("<IIIBB", data)
        assert (magic, version, kind) == (0x31524D54, 1, 6)
        assert length % 8 == 0
        record, data = data[:length], data[length:]
        assert crc == crc32c(record[4:])
        _, _, first, count, run_count, _, size, _ = struct.unpack_from("<IIQIHHII", record, 48)
        at = 80 + 8 * run_count
        runs = [struct.unpack_from("<II", record, 80 + 8 * run) for run in range(run_count)]
        bodies = read_batch(topic, record[at : at + size])
        rows = [row for start, end in runs for row in range(start, end)] or range(len(bodies))
        assert len(rows) == count
        found.update((first + place, bodies[row]) for place, row in enumerate(rows))
    return found


# ----------------------------------------------------------------------------------------- frames


class Refused(Exception):
    """An error answer, or the broker's farewell."""

    def __init__(self, code: int, flags: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.flags = flags
        self.text = text


class Ended(Exception):
    """The broker closed the connection."""


def frame(command: int, flags: int, id_: int, body: bytes) -> bytes:
    """Return a frame."""
    return struct.pack("<IBBBBQ", 16 + len(body), 0x54, command, flags, 0, id_) + body


class Stranger:
    """A connection. Requests are asked one by one, or told apart by their ids."""

    def __init__(self, address: tuple[str, int], timeout: float = 20.0) -> None:
        self.socket = socket.create_connection(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.id = 0
        self.pushes: list[tuple[int, bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def exactly(self, size: int) -> bytes:
        """Return so many bytes, or raise Ended."""
        data = b""
        while len(data) < size:
            try:
                some = self.socket.recv(size - len(data))
            except ConnectionError as error:
                raise Ended from error
            if not some:
                raise Ended
            data += some
        return data

    def next(self) -> tuple[int, int, int, bytes]:
        """Return (command, flags, id, body) of the next frame."""
        length, magic, command, flags, zero, id_ = struct.unpack("<IBBBBQ", self.exactly(16))
        assert magic == 0x54
        assert zero == 0
        return command, flags, id_, self.exactly(length - 16)

    def begin(self, command: int, body: bytes, flags: int = 0) -> int:
        """Send a request; return its id."""
        self.id += 1
        self.socket.sendall(frame(command, flags, self.id, body))
        return self.id

    def answer(self, command: int, id_: int) -> bytes:
        """Return the answer to a request."""
        while True:
            told, flags, answered, body = self.next()
            if flags == PUSH and told:
                self.pushes.append((told, body))
                continue
            if flags in {REFUSAL, PUSH}:
                code, marks, _, size = struct.unpack_from("<HBBI", body)
                assert len(body) == 8 + size
                raise Refused(code, marks, body[8:].decode())
            assert (told, flags, answered) == (command, ANSWER, id_)
            return body

    def ask(self, command: int, body: bytes = b"") -> bytes:
        """Send a request; return its answer."""
        return self.answer(command, self.begin(command, body))

    def control(self, command: int, **fields: Any) -> Any:
        """Ask a control command."""
        return unpack(self.ask(command, pack(fields)))

    def hello(self, **fields: Any) -> Any:
        """Say HELLO; return what the broker tells."""
        return self.control(HELLO, **{"name": "TernMQ", "versions": [1], **fields})

    # -- messages

    def send(self, topic: str, bodies: list[bytes], producer: int, sequence: int) -> int:
        """Send messages; return the first offset."""
        body = send_body(topic, make_batch(topic, bodies, producer, sequence))
        first, _, _, count, _, others, _ = struct.unpack("<QIIIIII", self.ask(SEND, body))
        assert count == len(bodies)
        assert not others
        return int(first)

    def prepare(
        self, topic: str, bodies: list[bytes], producer: int, sequence: int, writer: str,
        batch_id: int, part: str = "0/0",
    ) -> tuple[int, bool]:  # fmt: skip
        """Prepare messages; return (what the commit lists, duplicate)."""
        batch = make_batch(topic, bodies, producer, sequence)
        prepared, _, _, rows, flags = struct.unpack(
            "<QIIII", self.ask(PREPARE, prepare_body(topic, writer, batch_id, part, batch))
        )
        assert rows == len(bodies)
        return prepared, bool(flags & 1)

    def pull(self, topic: str, group: str, wait_ms: int = 0, most: int = 100) -> Delivery:
        """Pull messages."""
        return Delivery(topic, self.ask(PULL, pull_body(topic, group, wait_ms, most)))

    def settle(self, topic: str, group: str, got: Delivery, outcome: int = 0) -> tuple[int, int]:
        """Settle a whole lease; return (rows settled, spans refused)."""
        settled, refused = struct.unpack_from(
            "<II", self.ask(SETTLE, settle_body(topic, group, got, outcome))
        )
        return settled, refused


class Delivery:
    """What came of a pull."""

    def __init__(self, topic: str, body: bytes) -> None:
        (
            self.topic, self.queue, self.epoch, run_count,
            self.lease, self.until_us, self.now_us, self.suspect_below, failure_bytes, _,
        ) = struct.unpack_from("<IIIIQqqQII", body)  # fmt: skip
        end = 56 + 16 * run_count
        self.runs = list(struct.iter_unpack("<QIHH", body[56:end]))
        self.failures: dict[int, tuple[int, str]] = {}
        at, end = end, end + failure_bytes
        while at < end:
            start, rows, size, cause, _ = struct.unpack_from("<QIHBB", body, at)
            reason = body[at + 16 : at + 16 + size].decode()
            self.failures |= dict.fromkeys(range(start, start + rows), (cause, reason))
            at += 16 + size + -size % 8
        kept = read_records(topic, body[end:])
        self.rows = {
            offset: kept[offset]
            for start, rows, _, _ in self.runs
            for offset in range(start, start + rows)
        }


def names(*parts: str) -> bytes:
    """Return names, back to back, zero padded."""
    data = "".join(parts).encode()
    return data + zeros(len(data))


def sizes(*parts: str) -> bytes:
    """Return a byte with the length of each name, then zeros to 8 bytes."""
    return bytes(len(part.encode()) for part in parts).ljust(8, b"\0")


def send_body(topic: str, batch: bytes, queue: int = ANY) -> bytes:
    """Return the body of a SEND."""
    return struct.pack("<I", queue) + sizes(topic)[:4] + names(topic) + batch


def prepare_body(
    topic: str, writer: str, batch_id: int, part: str, batch: bytes, queue: int = ANY
) -> bytes:
    """Return the body of a PREPARE."""
    head = struct.pack("<I", queue) + sizes(topic, writer, part)[:4] + struct.pack("<Q", batch_id)
    return head + names(topic, writer, part) + batch


def transaction_body(
    topic: str,
    group: str,
    counter: int,
    batch: bytes,
    number: int = 0,
    *,
    producer: int = 7,
    query: str = "",
    check_after_us: int = 0,
) -> bytes:
    """Return the body of a TRANSACTION_PREPARE for any queue."""
    head = struct.pack("<I", ANY) + sizes(topic, group, query)[:4]
    head += struct.pack("<QQQQ", producer, counter, number, check_after_us)
    return head + names(topic, group, query) + batch


def pull_body(topic: str, group: str, wait_ms: int = 0, most: int = 100) -> bytes:
    """Return the body of a PULL of any queue."""
    return struct.pack("<IIII", ANY, most, 0, wait_ms) + sizes(topic, group) + names(topic, group)


def settle_body(topic: str, group: str, got: Delivery, outcome: int = 0) -> bytes:
    """Return the body of a SETTLE of a whole lease."""
    head = struct.pack("<IIQqIH", got.epoch, got.queue, got.lease, -1, 0, 0)
    return head + bytes([outcome, len(topic)]) + sizes(group) + names(topic, group)


def extend_body(topic: str, group: str, got: Delivery, extension_us: int) -> bytes:
    """Return the body of an EXTEND."""
    head = struct.pack("<IIQQ", got.epoch, got.queue, got.lease, extension_us)
    return head + sizes(topic, group) + names(topic, group)


def read_body(topic: str, queue: int, offset: int, wait_ms: int = 0) -> bytes:
    """Return the body of a READ."""
    head = struct.pack("<IIIIQ", queue, 100, 0, wait_ms, offset)
    return head + sizes(topic) + names(topic)
