"""A program through the loss of brokers, with the cluster of the testing kit."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import Cluster, cluster
from tests.asynchronous import until
from tests.black_box.process import wait_until

PATIENCE_S = 30.0


@pytest.fixture
def pair() -> Iterator[Cluster]:
    with cluster(replicas=1) as one:
        yield one


class Worker:
    """Runs a client's handlers in a thread for as long as a ``with`` block."""

    def __init__(self, client: ternmq.sync.Client) -> None:
        self._client = client
        self._thread = threading.Thread(target=client.run, kwargs={"signals": False})

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


class Sending:
    """A send in a thread."""

    def __init__(self, send: Callable[[], object]) -> None:
        self.receipt: object = None
        self.error: BaseException | None = None
        self._send = send
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.receipt = self._send()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> object:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.error is None, self.error
        return self.receipt


def names(pair: Cluster) -> dict[str, str]:
    return {one.name: one.role for one in pair.brokers}


def leader(pair: Cluster) -> str:
    return pair.primary.name


def test_a_handler_with_retries_through_the_loss_of_the_primary(pair: Cluster) -> None:
    """Nothing is lost; only what was being handled may come twice; attempts go on counting."""
    handled: Counter[int] = Counter()
    attempts: dict[int, list[int]] = {}
    with ternmq.sync.connect(pair.url) as client:
        worker = ternmq.sync.connect(pair.url)

        @worker.handler("orders", group="billing", retry=ternmq.RetryPolicy(first=60, jitter=0))
        def bill(order: int, delivery: ternmq.sync.Delivery) -> None:
            attempts.setdefault(order, []).append(delivery.attempt)
            if order % 3 == 0 and delivery.attempt < 3:
                raise ternmq.Retry("the bank is closed")
            handled[order] += 1

        with Worker(worker):
            for number in range(30):
                client.send("orders", number)
            pair.wait_failed("orders", "billing", messages=10)
            pair.wait_idle("orders", "billing")
            pair.kill()
            pair.clock.advance(seconds=3)
            assert names(pair) == {"a": "", "b": "primary"}
            pair.clock.advance(seconds=57)  # the first retry, 60 s after the failure
            assert attempts[0] == [1, 2]
            pair.clock.advance(minutes=10)
            pair.wait_idle("orders", "billing")
    # Everything was settled and answered before the kill, so nothing may come twice.
    assert handled == Counter(range(30))
    assert all(attempts[n] == ([1, 2, 3] if n % 3 == 0 else [1]) for n in range(30))


def test_a_primary_that_is_killed_by_a_handler(pair: Cluster) -> None:
    """What the handler had not settled may come again; nothing else, and nothing is lost."""
    seen: Counter[int] = Counter()
    with ternmq.sync.connect(pair.url) as client:
        worker = ternmq.sync.connect(pair.url)
        killed = threading.Event()

        @worker.handler("orders", group="billing", concurrency=1)
        def bill(order: int) -> None:
            seen[order] += 1
            if order == 5 and not killed.is_set():
                pair.kill()
                killed.set()

        client.send_many("orders", list(range(10)))
        with Worker(worker):
            assert killed.wait(PATIENCE_S)
            pair.clock.advance(seconds=3)
            assert pair.primary.name == "b"
            pair.wait_idle("orders", "billing", timeout=PATIENCE_S)
    assert set(seen) == set(range(10))
    assert max(seen.values()) <= 2


def test_what_was_acknowledged_does_not_come_again(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        client.send_many("orders", list(range(10)))
        held = list(client.pull("orders", group="g", max_messages=10))
        for one in held[:5]:
            one.ack()
        pair.kill()
        pair.clock.advance(minutes=5)
        again = client.pull("orders", group="g", max_messages=10)
        assert [(one.value, one.attempt) for one in again] == [(n, 2) for n in range(5, 10)]
        again.ack()
        pair.clock.advance(minutes=5)
        assert not client.pull("orders", group="g", wait=0)


def test_a_handler_kills_the_primary_while_the_clock_moves(pair: Cluster) -> None:
    seen: list[str] = []
    with ternmq.sync.connect(pair.url) as client:
        worker = ternmq.sync.connect(pair.url)

        @worker.handler("reminders", group="g")
        def remind(what: str) -> None:
            seen.append(what)
            if seen == ["soon"]:
                pair.kill()

        with Worker(worker):
            client.send("reminders", "soon", deliver_after=600)
            client.send("reminders", "later", deliver_after=3600)
            pair.wait_idle("reminders", "g")
            pair.clock.advance(hours=2)
            assert pair.primary.name == "b"
            pair.wait_idle("reminders", "g")
    assert set(seen) == {"soon", "later"}
    assert seen.count("later") == 1
    assert (
        seen.count("soon") <= 2
    )  # its lease goes on, so that it may be settled at the new primary


def test_a_handler_kills_the_replica_while_the_clock_moves(pair: Cluster) -> None:
    """Its handler sends after that: the send is answered when the replica has been taken out."""
    with ternmq.sync.connect(pair.url) as client:
        worker = ternmq.sync.connect(pair.url)

        @worker.handler("reminders", group="g")
        def remind(_: str) -> None:
            if pair.brokers[1].running:
                pair.kill("b")
            client.send("orders", 1)

        with Worker(worker):
            client.send("reminders", "soon", deliver_after=600)
            pair.wait_idle("reminders", "g")
            pair.clock.advance(hours=2)
            assert names(pair) == {"a": "primary", "b": ""}
            pair.wait_idle("reminders", "g")
        assert client.pull("orders", group="g").values == [1]


def test_no_time_passes_by_itself(pair: Cluster) -> None:
    """A kill has no effect on the group before the clock moves, however often one looks."""
    with ternmq.sync.connect(pair.url) as client:
        client.send("orders", "x")
        pair.kill("a")
        with pytest.raises(RuntimeError, match=r"a was the primary.*advanced by 3 s; a does not"):
            leader(pair)
        pair.clock.advance(seconds=2.9)
        assert names(pair) == {"a": "", "b": "member"}
        with pytest.raises(ternmq.ClientError):
            client.send("orders", "y", timeout=1.0)
        assert names(pair) == {"a": "", "b": "member"}
        pair.clock.advance(seconds=0.1)
        assert names(pair) == {"a": "", "b": "primary"}
        client.send("orders", "z")


def due(client: ternmq.sync.Client) -> list[object]:
    """Take what is due."""
    found = client.pull("reminders", group="g", wait=0)
    found.ack()
    return found.values


def test_delayed_messages_are_due_after_the_failover(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        client.send("reminders", "in two hours", deliver_after=7200)
        client.send("reminders", "in three days", deliver_after=3 * 86400)
        pair.kill()
        pair.clock.advance(hours=1)
        assert due(client) == []
        client.send("reminders", "in two hours and a minute", deliver_after=3660)
        pair.start("a")
        pair.clock.advance(minutes=59, seconds=59)
        assert due(client) == []
        pair.clock.advance(seconds=1)
        assert due(client) == ["in two hours"]
        pair.clock.advance(hours=1)
        assert due(client) == ["in two hours and a minute"]
        pair.clock.advance(hours=2)
        pair.kill("b")  # nothing was sent to a since the clock has moved by hours
        pair.clock.advance(days=2, hours=18, minutes=59, seconds=59)
        assert pair.primary.name == "a"
        assert due(client) == []
        pair.clock.advance(seconds=1)
        assert due(client) == ["in three days"]


def test_a_wall_clock_that_jumps_is_not_believed_at_a_failover(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        client.send("reminders", "in an hour", deliver_after=3600)
        pair.clock.jump_wall(hours=3)
        pair.kill()
        pair.clock.advance(minutes=59, seconds=59)
        assert pair.primary.name == "b"
        assert due(client) == []
        pair.clock.advance(seconds=1)
        assert due(client) == ["in an hour"]


def test_a_transaction_is_prepared_before_and_committed_after(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:

        @client.checker("order-service")
        def check(tx: ternmq.sync.PreparedTransaction) -> ternmq.Decision:
            return ternmq.Decision.ROLLBACK

        with client.transaction("order-service") as tx:
            tx.send("orders", "one")
            tx.send("stock", "two")
            pair.kill()
            pair.clock.advance(seconds=3)
            assert not client.pull("orders", group="g", wait=0)
        assert client.pull("orders", group="g").values == ["one"]
        assert client.pull("stock", group="g").values == ["two"]
        assert client.transaction_outcome(tx.id) is ternmq.Decision.COMMIT


def test_ordered_keys_stay_in_order(pair: Cluster) -> None:
    seen: dict[str, list[int]] = {"x": [], "y": []}
    with ternmq.sync.connect(pair.url) as client:
        client.admin.create_topic("steps", ordered=True, queues=2)
        worker = ternmq.sync.connect(pair.url)

        @worker.handler("steps", group="g", retry=ternmq.RetryPolicy(first=10, jitter=0))
        def step(number: int, delivery: ternmq.sync.Delivery) -> None:
            assert delivery.ordering_key is not None
            if number == 3 and delivery.attempt == 1:
                raise ternmq.Retry("not yet")
            seen[str(delivery.ordering_key)].append(number)

        with Worker(worker):
            for number in range(6):
                for key in "xy":
                    client.send("steps", number, ordering_key=key)
            pair.wait_failed("steps", "g", messages=2)
            pair.wait_idle("steps", "g")
            pair.kill()
            pair.clock.advance(seconds=3)
            for key in "xy":
                client.send("steps", 6, ordering_key=key)
            pair.clock.advance(seconds=10)
            pair.wait_idle("steps", "g")
    assert seen == {"x": list(range(7)), "y": list(range(7))}


def test_a_switch_loses_nothing_and_fails_no_send(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        for number in range(3):
            client.send("orders", number)
            pair.switch(to="ba"[number % 2])
            assert names(pair) in ({"a": "member", "b": "primary"}, {"a": "primary", "b": "member"})
            assert pair.primary.name == "ba"[number % 2]
        client.send("orders", 3)
        assert client.pull("orders", group="g").values == [0, 1, 2, 3]


def test_a_stop_hands_over_without_time(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        client.send("orders", 1)
        pair.stop()
        assert names(pair) == {"a": "", "b": "primary"}
        client.send("orders", 2)
        pair.start("a")
        pair.wait_for_copies(2)
        assert client.pull("orders", group="g").values == [1, 2]


def test_without_the_replica_normal_goes_on_and_strict_is_refused(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        client.admin.create_topic("payments", durability="strict")
        client.send("payments", 1)
        client.send("orders", 1)
        pair.kill("b")
        sending = Sending(lambda: client.send("orders", 2))
        pair.clock.advance(seconds=1.9)
        assert sending.waits
        assert names(pair) == {"a": "primary", "b": ""}
        pair.clock.advance(seconds=0.1)
        sending.result()
        with pytest.raises(ternmq.StrictNeedsReplica):
            client.send("payments", 2, timeout=1.0)
        pair.start("b")
        pair.wait_for_copies(2)
        client.send("payments", 3)
        assert client.pull("orders", group="g").values == [1, 2]
        assert client.pull("payments", group="g").values == [1, 3]


def test_both_are_killed_and_the_former_primary_has_everything(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        client.send_many("orders", list(range(100)))
        pair.kill("b")
        pair.kill("a")
        pair.clock.advance(minutes=5)
        with pytest.raises(RuntimeError, match=r"start a, which has everything.*a and b do not"):
            leader(pair)
        pair.start("b")  # it did not lead, so it waits for the one that did
        pair.clock.advance(minutes=5)
        assert names(pair) == {"a": "", "b": "follower"}
        pair.start("a")
        pair.wait_for_copies(2)
        assert names(pair) == {"a": "primary", "b": "member"}
        assert client.pull("orders", group="g", max_messages=200).values == list(range(100))


def test_a_former_primary_that_starts_alone_waits_for_the_clock(pair: Cluster) -> None:
    """Its replica was a member: only when it has been silent, it goes on alone."""
    with ternmq.sync.connect(pair.url) as client:
        client.send("orders", 1)
        pair.kill("a")
        pair.kill("b")
        pair.start("a")
        with pytest.raises(RuntimeError, match=r"a begins to lead when .* 2 s, without b"):
            leader(pair)
        pair.clock.advance(seconds=2)
        assert names(pair) == {"a": "primary", "b": ""}
        client.send("orders", 2)
        assert client.pull("orders", group="g").values == [1, 2]


def test_a_wait_goes_on_at_the_next_primary() -> None:
    """Also one that begins while nothing is committed, and whose primary is killed meanwhile."""
    with cluster(replicas=2) as group, ternmq.sync.connect(group.url) as client:
        client.send("orders", 0)
        client.pull("orders", group="g").ack()
        group.kill("c")
        sending = Sending(lambda: client.send("orders", 1))
        places = group._brokers.places
        server = group._brokers.server()
        assert server is not None
        journal = server.core.broker.journal
        wait_until(lambda: journal.end > journal.committed, "the message is written")
        waiting = Sending(lambda: group.wait_idle("orders", "g", timeout=PATIENCE_S / 2))
        group.kill("a")
        group.clock.advance(seconds=6)
        assert places["b"] is group._brokers.serving()
        sending.result()
        client.pull("orders", group="g").ack()
        assert waiting.result() is None


@pytest.mark.parametrize("replicas", [0, 2])
def test_other_numbers_of_replicas(replicas: int) -> None:
    with cluster(replicas) as group, ternmq.sync.connect(group.url) as client:
        group.wait_for_copies(replicas + 1)
        assert len(group.brokers) == replicas + 1
        sent = 0
        for _ in range(replicas):  # one after the other, to the last one
            client.send("orders", sent)
            sent += 1
            group.kill()
            group.clock.advance(seconds=6)
        client.send("orders", sent)
        assert client.pull("orders", group="g").values == list(range(sent + 1))
        group.kill()
        group.clock.advance(seconds=6)
        with pytest.raises(RuntimeError, match="start "):
            leader(group)


def test_several_clusters_at_a_time() -> None:
    with (
        cluster() as one,
        cluster() as two,
        ternmq.sync.connect(one.url) as here,
        ternmq.sync.connect(two.url) as there,
    ):
        here.send("orders", "here")
        there.send("orders", "there")
        one.kill()
        one.clock.advance(seconds=3)
        assert one.primary.name == "b"
        assert two.primary.name == "a"
        assert here.pull("orders", group="g").values == ["here"]
        assert there.pull("orders", group="g").values == ["there"]
        assert one.clock.now_us != two.clock.now_us


async def test_a_program_with_an_asyncio_client() -> None:
    seen: list[int] = []
    with cluster() as pair:
        client = ternmq.connect(pair.url)

        @client.handler("orders", group="g")
        async def handle(order: int) -> None:
            seen.append(order)

        running = asyncio.ensure_future(client.run(signals=False))
        async with ternmq.connect(pair.url) as other:
            await other.send("orders", 1)
            await asyncio.to_thread(pair.wait_idle, "orders", "g")
            await asyncio.to_thread(pair.kill)
            await asyncio.to_thread(pair.clock.advance, seconds=3)
            await other.send("orders", 2)
            await until(lambda: seen == [1, 2], "the second order is handled")
        client.stop()
        await running


def test_a_group_whose_operator_decides() -> None:
    with cluster(failover="operator") as pair, ternmq.sync.connect(pair.url) as client:
        client.send("orders", 1)
        pair.kill()
        pair.clock.advance(hours=1)
        with pytest.raises(RuntimeError, match=r"a was the primary, and no other was promoted"):
            leader(pair)
        pair.promote("b")
        assert names(pair) == {"a": "", "b": "primary"}
        client.send("orders", 2)
        pair.start("a")
        pair.kill("b")
        pair.promote("a")  # its promise to the primary holds until the lease is over
        assert names(pair) == {"a": "member", "b": ""}
        pair.clock.advance(seconds=3)
        assert names(pair) == {"a": "primary", "b": ""}
        assert client.pull("orders", group="g").values == [1, 2]


def test_a_group_that_takes_no_messages_with_one_copy() -> None:
    with cluster(failover="reads") as pair, ternmq.sync.connect(pair.url) as client:
        client.send("orders", 1)
        pair.kill()
        pair.clock.advance(seconds=3)
        assert pair.primary.name == "b"
        with pytest.raises(ternmq.ReadOnly):
            client.send("orders", 2, timeout=1.0)
        client.pull("orders", group="g").ack()
        pair.start("a")
        client.send("orders", 3)
        assert client.pull("orders", group="g").values == [3]


def test_leases_and_their_end_after_a_failover(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        client.send("orders", 1)
        client.send("orders", 2)
        held = list(client.pull("orders", group="g", max_messages=2))
        pair.kill()
        pair.clock.advance(seconds=3)
        held[0].ack()  # the lease goes on at the new primary
        pair.clock.advance(minutes=10)
        assert held[1].lost
        (again,) = client.pull("orders", group="g")
        assert (again.value, again.attempt) == (2, 2)


def test_the_fixture_is_a_pair(ternmq_cluster: Cluster) -> None:
    assert names(ternmq_cluster) == {"a": "primary", "b": "member"}
    with ternmq.sync.connect(ternmq_cluster.url) as client:
        client.send("orders", 1)


def test_the_journals_of_members_are_the_same(pair: Cluster) -> None:
    """What was committed is on both disks, byte for byte: real replication, no second send."""
    with ternmq.sync.connect(pair.url) as client:
        client.send_many("orders", [{"n": n} for n in range(50)])
        pair.kill("b")
        pair.kill("a")
    disks: list[dict[str, Any]] = [one.disk.image() for one in pair._brokers.places.values()]
    first = "journal/00000000000000000000.seg"
    end = len(disks[1][first].rstrip(b"\0"))
    assert end > 1000
    assert disks[0][first][:end] == disks[1][first][:end]
