"""A data folder is used by the broker and the group that it belongs to, and leads only if whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from ternmq.cluster.coordination.record import (
    Floor,
    Leadership,
    Member,
    Progress,
    Reach,
    Writer,
)
from ternmq.cluster.replication.forcing import forced
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.errors import SettingsError
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import Kind
from ternmq.server.node import identity
from ternmq.server.node.folder import Folder
from ternmq.server.node.identity import Identity
from tests.unit.journal.kit import body

JOURNAL = 0x1234
SEGMENT = 1 << 16


def record(
    primary: str = "a", *, epoch: int = 1, floor: Floor | None = None, journal: int = JOURNAL
) -> Leadership:
    return Leadership(
        version=3,
        writer=Writer("a", 1, 1),
        journal=journal,
        epoch=Epoch(epoch),
        primary=primary,
        members=(Member(primary, 7),),
        floor=floor,
    )


def journal_in(path: Path, epoch: int, records: int = 5) -> tuple[Floor, Position]:
    """Make a journal, or open it for another epoch; return its EPOCH and its end."""
    disk = RealDisk(path)
    journal, report = open_journal(disk, wall_us=1, segment_size=SEGMENT, min_epoch=Epoch(epoch))
    floor = Floor(journal.epoch, report.epoch_position, journal.last_crc)
    _append(journal, records)
    end = journal.end
    journal.close()
    return floor, end


def _append(journal: Journal, records: int) -> None:
    for number in range(records):
        journal.append(Kind.MARK, body(number), 1)
    journal.flush()
    journal.sync_now()


def folder(path: Path, broker: str = "a") -> Folder:
    return Folder(path, "main", broker)


def check_to_lead(path: Path, found: Leadership, progress: Progress | None) -> None:
    one = folder(path)
    one.check_to_lead(found, progress, one.holding(found.floor))


def test_a_folder_gets_an_identity_once(tmp_path: Path) -> None:
    path = tmp_path / "data"
    folder(path).check()
    folder(path).enter(record())
    assert identity.read(path) == Identity.of("main", JOURNAL, "a")
    folder(path).enter(record(floor=Floor(Epoch(1), Position(0), 1)))
    folder(path).check()


@pytest.mark.parametrize(("group", "broker"), [("main", "b"), ("other", "a")])
def test_the_folder_of_another_is_not_used(tmp_path: Path, group: str, broker: str) -> None:
    folder(tmp_path).enter(record())
    with pytest.raises(SettingsError, match=repr(broker if group == "main" else group)):
        Folder(tmp_path, group, broker).check()


def test_a_folder_with_another_journal_is_not_used(tmp_path: Path) -> None:
    folder(tmp_path).enter(record())
    with pytest.raises(SettingsError, match="another journal"):
        folder(tmp_path).enter(record(journal=JOURNAL + 1))


def test_a_journal_of_ones_own_joins_no_group(tmp_path: Path) -> None:
    journal_in(tmp_path, 1)
    with pytest.raises(SettingsError, match="joins with an empty folder"):
        folder(tmp_path, "b").enter(record("a"))
    assert identity.read(tmp_path) is None


def test_an_empty_folder_does_not_lead_in_the_place_of_the_one_that_did(tmp_path: Path) -> None:
    floor = Floor(Epoch(1), Position(0), 1)
    with pytest.raises(SettingsError, match="not the folder with which"):
        folder(tmp_path).enter(record(floor=floor))
    folder(tmp_path).enter(record())
    with pytest.raises(SettingsError, match="is empty"):
        check_to_lead(tmp_path, record(epoch=4, floor=floor), None)


def test_the_first_primary_may_have_died_before_it_made_its_journal(tmp_path: Path) -> None:
    folder(tmp_path).enter(record())
    check_to_lead(tmp_path, record(epoch=1), None)


def test_a_group_that_begins_with_a_journal_knows_it_by_its_last_record(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    assert folder(here).floor_to_begin_with() is None
    journal_in(here, 6, records=3)
    floor = folder(here).floor_to_begin_with()
    assert floor is not None
    assert floor.epoch == 6
    with pytest.raises(SettingsError, match="not the folder with which"):
        folder(elsewhere).enter(record(floor=floor))
    folder(here).enter(record(epoch=6, floor=floor))
    check_to_lead(here, record(epoch=6, floor=floor), None)


def test_a_damaged_identity_is_said(tmp_path: Path) -> None:
    (tmp_path / identity.NAME).write_bytes(b'{"format": 1, "gro')
    with pytest.raises(SettingsError, match="IDENTITY is damaged"):
        folder(tmp_path).check()
    (tmp_path / identity.NAME).write_bytes(
        b'{"format": 2, "group": "main", "journal": "0000000000000001", "broker": "a"}'
    )
    with pytest.raises(SettingsError, match="newer version"):
        folder(tmp_path).check()


def test_a_disk_in_the_place_of_the_folder(tmp_path: Path) -> None:
    """The testing kit gives one. It has the files of the folder, and the folder is not made."""
    disk, path = MemoryDisk(), tmp_path / "data"

    def one(broker: str = "b") -> Folder:
        return Folder(path, "main", broker, disk)

    one().check()
    one().enter(record("a"))
    assert identity.read_on(disk) == Identity.of("main", JOURNAL, "b", whole=False)
    with pytest.raises(SettingsError, match="is the folder of broker 'b'"):
        one("a").check()
    found = one()
    found.enter(record("a"))
    assert not found.is_whole
    found.make_whole()
    assert identity.read_on(disk) == Identity.of("main", JOURNAL, "b")
    assert one().holding(None) is None
    _append(open_journal(disk, wall_us=1, segment_size=SEGMENT, min_epoch=Epoch(3))[0], 2)
    held = one().holding(None)
    assert held is not None
    assert held.epoch == 3
    assert not path.exists()
    file = disk.open(identity.NAME)
    file.pwrite(b"}", 0)
    with pytest.raises(SettingsError, match="IDENTITY is damaged"):
        one().check()


def test_a_group_begins_with_the_epoch_of_the_folder(tmp_path: Path) -> None:
    assert folder(tmp_path / "none").epoch_to_begin_with() == 0
    assert folder(tmp_path).epoch_to_begin_with() == 0
    journal_in(tmp_path, 6)
    assert folder(tmp_path).epoch_to_begin_with() == 6


def test_a_group_does_not_begin_again_without_its_record(tmp_path: Path) -> None:
    folder(tmp_path).enter(record())
    with pytest.raises(SettingsError, match="has no record of broker group 'main'"):
        folder(tmp_path).epoch_to_begin_with()


def test_a_folder_that_has_everything_may_lead(tmp_path: Path) -> None:
    check_to_lead(tmp_path, record(epoch=0), None)
    floor, end = journal_in(tmp_path, 3)
    for progress in (None, Progress(Epoch(3), end), Progress(Epoch(3), Position(0))):
        check_to_lead(tmp_path, record(epoch=3, floor=floor), progress)


def test_an_older_copy_of_the_folder_does_not_lead(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    journal_in(old, 3)
    floor, end = journal_in(new, 4, records=50)
    with pytest.raises(SettingsError, match="older than what was answered"):
        check_to_lead(old, record(epoch=4, floor=floor), None)
    floor_of_old, _ = journal_in(tmp_path / "other", 3)
    with pytest.raises(SettingsError, match="older than what was answered"):
        check_to_lead(old, record(epoch=3, floor=floor_of_old), Progress(Epoch(3), end))


def test_a_folder_leads_again_after_its_loss_was_accepted(tmp_path: Path) -> None:
    """What reigns before have said of how far they came counts no more."""
    old, new = tmp_path / "old", tmp_path / "new"
    journal_in(old, 3)
    floor, end = journal_in(new, 4, records=50)
    found, progress = record(epoch=4, floor=floor), Progress(Epoch(4), end)
    with pytest.raises(SettingsError, match="older than what was answered"):
        check_to_lead(old, found, progress)
    holding = folder(old).holding(floor)
    assert holding is not None
    held = holding.held
    assert held is not None
    assert held.reach == Reach(Epoch(3), holding.end, holding.end)  # it is no copy
    made = forced(
        found, Member("a", 7), held, {}, Position(0), Writer("a", 1, 2), found.writes, "", 1
    )
    check_to_lead(old, made, progress)
    with pytest.raises(SettingsError, match="older than what was answered"):
        check_to_lead(old, made, Progress(made.epoch, end))
    with pytest.raises(SettingsError, match="older than what was answered"):
        check_to_lead(new, made, None)  # another history


def test_another_history_does_not_lead(tmp_path: Path) -> None:
    floor, _ = journal_in(tmp_path, 3)
    other = floor.__class__(floor.epoch, floor.position, floor.crc ^ 1)
    with pytest.raises(SettingsError, match="older than what was answered"):
        check_to_lead(tmp_path, record(epoch=3, floor=other), None)


def test_a_folder_of_an_epoch_that_the_coordinator_does_not_know_does_not_lead(
    tmp_path: Path,
) -> None:
    journal_in(tmp_path, 9)
    with pytest.raises(SettingsError, match="records of epoch 9"):
        check_to_lead(tmp_path, record(epoch=8), None)


def test_a_folder_that_was_begun_anew_is_not_whole_before_it_has_everything(
    tmp_path: Path,
) -> None:
    one = folder(tmp_path, "b")
    one.enter(record("a"))
    assert not one.is_whole
    again = folder(tmp_path, "b")
    again.enter(record("a"))
    assert not again.is_whole, "nor after a restart"
    again.make_whole()
    later = folder(tmp_path, "b")
    later.enter(record("a"))
    assert later.is_whole


def test_the_folder_with_which_a_group_begins_is_whole(tmp_path: Path) -> None:
    one = folder(tmp_path)
    one.enter(record("a"))
    assert one.is_whole
