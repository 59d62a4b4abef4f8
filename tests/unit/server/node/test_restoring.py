"""How far a journal reaches, what it lacks, and the record of a group that begins with it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ternmq import files
from ternmq.cluster.coordination.record import Floor, Member, Progress, Writer, pack
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.ending import find_end
from ternmq.model.errors import AlreadyRunning, CorruptJournal, FileMissing, SettingsError
from ternmq.model.types import Epoch, Position
from ternmq.server.node import identity, restoring
from ternmq.server.node.restoring import EPOCHS_ABOVE, Reach, missing_bytes, reach_of, restored
from tests.unit.server.node.test_folder import folder, journal_in, record

REACH = Reach(
    Position(0), Position(1000), Epoch(3), Floor(Epoch(3), Position(900), 5), 7, 20, floor_crc=9
)
FLOOR = Floor(Epoch(3), Position(400), 9)
WRITER = Writer("operator", 77, 1)


@pytest.mark.parametrize(
    ("floor", "crc", "told", "missing"),
    [
        (FLOOR, 9, None, 0),
        (FLOOR, 9, 1000, 0),
        (FLOOR, 9, 1500, 500),
        (FLOOR, 8, 1500, 1100),  # another history from the floor on
        (Floor(Epoch(3), Position(1200), 9), None, None, 200),
        (Floor(Epoch(3), Position(1200), 9), None, 1500, 500),
        (None, None, None, 0),
        (None, None, 1001, 1),
    ],
)
def test_what_is_known_to_be_missing(
    floor: Floor | None, crc: int | None, told: int | None, missing: int
) -> None:
    progress = None if told is None else Progress(Epoch(3), Position(told))
    reach = REACH._replace(floor_crc=crc)
    assert missing_bytes(record(epoch=3, floor=floor), progress, reach) == missing


def test_the_copy_itself_knows_how_far_the_group_was_committed() -> None:
    reach = REACH._replace(committed=Position(1200))
    assert missing_bytes(record(epoch=3, floor=FLOOR), None, reach) == 200
    assert missing_bytes(None, None, reach) == 200
    assert missing_bytes(None, None, REACH) is None


def test_a_floor_before_the_oldest_segment_says_nothing_of_the_history() -> None:
    reach = REACH._replace(first=Position(500), floor_crc=None)
    assert missing_bytes(record(epoch=3, floor=FLOOR), None, reach) == 0


def test_the_record_of_a_group_that_begins_again() -> None:
    before = msgspec.structs.replace(record(epoch=9), kept={"later": msgspec.msgpack.encode(1)})
    made = restored(before, REACH, "c", 0xBEEF, WRITER, 5)
    assert (made.version, made.epoch) == (before.version + 1, 9 + EPOCHS_ABOVE)
    assert (made.journal, made.primary, made.floor) == (0xBEEF, "c", REACH.last)
    assert made.members == (Member("c", 77),)
    assert made.kept == before.kept
    assert pack(made)
    new = restored(None, REACH, "c", 0xBEEF, WRITER, 5)
    assert (new.version, new.epoch) == (1, 3 + EPOCHS_ABOVE)


def test_epochs_end_some_day() -> None:
    last = record(epoch=2**32 - 1 - 2 * EPOCHS_ABOVE)
    assert restored(last, REACH, "c", 1, WRITER, 5).epoch == 2**32 - 1 - EPOCHS_ABOVE
    with pytest.raises(SettingsError, match="too often"):
        restored(record(epoch=last.epoch + 1), REACH, "c", 1, WRITER, 5)


def test_how_far_a_journal_reaches(tmp_path: Path) -> None:
    floor, end = journal_in(tmp_path, 4)
    found = reach_of(tmp_path, floor)
    assert (found.first, found.end, found.epoch, found.floor_crc) == (0, end, 4, floor.crc)
    assert found.last.position > floor.position
    assert reach_of(tmp_path, None).floor_crc is None


def test_no_journal_and_a_damaged_one(tmp_path: Path) -> None:
    for empty in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileMissing):
            reach_of(empty, None)
    floor, _ = journal_in(tmp_path, 4)
    disk = RealDisk(tmp_path)
    disk.open(segment_name(Position(0))).pwrite(b"\xff" * 8, floor.position + 40)
    with pytest.raises(CorruptJournal, match="damaged at position"):
        reach_of(tmp_path, None)


def test_a_copy_ends_where_the_journal_does(tmp_path: Path) -> None:
    """What an unsynced tail left behind the end does not come along."""
    source, data = tmp_path / "source", tmp_path / "data"
    _, end = journal_in(source, 4, records=5)
    file = RealDisk(source).open(segment_name(Position(0)))
    file.pwrite(b"rubbish " * 4, end + 64)
    reach = reach_of(source, None)
    with restoring.at_rest(source), restoring.owned(data):
        assert restoring.is_empty(data)
        (data / "journal.unfinished").mkdir()  # of a command that was killed
        assert restoring.copy_journal(source, data, reach) == end
        restoring.identify(data, "main", 0xBEEF, "c")
        assert not restoring.is_empty(data)
    ending = find_end(RealDisk(data, read_only=True))
    assert ending is not None
    assert (ending.valid_end, ending.dirt) == (end, ())
    assert identity.read(data) == identity.Identity.of("main", 0xBEEF, "c")
    made = restored(None, reach, "c", 0xBEEF, WRITER, 5)
    one = folder(data, "c")
    one.enter(made)
    one.check_to_lead(made, Progress(made.epoch, end), one.holding(made.floor))


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, data = tmp_path / "source", tmp_path / "data"
    journal_in(source, 4)
    reach = reach_of(source, None)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "copy", full)
    with restoring.owned(data):
        with pytest.raises(OSError, match="No space"):
            restoring.copy_journal(source, data, reach)
        assert restoring.is_empty(data)
        assert {one.name for one in data.iterdir()} == {"LOCK"}


def test_folders_that_a_broker_uses(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.lock()
    for use in (restoring.owned, restoring.at_rest):
        with pytest.raises(AlreadyRunning), use(tmp_path):
            pytest.fail("it is in use")
    disk.close()
    with restoring.at_rest(tmp_path):
        with restoring.at_rest(tmp_path):  # two may read
            pass
        with pytest.raises(AlreadyRunning), restoring.owned(tmp_path):
            pytest.fail("it is read")
