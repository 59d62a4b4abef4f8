"""The ledger: the one way in which a fact enters the broker, live as at a start."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ternmq.broker
from ternmq.broker.ledger import factkinds
from ternmq.broker.ledger.factkinds import COUNTS, CURSOR, JOINED, FactKind
from ternmq.broker.ledger.views import Views
from ternmq.broker.start import new_views
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.index import Index
from ternmq.journal.log.scan import RawRecord, Scanner
from ternmq.model.errors import Busy, DiskFull, JournalFull
from ternmq.model.specs import Limits, ProducerGroupSpec
from ternmq.model.types import Position
from ternmq.record.batch.batch import Row
from ternmq.record.fact.control import Joined
from ternmq.record.fact.facts import CursorMoved, Move, Outcome
from ternmq.record.fact.header import KNOWN_KINDS, Kind
from ternmq.wire.bodies import TransactionPrepare
from tests.unit.broker.kit import SECOND, World, difference, portrait

SEGMENT = 1 << 16
PACKAGE = Path(ternmq.broker.__file__).parent
KINDS = [one for one in vars(factkinds).values() if isinstance(one, FactKind)]
OF_THE_JOURNAL = {Kind.SEGMENT, Kind.PAD, Kind.EPOCH, Kind.MARK, Kind.STATE}
APPLIES = {
    "ledger/ledger.py", "ledger/views.py", "ledger/resolving.py", "ledger/scheduling.py",
    "ledger/checks.py",
    "catalog/stateobjects.py",
}  # fmt: skip
"""Modules that may call what applies a fact; the last loads sessions from STATE."""


# -- the table -------------------------------------------------------------------------------------


def test_every_kind_that_can_be_decided_is_in_the_table() -> None:
    kinds = [one.kind for one in KINDS]
    assert len(set(kinds)) == len(kinds)
    assert set(kinds) == KNOWN_KINDS - OF_THE_JOURNAL
    views = new_views(Limits(), Index(MemoryDisk(), segment_size=SEGMENT))
    without = [one.kind for one in KINDS if views.table[one.kind].apply is None]
    assert without == [COUNTS.kind]


def test_a_kind_that_is_not_in_the_table_is_not_appended() -> None:
    ledger = World().broker.ledger
    unknown: FactKind[Joined] = FactKind(Kind.MARK, JOINED.pack, JOINED.unpack)
    end = ledger.end
    with pytest.raises(KeyError):
        ledger.record(1, unknown, Joined(1, "app", "client"))
    assert ledger.end == end


def test_nothing_but_the_ledger_appends_or_applies() -> None:
    """A decision that applied something else than a start would is not to be written."""
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute):
                continue
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            appends = node.attr == "append" and "journal" in name
            if appends and path.stem != "ledger":
                found.append(f"{path.stem}:{node.lineno} appends")
            if (
                node.attr.startswith("apply_")
                and path.relative_to(PACKAGE).as_posix() not in APPLIES
            ):
                found.append(f"{path.stem}:{node.lineno} calls {node.attr}")
    assert found == []


def test_no_part_takes_the_whole_broker() -> None:
    """Only what puts it together, and what shows its numbers, knows the surface."""
    knows = [
        path.stem
        for path in sorted(PACKAGE.rglob("*.py"))
        if "from ternmq.broker.broker import" in path.read_text(encoding="utf-8")
    ]
    assert knows == ["metrics", "start"]


# -- live and replayed -----------------------------------------------------------------------------


def records(world: World) -> list[RawRecord]:
    """Return all records of a world's journal."""
    world.commit()
    return list(Scanner(world.disk, 0, segment_size=world.options.segment_bytes))


def copy_of(found: list[RawRecord], world: World) -> Views:
    """Return views to which records were applied, one after the other."""
    size = world.options.segment_bytes
    views = new_views(world.options.limits, Index(MemoryDisk(), segment_size=size))
    views.loaded(Position(0))
    for record in found:
        views.apply(record)
    views.finish(Position(0))
    return views


def test_records_applied_to_a_copy_make_the_views_that_decided_them() -> None:
    """All ways of recording: the quick ones, those of several facts, and those of settings."""
    world = World()
    world.topic("t", queues=2)
    world.topic("o", ordered=True)
    for topic in ("t", "o"):
        world.group(topic, "g")
    session = world.join()
    world.send("t", 8, queue=0)
    world.send("t", 3, queue=1)
    world.send("o", "aabbc")
    for topic, outcome in (("t", Outcome.DONE), ("o", Outcome.RETRY)):
        pulled = world.pull(session, topic, "g", 4)
        assert pulled is not None
        world.settle(session, topic, "g", pulled, outcome)
    pulled = world.pull(session, "t", "g", 4)
    assert pulled is not None
    start = pulled.runs[0][0]
    world.settle(session, "t", "g", pulled, Outcome.DEAD, spans=[(start, start + 1)])
    broker, now = world.broker, world.now
    broker.extend(now, session, "t", "g", pulled.queue, pulled.epoch, pulled.lease, 90 * SECOND)
    ids = [world.prepare("t", 2).prepared]
    world.decide(ids)
    world.prepare("t", 1, batch=2)
    world.abort(batch=2)
    world.send("t", [Row(body=b"due", due_us=now + 5), Row(body=b"later", due_us=now + SECOND)])
    broker.cancel_scheduled(now, "t", 1, world.sequences[1] - 1)
    world.pass_time(5)
    now = world.now
    broker.operating.redrive(now, session, "t", "g", pulled.queue, [start])
    broker.operating.skip(now, "o", "g", 0, 5)
    broker.operating.reset(now, "t", "g", 1, 1)
    broker.holding.put(now, "archive", 0)
    world.group("t", "h")
    broker.administration.unsubscribe(now, "t", "h")
    world.join("other")
    world.send("t", [Row(body=b"later", due_us=now + SECOND, application_id="later")], producer=5)
    broker.cancel_scheduled_id(now, "t", "later")
    broker.take_numbers(now, "t", 100, reserve=True)
    broker.alarms.raise_(now, "held", "o/g/0", "a key is held")
    put = ProducerGroupSpec(name="pay", without_checker=True)
    broker.checking.put_group(now, "app", put)
    batch = world.batch("t", world.rows(2))
    asked = TransactionPrepare("t", None, 1, 1, "pay", "", 0, 0, batch)
    opened = broker.checking.prepare(now, "app", session, asked)
    broker.checking.take_up(now, "app", opened.transaction)
    assert world.pull(session, "t", "g", 1) is not None
    world.leave(session)
    found = records(world)
    kinds = {record.kind for record in found}
    assert kinds >= {one.kind for one in KINDS} - {Kind.COUNTS, Kind.MOVED}
    assert difference(portrait(copy_of(found, world)), portrait(broker.views)) == []


# -- a journal without room ------------------------------------------------------------------------


def full(world: World, monkeypatch: pytest.MonkeyPatch, *, coming: bool) -> None:
    """Let the journal have no segment for any record."""

    def append(*_: object) -> Position:
        raise JournalFull("no segment")

    monkeypatch.setattr(world.broker.journal, "append", append)
    monkeypatch.setattr(type(world.broker.journal), "spare_is_coming", coming)


def test_a_full_journal_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.topic("t")
    group = world.group("t", "g")
    ledger = world.broker.ledger
    before = portrait(ledger.views)
    full(world, monkeypatch, coming=False)
    with pytest.raises(JournalFull):
        ledger.record(world.now, CURSOR, CursorMoved(group, 1, 0, Move.SKIP, 0, 0))
    with pytest.raises(JournalFull):
        ledger.record(world.now, JOINED, Joined(9, "app", "client"))
    assert portrait(ledger.views) == before


@pytest.mark.parametrize(("coming", "error", "refused"), [(True, Busy, 0), (False, DiskFull, 1)])
def test_a_client_is_told_what_a_full_journal_means(
    monkeypatch: pytest.MonkeyPatch, coming: bool, error: type[Exception], refused: int
) -> None:
    world = World()
    world.topic("t")
    full(world, monkeypatch, coming=coming)
    room = world.broker.ledger.room
    with pytest.raises(error):
        world.prepare("t", 1)
    assert room.refused == refused
    assert not room.lacked_bytes, "that is of sends"
    with pytest.raises(error):
        world.send("t", 1)
    assert room.refused == 2 * refused
    assert bool(room.lacked_bytes) is not coming


def test_a_send_that_found_room_lacks_nothing() -> None:
    world = World()
    world.topic("t")
    room = world.broker.ledger.room
    room.block(blocked=True)
    with pytest.raises(DiskFull):
        world.send("t", 1)
    assert room.lacked_bytes
    assert room.refuses
    room.block(blocked=False)
    world.send("t", 1)
    assert room.lacked_bytes == 0
    assert not room.refuses
