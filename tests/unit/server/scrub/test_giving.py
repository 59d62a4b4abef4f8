"""Records that are given to another broker: to whom, how far, how many at a time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.pieces import PieceRead
from ternmq.model.types import Epoch, Position
from ternmq.server.scrub.figures import Extent
from ternmq.server.scrub.giving import AT_ONCE, Giver
from ternmq.settings import load
from ternmq.wire.bodies import Bytes
from ternmq.wire.control import SegmentRead
from ternmq.wire.segments import SegmentAsk
from ternmq.wire.session import Refusal, ServerSession
from tests.asynchronous import until
from tests.unit.journal.kit import SEGMENT
from tests.unit.journal.mending.kit import contents, flip, journal, records_of

TOKEN = "of-the-cluster-16"
JOURNAL = 77


class Transport:
    """The other side of a connection, as far as it is used."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False
        self.protocol: object = None

    def set_protocol(self, protocol: object) -> None:
        self.protocol = protocol

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Desk:
    """A giver of a journal in memory, and who asks it."""

    def __init__(self) -> None:
        self.disk: MemoryDisk = journal()
        self.records = records_of(self.disk)
        self.suspects: list[Position] = []
        self.extent: Extent | None = Extent(
            SEGMENT, Position(0), self.records[-1].position, Epoch(1)
        )
        self.settings = load(
            environ={},
            flags={"name": "a", "data": "none", "cluster": "sqlite:///none.db",
                   "cluster_token": TOKEN, "broker_group": "orders"},
        )  # fmt: skip
        self.giver = Giver(
            self.settings,
            self.disk,
            journal=lambda: JOURNAL,
            extent=lambda: self.extent,
            suspect=self.suspects.append,
        )

    def ask(self, **changes: object) -> tuple[Transport, SegmentAsk]:
        fields: dict[str, object] = {
            "token": TOKEN, "group": "orders", "journal": JOURNAL, "broker": "b", "position": 0,
        }  # fmt: skip
        asking, session, transport = SegmentAsk(SEGMENT), ServerSession(100), Transport()
        session.receive(asking.ask(SegmentRead(**(fields | changes))))  # type: ignore[arg-type]
        self.giver.take(transport, session, "somewhere")  # type: ignore[arg-type]
        return transport, asking

    async def answer(self, **changes: object) -> Bytes | Refusal:
        transport, asking = self.ask(**changes)
        await until(lambda: transport.closed)
        answer = asking.receive(transport.written)
        assert answer is not None
        return answer


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_whole_records_are_given(desk):
    record = desk.records[5]
    answer = await desk.answer(position=record.position, most_bytes=record.length * 2)
    assert isinstance(answer, Bytes)
    end = desk.records[6].end
    assert answer == Bytes(record.position, 1, contents(desk.disk)[0][record.position : end])


async def test_a_record_that_is_larger_than_was_asked_for(desk):
    record = desk.records[5]
    answer = await desk.answer(position=record.position, most_bytes=1)
    assert isinstance(answer, Bytes)
    assert len(answer.records) == record.length


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"token": "of-another-cluster"}, "Unauthenticated"),
        ({"token": ""}, "Unauthenticated"),
        ({"group": "payments"}, "RefusedError"),
        ({"journal": JOURNAL + 1}, "RefusedError"),
        ({"position": 1 << 40}, "Busy"),
    ],
)
async def test_who_gets_none(desk, changes, error):
    answer = await desk.answer(**changes)
    assert isinstance(answer, Refusal)
    assert type(answer.error).__name__ == error
    assert not desk.suspects


async def test_nothing_is_given_that_is_not_committed(desk):
    last = desk.records[-1].position
    answer = await desk.answer(position=last)
    assert isinstance(answer, Refusal)
    answer = await desk.answer(position=desk.records[-3].position)
    assert isinstance(answer, Bytes)
    assert answer.position + len(answer.records) == last


async def test_what_retention_has_removed(desk):
    assert desk.extent is not None
    desk.extent = desk.extent._replace(first=Position(SEGMENT))
    answer = await desk.answer(position=0)
    assert isinstance(answer, Refusal)
    assert type(answer.error).__name__ == "JournalExpired"


async def test_there_is_no_journal_now(desk):
    desk.extent = None
    answer = await desk.answer()
    assert isinstance(answer, Refusal)
    assert answer.error.retriable


async def test_its_own_copy_is_damaged_there(desk):
    """It says so, and looks at it itself."""
    record = desk.records[5]
    flip(desk.disk, record.position + 4, 4)
    answer = await desk.answer(position=record.position)
    assert isinstance(answer, Refusal)
    assert type(answer.error).__name__ == "Unreadable"
    assert desk.suspects == [record.position]


@pytest.mark.parametrize("position", [4, 8, 1234 * 8])
async def test_no_record_begins_there(desk, position):
    """Nothing of it is given, whatever was meant."""
    answer = await desk.answer(position=position)
    assert isinstance(answer, Refusal)


async def test_few_are_answered_at_a_time(desk, monkeypatch):
    go_on = threading.Event()
    run = PieceRead.run

    def slow(self: PieceRead) -> None:
        assert go_on.wait(30)
        run(self)

    monkeypatch.setattr(PieceRead, "run", slow)
    waiting = [desk.ask() for _ in range(AT_ONCE)]
    answer = await desk.answer()
    assert isinstance(answer, Refusal)
    assert type(answer.error).__name__ == "Busy"
    assert not any(one.closed for one, _ in waiting)
    go_on.set()
    await until(lambda: all(one.closed for one, _ in waiting))
    assert isinstance(await desk.answer(), Bytes)


async def test_it_ends_while_somebody_waits(desk, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(PieceRead, "run", lambda _: go_on.wait(30) and None)
    desk.ask()
    await asyncio.sleep(0)
    closing = asyncio.create_task(desk.giver.close())
    await asyncio.wait_for(closing, 5)
    go_on.set()
