from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from datetime import UTC, date, datetime

from ternmq.model.errors import InvalidRequest, TableError
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.lookup import Lookup
from ternmq.pipeline.archive.ranges import write_range
from tests.unit.pipeline import made
from tests.unit.pipeline.made import NOON, span

SMALL = Sizes(group_rows=50, file_rows=120)


def fill(archive, start, stop, queue=0, topic="orders", number=7, **given):
    batches = made.in_batches(start, stop, queue, **given)
    one = span(start, stop, queue, topic, number)
    archive.commit([write_range(archive.table.folder, one, batches, SMALL, durable=False)], NOON)


@pytest.fixture
def archive(tables):
    one = Archive(tables)
    fill(one, 0, 500, producer=0x1111)
    fill(one, 0, 300, 1, producer=-2)
    fill(one, 0, 200, 0, "bills", 8, producer=0x3333, stored=NOON + made.DAY)
    return one


@pytest.fixture
def lookup(archive, tables):
    one = Lookup(tables)
    yield one
    one.close()


def place(one):
    return None if one is None else (one.topic, one.queue, one.offset)


def places(found):
    return [place(one) for one in found]


@pytest.mark.row("R12")
def test_a_message_by_its_place_whole(lookup):
    one = lookup.at("orders", 1, 41)
    assert place(one) == ("orders", 1, 41)
    assert (one.message_id, one.producer_id, one.sequence) == ("fffffffffffffffe:2a", -2, 42)
    assert (one.key, one.tag, one.ordering_key) == ("key-1", None, None)
    assert one.application_id == "app-1-41"
    assert one.headers == {"n": "41"}
    assert one.body == made.body(41, 1)
    assert one.stored_time == datetime(2026, 11, 21, 12, 0, 0, 41_000, UTC)
    assert one.born_time == datetime(2026, 11, 21, 12, 0, 0, 36_000, UTC)
    assert (one.day, one.topic_number, one.schema_version) == (date(2026, 11, 21), 7, 2)


def test_every_message_by_its_id(lookup):
    for producer, queue, topic, count in [
        (0x1111, 0, "orders", 500), (2**64 - 2, 1, "orders", 300), (0x3333, 0, "bills", 200),
    ]:  # fmt: skip
        for offset in {*range(0, count, 37), 49, 50, 119, 120, count - 1}:
            found = lookup.by_id(f"{producer:016x}:{offset + 1:x}")
            assert place(found) == (topic, queue, offset)


def test_what_is_not_there(lookup):
    assert lookup.by_id("0000000000001111:1f5") is None
    assert lookup.by_id("0000000000009999:1") is None
    assert lookup.at("orders", 0, 500) is None
    assert lookup.at("orders", 2, 0) is None
    assert lookup.at("nothing", 0, 0) is None
    assert lookup.by_key("nothing") == []
    assert lookup.by_application_id("nothing") == []


@pytest.mark.parametrize(
    "text", ["", "12", "1:2", "0000000000001111:", "000000000000111g:1", "' or 1"]
)
def test_what_is_no_id(lookup, text):
    with pytest.raises(InvalidRequest, match="no message id"):
        lookup.by_id(text)


@pytest.mark.row("R12")
def test_by_key_newest_first(lookup):
    found = lookup.by_key("key-3")
    assert len(found) == 32
    times = [one.stored_time for one in found]
    assert times == sorted(times, reverse=True)
    assert place(found[0]) == ("bills", 0, 193)
    assert all(one.key == "key-3" for one in found)
    assert len(lookup.by_key("key-3", limit=1000)) == 100


def test_by_key_of_a_topic_and_between_times(lookup):
    found = lookup.by_key(
        "key-3", topic="orders", since_us=NOON + 100_000, until_us=NOON + 123_000, limit=100
    )
    wanted = [("orders", q, n) for n in (113, 103) for q in (0, 1)]
    assert sorted(places(found)) == sorted(wanted)
    later = lookup.by_key("key-3", since_us=NOON + made.DAY // 2, limit=1000)
    assert {one.topic for one in later} == {"bills"}
    assert lookup.by_key("key-3", until_us=NOON) == []


def test_by_an_id_of_the_applications_own(lookup):
    assert places(lookup.by_application_id("app-1-77")) == [("orders", 1, 77)]
    both = [("bills", 0, 77), ("orders", 0, 77)]
    assert places(lookup.by_application_id("app-0-77")) == both
    assert places(lookup.by_application_id("app-0-77", topic="orders")) == both[1:]


@pytest.mark.parametrize("limit", [0, 1001])
def test_a_limit_that_cannot_be(lookup, limit):
    with pytest.raises(InvalidRequest, match="limit"):
        lookup.by_key("a", limit=limit)


def test_texts_are_texts(lookup):
    assert lookup.by_key("key-3' or '1'='1") == []


def test_what_came_since_is_seen_after_a_refresh(lookup, archive):
    fill(archive, 500, 510)
    assert lookup.at("orders", 0, 505) is None
    lookup.refresh()
    assert place(lookup.at("orders", 0, 505)) == ("orders", 0, 505)


def test_of_two_topics_of_one_name_the_newer(lookup, archive):
    fill(archive, 0, 10, number=9, stored=NOON + 2 * made.DAY)
    lookup.refresh()
    assert lookup.at("orders", 0, 5).topic_number == 9
    assert lookup.at("orders", 0, 15).topic_number == 7


def test_no_archive(tables):
    with pytest.raises(TableError, match="no table archive"):
        Lookup(tables.inside("elsewhere"))


def test_an_empty_archive(tables):
    Archive(tables)
    assert Lookup(tables).by_key("a") == []
