"""Rows of MISSION about the journal that need its tools, its retention, or its look-ups."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until

KIB = 1024


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"segment": "4MiB", "state": "1MiB"}
    # No segment goes while deduplication remembers what is in it.
    settings |= {"limits_send_timeout": "1s", "limits_dedup_window": "2s"}
    with BrokerProcess("dev", tmp_path / "broker", http=True, **settings) as one:
        yield one


def dump(broker: BrokerProcess) -> list[dict[str, Any]]:
    """Return the records of a broker that was stopped."""
    done = subprocess.run(
        [sys.executable, "-m", "ternmq", "journal", "dump", str(broker.data), "--json"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.row("C2")
def test_the_journal_says_which_offsets_a_record_has(broker: BrokerProcess) -> None:
    with ternmq.sync.connect(broker.url) as client:
        client.admin.create_topic("orders", queues=3)
        receipts = client.send_many("orders", [b"%d" % n for n in range(100)])
        receipts += [client.send("orders", b"one", key=f"k{n}") for n in range(50)]
        client.send_many("prices", [b"p"] * 20)
    assert broker.stop() == 0
    stored: dict[tuple[int, int], list[int]] = defaultdict(list)
    for record in dump(broker):
        if record["kind"] == "MESSAGES":
            first = record["first_offset"]
            stored[record["topic"], record["queue"]] += range(first, first + record["count"])
    assert len(stored) == 4
    for offsets in stored.values():
        assert offsets == list(range(len(offsets))), "dense, and in the order of the journal"
    told = sorted((one.queue, one.offset) for one in receipts if one.topic == "orders")
    here = sorted((queue, at) for (topic, queue), of in stored.items() if topic == 1 for at in of)
    assert told == here, "what receipts say is what the journal says"


@pytest.mark.row("F5")
def test_the_journal_says_what_was_stored_and_who_pulled_what(broker: BrokerProcess) -> None:
    with ternmq.sync.connect(broker.url) as client:
        client.send_many("orders", [b"x"] * 1000)
        client.admin.create_group("orders", "g")
        client.pull("orders", group="g", max_messages=1).ack()
        held = [client.pull("orders", group="g", max_messages=64) for _ in range(9)]
        held += [client.pull("orders", group="g", max_messages=1) for _ in range(300)]
        sessions = {one.session for one in client.admin.clients()}
        for batch in held:
            batch.ack()
    assert broker.stop() == 0
    records = dump(broker)
    pulls = [record for record in records if record["kind"] == "PULLED"]
    runs = [run[:2] for one in pulls for fact in one["facts"] for run in fact["leased"]]
    assert runs[:10] == [[0, 1]] + [[at, at + 64] for at in range(1, 577, 64)]
    assert runs[10:] == [[at, at + 1] for at in range(577, 877)]
    assert {fact["session"] for one in pulls for fact in one["facts"]} == sessions
    assert all(one["length"] <= 160 for one in pulls)
    assert all(one["length"] / 64 <= 4 for one in pulls[1:10])
    assert sum(one["count"] for one in records if one["kind"] == "MESSAGES") == 1000


@pytest.mark.row("F5")
def test_an_ordered_group_says_who_pulled_what_in_few_bytes(broker: BrokerProcess) -> None:
    with ternmq.sync.connect(broker.url) as client:
        client.admin.create_topic("orders", ordered=True)
        rows = [ternmq.Message(b"x", ordering_key=f"key-{n}") for n in range(1000)]
        client.send_many("orders", rows)
        client.admin.create_group("orders", "g", mode="ordered")
        client.pull("orders", group="g", max_messages=1).ack()
        for _ in range(9):
            client.pull("orders", group="g", max_messages=64).ack()
    assert broker.stop() == 0
    pulls = [record for record in dump(broker) if record["kind"] == "PULLED"]
    handed = [sum(stop - start for start, stop, *_ in one["facts"][0]["leased"]) for one in pulls]
    assert sum(handed) >= 1 + 9 * 32
    assert [size for size, rows in zip(_lengths(pulls), handed, strict=True) if rows == 1] != []
    for size, rows in zip(_lengths(pulls), handed, strict=True):
        assert size <= 160 if rows == 1 else size <= 24 * rows


def _lengths(records: list[dict[str, Any]]) -> list[int]:
    return [record["length"] for record in records]


@pytest.mark.row("F5")
def test_pulls_cause_no_sync_of_their_own(broker: BrokerProcess) -> None:
    """One a second at most, if nobody else needs one."""
    with ternmq.sync.connect(broker.url) as client:
        client.send_many("orders", [b"x"] * 1000)
        client.admin.create_group("orders", "g")
        held = [client.pull("orders", group="g", max_messages=1)]
        before, began = broker.metric("ternmq_syncs_total"), time.monotonic()
        held += [client.pull("orders", group="g", max_messages=1) for _ in range(300)]
        after, took = broker.metric("ternmq_syncs_total"), time.monotonic() - began
        # What is synced besides: a statement, once a second at most, that all is durable.
        assert after - before <= 2 + 2 * took, f"{after - before} syncs in {took:.1f} s"

        def all_durable() -> bool:
            end = broker.metric("ternmq_journal_end")
            return broker.metric("ternmq_journal_durable") == end

        wait_until(all_durable, "hand-outs are synced though nobody needs it")
        before = broker.metric("ternmq_syncs_total")
        for batch in held:
            batch.ack()
        assert broker.metric("ternmq_syncs_total") > before


@pytest.mark.row("F10")
def test_what_an_idle_consumer_pulled_is_removed_and_nothing_unacked_is_lost(
    tmp_path: Path,
) -> None:
    settings = {"segment": "4MiB", "state": "1MiB", "limits_session_grace": "1s"}
    settings |= {"limits_send_timeout": "1s", "limits_dedup_window": "2s"}
    with BrokerProcess("dev", tmp_path / "broker", http=True, **settings) as broker:
        with ternmq.sync.connect(broker.url) as client:
            client.admin.create_topic("orders", retention=1)  # and until it is consumed
            client.admin.create_topic("other", retention=1)
            client.admin.create_group("orders", "g")
            client.send_many("orders", [b"%d" % n for n in range(100)])
            idle = subprocess.Popen(
                [sys.executable, "-c", _IDLE, broker.url], stdout=subprocess.PIPE, text=True
            )
            with idle:
                assert idle.stdout is not None
                assert idle.stdout.readline() == "60 pulled, 20 acked\n"
                pulled = broker.metric("ternmq_journal_end")
                idle.kill()

            def forgotten() -> bool:
                return len(client.admin.clients()) == 1

            wait_until(forgotten, "the idle consumer is forgotten, after the grace")
            got: list[int] = []
            while len(got) < 80:
                batch = client.pull("orders", group="g", max_messages=100, wait=10)
                assert len(batch), f"only {len(got)} came"
                got += [int(delivery.body) for delivery in batch]
                batch.ack()
            assert sorted(got) == list(range(20, 100)), "all that was not acked, and nothing else"

            def removed() -> bool:
                client.send_many("other", [bytes(KIB)] * 500)
                return broker.metric("ternmq_journal_first") > pulled

            wait_until(removed, "the segment with its pulls is removed")
        broker.kill()
        broker.start()
        with ternmq.sync.connect(broker.url) as client:
            assert not client.pull("orders", group="g", wait=0)
        assert broker.stop() == 0
        assert min(one["position"] for one in dump(broker)) > pulled


_IDLE = """
import sys, threading
import ternmq.sync
client = ternmq.sync.connect(sys.argv[1])
batch = client.pull("orders", group="g", max_messages=60, wait=10)
batch.ack(range(20))
print(len(batch), "pulled, 20 acked", flush=True)
threading.Event().wait()
"""


@pytest.mark.row("C13")
def test_messages_are_found_by_key_and_time_newest_first(broker: BrokerProcess) -> None:
    with ternmq.sync.connect(broker.url) as client:
        client.send_many("orders", [ternmq.Message(b"%d" % n, key="a") for n in range(1500)])
        client.send_many("orders", [ternmq.Message(b"o", key=f"other{n}") for n in range(500)])
        middle = client.find("orders", key="a", limit=1)[0].stored_at
        receipt = client.send("orders", b"late", key="a")
        found = client.find("orders", key="a")
        assert [one.body for one in found] == [b"late", *[b"%d" % n for n in range(1499, 1468, -1)]]
        whole = client.find("orders", key="a", limit=2000)
        assert [one.body for one in whole[1:]] == [b"%d" % n for n in reversed(range(1500))]
        late = client.find("orders", key="a", since=middle + timedelta(microseconds=1))
        assert [one.body for one in late] == [b"late"]
        assert len(client.find("orders", key="a", until=middle - timedelta(hours=1))) == 0
        assert client.find("orders", key="nobody's") == []
        assert client.get("orders", receipt.id).body == b"late"
        assert receipt.offset is not None
        at = client.get("orders", queue=receipt.queue, offset=receipt.offset)
        assert (at.body, at.key) == (b"late", "a")


@pytest.mark.row("C11", "C12")
def test_retention_spares_what_a_group_has_not_consumed(broker: BrokerProcess) -> None:
    """One segment with messages that may go unread, then others that may not."""
    with ternmq.sync.connect(broker.url) as client:
        for name, keep in (("dropped", False), ("kept", True)):
            client.admin.create_topic(
                name, retention=timedelta(seconds=1), keep_until_consumed=keep
            )
            client.admin.create_group(name, "g")

        def first(topic: str) -> int:
            return client.admin.topic(topic).queues[0].first

        def fill_on(topic: str) -> None:
            client.send_many(topic, [bytes(KIB)] * 500)

        def expired() -> bool:
            fill_on("dropped")
            return first("dropped") > 0

        wait_until(expired, "the expired messages are gone")
        gone = first("dropped")
        with pytest.raises(ternmq.OffsetExpired, match=r"\d"):
            list(client.read("dropped", start=0, stop=1))
        taken = client.pull("dropped", group="g", max_messages=1)
        assert taken[0].offset >= gone, "the group goes on at what is kept"
        taken.ack()
        assert broker.metric("ternmq_expired_rows_total") > 0

        client.send("kept", b"unread")
        removed = broker.metric("ternmq_removed_segments_total")

        def blocked() -> bool:
            fill_on("dropped")
            now = broker.metric("ternmq_removed_segments_total")
            journal = broker.metric("ternmq_journal_end") - broker.metric("ternmq_journal_first")
            return now >= removed and journal > 6 * 4 * KIB * KIB

        wait_until(blocked, "many segments stay behind the message that nobody consumed")
        assert first("kept") == 0
        assert [one.body for one in client.read("kept")] == [b"unread"]
        held = first("dropped")
        client.pull("kept", group="g").ack()

        def consumed() -> bool:
            fill_on("dropped")
            return first("kept") > 0 and first("dropped") > held

        wait_until(consumed, "what was consumed goes")
        assert list(client.read("kept")) == []


@pytest.mark.row("N6")
def test_a_changed_setting_reaches_a_connected_client(broker: BrokerProcess) -> None:
    with ternmq.sync.connect(broker.url) as client, ternmq.sync.connect(broker.url) as other:
        client.send_many("orders", [b"x"] * 3)
        first = client.pull("orders", group="g", max_messages=1)[0]
        assert first.lease_until is not None
        assert first.lease_until - first.stored_at < timedelta(seconds=60)
        other.admin.change_group("orders", "g", lease=timedelta(minutes=5))
        second = client.pull("orders", group="g", max_messages=1)[0]
        assert second.lease_until is not None
        assert second.lease_until - second.stored_at >= timedelta(minutes=5)
        assert client.stats().connections_opened <= 2, "without a connection of its own for it"
        first.ack()
        second.ack()


@pytest.mark.row("M9")
def test_ids_are_made_by_clients_and_are_never_the_same(broker: BrokerProcess) -> None:
    seen: set[str] = set()
    for _ in range(20):
        with ternmq.sync.connect(broker.url) as client:
            receipts = client.send_many("orders", [b""] * 10_000)
            ids = {one.id for one in receipts}
            assert len(ids) == len(receipts)
            assert not ids & seen
            seen |= ids
    producers = {one.partition(":")[0] for one in seen}
    assert len(producers) == 20, "one for each client"
    assert all(int(part, 16) >= 0 for one in producers for part in one.split(":"))
    assert all(str(ternmq.parse_id(one)) == one for one in seen)
    for producer in producers:
        of_one = {ternmq.parse_id(one).sequence for one in seen if one.startswith(producer)}
        assert of_one == set(range(min(of_one), min(of_one) + 10_000))
