"""Brokers of a group are stopped for longer than the lease, and go on (REP-2)."""

from __future__ import annotations

import time

import pytest

from ternmq.model.errors import TernMQError
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.fault.group.brokers import Brokers, wait
from tests.fault.group.checks import sound
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import cycles
from tests.fault.messages import ORDERS, Attempt, batch_of
from tests.fault.server.raw import Peer

pytestmark = [pytest.mark.fault, pytest.mark.slow]

TIMES = cycles(1)
MORE = 60
STALE = 9000
"""Number of the producer whose sends reach a primary that is stopped."""


@pytest.mark.timeout(120 + 60 * TIMES)
def test_the_primary_is_stopped_and_wakes_up(memory_folder, verdicts):
    """It answers nobody after it has woken up, though their requests reached it; it follows."""
    record = memory_folder / "history"
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            for number in range(TIMES):
                load.sent(MORE)
                old, new = brokers.primary, brokers.other
                with Peer(brokers.address(old), name="faithful") as faithful:
                    for sequence in range(20):
                        assert answered(faithful, load, number, sequence)
                    brokers[old].stop()
                    asked = [begin(faithful, load, number, 20 + one) for one in range(20)]
                    brokers.wait_for_primary(new)
                    load.sent(MORE)  # of the new reign
                    brokers[old].go_on()
                    for id_ in asked:
                        with pytest.raises((OSError, TernMQError)):
                            faithful.end(id_)
                brokers.wait_until_whole()
                assert brokers.primary == new
            load.sent(MORE)
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


def attempt(number: int, sequence: int) -> Attempt:
    return Attempt(ORDERS, STALE + number, sequence, 1, time.time_ns() // 1000, False)


def begin(peer: Peer, load: GroupLoad, number: int, sequence: int) -> int:
    """Send a message that is on record, without waiting for the answer."""
    one = attempt(number, sequence)
    load.desk.write("try", a=one)
    return peer.begin(Command.SEND, bodies.pack_send(one.topic, None, batch_of(one)))


def answered(peer: Peer, load: GroupLoad, number: int, sequence: int) -> bool:
    """Send a message; return whether it was stored."""
    return bool(bodies.unpack_receipt(peer.end(begin(peer, load, number, sequence))).stored)


@pytest.mark.timeout(120 + 60 * TIMES)
def test_the_replica_is_stopped_and_comes_back(memory_folder, verdicts):
    """Sends go on without it; it catches up and is a member again, under the same process."""
    record = memory_folder / "history"
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            for _ in range(TIMES):
                load.sent(MORE)
                primary, replica = brokers.primary, brokers.other
                brokers[replica].stop()
                wait(lambda: len(members(brokers)) == 1, "the replica is taken out")
                load.sent(4 * MORE)
                brokers[replica].go_on()
                brokers.wait_until_whole()
                assert brokers.primary == primary
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


def members(brokers: Brokers) -> list[str]:
    found = brokers.record()
    return [] if found is None else [one.broker for one in found.members]
