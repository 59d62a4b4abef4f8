"""Replicas that have to catch up: wiped, or far behind, also where segments were removed."""

from __future__ import annotations

import shutil

import pytest

from tests.fault.group.brokers import Brokers
from tests.fault.group.checks import sound
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import cycles

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MORE = 60
TIMES = cycles(1)


@pytest.mark.timeout(120 + 60 * TIMES)
def test_a_wiped_replica_is_brought_up(memory_folder, verdicts):
    """Its folder is empty: it copies everything while the primary serves, and can take over."""
    record = memory_folder / "history"
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            for _ in range(TIMES):
                load.sent(2 * MORE)
                primary, replica = brokers.primary, brokers.other
                brokers.kill(replica)
                shutil.rmtree(brokers.data[replica])
                load.sent(MORE)
                brokers.start(replica)
                brokers.wait_until_whole()
                brokers.kill(primary)
                load.sent(MORE)
                brokers.start(primary)
                brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)
