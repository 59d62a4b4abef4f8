"""docs/protocol is up to date, and its rulers are those above the codecs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ternmq.record.batch.batch import topic_seed, verify
from ternmq.record.fact.messages import of_record
from ternmq.server.commands.waits import MAX_WAIT_MS
from ternmq.settings import Settings
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import ONE_WAY_COMMANDS, TABLE, Command
from ternmq.wire.frames import FrameReader
from ternmq.wire.session import ServerSession
from ternmq.wire.stream import FollowerStream, PrimaryStream
from tests.unit.wire import control_tables, example_frames
from tests.unit.wire.examples import BATCH, TOPIC

PAGES = sorted(control_tables.FOLDER.glob("*.md"))
NAMES = {
    "index.md", "frames.md", "messages.md", "control.md", "errors.md", "example.md",
    "replication.md",
}  # fmt: skip
COMMAND = "python -m tests.unit.wire.control_tables"


def text(name: str) -> str:
    return (control_tables.FOLDER / name).read_text(encoding="utf-8")


def test_the_pages_are_there():
    assert {path.name for path in PAGES} >= NAMES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_is_made_of_the_code_is_up_to_date(path):
    page = path.read_text(encoding="utf-8")
    assert control_tables.renewed(page) == page, f"out of date: {COMMAND}"


def test_every_part_is_in_a_page():
    everything = "".join(text(name) for name in NAMES)
    for part in control_tables.PARTS:
        assert f"<!-- begin {part}, " in everything


def words(ruler: str) -> str:
    """Return a ruler without the spaces that only lay it out."""
    return " ".join(ruler.replace("**", "^").split())


def rulers(module: object) -> list[str]:
    """Return the rulers of a codec, one for each request and answer."""
    doc = module.__doc__ or ""
    (block,) = re.findall(r"Ruler[^\n]*::\n\n((?:    [^\n]*\n|\n)+?)(?=\S|\Z)", doc)
    parts = re.split(r"^    (?:[A-Z_]+|  answer|error answer) +", block, flags=re.MULTILINE)
    return [words(part) for part in parts if part.strip() and part.strip() != "empty"]


@pytest.mark.parametrize(
    "module",
    [
        bodies.send,
        bodies.pull,
        bodies.settle,
        bodies.extend,
        bodies.read,
        bodies.journal,
        bodies.refusal,
    ],
    ids=lambda module: module.__name__,
)
def test_rulers_are_the_same_in_code_and_text(module):
    page = words(text("messages.md"))
    found = rulers(module)
    assert found
    for ruler in found:
        for line in re.split(r" (?=\d+ [ui]\d|\. )", ruler):
            assert line.removesuffix(", one after the other, to the end of the frame") in page


def test_rulers_of_the_stream():
    page = words(text("replication.md"))
    found = rulers(bodies.stream)
    assert len(found) == 3
    for ruler in found:
        assert ruler in page


def test_limits_of_the_stream_in_the_text():
    page = " ".join(text("replication.md").split())
    assert f"at most {control.MAX_CHECKPOINTS} checkpoints" in page
    assert bodies.PIECE_BYTES == 1 << 20
    assert "at most 1 MiB together" in page


def test_the_ruler_of_the_frame():
    (ruler,) = re.findall(r"::\n\n(.*?)\n\nRequests", frames.__doc__ or "", flags=re.DOTALL)
    assert words(ruler) in words(text("frames.md"))


@pytest.mark.parametrize("command", [one for one in TABLE if TABLE[one].request is None])
def test_commands_laid_out_by_hand_have_a_heading(command):
    assert f"\n## {command.name}\n" in text("messages.md")


def test_limits_in_the_text():
    assert str(frames.OPENING_BYTES) == "4096"
    assert "at most\n4,096 bytes" in text("index.md")
    assert f"{bodies.MAX_SPANS:,} spans" in text("messages.md")
    assert f"{bodies.MAX_REASON_BYTES:,} bytes" in text("messages.md")
    assert f"{bodies.MAX_TEXT_BYTES:,} bytes" in text("errors.md")
    assert ONE_WAY_COMMANDS


def test_defaults_of_the_broker_in_the_text():
    defaults = Settings()
    page = " ".join(text("index.md").split())
    for said, setting in {
        "within 5 seconds": defaults.handshake_timeout_us == 5_000_000,
        "for a grace (10 seconds": defaults.limits.session_grace_us == 10_000_000,
        "1,024 requests of the connection without an answer": defaults.requests_per_connection
        == 1024,
        "16 MiB of such requests": defaults.sends_per_connection_bytes == 16 << 20,
        "after 2 MiB of answers": defaults.send_buffer_bytes == 2 << 20,
        "reads nothing for 10 seconds": defaults.stall_timeout_us == 10_000_000,
        "port 7117": defaults.listen.port == 7117,
        "up to 300,000": MAX_WAIT_MS == 300_000,
    }.items():
        assert said in page
        assert setting, said


def dumped(page: str) -> list[bytes]:
    """Return the bytes of every dump of a page."""
    return [
        b"".join(bytes.fromhex(line[6:54]) for line in block.splitlines())
        for block in re.findall(r"```\n(0000  .*?)\n```", page, flags=re.DOTALL)
    ]


def test_the_example_is_a_conversation():
    found = FrameReader(1 << 20).feed(b"".join(dumped(text("example.md"))))
    assert [(one.command, one.flags, one.id) for one in found] == [
        (command, flags, id_)
        for id_, command in enumerate(
            (Command.HELLO, Command.SEND, Command.PULL, Command.SETTLE), 1
        )
        for flags in (0, frames.ANSWER)
    ]
    asked = bodies.unpack_send(found[2].body)
    assert asked.batch == BATCH
    verify(asked.batch, topic_seed(TOPIC))
    told = bodies.unpack_delivery(found[5].body)
    assert told.records == example_frames.RECORD
    assert of_record(told.records).batch == BATCH
    assert told.runs[0].start == of_record(told.records).first_offset
    assert bodies.unpack_receipt(found[3].body).first_offset == told.runs[0].start
    assert bodies.unpack_settle(found[6].body).lease == told.lease


def test_the_example_of_a_stream_is_a_conversation():
    found = dumped(text("replication.md"))
    opening = ServerSession(1 << 20)
    assert opening.receive(found[0]) == []
    assert opening.follow is not None
    follower, primary = FollowerStream(), PrimaryStream(opening.hello_id)
    (followed,) = follower.receive(found[1])
    assert isinstance(followed, control.Followed)
    assert primary.answer(followed) == found[1]
    sent, marks = follower.receive(found[2] + found[3])
    assert isinstance(sent, bodies.Bytes)
    assert isinstance(marks, bodies.Marks)
    assert sent.records == example_frames.RECORD
    assert sent.position == followed.start == opening.follow.end
    (ack,) = primary.receive(found[4])
    assert (ack.written, ack.echo) == (marks.end, marks.sent_at)


def test_the_batch_is_the_one_of_the_batch_page():
    golden = Path(__file__).parents[2] / "golden" / "batch_v1_one.bin"
    assert golden.read_bytes() == BATCH
