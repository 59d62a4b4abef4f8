from __future__ import annotations

import random

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ternmq.model.errors import DataLoss, TableError
from ternmq.pipeline.archive.commit import (
    Archive,
    ArchivedQueue,
    Committed,
    Decision,
    judge,
    place_of,
)
from ternmq.pipeline.archive.ranges import Written, write_range
from ternmq.pipeline.tables.folder import Folder
from tests.unit.pipeline import made
from tests.unit.pipeline.made import span

ORDERS = ArchivedQueue("orders", 7, 0)
NOW = made.NOON + 1


@pytest.fixture
def archive(tables):
    return Archive(tables)


def write(archive, start, stop, queue=0, *, lenient=False, have=None, number=7):
    low, high = have or (start, stop)
    return write_range(
        archive.table.folder,
        span(start, stop, queue, number=number),
        made.in_batches(low, high, queue),
        lenient=lenient,
        durable=False,
    )


def offsets(archive, queue=0):
    archive.table.refresh()
    rows = archive.table.read(["queue", "offset"]).to_pylist()
    return sorted(row["offset"] for row in rows if row["queue"] == queue)


def gaps(archive):
    archive.gaps.refresh()
    return sorted(
        (g["queue"], g["start"], g["stop"], g["cause"]) for g in archive.gaps.read().to_pylist()
    )


def files_there(archive):
    return {one.path for one in archive.table.folder.list() if one.path.endswith(".parquet")}


def files_known(archive):
    return {one.path for one in archive.table.files()}


@pytest.mark.parametrize(
    ("stands", "start", "stop", "verdict"),
    [
        (None, 0, 10, Decision.COMMIT),
        (None, 5, 10, Decision.COMMIT),
        (10, 10, 20, Decision.COMMIT),
        (10, 0, 10, Decision.SKIP),
        (10, 3, 9, Decision.SKIP),
        (10, 5, 20, Decision.TRIM),
        (10, 9, 11, Decision.TRIM),
        (10, 11, 20, Decision.GAP),
    ],
)
def test_the_rule(stands, start, stop, verdict):
    assert judge(stands, start, stop) is verdict


def test_ranges_in_order(archive):
    assert archive.stands(ORDERS) is None
    done = archive.commit([write(archive, 0, 10)], NOW)
    assert done == Committed({ORDERS: 10}, added=10)
    archive.commit([write(archive, 10, 30)], NOW)
    assert offsets(archive) == list(range(30))
    assert archive.stands(ORDERS) == 30
    assert gaps(archive) == []


def test_several_queues_and_tasks_in_any_order_are_one_commit(archive):
    written = [write(archive, *one) for one in [(10, 20), (0, 5, 1), (0, 10), (5, 9, 1)]]
    done = archive.commit(written, NOW)
    assert done.stands == {ORDERS: 20, ArchivedQueue("orders", 7, 1): 9}
    assert archive.table.version == 1
    assert offsets(archive) == list(range(20))
    assert offsets(archive, 1) == list(range(9))


def test_the_same_again_adds_nothing_and_leaves_no_files(archive):
    written = [write(archive, 0, 10)]
    archive.commit(written, NOW)
    assert archive.commit(written, NOW) == Committed({ORDERS: 10}, skipped=1)
    assert archive.commit([write(archive, 0, 10)], NOW).skipped == 1
    assert archive.commit([write(archive, 2, 7)], NOW).skipped == 1
    assert offsets(archive) == list(range(10))
    assert files_there(archive) == files_known(archive)
    assert archive.table.version == 1


def test_an_overlap_is_trimmed(archive):
    archive.commit([write(archive, 0, 10)], NOW)
    done = archive.commit([write(archive, 4, 25)], NOW)
    assert done == Committed({ORDERS: 25}, added=15, trimmed=1)
    assert offsets(archive) == list(range(25))
    assert files_there(archive) == files_known(archive)


def test_ranges_of_one_commit_that_overlap(archive):
    written = [write(archive, *one) for one in [(0, 10), (5, 15), (0, 3), (15, 20)]]
    assert archive.commit(written, NOW).added == 20
    assert offsets(archive) == list(range(20))
    assert files_there(archive) == files_known(archive)


def test_a_gap_is_an_error_and_adds_nothing(archive):
    archive.commit([write(archive, 0, 10)], NOW)
    with pytest.raises(DataLoss, match=r"rows 10 to 14 of queue 0 of 'orders'"):
        archive.commit([write(archive, 15, 20), write(archive, 0, 5, 1)], NOW)
    assert offsets(archive) == list(range(10))
    assert offsets(archive, 1) == []
    assert archive.stands(ORDERS) == 10
    assert gaps(archive) == []


def test_a_gap_is_noted_where_that_is_allowed(archive):
    archive.commit([write(archive, 0, 10)], NOW)
    done = archive.commit([write(archive, 15, 20)], NOW, lenient=True)
    assert done == Committed({ORDERS: 20}, added=5, lost=5)
    assert gaps(archive) == [(0, 10, 15, "expired")]
    assert offsets(archive) == [*range(10), *range(15, 20)]


def test_what_expired_while_it_was_read_is_noted_too(archive):
    archive.commit([write(archive, 0, 10)], NOW)
    done = archive.commit([write(archive, 10, 20, lenient=True, have=(13, 20))], NOW, lenient=True)
    assert (done.lost, done.added) == (3, 7)
    assert gaps(archive) == [(0, 10, 13, "expired")]
    assert archive.stands(ORDERS) == 20


def test_a_range_that_was_read_leniently_is_refused_by_one_who_is_not(archive):
    with pytest.raises(DataLoss, match="rows 3 to 5"):
        archive.commit([write(archive, 3, 20, lenient=True, have=(6, 20))], NOW)
    assert offsets(archive) == []


def test_a_whole_range_that_is_gone(archive):
    archive.commit([write(archive, 0, 20, lenient=True, have=(0, 0))], NOW, lenient=True)
    assert (archive.stands(ORDERS), gaps(archive)) == (20, [(0, 0, 20, "expired")])
    archive.commit([write(archive, 20, 25)], NOW)
    assert offsets(archive) == list(range(20, 25))


def test_what_was_gone_before_the_archive_began_is_no_loss_but_noted(archive):
    archive.commit([write(archive, 100, 120)], NOW)
    assert gaps(archive) == [(0, 0, 100, "before")]
    assert offsets(archive) == list(range(100, 120))


def test_a_topic_that_was_deleted_and_made_again_begins_anew(archive):
    archive.commit([write(archive, 0, 10)], NOW)
    archive.commit([write(archive, 0, 5, number=9)], NOW)
    assert sorted(offsets(archive)) == sorted([*range(10), *range(5)])
    assert archive.stands(ArchivedQueue("orders", 9, 0)) == 5


def test_a_gap_is_noted_once_though_the_commit_behind_it_was_lost(archive, monkeypatch):
    archive.commit([write(archive, 0, 10)], NOW)
    with monkeypatch.context() as patch:
        patch.setattr(archive.table, "commit", failing)
        with pytest.raises(OSError, match="power"):
            archive.commit([write(archive, 15, 20)], NOW, lenient=True)
    assert gaps(archive) == [(0, 10, 15, "expired")]
    # Meanwhile more has gone.
    archive.commit([write(archive, 17, 20)], NOW, lenient=True)
    assert gaps(archive) == [(0, 10, 15, "expired"), (0, 15, 17, "expired")]
    assert archive.stands(ORDERS) == 20


def failing(*_args, **_named):
    raise OSError("power")


def test_a_file_that_was_cleaned_away_is_not_committed(archive):
    written = write(archive, 0, 10)
    archive.table.folder.remove([written.files[0].path])
    with pytest.raises(TableError, match=written.files[0].path):
        archive.commit([written], NOW)
    assert archive.stands(ORDERS) is None


def test_somebody_else_was_quicker_with_the_same_range(tables, archive):
    other = Archive(tables)
    mine, theirs = write(archive, 0, 10), write(other, 0, 15)
    real = archive.table.commit

    def interrupted(*args, **named):
        archive.table.commit = real
        other.commit([theirs], NOW)
        real(*args, **named)

    archive.table.commit = interrupted
    assert archive.commit([mine], NOW) == Committed({ORDERS: 15}, skipped=1)
    assert offsets(archive) == list(range(15))
    assert files_there(archive) == files_known(archive)


def test_somebody_else_was_quicker_with_a_part_of_it(tables, archive):
    other = Archive(tables)
    mine, theirs = write(archive, 0, 10), write(other, 0, 4)
    real = archive.table.commit

    def interrupted(*args, **named):
        archive.table.commit = real
        other.commit([theirs], NOW)
        real(*args, **named)

    archive.table.commit = interrupted
    done = archive.commit([mine], NOW)
    assert (done.stands, done.added, done.trimmed) == ({ORDERS: 10}, 6, 1)
    assert offsets(archive) == list(range(10))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**9))
def test_whatever_is_run_twice_cut_differently_or_lost_on_the_way(tmp_path_factory, seed):
    """Runners with their own idea of where they are; each row is there once, in the end."""
    chance = random.Random(seed)
    tables = Folder(str(tmp_path_factory.mktemp("t")))
    end = 40
    archive = Archive(tables)
    while (archive.stands(ORDERS) or 0) < end:
        at = chance.randint(0, archive.stands(ORDERS) or 0)  # an old checkpoint
        written: list[Written] = []
        for _ in range(chance.randint(1, 3)):
            stop = min(end, at + chance.randint(1, 12))
            written.append(write(archive, at, stop))
            at = chance.choice([stop, max(0, stop - 3)])
        if chance.random() < 0.3:
            continue  # killed before the commit
        runner = Archive(tables) if chance.random() < 0.5 else archive
        chance.shuffle(written)
        done = runner.commit(written, NOW)
        assert done.stands[place_of(written[0].span)] == runner.stands(ORDERS)
        archive.table.refresh()
    assert offsets(archive) == list(range(end))
    assert gaps(archive) == []
