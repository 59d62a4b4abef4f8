"""Small ranges of many queues, which share files."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ternmq.model.errors import DataLoss
from ternmq.pipeline.archive import compaction
from ternmq.pipeline.archive.commit import Archive, ArchivedQueue
from ternmq.pipeline.archive.compaction import Compacted, When, compact
from ternmq.pipeline.archive.erase import Request, erase, find
from ternmq.pipeline.archive.expiring import expire_topic
from ternmq.pipeline.archive.file import Sizes, names_several
from ternmq.pipeline.archive.lookup import Lookup
from ternmq.pipeline.archive.ranges import (
    BUNDLE_BYTES,
    MOST_RANGES,
    SMALL_BYTES,
    Bundle,
    Missing,
    OpenFiles,
    RangeWriter,
    bundled,
    write_ranges,
)
from ternmq.pipeline.archive.rewrite import inside, queue_of, queues_in
from ternmq.pipeline.archive.schema import ERASED
from ternmq.pipeline.replay.plan import places as places_of
from ternmq.pipeline.replay.plan import plan
from ternmq.pipeline.replay.replay import rows_of
from ternmq.pipeline.replay.select import Reading, Selection
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from tests.unit.pipeline import made
from tests.unit.pipeline.kept import NOW, files_known, files_there, fill, places, rows

KEY = Request("r-1", keys=("key-3",))


@pytest.fixture
def archive(tables):
    return Archive(tables)


def topic(number):
    return f"t{number:02}"


def span(number, start=0, stop=10, queue=0):
    return made.span(start, stop, queue, topic(number), number)


def write(archive, *spans, sizes=None, lenient=False, **given):
    return write_ranges(
        archive.table.folder,
        spans,
        lambda one: made.in_batches(one.start, one.stop, one.queue, **given),
        sizes,
        lenient=lenient,
        durable=False,
    )


def put(archive, *spans, **given):
    return archive.commit([write(archive, *spans, **given)], made.NOON)


def expected(*spans):
    return sorted((one.topic, one.queue, at) for one in spans for at in range(one.start, one.stop))


# -- which ranges share files


def test_small_ranges_share_files_and_large_ones_do_not():
    small, large = [span(n) for n in (3, 1, 2)], span(0)
    assert bundled([(large, SMALL_BYTES), *((one, SMALL_BYTES - 1) for one in small)]) == [
        (large,),
        (small[1], small[2], small[0]),
    ]
    assert bundled([]) == []
    assert bundled([(large, 1)]) == [(large,)]


def test_files_that_are_shared_do_not_become_too_large():
    many = [(span(n), SMALL_BYTES - 1) for n in range(40)]
    found = bundled(many)
    assert [one for some in found for one in some] == [one for one, _ in many]
    assert max(map(len, found)) * SMALL_BYTES <= BUNDLE_BYTES + 2 * SMALL_BYTES
    assert len(bundled([(span(n), 1) for n in range(2 * MOST_RANGES)])) == 2
    assert len(bundled(many, 1)) == len(bundled(many, SMALL_BYTES)) == 20
    assert bundled(many, 1 << 40) == found


# -- written and committed


def test_one_file_a_day_with_the_rows_in_order(archive):
    spans = [span(1, queue=0), span(1, queue=1), span(2)]
    bundle = write(archive, *spans)
    (file,) = bundle.files
    assert (file.rows, queue_of(file), names_several(file.path)) == (30, None, True)
    assert (file.low["topic"], file.high["topic"]) == ("t01", "t02")
    assert [one.span for one in bundle.written] == spans
    assert Bundle.of_json(bundle.to_json()) == bundle
    done = archive.commit([bundle], made.NOON)
    assert (done.added, len(done.stands)) == (30, 3)
    assert places(archive) == expected(*spans)
    assert queues_in(archive.table.folder, file) == [("t01", 1, 0), ("t01", 1, 1), ("t02", 2, 0)]


def test_days_have_files_of_their_own(archive):
    spans = [span(n) for n in range(3)]
    bundle = write(archive, *spans, step=made.DAY // 4)
    assert [one.partition["day"] for one in bundle.files] == [f"2026-11-{d}" for d in (21, 22, 23)]
    archive.commit([bundle], made.NOON)
    assert places(archive) == expected(*spans)


def test_more_days_than_files_may_be_open(archive):
    spans = [span(n, 0, 20) for n in range(2)]
    archive.commit([write(archive, *spans, step=made.DAY)], made.NOON)
    assert places(archive) == expected(*spans)


def test_all_of_them_or_nothing(archive):
    def one_breaks(one):
        if one.topic_number == 2:
            raise OSError("broken")
        return made.in_batches(one.start, one.stop)

    with pytest.raises(OSError, match="broken"):
        write_ranges(archive.table.folder, [span(n) for n in range(4)], one_breaks)
    assert files_there(archive) == set()


def test_committed_twice_it_is_there_once(archive):
    spans = [span(n) for n in range(3)]
    put(archive, *spans)
    again = write(archive, *spans)
    done = archive.commit([again], made.NOON)
    assert (done.added, done.skipped) == (0, 3)
    assert places(archive) == expected(*spans)
    assert files_there(archive) == files_known(archive)


def test_of_ranges_that_are_known_in_part_the_rest_is_added(archive):
    put(archive, span(1, 0, 4))
    fill(archive, 0, 10, 0, topic(2), 2)
    done = put(archive, span(0), span(1), span(2), span(3))
    assert (done.trimmed, done.skipped, done.added) == (1, 1, 26)
    assert places(archive) == expected(span(0), span(1), span(2), span(3))
    assert files_there(archive) == files_known(archive)
    assert {archive.stands(ArchivedQueue(topic(n), n, 0)) for n in range(4)} == {10}


def test_what_is_missing_is_recorded_of_its_queue(archive):
    put(archive, span(1, 0, 5))
    with pytest.raises(DataLoss):
        put(archive, span(0), span(1, 7, 10))
    assert places(archive) == expected(span(1, 0, 5))
    done = archive.commit([write(archive, span(0), span(1, 7, 10))], made.NOON, lenient=True)
    assert done.lost == 2
    archive.gaps.refresh()
    (gap,) = archive.gaps.read().to_pylist()
    assert (gap["topic"], gap["start"], gap["stop"]) == ("t01", 5, 7)
    bundle = write_ranges(archive.table.folder, [span(4), span(5)], lambda _one: [], lenient=True)
    assert [one.missing for one in bundle.written] == [(Missing(0, 10),)] * 2


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**9))
def test_runners_that_overlap_store_each_row_once(tmp_path_factory, seed):
    chance = random.Random(seed)
    archive = Archive(Folder(str(tmp_path_factory.mktemp("t"))))
    end, queues = 30, [ArchivedQueue(topic(n), n, 0) for n in range(4)]
    while any((archive.stands(one) or 0) < end for one in queues):
        spans = []
        for one in queues:
            at = chance.randint(0, archive.stands(one) or 0)
            stop = min(end, at + chance.randint(1, 15))
            if at < stop and chance.random() < 0.8:
                spans.append(span(one.topic_number, at, stop))
        if not spans:
            continue
        bundle = write(archive, *spans)
        if chance.random() < 0.2:
            continue  # killed before the commit
        archive.commit([bundle], made.NOON)
        if chance.random() < 0.3:
            compact(archive.table, NOW)
    assert places(archive) == expected(*[span(n, 0, end) for n in range(4)])


# -- read, compacted, erased, expired, replayed


def test_lookups(archive, tables):
    put(archive, *[span(n) for n in range(5)])
    lookup = Lookup(tables)
    one = lookup.at("t03", 0, 7)
    assert one is not None
    assert (one.topic, one.topic_number, one.offset) == ("t03", 3, 7)
    assert lookup.at("t03", 0, 10) is None
    assert lookup.at("t03", 1, 7) is None
    found = lookup.by_key("key-3", topic="t02")
    assert [(one.topic, one.offset) for one in found] == [("t02", 3)]
    assert len(lookup.by_key("key-3")) == 5
    lookup.close()


def test_shared_files_are_joined_in_the_order_of_queues(archive):
    for at in range(0, 40, 10):
        put(archive, *[span(n, at, at + 10) for n in range(5)])
    before = rows(archive)
    done = compact(archive.table, NOW)
    assert (done.before, done.after, done.rows) == (4, 1, 200)
    assert rows(archive) == before
    stored = archive.table.read(["topic_number", "queue", "offset"]).to_pylist()
    assert stored == sorted(stored, key=lambda row: tuple(row.values()))
    assert compact(archive.table, NOW) == Compacted()


def test_lone_files_of_a_past_day_are_joined_if_there_are_many(archive):
    for n in range(9):
        fill(archive, 0, 10, 0, topic(n), n)
    put(archive, span(10), span(11))
    assert compact(archive.table, NOW, when=When(files=10)) == Compacted()
    done = compact(archive.table, NOW, when=When(files=9))
    assert (done.before, done.after) == (10, 1)
    assert places(archive) == expected(*[span(n) for n in (*range(9), 10, 11)])
    assert compact(archive.table, NOW, when=When(files=9)) == Compacted()


def test_while_a_day_grows_files_of_similar_size_are_joined(archive):
    put(archive, *[span(n, 0, 20_000) for n in range(5)])
    for at in range(20_000, 20_030, 10):
        put(archive, *[span(n, at, at + 10) for n in range(5)])
    assert compact(archive.table, made.NOON + 5, when=When(files=4)) == Compacted()
    assert compact(archive.table, made.NOON + 5, when=When(files=3)).before == 3


def test_joined_files_stay_small_enough_to_be_sorted_in_memory(archive):
    for at in range(0, 40, 10):
        put(archive, *[span(n, at, at + 10) for n in range(5)])
    size = max(one.size for one in archive.table.files())
    done = compact(archive.table, NOW, when=When(small_bytes=2 * size + 1))
    assert (done.before, done.after) == (4, 2)


def test_an_erasure_rewrites_only_what_it_must(archive, tables):
    put(archive, *[span(n) for n in range(3)])
    put(archive, span(7, 0, 3), span(8, 0, 3))
    erased = Table.open(tables, ERASED)
    untouched = {one.path for one in archive.table.files() if one.low["topic"] == "t07"}
    request = Request("r-1", keys=("key-3",), topic="t01")
    assert [(r["topic"], r["offset"]) for r in find(archive, request).to_pylist()] == [("t01", 3)]
    done = erase(archive, erased, request, NOW)
    assert (done.messages, done.files, done.stands) == (1, 1, {ArchivedQueue("t01", 1, 0): 10})
    gone = ("t01", 0, 3)
    spans = [*(span(n) for n in range(3)), span(7, 0, 3), span(8, 0, 3)]
    assert places(archive) == [one for one in expected(*spans) if one != gone]
    assert untouched <= files_known(archive)
    assert files_there(archive) == files_known(archive)
    done = erase(archive, erased, KEY, NOW)
    assert done.messages == 2
    assert files_there(archive) == files_known(archive)


def test_an_erasure_searches_shared_files_that_belong_to_no_table(archive, tables):
    erased = Table.open(tables, ERASED)
    put(archive, *[span(n) for n in range(2)])
    write(archive, *[span(n) for n in range(2)])  # a second attempt, never committed
    ahead = write(archive, span(3), span(4, 0, 2))
    known = files_known(archive)
    killed = OpenFiles(archive.table.folder, None, Sizes(), durable=False)
    RangeWriter(killed, span(0)).write(made.rows(0, 10))
    erase(archive, erased, Request("r-1", keys=("key-3",), topic="t00"), NOW)
    (kept,) = ahead.files
    assert files_there(archive) == {*files_known(archive), kept.path}
    assert not known & files_known(archive)
    killed.abandon()
    archive.commit([ahead], made.NOON)
    assert ("t03", 0, 3) in places(archive)


def test_old_messages_of_a_topic_leave_the_files_that_it_shares(archive):
    put(archive, *[span(n) for n in range(3)])
    put(archive, span(1, 10, 20), span(2, 10, 20), stored=made.NOON + made.DAY)
    gone = expire_topic(archive.table, made.NOON + made.DAY, 0, "t01")
    assert len(gone) == 1
    assert places(archive) == expected(span(0), span(1, 10, 20), span(2, 0, 20))
    assert expire_topic(archive.table, made.NOON + made.DAY, 0, "t01") == []
    assert expire_topic(archive.table, made.NOON + made.DAY, 0, "t0") == []


def test_a_replay_reads_the_rows_of_a_queue(archive, tables):
    put(archive, *[span(n) for n in range(3)], span(1, 0, 5, queue=1))
    put(archive, span(0, 10, 20), span(1, 10, 20))
    sources = plan(tables, Selection("t01"))
    assert [(one.queue, one.rows, one.stop, one.queues) for one in sources] == [
        (0, 20, 20, 2),
        (1, 5, 5, 2),
    ]
    reading = Reading(archive.table.folder, Selection("t01"))
    read = [row for batch in rows_of(reading, sources[0], 3) for row in batch.to_pylist()]
    assert [row["offset"] for row in read] == list(range(3, 20))
    assert {row["queue"] for row in read} == {0}
    assert read[0]["value"] == made.body(3)
    reading.close()


def test_files_that_would_enclose_rows_of_another_file_are_not_joined(archive, tables):
    put(archive, span(1, 0, 10), span(2, 0, 10))
    fill(archive, 10, 9000, 0, topic(1), 1, sizes=Sizes())
    fill(archive, 10, 9000, 0, topic(2), 2, sizes=Sizes())
    put(archive, span(1, 9000, 9010), span(2, 9000, 9010))
    put(archive, span(1, 9010, 9020), span(2, 9010, 9020))
    big = min(one.size for one in archive.table.files() if one.rows > 100)
    done = compact(archive.table, NOW, when=When(small_bytes=big))
    assert (done.before, done.after) == (2, 1)
    assert replayed(archive, tables, "t01") == list(range(9020))
    assert compact(archive.table, NOW).before == 4  # now the large ones are small enough, too
    assert len(archive.table.files()) == 1
    assert replayed(archive, tables, "t01") == list(range(9020))
    assert replayed(archive, tables, "t02") == list(range(9020))


def replayed(archive, tables, name):
    """Return the offsets of the queue 0 of a topic in the order in which a replay reads them."""
    (source,) = plan(tables, Selection(name))
    reading = Reading(archive.table.folder, Selection(name))
    try:
        found = [row["offset"] for one in rows_of(reading, source, 0) for row in one.to_pylist()]
    finally:
        reading.close()
    assert source.stop == found[-1] + 1
    return found


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**9))
def test_however_files_are_joined_a_queue_is_read_in_order(tmp_path_factory, seed):
    chance = random.Random(seed)
    tables = Folder(str(tmp_path_factory.mktemp("t")))
    archive = Archive(tables)
    ends = [0, 0, 0]
    for _ in range(12):
        shared = []
        for number in range(3):
            first, ends[number] = ends[number], ends[number] + chance.choice([0, 3, 10, 60])
            if ends[number] - first == 60:
                fill(archive, first, ends[number], 0, topic(number), number)
            elif ends[number] > first:
                shared.append(span(number, first, ends[number]))
        if shared:
            put(archive, *shared)
        if chance.random() < 0.4:
            size = chance.choice([1 << 12, 1 << 14, 1 << 26])
            compact(archive.table, NOW, when=When(small_bytes=size, files=chance.choice([2, 16])))
        if chance.random() < 0.1:
            expire_topic(archive.table, NOW + made.DAY, 0, topic(2))
    for number in range(2):
        if ends[number]:
            assert replayed(archive, tables, topic(number)) == list(range(ends[number]))
            lookup = Lookup(tables)
            at = chance.randrange(ends[number])
            assert lookup.at(topic(number), 0, at) is not None
            lookup.close()


def test_files_that_are_too_much_to_sort_in_memory_are_not_joined(archive, monkeypatch):
    for at in range(0, 40, 10):
        put(archive, *[span(n, at, at + 10) for n in range(5)])
    raw = inside(archive.table.folder, archive.table.files()[0]).raw
    monkeypatch.setattr(compaction, "_SORTED_BYTES", 5 * raw // 2)
    done = compact(archive.table, NOW)
    assert (done.before, done.after) == (4, 2)
    assert compact(archive.table, NOW) == Compacted()


def test_a_replay_to_a_group_leaves_out_a_deleted_topic_of_the_same_name(archive, tables):
    old, new = made.span(0, 10, 0, "orders", 3), made.span(0, 4, 0, "orders", 7)
    put(archive, old, new)
    sources = [one for one in plan(tables, Selection("orders")) if one.topic_number == 7]
    assert places_of(tables, Selection("orders"), sources) == {0: [0, 1, 2, 3]}
