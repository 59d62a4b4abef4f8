"""Transactions and delayed messages of a group whose halves are killed (TXN-1, DLY-1, RTY-2)."""

from __future__ import annotations

import random
from functools import partial

import pytest

import ternmq.sync
from tests.fault.group.brokers import Brokers
from tests.fault.group.checks import at_rest, differences
from tests.fault.group.tools import cycles, passed
from tests.fault.processes import wait_until
from tests.fault.server.delays import Delays, kept_up
from tests.fault.server.ledger import Crew, Ledger, Orders

pytestmark = [pytest.mark.fault, pytest.mark.slow]

KILLS = cycles(1)


def compared(brokers: Brokers) -> None:
    """Compare the copies of a group that is at rest."""
    brokers.wait_until_whole()
    primary, replica = brokers.primary, brokers.other
    at_rest(brokers)
    assert not (found := differences(brokers.data[primary], brokers.data[replica])), found


@pytest.mark.timeout(300 + 60 * KILLS)
def test_transactions_while_primaries_and_producers_die(memory_folder):
    """All or none of each is there, once, as its producer or a checker has decided."""
    chance = random.Random(4)
    ledger = memory_folder / "ledger"
    count = 60 * KILLS
    with Brokers(memory_folder / "group") as brokers:
        with ternmq.sync.connect(brokers.url, timeout=120) as client:
            orders = Orders(client, Ledger(ledger), count)
            orders.make()
            with Crew(brokers.url, ledger, deaths=60) as crew:
                for _ in range(KILLS):
                    orders.wait(crew.tend, passed(chance.uniform(1.0, 3.0)))
                    victim = brokers.primary
                    brokers.kill(victim)
                    orders.wait(crew.tend, passed(chance.uniform(1.0, 5.0)))
                    brokers.start(victim)
                    brokers.wait_until_whole()
                orders.wait(crew.tend)
            assert orders.judge() >= count
        compared(brokers)


@pytest.mark.timeout(300 + 60 * KILLS)
def test_delayed_messages_while_primaries_die(memory_folder):
    """Each that was not cancelled becomes a message once, not before it is due, in order."""
    with Brokers(memory_folder / "group") as brokers:
        with ternmq.sync.connect(brokers.url, timeout=120) as client:
            delays = Delays(client)
            delays.make()
            with kept_up(delays, client):
                for _ in range(KILLS):
                    upto = len(delays.sent) + 200
                    wait_until(partial(delays.reached, upto), "some are scheduled")
                    victim = brokers.primary
                    brokers.kill(victim)
                    upto = len(delays.sent) + 100
                    wait_until(partial(delays.reached, upto), "some more are scheduled")
                    brokers.start(victim)
                    brokers.wait_until_whole()
            delays.drained()
            assert delays.judge() > 100 * KILLS
            assert delays.cancelled
        compared(brokers)
