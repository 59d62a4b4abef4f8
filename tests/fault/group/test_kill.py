"""Brokers of a group are killed under load (REP-1, ORD-1)."""

from __future__ import annotations

import random

import pytest

from tests.fault.group.brokers import Brokers
from tests.fault.group.checks import sound
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import cycles

pytestmark = [pytest.mark.fault, pytest.mark.slow]

KILLS = cycles(1)
MORE = 60
"""Messages that are answered after a fault before the next one."""


@pytest.mark.timeout(120 + 60 * KILLS)
def test_primary_and_replica_are_killed_in_turn(memory_folder, verdicts):
    """REP-1: clients go on at whoever is left; nothing that was answered is lost."""
    chance = random.Random(1)
    record = memory_folder / "history"
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            for number in range(2 * KILLS):
                load.sent(chance.randint(MORE, 4 * MORE))
                victim = brokers.primary if number % 2 == 0 else brokers.other
                brokers.kill(victim)
                load.sent(MORE)
                brokers.start(victim)
                brokers.wait_until_whole()
            load.sent(MORE)
            load.settled(MORE)
            load.stop_sending()
            load.drained()
        verdict = sound(brokers, verdicts, record)
    assert verdict["sent"] > 2 * KILLS
    assert verdict["settled"] > 2 * KILLS


@pytest.mark.timeout(120 + 60 * KILLS)
@pytest.mark.parametrize("first", ["primary", "replica"])
def test_both_are_killed_at_once(first, memory_folder, verdicts):
    """Whoever comes back first: it serves when it has all that was answered, and not before."""
    chance = random.Random(first)
    record = memory_folder / "history"
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            for _ in range(KILLS):
                load.sent(chance.randint(MORE, 4 * MORE))
                pair = [brokers.primary, brokers.other]
                brokers.kill(*pair)
                if first == "replica":
                    pair.reverse()
                for name in pair:
                    brokers.start(name)
                load.sent(MORE)
                brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)
