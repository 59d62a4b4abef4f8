"""The frames of ``docs/protocol/example.md`` and ``replication.md``.

The first show one message sent, pulled and settled, the others a follower that begins to copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google_crc32c import value as crc32c

from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, VERSION, Kind
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import Command
from ternmq.wire.frames import ANSWER
from tests.unit.wire.examples import BATCH, GROUP, TIME_US, TOPIC

_HELLO: Final = control.Hello(app="shop", token="secret", client="5f2b1c0de9a84711")
_WELCOME: Final = control.Welcome(
    version=1,
    broker="ternmq",
    session=12,
    resumed=False,
    epoch=3,
    now_us=TIME_US,
    heartbeat_us=15_000_000,
    frame_bytes=2_097_152,
    body_bytes=1_048_576,
    pull_messages=10_000,
    pull_bytes=8_388_608,
    send_timeout_us=10_000_000,
)


def _record() -> bytes:
    """Return the MESSAGES record that the broker stored."""
    body = messages.pack(1, 0, 41, 1, BATCH, ())
    length = HEADER_BYTES + len(body)
    rest = HEADER.pack(
        0, MAGIC, length, VERSION, Kind.MESSAGES, 0, 8192, 8192, TIME_US + 500, 3, 0x11223344
    )[4:]
    checksum: int = crc32c(rest + body)
    return checksum.to_bytes(4, "little") + rest + body


RECORD: Final = _record()
FRAMES: Final = {
    "hello": frames.pack(Command.HELLO, 0, 1, control.encode(_HELLO)),
    "welcome": frames.pack(Command.HELLO, ANSWER, 1, control.encode(_WELCOME)),
    "send": frames.pack(Command.SEND, 0, 2, bodies.pack_send(TOPIC, None, BATCH)),
    "receipt": frames.pack(
        Command.SEND, ANSWER, 2, bodies.pack_receipt(bodies.Receipt(41, 1, 0, 1, False, False, ()))
    ),
    "pull": frames.pack(
        Command.PULL, 0, 3, bodies.pack_pull(bodies.Pull(TOPIC, GROUP, None, 100, 0, 5000))
    ),
    "delivery": frames.pack(
        Command.PULL,
        ANSWER,
        3,
        bodies.delivery_head(1, 0, 3, 7, TIME_US + 30_001_000, TIME_US + 1000, 0, [(41, 42, 1, 1)])
        + RECORD,
    ),
    "settle": frames.pack(
        Command.SETTLE,
        0,
        4,
        bodies.pack_settle(bodies.Settle(TOPIC, GROUP, 0, 3, 7, 0, (), None, "")),
    ),
    "settled": frames.pack(Command.SETTLE, ANSWER, 4, bodies.pack_settled(1, ())),
}
"""As they travel, in order."""
_END: Final = 8192 + len(RECORD)
STREAM_FRAMES: Final = {
    "follow": frames.pack(
        Command.FOLLOW,
        0,
        1,
        control.encode(
            control.Follow(
                token="secret", group="orders", journal=77, broker="b", incarnation=99, told=2,
                end=8192, checkpoints=[control.Checkpoint(8000, 2, 0x11223344)],
            )
        ),
    ),
    "followed": frames.pack(
        Command.FOLLOW,
        ANSWER,
        1,
        control.encode(
            control.Followed(
                version=2, broker="a", journal=77, epoch=3, record_version=1,
                segment_bytes=1 << 28, first=0, end=_END, matched=8000, start=8192,
                lease_us=3_000_000, silent_us=2_000_000, now_us=90_000_000,
            )
        ),
    ),
    "bytes": frames.pack(Command.BYTES, frames.PUSH, 0, bodies.bytes_head(8192, 3) + RECORD),
    "marks": frames.pack(
        Command.MARKS,
        frames.PUSH,
        0,
        bodies.pack_marks(bodies.Marks(3, _END, 8192, 8192, 0, TIME_US, 90_000_250, 3000)),
    ),
    "ack": frames.pack(
        Command.ACK,
        frames.ONE_WAY,
        1,
        bodies.pack_ack(bodies.Ack(3, 99, _END, 8192, 8192, 90_000_250, 3000)),
    ),
}  # fmt: skip
"""A follower of epoch 3, which has everything but the newest record: as they travel, in order."""


def dump(data: bytes) -> Iterator[str]:
    """Yield lines of hexadecimal, as ``hexdump -C`` has them."""
    yield "```"
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        halves = f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}"
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{at:04x}  {halves}  {text}"
    yield "```"
