"""Bad input of every kind: a named error or a closed connection, nobody else notices (BAD-1)."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import struct
import time
from itertools import count

import pytest

from tests.black_box import stranger
from tests.black_box.conftest import TOKEN
from tests.black_box.requests import OF_THE_CONNECTION, listed, sound_requests
from tests.black_box.stranger import (
    ANSWER,
    GROUP_JOIN,
    HELLO,
    JOURNAL_READ,
    ONE_WAY,
    PING,
    PULL,
    PUSH,
    READ,
    SEND,
    SETTLE,
    TOPIC_CREATE,
    Ended,
    Refused,
    Stranger,
    frame,
    names,
    pack,
    sizes,
)

_numbers = count(1)
CREDENTIALS = {"name": "TernMQ", "versions": [1], "app": "admin", "token": TOKEN}
GOOD_HELLO = CREDENTIALS | {"client": "somebody"}
MOST_GROWTH = 16 << 20
"""Of the broker's memory, whatever comes."""
PROTOCOL, TOO_LARGE, VERSION, TIMEOUT = 300, 301, 302, 303


class Witness:
    """A good client beside the bad one: it sends, pulls and settles, and must notice nothing."""

    def __init__(self, client: Stranger) -> None:
        self.client = client
        self.producer = next(_numbers)
        self.topic = f"witness-{self.producer}"
        client.control(TOPIC_CREATE, topic=self.topic, spec={"name": self.topic})
        client.control(GROUP_JOIN, topic=self.topic, group="g")
        self.sequence = 0

    def works(self) -> None:
        """Send, pull and settle one message."""
        body = b"%d" % self.sequence
        began = time.monotonic()
        assert self.client.send(self.topic, [body], self.producer, self.sequence) == self.sequence
        got = self.client.pull(self.topic, "g", wait_ms=5000)
        assert got.rows == {self.sequence: body}
        assert self.client.settle(self.topic, "g", got) == (1, 0)
        assert time.monotonic() - began < 5
        self.sequence += 1


@pytest.fixture
def witness(connect):
    """Yield a good client that works before and after the test."""
    good = Witness(connect())
    good.works()
    yield good
    good.works()
    assert not [body for _, body in good.client.pushes if good.topic.encode() in body]


def ending(bad: Stranger) -> int | None:
    """Return the code of the broker's farewell (None without one), once the connection is over."""
    code = None
    with contextlib.suppress(Ended):
        while True:
            command, flags, id_, body = bad.next()
            assert (command, flags, id_) == (0, PUSH, 0)
            assert code is None
            code, marks, _, size = struct.unpack_from("<HBBI", body)
            assert marks == 0
            assert 0 < size == len(body) - 8 <= 1024
    return code


def opening(**fields: object) -> bytes:
    return frame(HELLO, 0, 1, pack(GOOD_HELLO | fields))


BEFORE_HELLO = {
    "bad magic": (b"\x10\0\0\0X" + bytes(11), PROTOCOL),
    "zeros": (bytes(64), PROTOCOL),
    "ones": (b"\xff" * 64, PROTOCOL),
    "TLS": (bytes.fromhex("1603010200010001fc0303") + bytes(64), PROTOCOL),
    "redis": (b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n", PROTOCOL),
    "a length below 16": (struct.pack("<IBBBBQ", 15, 0x54, 1, 0, 0, 1), PROTOCOL),
    "byte 7": (struct.pack("<IBBBBQ", 16, 0x54, 1, 0, 1, 1), PROTOCOL),
    "unknown flags": (struct.pack("<IBBBBQ", 16, 0x54, 1, 16, 0, 1), PROTOCOL),
    "id 0": (frame(HELLO, 0, 0, b""), PROTOCOL),
    "2 GiB promised": (struct.pack("<IBBBBQ", 2**31, 0x54, 1, 0, 0, 1), TOO_LARGE),
    "4 GiB promised": (struct.pack("<IBBBBQ", 2**32 - 1, 0x54, 1, 0, 0, 1), TOO_LARGE),
    "a HELLO of 5 KiB": (frame(HELLO, 0, 1, bytes(5 * 1024)), TOO_LARGE),
    "a HELLO of 5 KiB, sound": (opening(library="x" * 5000), TOO_LARGE),
    "a request first": (frame(PING, 0, 1, b""), PROTOCOL),
    "a send first": (frame(SEND, 0, 1, bytes(2000)), PROTOCOL),
    "an answer first": (frame(HELLO, ANSWER, 1, b""), PROTOCOL),
    "a push first": (frame(0, PUSH, 0, bytes(8)), PROTOCOL),
    "HELLO without answer": (frame(HELLO, ONE_WAY, 1, pack(GOOD_HELLO)), PROTOCOL),
    "an empty HELLO": (frame(HELLO, 0, 1, b""), PROTOCOL),
    "no msgpack": (frame(HELLO, 0, 1, b"\xc1" * 100), PROTOCOL),
    "deep msgpack": (frame(HELLO, 0, 1, b"\x81\xa1x" + b"\x91" * 4000 + b"\xc0"), PROTOCOL),
    "a list of 4 G": (frame(HELLO, 0, 1, b"\x81\xa8versions\xdd\xff\xff\xff\xff"), PROTOCOL),
    "another protocol": (opening(name="RocketMQ"), PROTOCOL),
    "no version in common": (opening(versions=[2, 3]), VERSION),
    "no client": (frame(HELLO, 0, 1, pack(CREDENTIALS)), PROTOCOL),
    "a client with ../": (opening(client="../../etc/passwd"), PROTOCOL),
    "a client with NUL": (opening(client="a\0b"), PROTOCOL),
    "a client with a newline": (opening(client="a\nINFO all is well"), PROTOCOL),
    "a client that looks alike": (opening(client="\u0430dmin"), PROTOCOL),
    "a library with an escape": (opening(library="\x1b[2J"), PROTOCOL),
    "HELLO twice at once": (opening() * 2, PROTOCOL),
    "HELLO and a request": (opening() + frame(PING, 0, 2, b""), PROTOCOL),
}


@pytest.mark.row("A8")
def test_http_is_told_where_it_is_spoken(connect, witness):
    bad = connect(hello=False)
    bad.socket.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    witness.works()
    said = b""
    while some := bad.socket.recv(65_536):
        said += some
    head, _, text = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert text.count(b"\n") == 1
    assert b"HTTP" in text


@pytest.mark.row("A8")
@pytest.mark.parametrize(("data", "code"), BEFORE_HELLO.values(), ids=BEFORE_HELLO)
def test_before_hello(connect, witness, data, code):
    bad = connect(hello=False)
    bad.socket.sendall(data)
    witness.works()
    assert ending(bad) == code


AFTER_HELLO = {
    "HELLO again": (opening(), PROTOCOL),
    "bad magic": (b"\x10\0\0\0X" + bytes(11), PROTOCOL),
    "an answer": (frame(PING, ANSWER, 9, b""), PROTOCOL),
    "a push": (frame(100, PUSH, 0, b"\x80"), PROTOCOL),
    "2 GiB promised": (struct.pack("<IBBBBQ", 2**31, 0x54, SEND, 0, 0, 9), TOO_LARGE),
    "a pull without answer": (frame(PULL, ONE_WAY, 9, b""), PROTOCOL),
    "good, then garbage": (frame(PING, 0, 9, b"")[:8] + b"\0" * 8 + b"garbage" * 5, PROTOCOL),
}


@pytest.mark.row("A8")
@pytest.mark.parametrize(("data", "code"), AFTER_HELLO.values(), ids=AFTER_HELLO)
def test_after_hello(connect, witness, data, code):
    bad = connect()
    bad.socket.sendall(data)
    witness.works()
    assert ending(bad) == code


def test_one_byte_above_the_largest_frame(connect, witness):
    client = connect(hello=False)
    limit = client.hello(**GOOD_HELLO)["frame_bytes"]
    with pytest.raises(Refused) as caught:
        client.ask(SEND, bytes(limit - 16))
    assert caught.value.code == 102, "the largest frame is taken, and is no send"
    client.socket.sendall(struct.pack("<IBBBBQ", limit + 1, 0x54, SEND, 0, 0, 9))
    assert ending(client) == TOO_LARGE


@pytest.mark.parametrize("data", [b"", b"\x40", opening()[:15], opening()[:-1]])
def test_silence_before_hello_is_cut_off(connect, witness, data):
    bad = connect(hello=False)
    began = time.monotonic()
    bad.socket.sendall(data)
    assert ending(bad) == TIMEOUT
    assert 0.5 < time.monotonic() - began < 5


def test_a_byte_now_and_then_is_no_hello(connect, witness):
    bad = connect(hello=False)
    began = time.monotonic()
    data = opening()
    with contextlib.suppress(OSError):
        for at in range(len(data)):
            bad.socket.sendall(data[at : at + 1])
            bad.socket.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                if not bad.socket.recv(1, socket.MSG_PEEK) or time.monotonic() - began > 5:
                    break
                break
    bad.socket.settimeout(10)
    assert ending(bad) == TIMEOUT
    assert time.monotonic() - began < 5


def test_half_a_frame_and_silence_is_cut_off(connect, witness):
    bad = connect()
    began = time.monotonic()
    bad.socket.sendall(frame(SEND, 0, 9, bytes(1000))[:500])
    # The witness would be cut off as well if it was silent for as long.
    while not select.select([bad.socket], [], [], 0.2)[0]:
        witness.works()
        assert time.monotonic() - began < 10
    assert ending(bad) is None
    assert time.monotonic() - began > 2


BAD_NAMES = {
    "up": "../../../../tmp/evil", "slash": "a/b", "root": "/etc/passwd", "dot": ".", "dots": "..",
    "NUL": "orders\0", "newline": "orders\nINFO fine", "escape": "\x1b[2J", "space": "or ders",
    "empty": "", "long": "x" * 128, "Cyrillic o": "\u043erders", "full width": "\uff4frders",
    "right to left": "\u202eorders", "zero width": "or\u200bders", "percent": "%s%n",
    "quote": "'; DROP", "markup": "<script>", "a dollar within": "a$b",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_bad_names_are_refused_by_name(broker, connect, witness, name):
    files = broker.files()
    client = connect()
    length = len(name.encode())
    head = struct.pack("<IIQqIHBB", 1, 0, 1, -1, 0, 0, 0, length)
    asked = [
        (SEND, struct.pack("<IB3x", 0, length) + names(name) + bytes(64)),
        (PULL, struct.pack("<IIII", 0, 1, 0, 0) + sizes(name, "g") + names(name, "g")),
        (PULL, struct.pack("<IIII", 0, 1, 0, 0) + sizes("t", name) + names("t", name)),
        (SETTLE, head + sizes("g") + names(name, "g")),
        (READ, struct.pack("<IIIIQ", 0, 1, 0, 0, 0) + sizes(name) + names(name)),
        (TOPIC_CREATE, pack({"topic": name, "spec": {"name": name}})),
        (GROUP_JOIN, pack({"topic": witness.topic, "group": name})),
    ]
    for command, body in asked:
        with pytest.raises(Refused) as caught:
            client.ask(command, body)
        # No app has a right on no topic at all; 128 bytes do not fit a SEND's field.
        codes = {0: {102, 151}, 128: {101, 102}}.get(length, {102})
        assert caught.value.code in codes, (command, caught.value)
        assert not set(caught.value.text) & set("\0\n\x1b")
    client.ask(PING)
    assert broker.files() == files


def test_names_of_the_broker_are_not_to_be_had(connect, witness):
    client = connect()
    with pytest.raises(Refused) as caught:
        client.control(TOPIC_CREATE, topic="$sys", spec={"name": "$sys"})
    assert caught.value.code == 102


def mutated(body: bytes, chance: random.Random) -> bytes:
    data = bytearray(body)
    for _ in range(chance.randint(1, 8)):
        match chance.randrange(4):
            case 0 if data:
                data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 1:
                at = chance.randint(0, len(data))
                data[at:at] = chance.randbytes(chance.randint(1, 9))
            case 2:
                at = chance.randint(0, len(data))
                del data[at : at + chance.randint(1, 9)]
            case _ if len(data) > 8:
                at = chance.randrange(len(data) - 8)
                data[at : at + 8] = struct.pack("<Q", chance.choice([0, 2**31, 2**63, 2**64 - 1]))
    return bytes(data)


def test_there_is_a_sound_request_of_every_command():
    asked = {command for command, _ in sound_requests("t")}
    assert asked == {one.number for one in listed() if one.name not in OF_THE_CONNECTION}


def test_mutated_requests_of_every_command(connect, witness, broker):
    """Sound requests with something wrong in them: each is answered, or ends its connection."""
    seed = int(os.environ.get("TERNMQ_TEST_SEED", "7"))
    chance = random.Random(seed)
    topic = f"mutants-{next(_numbers)}"
    first = connect()
    first.control(TOPIC_CREATE, topic=topic, spec={"name": topic, "queues": 2})
    first.control(GROUP_JOIN, topic=topic, group="g")
    sound = sound_requests(topic)
    before = broker.rss_bytes()
    bad = connect()
    for turn in range(1500):
        command, body = chance.choice(sound)
        data = mutated(body, chance)
        if command in {PULL, READ, JOURNAL_READ}:
            data = data[:12] + bytes(4) + data[16:]  # nobody waits here
        code = 0
        try:
            bad.ask(command, data)
        except Refused as error:
            code = error.code
        except Ended:
            code = -1
        assert not code or 100 <= code < 200, (seed, turn, command, data.hex(), code)
        if turn % 300 == 0:
            witness.works()
    assert broker.process.poll() is None
    assert broker.rss_bytes() - before < MOST_GROWTH


def test_bent_conversations(connect, witness, broker):
    """Whole conversations with bytes wrong anywhere: read to their end, every frame is a frame."""
    seed = int(os.environ.get("TERNMQ_TEST_SEED", "7"))
    chance = random.Random(seed)
    topic = f"bent-{next(_numbers)}"
    first = connect()
    first.control(TOPIC_CREATE, topic=topic, spec={"name": topic, "queues": 2})
    first.control(GROUP_JOIN, topic=topic, group="g")
    sound = sound_requests(topic)
    before = broker.rss_bytes()
    answers = 0
    codes: set[int] = set()
    for turn in range(100):
        asked = [
            frame(command, 0, id_, body)
            for id_, (command, body) in enumerate(chance.choices(sound, k=10), 2)
        ]
        bad = connect(client=f"bent-{turn}")
        bad.socket.sendall(mutated(b"".join(asked), chance) + frame(PING, 0, 99, b""))
        bad.socket.settimeout(0.1)  # the rest may be waited for: a length may say anything
        zeros = False
        with contextlib.suppress(Ended):
            while True:
                try:
                    command, flags, id_, body = bad.next()
                except TimeoutError:
                    assert not zeros, (seed, turn)
                    id_ = 99
                else:
                    assert flags in {ANSWER, stranger.REFUSAL, PUSH}
                    answers += flags != PUSH
                    if (command, flags) == (0, PUSH):
                        codes.add(struct.unpack_from("<H", body)[0])
                if id_ == 99 and not zeros:
                    zeros = True
                    bad.socket.settimeout(20)
                    bad.socket.sendall(bytes(65_536))  # ends it whatever it was waiting for
        bad.socket.close()
        if turn % 50 == 0:
            witness.works()
    assert {PROTOCOL} <= codes <= {PROTOCOL, TOO_LARGE}, seed
    assert answers > 20, "some are sound up to their end"
    assert broker.process.poll() is None
    assert broker.rss_bytes() - before < MOST_GROWTH


def test_many_bad_peers_take_no_memory(broker, connect, witness):
    before = broker.rss_bytes()
    chance = random.Random(11)
    for turn in range(40):
        peers = [Stranger(broker.address) for _ in range(50)]
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.socket.sendall(
                    opening()[: chance.randint(1, 100)] if turn % 2 else chance.randbytes(4000)
                )
        for peer in peers:
            peer.socket.close()
        if turn % 10 == 0:
            witness.works()
    assert broker.rss_bytes() - before < MOST_GROWTH
