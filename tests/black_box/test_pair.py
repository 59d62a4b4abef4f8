"""Two brokers, one journal: whichever is killed, what was answered is there, once and in order."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ternmq.sync
from ternmq import ClientError, RefusedError
from ternmq.cluster.coordination.record import Writes
from ternmq.cluster.coordination.wishes import Change, Copying, Failover, GroupSettings
from tests.black_box.pair import Pair
from tests.black_box.process import DEADLINE, wait_until


class Producer(threading.Thread):
    """Sends numbers, one after the other, until told to stop; remembers which were answered."""

    def __init__(self, url: str, topic: str, **options: Any) -> None:
        super().__init__()
        self.answered: list[int] = []
        self.unknown: list[int] = []
        self.error: BaseException | None = None
        self._url = url
        self._topic = topic
        self._options = options
        self._ends = threading.Event()

    def run(self) -> None:
        try:
            with ternmq.sync.connect(self._url, timeout=DEADLINE) as client:
                number = 0
                while not self._ends.is_set():
                    try:
                        client.send(self._topic, {"n": number}, **self._options)
                        self.answered.append(number)
                    except (ClientError, RefusedError):
                        self.unknown.append(number)
                    number += 1
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def wait_for(self, more: int) -> None:
        """Wait until so many more were answered."""
        wanted = len(self.answered) + more
        wait_until(
            lambda: len(self.answered) >= wanted or self.error is not None,
            f"{more} more sends are answered",
            2 * DEADLINE,
        )
        assert self.error is None

    def finish(self) -> None:
        self._ends.set()
        self.join(2 * DEADLINE)
        assert not self.is_alive()
        assert self.error is None


def consumed(url: str, topic: str, count: int) -> list[int]:
    """Consume until so many different numbers have come; return them in their order."""
    found: list[int] = []
    with (
        ternmq.sync.connect(url, timeout=DEADLINE) as client,
        client.consume(topic, group="check") as deliveries,
    ):
        for delivery in deliveries:
            found.append(delivery.value["n"])
            delivery.ack()
            if len(set(found)) >= count:
                break
    return found


def made(pair: Pair, topic: str, *, ordered: bool = False) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.admin.create_topic(topic, ordered=ordered)
        client.admin.create_group(topic, "check")


def check(producer: Producer, found: list[int]) -> None:
    counts = Counter(found)
    assert not set(producer.answered) - set(counts), "answered, and lost"
    assert not set(counts) - set(producer.answered) - set(producer.unknown), "never sent"
    assert max(counts.values()) == 1, "stored twice"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("victim", ["a", "b"])
def test_whichever_is_killed_nothing_that_was_answered_is_lost(tmp_path: Path, victim: str) -> None:
    with Pair(tmp_path) as pair:
        made(pair, "orders", ordered=True)
        producer = Producer(pair.url, "orders", ordering_key="k")
        producer.start()
        producer.wait_for(50)
        pair[victim].kill()
        producer.wait_for(50)
        pair[victim].start()
        pair.wait_for_member(victim, 1 if victim == "a" else 2)
        producer.wait_for(20)
        producer.finish()
        found = consumed(pair.url, "orders", len(producer.answered))
        check(producer, found)
        assert found == sorted(found), "out of order"


@pytest.mark.timeout(240)
def test_an_operator_switches_to_and_fro_and_no_send_fails(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        made(pair, "orders", ordered=True)
        producer = Producer(pair.url, "orders", ordering_key="k")
        producer.start()
        producer.wait_for(50)
        for to in ("b", "a"):
            pair.ask(Change.SWITCH, to)
            pair.wait_for_primary(to)
            producer.wait_for(50)
            wait_until(lambda: len(pair.record().members) == 2, "both are members")
        producer.finish()
        assert not producer.unknown, "a send failed"
        found = consumed(pair.url, "orders", len(producer.answered))
        check(producer, found)
        assert found == sorted(found), "out of order"


@pytest.mark.timeout(240)
def test_a_member_may_take_over_for_deliveries_alone(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        made(pair, "orders")
        pair.set(GroupSettings(failover=Failover.READS))
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            for number in range(20):
                client.send("orders", {"n": number})
            pair["a"].kill()
            pair.wait_for_primary("b")
            assert pair.record().writes is Writes.CLOSED
            assert sorted(consumed(pair.url, "orders", 20)) == list(range(20))
            with (
                ternmq.sync.connect(pair.url, timeout=2) as hasty,
                pytest.raises((ternmq.ReadOnly, ternmq.SendTimeout)),
            ):
                hasty.send("orders", {"n": 20})
            pair["a"].start()
            wait_until(lambda: pair.record().writes is Writes.OPEN, "new messages are taken")
            client.send("orders", {"n": 21})
        assert consumed(pair.url, "orders", 1) == [21]


@pytest.mark.timeout(240)
def test_a_member_may_wait_for_the_operator(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        made(pair, "orders")
        pair.set(GroupSettings(failover=Failover.OPERATOR))
        wait_until(lambda: "no word" not in pair["b"].log, "it follows")
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            client.send("orders", {"n": 0})
        pair["a"].kill()
        wait_until(lambda: "cannot be reached" in pair["b"].log, "the primary is missed")
        with (
            pytest.raises(ternmq.ClientError),
            ternmq.sync.connect(pair.url, timeout=5) as hasty,  # longer than a lease
        ):
            hasty.send("orders", {"n": 1})
        assert pair.record().primary == "a"
        pair.ask(Change.PROMOTE, "b")
        pair.wait_for_primary("b")
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            client.send("orders", {"n": 2})
        assert 0 in consumed(pair.url, "orders", 2)


@pytest.mark.timeout(240)
def test_answers_may_go_without_waiting_for_copies(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        made(pair, "orders")
        pair.set(GroupSettings(copy=Copying.ASYNCHRONOUS))
        wait_until(lambda: len(pair.record().members) == 1, "the copy is no member")
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            client.send("orders", {"n": 0})
            process = pair["b"].process
            assert process is not None
            process.send_signal(signal.SIGSTOP)
            try:
                for number in range(1, 50):
                    client.send("orders", {"n": number})
            finally:
                process.send_signal(signal.SIGCONT)
            pair.set(GroupSettings())
            wait_until(lambda: len(pair.record().members) == 2, "the copy is a member again")
            client.send("orders", {"n": 50})
        pair["a"].kill()
        assert sorted(consumed(pair.url, "orders", 51)) == list(range(51))


@pytest.mark.timeout(240)
def test_after_both_were_killed_the_one_that_led_leads_again(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        made(pair, "orders")
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            client.send("orders", {"n": 0})
        pair["a"].kill()
        pair["b"].kill()
        pair["b"].start()  # its memory may have been lost: it is no member any more
        wait_until(lambda: "copy of b has not counted" in pair["b"].log, "it says that it waits")
        with (
            pytest.raises(ternmq.ClientError),
            ternmq.sync.connect(pair.url, timeout=5) as hasty,  # longer than a lease
        ):
            hasty.send("orders", {"n": 1})
        pair["a"].start()
        pair.wait_for_member("b", 2)
        assert consumed(pair.url, "orders", 1) == [0]


@pytest.mark.timeout(240)
def test_a_copy_whose_disk_is_waited_for_leads_alone_after_both_were_killed(
    tmp_path: Path,
) -> None:
    with Pair(tmp_path, follower="synced") as pair:
        made(pair, "orders")
        producer = Producer(pair.url, "orders")
        producer.start()
        producer.wait_for(50)
        pair["a"].kill()
        pair["b"].kill()
        pair["b"].start()
        pair.wait_for_primary("b")
        producer.wait_for(10)
        producer.finish()
        check(producer, consumed(pair.url, "orders", len(producer.answered)))


@pytest.mark.timeout(240)
def test_nobody_waits_for_a_backup_and_it_never_leads(tmp_path: Path) -> None:
    with Pair(tmp_path, names=("a",)) as pair:
        made(pair, "orders")
        backup = pair.add("b", follower="backup")
        backup.start()
        wait_until(lambda: "following a" in backup.log, "the backup copies")
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            for number in range(20):
                client.send("orders", {"n": number})
        assert [one.broker for one in pair.record().members] == ["a"]
        pair["a"].kill()
        wait_until(lambda: "cannot be reached" in backup.log, "the primary is missed")
        pair["a"].start()
        assert sorted(consumed(pair.url, "orders", 20)) == list(range(20))
        assert pair.record().primary == "a"
        assert "stands for primary" not in backup.log


@pytest.mark.timeout(240)
def test_a_backup_may_ask_for_a_compressed_stream(tmp_path: Path) -> None:
    """It begins behind, and goes on while more comes."""
    with Pair(tmp_path, names=("a",), http=True) as pair:
        made(pair, "orders")
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            for number in range(20):
                client.send("orders", {"n": number, "text": "shrinks " * 1000})
            backup = pair.add("b", follower="backup", compress_stream="true")
            backup.start()
            saved = "ternmq_copy_saved_bytes_total"
            wait_until(lambda: backup.metric(saved) > 20 * 7000, "what was there came compressed")
            before = backup.metric(saved)
            for number in range(20, 40):
                client.send("orders", {"n": number, "text": "shrinks " * 1000})
            wait_until(lambda: backup.metric(saved) > before + 20 * 6000, "so does the rest")
            wait_until(lambda: backup.metric("ternmq_copy_behind_bytes") == 0, "it has all")
        assert backup.metric("ternmq_copy_written") > 40 * 8000
        assert "cannot be followed" not in backup.log


@pytest.mark.timeout(240)
def test_a_strict_topic_takes_messages_only_while_there_are_two_copies(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        made(pair, "plain")
        with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
            client.admin.create_topic("strict", durability="strict")
            client.admin.create_group("strict", "check")
            client.send("strict", {"n": 0})
            pair["b"].kill()
            wait_until(lambda: len(pair.record().members) == 1, "one copy is left")
            with pytest.raises(ternmq.StrictNeedsReplica):
                client.send("strict", {"n": 1})
            client.send("plain", {"n": 0})
            pair["b"].start()
            wait_until(lambda: len(pair.record().members) == 2, "there are two copies again")
            client.send("strict", {"n": 2})
        pair["a"].kill()
        assert sorted(consumed(pair.url, "strict", 2)) == [0, 2]
        assert consumed(pair.url, "plain", 1) == [0]
