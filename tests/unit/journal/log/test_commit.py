"""The commit mark: alone it is the durable mark; with copies only ``commit`` moves it."""

from __future__ import annotations

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.journal import Journal
from ternmq.model.errors import JournalFull
from ternmq.model.types import Position
from ternmq.record.fact.header import Kind
from tests.unit.journal.kit import SEGMENT, body, make_spares


@pytest.fixture
def journal() -> Journal:
    return Journal.create(MemoryDisk(), segment_size=SEGMENT, time_us=7)


def stored(journal: Journal) -> Position:
    """Append a record, write and sync it; return its end."""
    journal.append(Kind.MESSAGES, body(100), 8)
    end = journal.end
    journal.flush()
    journal.sync_now()
    return end


def test_alone_what_is_durable_is_committed(journal: Journal) -> None:
    before = journal.committed
    assert before == journal.durable
    journal.append(Kind.MESSAGES, body(100), 8)
    journal.flush()
    assert journal.committed == before
    journal.sync_now()
    assert journal.committed == journal.durable == journal.end > before


def test_with_copies_nothing_is_committed_at_first(journal: Journal) -> None:
    journal.share_commits()
    assert journal.committed == 0 < journal.durable


def test_with_copies_a_sync_commits_nothing(journal: Journal) -> None:
    journal.share_commits()
    assert journal.commit(journal.durable)
    before = journal.committed
    end = stored(journal)
    assert (journal.durable, journal.committed) == (end, before)
    assert journal.commit(end)
    assert journal.committed == end


def test_the_mark_never_falls(journal: Journal) -> None:
    journal.share_commits()
    before, end = journal.durable, stored(journal)
    assert journal.commit(end)
    assert not journal.commit(before)
    assert not journal.commit(end)
    assert journal.committed == end


def test_what_is_not_on_this_disk_cannot_be_committed(journal: Journal) -> None:
    journal.share_commits()
    journal.append(Kind.MESSAGES, body(100), 8)
    journal.flush()
    with pytest.raises(ValueError, match="cannot be committed"):
        journal.commit(journal.end)
    assert journal.committed == 0


def test_alone_nobody_moves_the_mark(journal: Journal) -> None:
    with pytest.raises(ValueError, match="cannot be committed"):
        journal.commit(journal.durable)


def test_a_segment_above_the_mark_stays(journal: Journal) -> None:
    journal.share_commits()
    first = journal.first
    while journal.end < first + 2 * SEGMENT:
        make_spares(journal)
        stored(journal)
    with pytest.raises(JournalFull, match="below the commit mark"):
        journal.remove_first_segment()
    journal.commit(journal.durable)
    journal.remove_first_segment()
    assert journal.first == first + SEGMENT
