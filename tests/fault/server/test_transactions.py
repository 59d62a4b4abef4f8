"""Transactions whose producers, checkers, broker and connections die (TXN-1 to TXN-3)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.fault.processes import patience, wait_until
from tests.fault.server.broker import Address
from tests.fault.server.delays import Frozen, Steady
from tests.fault.server.ledger import Crew, Ledger, Orders
from tests.fault.server.proxy import Proxy
from tests.fault.server.tools import LONG, POWER_CUTS, SMALL
from tests.fault.tools import need_root
from tests.fault.volumes import Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

ORDERS = 500 if LONG else 80


def passed(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


@contextmanager
def orders_of(broker: Steady, folder: Path, count: int) -> Iterator[Orders]:
    with broker, ternmq.sync.connect(broker.url, timeout=120) as client:
        orders = Orders(client, Ledger(folder), count)
        orders.make()
        yield orders


@pytest.mark.timeout(600)
@pytest.mark.row("J0a", "J0c", "J0h", "J0i")
def test_producers_killed_between_prepare_and_commit(tmp_path: Path) -> None:
    """TXN-1: half of the transactions end in the death of their producer, others are refused."""
    ledger = tmp_path / "ledger"
    broker = Steady(tmp_path, tmp_path / "data", SMALL)
    with orders_of(broker, ledger, ORDERS) as orders:
        with Crew(broker.url, ledger, deaths=200) as crew:
            orders.wait(crew.tend)
        judged = orders.judge()
    print(f"{crew.died} producers died in {judged} transactions")
    assert crew.died > ORDERS / 20
    assert judged > ORDERS


@pytest.mark.timeout(600)
@pytest.mark.row("J0a", "J0f", "J0g")
def test_everybody_is_killed_again_and_again(tmp_path: Path) -> None:
    """TXN-2: the broker is killed every second or so, in commits too, and producers die."""
    chance, kills = random.Random(3), 0
    ledger = tmp_path / "ledger"
    broker = Steady(tmp_path, tmp_path / "data", SMALL)
    with orders_of(broker, ledger, ORDERS) as orders:
        with Crew(broker.url, ledger, deaths=60) as crew:
            for _ in range(30 if LONG else 6):
                orders.wait(crew.tend, passed(chance.uniform(0.5, 2.0)))
                broker.restart(kill=True)
                kills += 1
            paid = orders.paid()
            orders.wait(crew.tend)
        orders.judge()
    print(f"{kills} kills of the broker, {paid} paid meanwhile, {crew.died} producers died")
    assert paid, "inconclusive: nothing was paid while the broker was killed"


@pytest.mark.timeout(600)
@pytest.mark.row("J0f", "J0g")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts_while_transactions_are_under_way(kind: str, memory_folder: Path) -> None:
    """What was committed is there, whole; what was prepared is decided after the power is back."""
    need_root(f"mkfs.{kind}")
    chance = random.Random(kind)
    ledger = memory_folder / "ledger"
    with Volume(memory_folder / "volume", kind) as volume:
        broker = Steady(memory_folder / "broker", volume.point / "data", SMALL)
        with orders_of(broker, ledger, ORDERS) as orders:
            with Crew(broker.url, ledger, deaths=60) as crew:
                for _ in range(POWER_CUTS + 1):
                    # A cut takes a while, in which more may be paid: at the end, all of them.
                    upto = min(ORDERS, orders.paid() + chance.randint(2, ORDERS // 6))
                    orders.wait(crew.tend, partial(lambda upto: orders.paid() >= upto, upto))
                    volume.cut(Frozen(broker))
                    broker.start()
                orders.wait(crew.tend)
            orders.judge()
            broker.kill()


@pytest.mark.timeout(600)
@pytest.mark.row("J0b", "J0g")
def test_clients_cut_off_in_commit(tmp_path: Path) -> None:
    """Every connection is reset many times a second: answers of commits are lost, too."""
    ledger = tmp_path / "ledger"
    broker = Steady(tmp_path, tmp_path / "data", SMALL)
    with orders_of(broker, ledger, ORDERS // 2) as orders:
        with (
            Proxy(Address("127.0.0.1", broker.port), 0.4) as proxy,
            Crew(f"ternmq://127.0.0.1:{proxy.address.port}", ledger, deaths=0) as crew,
        ):
            orders.wait(crew.tend)
        orders.judge()
    assert proxy.cuts > 10


# -- questions ----------------------------------------------------------------------------------


class Checker:
    """A checker in this process that says one thing, or raises; it counts its questions.

    Args:
        client: It answers.
        group: The producer group.
        decision: What it says; None: it raises.
        waits: It answers when this is set.
    """

    def __init__(
        self,
        client: ternmq.sync.Client,
        group: str,
        decision: ternmq.Decision | None,
        waits: threading.Event | None = None,
    ) -> None:
        self.asked: list[float] = []
        self._decision = decision
        self._waits = waits
        self._lock = threading.Lock()
        client.checker(group)(self.check)

    def check(self, tx: ternmq.sync.PreparedTransaction) -> ternmq.Decision:
        with self._lock:
            self.asked.append(time.monotonic())
        if self._waits is not None:
            self._waits.wait()
        if self._decision is None:
            raise RuntimeError("this one never works")
        return self._decision


def leave_open(client: ternmq.sync.Client, group: str, count: int) -> list[str]:
    """Open transactions with a message each, and leave them to the checkers; return their ids."""
    found = []
    for number in range(count):
        tx = client.transaction(group, query_id=str(number), on_error="check", check_after=1)
        with suppress(ZeroDivisionError), tx:
            tx.send(group, b"%d" % number)
            raise ZeroDivisionError
        found.append(tx.id)
    return found


@pytest.mark.timeout(900)
@pytest.mark.row("J0c", "J0d", "J0e", "K19")
def test_many_open_halves_of_which_some_are_never_decided(tmp_path: Path) -> None:
    """TXN-3: a group without checkers, one whose checker raises, a slow one: others go on."""
    count = 10_000 if LONG else 600
    with Steady(tmp_path, tmp_path / "data", SMALL) as broker:
        with ternmq.sync.connect(broker.url) as client, ternmq.sync.connect(broker.url) as other:
            for group in ("good", "dead", "bad", "slow"):
                client.admin.create_topic(group)
                client.admin.put_producer_group(
                    group,
                    first=1,
                    factor=1,
                    cap=1,
                    attempts=1000 if group == "slow" else 3,
                    without_checker=True,
                )
            dead = leave_open(client, "dead", 5)
            ids = leave_open(client, "good", count)
            bad = leave_open(client, "bad", 1)
            slow = leave_open(client, "slow", 3)
            over = threading.Event()
            good = Checker(other, "good", ternmq.Decision.COMMIT)
            raising = Checker(other, "bad", None)
            waiting = Checker(other, "slow", ternmq.Decision.COMMIT, over)
            other.connect()
            begun = time.monotonic()
            wait_until(
                lambda: not client.admin.checked_transactions(group="good", limit=1),
                "all of the good ones decided",
                60 * patience(),
            )
            took = time.monotonic() - begun
            wait_until(lambda: bool(waiting.asked), "the slow ones are asked about")
            assert {client.admin.transaction(one).state for one in slow} == {"undecided"}
            over.set()
            wait_until(
                lambda: {client.admin.transaction(one).state for one in slow} == {"committed"},
                "the slow ones are decided",
            )
            wait_until(
                lambda: client.admin.transaction(bad[0]).state == "parked", "the bad one is parked"
            )
            alarms = {(one.name, one.subject) for one in client.admin.alarms()}
            states = {client.admin.transaction(one).state for one in dead}
        broker.restart(kill=True)
        with ternmq.sync.connect(broker.url) as client:
            assert client.admin.transaction(bad[0]).state == "parked"
            assert {client.admin.transaction(one).state for one in dead} == states
            assert len(list(client.read("good"))) == count
            assert list(client.read("bad")) == list(client.read("dead")) == []
            assert {client.transaction_outcome(one) for one in ids} == {ternmq.Decision.COMMIT}
            assert client.admin.resolve_transaction(bad[0], commit=False)
    assert ("transaction-parked", bad[0]) in alarms
    assert len(raising.asked) == 3, "as often as the group says"
    assert len(good.asked) == count, "each was asked once"
    assert states == {"undecided"}, "nobody was there to be asked"
    rate = most_in_a_second(good.asked)
    print(f"{count} decided in {took:.1f} s, at most {rate} questions a second")
    assert rate <= 220, "questions to a client are bounded"


def most_in_a_second(times: list[float]) -> int:
    """Return the most of these times that lie within a second."""
    times = sorted(times)
    return max(sum(1 for one in times[at:] if one < first + 1) for at, first in enumerate(times))
