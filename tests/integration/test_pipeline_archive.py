"""The archive of a real broker, without Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from google_crc32c import value as crc32c

import ternmq.sync
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.model.errors import ConnectionLost, DataLoss, UnknownTopic
from ternmq.pipeline.archive.archive import ArchiveJob
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.tables.folder import Folder
from ternmq.testing import broker
from tests.integration.expiring import expiring

NOW = 1_795_262_400_000_000


@pytest.fixture
def tables(tmp_path):
    return Folder(str(tmp_path / "tables"))


@pytest.fixture
def client(real):
    with ternmq.sync.connect(real.url) as one:
        one.admin.create_topic("orders", queues=2)
        yield one


@pytest.fixture
def bulk(real):
    with Bulk(BulkOptions(url=real.url, first_backoff=0.01, longest_backoff=0.05)) as one:
        yield one


def send(client, count, topic="orders", **message):
    client.send_many(
        topic, [ternmq.sync.Message(b"%d" % n, key=f"k{n}", **message) for n in range(count)]
    )


def kept(tables, topic="orders"):
    """Return (queue, offset, checksum) of what the archive has."""
    rows = Archive(tables, create=False).table.read(["topic", "queue", "offset", "body_crc"])
    return sorted(
        (row["queue"], row["offset"], row["body_crc"])
        for row in rows.to_pylist()
        if row["topic"] == topic
    )


def sent(client, topic="orders"):
    return sorted((one.queue, one.offset, crc32c(one.body)) for one in client.read(topic))


@pytest.mark.row("R6")
def test_the_archive_has_each_message_once(client, bulk, tables):
    send(client, 1000, tag="t", headers={"a": "ä"})
    for n in range(30):
        client.send("orders", b"single %d" % n, key=f"s{n}")
    job = ArchiveJob(bulk, Archive(tables))
    done = job.once(NOW)
    assert (done.rows, done.lost) == (1030, 0)
    assert kept(tables) == sent(client)
    assert job.once(NOW).rows == 0
    send(client, 50)
    assert job.once(NOW).rows == 50
    assert kept(tables) == sent(client)


@pytest.mark.row("R6")
def test_every_column_is_what_a_reader_gets(client, bulk, tables):
    send(client, 40, tag="t", headers={"a": "ä"})
    client.send("orders", b"one", key="k", id="app-1")
    ArchiveJob(bulk, Archive(tables)).once(NOW)
    rows = Archive(tables).table.read().to_pylist()
    read = {(one.queue, one.offset): one for one in client.read("orders")}
    assert len(rows) == len(read) == 41
    for row in rows:
        one = read[row["queue"], row["offset"]]
        assert row["body"] == one.body
        assert row["message_id"] == one.id
        assert row["key"] == one.key
        assert row["application_id"] == ("app-1" if one.body == b"one" else None)
        assert row["tag"] == (one.tag or None)
        assert row["headers"] == (list(one.headers.items()) or None)
        assert row["stored_time"] == one.stored_at
        assert row["day"] == one.stored_at.date()
        assert (row["topic"], row["schema_version"]) == ("orders", 2)


def test_many_passes_and_files_are_the_same_rows(client, bulk, tables):
    for _ in range(5):
        send(client, 500, tag="x" * 100)
    job = ArchiveJob(
        bulk, Archive(tables), pass_bytes=1, sizes=Sizes(group_rows=100, file_rows=300)
    )
    assert job.once(NOW).rows == 2500
    assert kept(tables) == sent(client)


@pytest.mark.row("R6", "R15")
def test_progress_is_a_group_of_the_broker(client, bulk, tables):
    send(client, 100)
    ArchiveJob(bulk, Archive(tables)).once(NOW)
    (group,) = client.admin.groups("orders")
    assert group.group == "spark.archive"
    assert sum(one.cursor for one in group.queues) == 100


@pytest.mark.row("R6")
def test_two_runners_and_one_that_lost_its_memory(client, bulk, real, tables):
    send(client, 300)
    ArchiveJob(bulk, Archive(tables)).once(NOW)
    send(client, 300)
    with Bulk(BulkOptions(url=real.url)) as other:
        one = ArchiveJob(bulk, Archive(tables))
        two = ArchiveJob(other, Archive(tables))
        assert one.once(NOW).rows + two.once(NOW).rows == 300
    assert kept(tables) == sent(client)


def test_the_journal_is_kept_from_the_first_run_on_and_only_what_is_archived_goes(
    client, bulk, tables
):
    client.admin.create_topic("empty")
    ArchiveJob(bulk, Archive(tables)).once(NOW)
    (group,) = client.admin.groups("empty")
    assert group.group == "spark.archive"


def test_a_run_that_broke_off_before_the_broker_was_told(client, bulk, tables, monkeypatch):
    send(client, 100)

    def lost(*_args):
        raise ConnectionLost("gone")

    job = ArchiveJob(bulk, Archive(tables))
    job.once(NOW)
    send(client, 100)
    with monkeypatch.context() as patch:
        patch.setattr(bulk, "commit", lost)
        with pytest.raises(ConnectionLost):
            job.once(NOW)
    assert ArchiveJob(bulk, Archive(tables)).once(NOW).rows == 0
    assert kept(tables) == sent(client)
    (group,) = client.admin.groups("orders")
    assert sum(one.cursor for one in group.queues) == 200


def test_chosen_topics_only(client, bulk, tables):
    client.admin.create_topic("other")
    send(client, 10)
    send(client, 10, "other")
    assert ArchiveJob(bulk, Archive(tables), topics=["other"]).once(NOW).rows == 10
    assert kept(tables) == []


def test_another_broker_with_the_same_names_is_seen(client, bulk, tables):
    send(client, 10)
    ArchiveJob(bulk, Archive(tables)).once(NOW)
    with broker(manual=False) as second, Bulk(BulkOptions(url=second.url)) as there:
        with ternmq.sync.connect(second.url) as one:
            one.admin.create_topic("orders", queues=2)
        with pytest.raises(DataLoss, match="another broker"):
            ArchiveJob(there, Archive(tables)).once(NOW)


def test_somebody_else_archived_what_came_after_the_question(
    client, bulk, real, tables, monkeypatch
):
    send(client, 10)
    ask = bulk.topics

    def late(names=None):
        found = ask(names)
        monkeypatch.setattr(bulk, "topics", ask)
        send(client, 10)
        with Bulk(BulkOptions(url=real.url)) as other:
            ArchiveJob(other, Archive(tables)).once(NOW)
        return found

    monkeypatch.setattr(bulk, "topics", late)
    assert ArchiveJob(bulk, Archive(tables)).once(NOW).rows == 0
    assert kept(tables) == sent(client)


def test_another_broker_is_passed_over_where_rows_may_be_missing(client, bulk, tables, caplog):
    send(client, 10)
    ArchiveJob(bulk, Archive(tables)).once(NOW)
    with broker(manual=False) as second, Bulk(BulkOptions(url=second.url)) as there:
        with ternmq.sync.connect(second.url) as one:
            one.admin.create_topic("orders", queues=2)
        assert ArchiveJob(there, Archive(tables), lenient=True).once(NOW).rows == 0
    assert "another broker" in caplog.text


def test_a_failure_on_the_way_leaves_no_files(client, bulk, tables, monkeypatch):
    send(client, 200)
    fetch = bulk.fetch

    def failing(topic, queue, start, stop, **more):
        if queue == 1:
            raise ConnectionLost("gone")
        return fetch(topic, queue, start, stop, **more)

    monkeypatch.setattr(bulk, "fetch", failing)
    archive = Archive(tables)
    with pytest.raises(ConnectionLost):
        ArchiveJob(bulk, archive).once(NOW)
    assert [one.path for one in archive.table.folder.list() if "parquet" in one.path] == []


@pytest.mark.parametrize("lenient", [False, True])
def test_retention_is_quicker_than_a_run(tmp_path, tables, monkeypatch, lenient):
    """Its segments go between the plan of a run and its reads; what is missing is noted."""
    with expiring(tmp_path / "broker") as topic, Bulk(BulkOptions(url=topic.real.url)) as bulk:
        topic.fill(2000, 600)
        fetch = bulk.fetch

        def late(*span, **more):
            monkeypatch.setattr(bulk, "fetch", fetch)
            topic.expire()
            return fetch(*span, **more)

        monkeypatch.setattr(bulk, "fetch", late)
        archive = Archive(tables)
        job = ArchiveJob(bulk, archive, topics=["orders"], lenient=lenient)
        if not lenient:
            with pytest.raises(
                DataLoss, match="of queue 0 of 'orders': messages from offset 0 on are no"
            ):
                job.once(NOW)
            assert kept(tables) == []
            return
        done = job.once(NOW)
        firsts = topic.firsts()
        assert kept(tables) == sorted(row[1:] for row in topic.kept())
        assert done.lost == sum(firsts) > 0
        gaps = archive.gaps.read(["topic", "queue", "start", "stop", "cause"]).to_pylist()
        assert sorted(tuple(one.values()) for one in gaps) == [
            ("orders", queue, 0, first, "expired") for queue, first in enumerate(firsts)
        ]


@pytest.mark.parametrize("lenient", [False, True])
def test_a_topic_made_again_between_plan_and_read(client, bulk, tables, monkeypatch, lenient):
    """Rows are archived under the number of their own topic, or not at all."""
    send(client, 50)
    old = client.admin.topic("orders").number
    ranges, asked = bulk.ranges, []

    def planned(asks):
        found = ranges(asks)
        asked.append(found)
        if len(asked) > 1:
            return found
        client.admin.delete_topic("orders")
        client.admin.create_topic("orders", queues=2)
        send(client, 90)
        return found

    monkeypatch.setattr(bulk, "ranges", planned)
    job = ArchiveJob(bulk, Archive(tables), lenient=lenient)
    with pytest.raises(UnknownTopic, match=rf"of number {old} was deleted"):
        job.once(NOW)
    assert job.once(NOW).rows == 90
    assert kept(tables) == sent(client)
    rows = Archive(tables).table.read(["topic_number"])
    assert set(rows["topic_number"].to_pylist()) == {client.admin.topic("orders").number}


def test_topics_that_are_not_there(client, bulk, tables):
    with pytest.raises(UnknownTopic, match="nix"):
        ArchiveJob(bulk, Archive(tables), topics=["nix"]).once(NOW)


@pytest.mark.row("R6")
def test_many_small_topics_become_few_files(client, bulk, tables):
    topics = [f"small-{n:03}" for n in range(200)]
    for n, topic in enumerate(topics):
        client.admin.create_topic(topic, queues=1 + n % 2)
        send(client, 3 + n % 5, topic)
    job = ArchiveJob(bulk, Archive(tables))
    job.once(NOW)
    archive = Archive(tables, create=False)
    assert len(archive.table.files()) <= 2 * 2  # a day may have ended meanwhile
    for topic in topics:
        assert kept(tables, topic) == sent(client, topic)
    send(client, 1, topics[7])
    send(client, 1, topics[8])
    assert job.once(NOW).rows == 2
    assert kept(tables, topics[7]) == sent(client, topics[7])
