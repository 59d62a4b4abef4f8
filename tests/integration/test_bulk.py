"""The blocking client for bulk work, against a real broker: ranges, rows, the journal, holds."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import ternmq.sync
from ternmq.client.bulk import Bulk, BulkOptions, RangesAsk, RangeStart, Records
from ternmq.journal.log.scan import parse
from ternmq.journal.state.sets import StateWriter
from ternmq.model.errors import (
    CannotConnect,
    DiskFull,
    Forbidden,
    InvalidRequest,
    JournalExpired,
    OffsetExpired,
    SendTimeout,
    UnknownQueue,
    UnknownTopic,
    Unreadable,
)
from ternmq.record.fact import control, messages
from ternmq.record.fact.header import FLAG_MADE, HEADER, HEADER_BYTES, Kind
from ternmq.server.commands import range_reads
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import control as wire
from ternmq.wire.control import GrantInfo
from tests.integration.cutting import CuttingProxy
from tests.references import blocking_keeps_nothing, no_collection
from tests.unit.journal.index_kit import SlowDisk

QUICK = {"first_backoff": 0.01, "longest_backoff": 0.05}


def options(real: InProcessBroker, **more: object) -> BulkOptions:
    return BulkOptions(url=real.url, **{**QUICK, **more})  # type: ignore[arg-type]


@pytest.fixture
def bulk(real: InProcessBroker) -> Iterator[Bulk]:
    with Bulk(options(real)) as one:
        yield one


@pytest.fixture
def client(real: InProcessBroker) -> Iterator[ternmq.sync.Client]:
    with ternmq.sync.connect(real.url) as one:
        yield one


def test_the_largest_body_is_known(bulk: Bulk) -> None:
    assert bulk.body_bytes == 1 << 20


def fill(client: ternmq.sync.Client, topic: str = "orders", rows: int = 300) -> None:
    """Send singles and batches."""
    for at in range(20):
        client.send(topic, f"single {at}".encode())
    client.send_many(topic, [ternmq.Message(f"row {at}".encode()) for at in range(rows - 20)])


def stored(records: bytes) -> list[messages.Messages]:
    """Return the records of a page."""
    found = []
    at = 0
    while at < len(records):
        length = HEADER.unpack_from(records, at)[2]
        found.append(messages.of_record(records[at : at + length]))
        at += length
    assert at == len(records)
    return found


def offsets(pages: Iterator[object], records: str = "records") -> list[int]:
    found: list[int] = []
    for page in pages:
        low, high = page.start, page.stop  # type: ignore[attr-defined]
        for one in stored(getattr(page, records)):
            inside = range(one.first_offset, one.first_offset + one.count)
            found += [offset for offset in inside if low <= offset < high]
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def kinds(page: Records) -> list[tuple[Kind, bool]]:
    """Return (kind, made for this answer) of a page's records."""
    found, at = [], 0
    while at < len(page.records):
        head = HEADER.unpack_from(page.records, at)
        found.append((Kind(head[4]), bool(head[5] & FLAG_MADE)))
        at += head[2]
    return found


# -- ranges ----------------------------------------------------------------------------------------


def test_ranges_of_many_topics_in_one_request(bulk, client):
    client.admin.create_topic("many", queues=3)
    fill(client)
    many, missing, orders = bulk.ranges(
        [
            RangesAsk(topic="many"),
            RangesAsk(topic="nothing"),
            RangesAsk(
                topic="orders", time_us=0, starts=[RangeStart(queue=0, offset=0, max_bytes=1)]
            ),
        ]
    )
    assert [(one.first, one.next) for one in many.queues] == [(0, 0)] * 3
    assert (missing.topic, missing.number, missing.queues) == ("nothing", 0, [])
    (queue,) = orders.queues
    assert (queue.first, queue.next, queue.at, queue.start) == (0, 300, 0, 0)
    assert queue.stop == 1  # one record at least
    assert 0 < queue.stop_bytes < queue.bytes


def test_how_far_one_may_read_is_exact_to_a_batch(bulk, client):
    fill(client)
    (page,) = bulk.fetch("orders", 0, 0, 20)
    sizes = [len(messages.pack(1, 0, 0, 1, one.batch, ())) for one in stored(page.records)[:20]]
    lengths = [(HEADER_BYTES + size + 7) & -8 for size in sizes]

    def ask(offset: int, most: int) -> tuple[int | None, int, int]:
        start = RangeStart(queue=0, offset=offset, max_bytes=most)
        (topic,) = bulk.ranges([RangesAsk(topic="orders", starts=[start])])
        found = topic.queues[0]
        return found.stop, found.stop_bytes, found.bytes

    everything = ask(0, 0)
    assert everything == (300, everything[2], everything[2])
    for rows in (1, 2, 7, 19):
        exact = sum(lengths[3 : 3 + rows])
        if 3 + rows <= 20:
            assert ask(3, exact) == (3 + rows, exact, everything[2] - sum(lengths[:3]))
            assert ask(3, exact + 1)[:2] == (3 + rows, exact)
    assert ask(300, 10) == (300, 0, 0)
    assert ask(400, 10) == (300, 0, 0)
    # from the middle of a batch: the whole of it counts
    assert ask(25, 0)[2] == ask(20, 0)[2]


def test_ranges_name_queues_that_are_there(bulk, client):
    fill(client)
    with pytest.raises(UnknownQueue, match="queue 7"):
        bulk.ranges([RangesAsk(topic="orders", starts=[RangeStart(queue=7, offset=0)])])
    twice = [RangeStart(queue=0, offset=0), RangeStart(queue=0, offset=1)]
    with pytest.raises(InvalidRequest, match="twice"):
        bulk.ranges([RangesAsk(topic="orders", starts=twice)])


def test_ranges_come_in_pieces_when_they_are_many_or_the_disk_is_slow(monkeypatch):
    """Every read of the disk waits for a thread, and no turn answers more than one queue."""
    monkeypatch.setattr(range_reads, "TURN_S", 0.0)
    with broker(manual=False, disk=SlowDisk()) as real:
        with ternmq.sync.connect(real.url) as client:
            client.admin.create_topic("many", queues=20)
            for at in range(60):
                client.send("many", b"x" * at, queue=at % 20)
        real.restart()
        starts = [RangeStart(queue=at, offset=1, max_bytes=1) for at in range(20)]
        with Bulk(options(real)) as bulk:
            (found,) = bulk.ranges([RangesAsk(topic="many", time_us=1, starts=starts)])
            assert [(one.first, one.next, one.at, one.start, one.stop) for one in found.queues] == [
                (0, 3, 0, 1, 2)
            ] * 20
            assert all(one.bytes > one.stop_bytes > 0 for one in found.queues)
            assert found == bulk.ranges([RangesAsk(topic="many", time_us=1, starts=starts)])[0]
            for queue in range(20):
                assert offsets(bulk.fetch("many", queue, 0, 3)) == [0, 1, 2]


# -- rows ------------------------------------------------------------------------------------------


def test_every_row_of_a_range_comes_once(real, client):
    fill(client, rows=3000)
    with Bulk(options(real, read_bytes=4096)) as bulk:
        assert offsets(bulk.fetch("orders", 0, 0, 3000)) == list(range(3000))
        assert offsets(bulk.fetch("orders", 0, 7, 1234)) == list(range(7, 1234))
        assert offsets(bulk.fetch("orders", 0, 5, 5)) == []
        (info,) = bulk.topics(["orders"])
        assert info.queues[0].next == 3000


def test_a_range_that_is_not_there_yet_is_refused_after_a_while(real, client):
    fill(client, rows=30)
    with Bulk(options(real, timeout=1.0)) as bulk:
        with pytest.raises(InvalidRequest, match="ends at 30"):
            list(bulk.fetch("orders", 0, 0, 31))
        # and the connection is good for more
        assert offsets(bulk.fetch("orders", 0, 0, 30)) == list(range(30))


@pytest.mark.parametrize("told", [False, True])
def test_rows_of_one_topic_only(real, client, told):
    for _ in range(20):
        fill(client)
    number = client.admin.topic("orders").number
    with Bulk(options(real, read_bytes=4096)) as bulk:
        pages = bulk.fetch("orders", 0, 0, 6000, topic_number=number if told else 0)
        assert next(pages).topic == number
        time.sleep(0.2)  # the next page is under way
        client.admin.delete_topic("orders")
        client.admin.create_topic("orders")
        for _ in range(20):
            fill(client)
        now = client.admin.topic("orders").number
        seen: list[int] = []
        # The request under way at the deletion may have found no topic at all.
        said = rf"of number {number} was deleted; .* has number {now}|no topic 'orders'"
        with pytest.raises(UnknownTopic, match=said):
            seen.extend(page.topic for page in pages)
        assert set(seen) <= {number}
        with pytest.raises(UnknownTopic, match="was deleted"):
            next(bulk.fetch("orders", 0, 0, 6000, topic_number=number))
        assert sum(page.stop - page.start for page in bulk.fetch("orders", 0, 0, 6000)) == 6000


def test_what_is_not_there_is_an_error_at_once(bulk):
    with pytest.raises(UnknownTopic):
        list(bulk.fetch("nothing", 0, 0, 5))


def test_an_iteration_that_is_left_leaves_nothing_behind(real, client):
    fill(client, rows=3000)
    with Bulk(options(real, read_bytes=4096)) as bulk:
        for _ in range(3):
            pages = bulk.fetch("orders", 0, 0, 3000)
            next(pages)
            pages.close()  # type: ignore[attr-defined]
        assert offsets(bulk.fetch("orders", 0, 0, 3000)) == list(range(3000))


# -- progress --------------------------------------------------------------------------------------


def test_a_commit_only_grows_and_makes_the_group(bulk, client):
    fill(client)
    assert bulk.commit("orders", "spark.archive", {0: 100}) == {0: 100}
    assert bulk.commit("orders", "spark.archive", {0: 40}) == {0: 100}
    assert bulk.commit("orders", "spark.archive", {}) == {}
    with pytest.raises(InvalidRequest, match="above its end"):
        bulk.commit("orders", "spark.archive", {0: 301})
    with pytest.raises(UnknownQueue):
        bulk.commit("orders", "spark.archive", {1: 0})
    with pytest.raises(UnknownTopic):
        bulk.commit("nothing", "spark.archive", {0: 0})
    (group,) = client.admin.groups("orders", "spark.archive")
    assert (group.queues[0].cursor, group.queues[0].lag) == (100, 200)


def test_a_commit_outlives_a_crash(real, bulk, client):
    fill(client)
    bulk.commit("orders", "spark.archive", {0: 100})
    real.restart(clean=False)
    assert bulk.commit("orders", "spark.archive", {0: 0}) == {0: 100}


# -- holds -----------------------------------------------------------------------------------------


def test_a_hold_moves_forward_and_back_only_when_told(real, bulk, client):
    fill(client)
    end = bulk.holds().durable
    assert bulk.hold("spark.archive", 96, "archive").position == 96
    assert bulk.hold("spark.archive", 8).position == 96
    assert bulk.hold("spark.archive", 8, back=True).position == 8
    assert bulk.hold("spark.archive", end).position == end
    with pytest.raises(InvalidRequest, match="where the journal ends"):
        bulk.hold("spark.archive", end + 10_000_000)
    real.restart(clean=False)
    found = bulk.holds()
    (hold,) = found.holds
    assert (hold.name, hold.position, hold.note) == ("spark.archive", end, "archive")
    assert hold.created_us <= hold.moved_us <= found.now_us
    assert hold.lag_bytes == found.durable - end
    bulk.drop_hold("spark.archive")
    bulk.drop_hold("spark.archive")
    assert bulk.holds().holds == []


# -- the journal -----------------------------------------------------------------------------------


def test_the_journal_is_read_whole_and_in_order(real, client):
    fill(client, rows=500)
    with Bulk(options(real, read_bytes=4096)) as bulk:
        pages = list(bulk.journal_pages(0))
        assert pages[0].position == 0
        for one, behind in itertools.pairwise(pages):
            assert behind.position == one.next
        assert pages[-1].next >= pages[0].durable
        position = 0
        rows = 0
        for page in pages:
            at = 0
            while at < len(page.records):
                own = HEADER.unpack_from(page.records, at)[6]
                record = parse(page.records, at, own)
                assert record is not None  # its CRC holds, made or not
                assert record.position >= position
                position = record.position
                if record.kind == Kind.MESSAGES:
                    rows += messages.unpack(record.body).count
                at += record.length
        assert rows == 500


def test_no_more_of_the_journal_is_sent_than_wanted(real, client):
    for _ in range(60):
        client.send("orders", b"x" * 1000)
    with Bulk(options(real)) as bulk:
        end = bulk.journal(0).durable
        for start, stop in itertools.pairwise(range(1, end, end // 7)):
            pages = list(bulk.journal_pages(start, stop, anywhere=True))
            assert stop <= pages[-1].next < stop + 4096


def test_secrets_are_blanked(real, bulk, client):
    client.admin.put_app("shop", [GrantInfo(right="produce")], new_token=True)
    fill(client, rows=30)
    real.restart()  # writes STATE, which holds them as well
    token = joined = state = 0
    for page in bulk.journal_pages(0):
        at = 0
        while at < len(page.records):
            own = HEADER.unpack_from(page.records, at)[6]
            record = parse(page.records, at, own)
            assert record is not None
            made = bool(record.flags & FLAG_MADE)
            if record.kind == Kind.CONFIG:
                change = control.unpack_config(record.body)
                if isinstance(change, control.App):
                    assert (made, change.salt, change.hash) == (True, b"", b"")
                    assert (change.name, change.grants) == ("shop", (control.Grant("produce"),))
                    token += 1
                else:
                    assert not made
            elif record.kind == Kind.JOINED:
                assert made
                assert len(control.unpack_joined(record.body).client) == 8
                joined += 1
            elif record.kind in (Kind.STATE, Kind.PAD):
                assert (made, record.length) == (True, HEADER_BYTES)
                state += 1
            else:
                assert not made
            at += record.length
    assert token == 1
    assert joined >= 2
    assert state


def test_large_batches_without_bodies(bulk, client):
    client.send_many("orders", [ternmq.Message(b"x" * 100) for _ in range(200)])
    whole = b"".join(page.records for page in bulk.journal_pages(0))
    light = b"".join(page.records for page in bulk.journal_pages(0, with_bodies=False))
    assert b"x" * 100 in whole
    assert b"x" * 100 not in light
    assert len(whole) - len(light) > 15_000


def test_a_read_waits_for_records(real, bulk, client):
    fill(client, rows=30)
    page = bulk.journal(0)
    while page.next > page.position:
        page = bulk.journal(page.next)
    durable = page.durable
    assert page.position == page.next == durable
    client.send("orders", b"one more")
    found = bulk.journal(durable, wait=timedelta(seconds=20))
    assert found.next > durable
    assert (Kind.MESSAGES, False) in kinds(found)


def test_positions_that_are_none(bulk, client):
    fill(client, rows=30)
    with pytest.raises(InvalidRequest, match="no record begins"):
        bulk.journal(56)
    with pytest.raises(InvalidRequest, match="where the journal ends"):
        bulk.journal(1 << 40)
    with pytest.raises(InvalidRequest, match="wait is a number of seconds"):
        bulk.journal(0, wait="5")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessBroker]:
    """A broker whose journal is kept at 6 MiB, in segments of 4, with STATE every megabyte."""

    def due(writer: StateWriter) -> bool:
        return not writer.active and writer._journal.end - writer._last_begin >= 1 << 20

    monkeypatch.setattr(StateWriter, "due", due)
    with broker(settings={"retention_max": "6MiB"}) as real:
        yield real


def pass_by(real: InProcessBroker) -> None:
    """Let a time pass after which deduplication needs nothing of what is there."""
    real.clock.advance(minutes=11)


def test_what_is_gone_is_said_with_where_to_go_on(small):
    with ternmq.sync.connect(small.url) as client, Bulk(options(small)) as bulk:
        client.admin.create_topic("t", keep_until_consumed=False)

        def gone() -> bool:
            client.send_many("t", [ternmq.Message(b"x" * 1000) for _ in range(500)])
            pass_by(small)
            return bulk.holds().oldest > 0

        wait_for(gone)
        with pytest.raises(JournalExpired) as caught:
            bulk.journal(0)
        oldest = caught.value.oldest
        assert oldest
        with no_collection():
            blocking_keeps_nothing(lambda: bulk.journal(0), JournalExpired)
        bulk.hold("reader", oldest)
        assert bulk.journal(bulk.holds().oldest).next > oldest
        with pytest.raises(OffsetExpired):
            list(bulk.fetch("t", 0, 0, 10))


def test_what_is_held_stays_and_sends_are_refused(small):
    with ternmq.sync.connect(small.url, timeout=1.0) as client, Bulk(options(small)) as bulk:
        client.admin.create_topic("t", keep_until_consumed=False)
        bulk.hold("archive", 0)

        def full() -> bool:
            many = [ternmq.Message(b"x" * 1000) for _ in range(200)]
            client.send_many("t", many, return_errors=True)
            small.clock.advance(seconds=2)
            return bulk.holds().holds[0].blocking

        wait_for(full)
        with pytest.raises((DiskFull, SendTimeout)):
            client.send("t", b"refused")
        found = bulk.holds()
        assert found.oldest == 0
        assert bulk.journal(0).position == 0
        status = client.admin.status()
        file = status.oldest_file
        assert (file.kept_by, file.name, file.sends_refused) == ("hold", "archive", True)
        metrics = status.metrics
        assert metrics['ternmq_oldest_file_kept{by="hold"}'] == 1
        assert metrics['ternmq_oldest_file_kept{by="group"}'] == 0
        assert metrics["ternmq_holds"] == 1
        assert metrics["ternmq_holds_blocking"] == 1
        assert metrics["ternmq_hold_lag_bytes"] > 4_000_000
        bulk.hold("archive", found.durable)

        def freed() -> bool:
            pass_by(small)
            return not bulk.holds().holds[0].blocking

        wait_for(freed)

        def gone() -> bool:
            client.send_many("t", [ternmq.Message(b"x" * 1000) for _ in range(500)])
            pass_by(small)
            bulk.hold("archive", bulk.holds().durable)
            return bulk.holds().oldest > 0

        wait_for(gone)


def test_bytes_that_are_damaged_are_said_and_the_rest_goes_on(real, bulk, client):
    fill(client, rows=30)
    page = bulk.journal(0)
    second = HEADER.unpack_from(page.records, 0)[2]
    real.disk.open("journal/00000000000000000000.seg").pwrite(b"?", second + 50)
    assert bulk.journal(0).next == second
    with pytest.raises(Unreadable, match="position"):
        bulk.journal(second)
    with pytest.raises(Unreadable, match="position"):
        list(bulk.journal_pages(0))
    third = second + HEADER.unpack_from(page.records, second)[2]
    assert bulk.journal(third).position == third
    assert offsets(bulk.fetch("orders", 0, 0, 30)) == list(range(30))


# -- names -----------------------------------------------------------------------------------------


def test_names_of_what_is_gone_stay(real, bulk, client):
    fill(client)
    client.admin.create_group("orders", "billing")
    client.admin.create_group("orders", "kept")
    client.admin.create_topic("other")
    client.admin.delete_group("orders", "billing")
    client.admin.delete_topic("orders")
    topics: dict[str, wire.TopicName] = {}
    for clean in (True, False):
        real.restart(clean=clean)
        names = bulk.catalog()
        topics = {one.name: one for one in names.topics.values()}
        assert topics["orders"].gone
        assert not topics["other"].gone
        groups = {one.name: one for one in names.groups.values()}
        assert 0 < groups["billing"].gone < groups["kept"].gone
        assert groups["kept"].topic == topics["orders"].number
        assert all(len(one.client) == 8 for one in names.sessions.values())
        assert names.sessions
    later = bulk.catalog(topics["orders"].gone + 1)
    assert "billing" not in {one.name for one in later.groups.values()}
    assert "orders" in {one.name for one in later.topics.values()}, "its last counts may follow"


def test_names_come_in_pages(real, bulk, client, monkeypatch):
    for at in range(5):
        client.admin.create_topic(f"t{at}")
        client.admin.put_app(f"app{at}", [])
    whole = bulk.catalog()
    asked = wire.JournalCatalog
    pages = []

    def small(**more: Any) -> object:
        pages.append(more)
        return asked(limit=2, **more)

    monkeypatch.setattr(wire, "JournalCatalog", small)
    assert bulk.catalog() == whole
    assert len(pages) > 5


# -- rights, connections ---------------------------------------------------------------------------


ADMIN = "root-token-of-the-test"


def test_the_right_to_audit():
    settings = {"auth": True, "admin_token": ADMIN}
    with (
        broker(manual=False, settings=settings) as real,
        ternmq.sync.connect(real.url, app="admin", token=ADMIN) as admin,
    ):
        admin.admin.create_topic("orders")
        admin.admin.create_topic("secret")
        with pytest.raises(InvalidRequest, match="audit"):
            admin.admin.put_app("half", [GrantInfo(right="audit", topic="orders")])
        reader = admin.admin.put_app("reader", [GrantInfo(right="consume", topic="orders")])
        auditor = admin.admin.put_app("auditor", [GrantInfo(right="audit")])
        with Bulk(options(real, app="reader", token=reader)) as bulk:
            assert bulk.ranges([RangesAsk(topic="orders")])[0].number
            assert bulk.commit("orders", "spark.x", {0: 0}) == {0: 0}
            refused: list[Callable[[], object]] = [
                lambda: bulk.ranges([RangesAsk(topic="orders"), RangesAsk(topic="secret")]),
                lambda: bulk.commit("secret", "spark.x", {0: 0}),
                lambda: bulk.journal(0),
                bulk.catalog,
                bulk.holds,
                lambda: bulk.hold("h", 0),
                lambda: bulk.drop_hold("h"),
            ]
            for call in refused:
                with pytest.raises(Forbidden):
                    call()
        with Bulk(options(real, app="auditor", token=auditor)) as bulk:
            assert bulk.journal(0).records
            assert {one.name for one in bulk.catalog().topics.values()} == {"orders", "secret"}
            bulk.hold("h", 0)
            assert bulk.holds().holds[0].app == "auditor"
            assert [one.name for one in admin.admin.standing().holds] == ["h"]
            with ternmq.sync.connect(real.url, app="reader", token=reader) as other:
                assert other.admin.standing().holds == []
            with pytest.raises(Forbidden):
                list(bulk.fetch("orders", 0, 0, 1))


def test_options_show_no_secret_and_travel():
    told = BulkOptions(url="ternmq://shop:s3cret@localhost:7117", app="shop", token="s3cret")
    assert "s3cret" not in repr(told)
    assert pickle.loads(pickle.dumps(told)) == told
    again = pickle.loads(pickle.dumps(Bulk(told)))
    assert again.options == told


def test_a_lost_connection_is_made_anew(real, bulk, client):
    fill(client)
    pages = bulk.fetch("orders", 0, 0, 300)
    real.restart(clean=False)
    assert offsets(pages) == list(range(300))
    real.restart()
    assert bulk.ranges([RangesAsk(topic="orders")])[0].queues[0].next == 300


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_cut_every_row_and_record_comes_once(real, client, seed):
    fill(client, rows=3000)
    with (
        CuttingProxy(real.port, seed=seed, least=200, most=40_000) as proxy,
        Bulk(BulkOptions(url=proxy.url, read_bytes=8192, tries=30, first_backoff=0.001)) as bulk,
        Bulk(options(real)) as straight,
    ):
        assert offsets(bulk.fetch("orders", 0, 0, 3000)) == list(range(3000))
        stop = straight.holds().durable
        straight.hold("here", stop)
        found = b"".join(page.records for page in bulk.journal_pages(0, stop))
        whole = b"".join(page.records for page in straight.journal_pages(0, stop))
        assert found[: len(whole)] == whole[: len(found)]
        assert len(found) >= stop // 2
        for offset in range(0, 3000, 250):
            assert bulk.commit("orders", "spark.cut", {0: offset}) == {0: offset}
        assert proxy.cuts > 3


def test_no_broker_no_answer():
    with broker(manual=False) as real:
        told = options(real, tries=2)
    bulk = Bulk(told)
    began = time.monotonic()
    for ask in (bulk.connect, lambda: bulk.ranges([RangesAsk(topic="t")])):
        with pytest.raises(CannotConnect, match="no broker at"):
            ask()
    assert time.monotonic() - began >= 2 * QUICK["first_backoff"], "it was tried twice"
    bulk.close()


def test_a_forked_child_connects_anew(real, bulk, client):
    fill(client)
    bulk.connect()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = bulk.ranges([RangesAsk(topic="orders")])[0].queues[0].next
            os.write(write, str(found).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"300"
    os.close(read)
    os.close(write)
    assert bulk.ranges([RangesAsk(topic="orders")])[0].queues[0].next == 300
