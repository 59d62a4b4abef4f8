"""``ternmq cluster restore``: the group goes on with a backup; whoever was before it, does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ternmq.sync
from ternmq.cluster.coordination.record import Leadership
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.recovery.repair import inspect
from ternmq.server.node.restoring import EPOCHS_ABOVE
from tests.fault.group.brokers import Brokers, url_of, wait
from tests.fault.group.test_wrong import EXIT_SETTINGS, contents
from tests.fault.processes import DEADLINE, environment
from tests.fault.server.broker import APP, TOKEN

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LATER = 7


def run(brokers: Brokers, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {"TERNMQ_CLUSTER": brokers.cluster, "TERNMQ_APP": APP, "TERNMQ_TOKEN": TOKEN}
    return subprocess.run(
        [sys.executable, "-m", "ternmq", *words],
        env=environment() | variables, capture_output=True, text=True, timeout=DEADLINE,
        check=False,
    )  # fmt: skip


def restore(brokers: Brokers, *words: str) -> Any:
    """Restore as soon as the coordinator sees no broker any more; return what the command says."""
    done: list[subprocess.CompletedProcess[str]] = []

    def tried() -> bool:
        done.append(run(brokers, "cluster", "restore", *words, "--yes", "--json"))
        return done[-1].returncode != LATER

    wait(tried, "no broker is seen to run")
    assert done[-1].returncode == 0, done[-1].stderr
    return json.loads(done[-1].stdout)


def send(brokers: Brokers, bodies: list[bytes]) -> None:
    with ternmq.sync.connect(brokers.url, app=APP, token=TOKEN, timeout=DEADLINE) as client:
        client.send_many("orders", bodies)


def create_topic(brokers: Brokers) -> None:
    with ternmq.sync.connect(brokers.url, app=APP, token=TOKEN, timeout=DEADLINE) as client:
        client.admin.create_topic("orders")


def left_in(brokers: Brokers) -> list[bytes]:
    """Consume all that the group has."""
    found: list[bytes] = []
    with ternmq.sync.connect(brokers.url, app=APP, token=TOKEN, timeout=DEADLINE) as client:
        while batch := client.pull(
            "orders", group="g", start="earliest", max_messages=1000, wait=1
        ):
            found += batch.bodies
            batch.ack()
    return found


def leads(brokers: Brokers, name: str) -> Leadership:
    brokers.wait_for_primary(name)
    record = brokers.record()
    assert record is not None
    return record


@pytest.mark.timeout(240)
@pytest.mark.row("D10")
def test_a_backup_is_restored(memory_folder: Path) -> None:
    """What it has is there; older folders of the group do not start, and stay as they are."""
    before, after = [b"%d" % one for one in range(50)], [b"later %d" % one for one in range(20)]
    with Brokers(memory_folder / "group") as brokers:
        primary, replica = brokers.primary, brokers.other
        old = dict(brokers.data)
        create_topic(brokers)
        send(brokers, before)
        backup, data = memory_folder / "backup", memory_folder / "restored"
        words = ("backup", str(old[primary]), str(backup))
        made = run(brokers, *words, "--url", url_of(brokers.address(primary)))
        assert made.returncode == 0, made.stderr
        send(brokers, after)
        said = run(brokers, "cluster", "restore", str(data), "--from", str(backup), "--name", "a")
        assert said.returncode == LATER, said
        assert "a, b of broker group main run, or were killed" in said.stderr
        brokers.kill(primary, replica)
        record = brokers.record()
        assert record is not None
        kept = {name: contents(folder) for name, folder in old.items()}

        told = restore(brokers, str(data), "--from", str(backup), "--name", primary)
        assert told["done"]
        assert told["before"] == {"epoch": record.epoch, "primary": primary}
        for name in (primary, replica):
            one = brokers.begin(name)
            assert one.wait() == EXIT_SETTINGS, one.log
            assert "another journal" in one.log
            assert contents(old[name]) == kept[name]

        brokers.data[primary] = data
        brokers.data[replica] = memory_folder / "empty"
        brokers.start(primary)
        assert leads(brokers, primary).epoch > record.epoch + EPOCHS_ABOVE
        assert sorted(left_in(brokers)) == sorted(before)
        brokers.start(replica)
        brokers.wait_until_whole()
        send(brokers, after)
        brokers.kill(primary)  # and the group is a pair as ever
        brokers.wait_for_primary(replica)
        assert sorted(left_in(brokers)) == sorted(after)


@pytest.mark.timeout(240)
@pytest.mark.row("D14")
def test_the_copy_that_is_left_while_the_primary_is_out_of_reach(memory_folder: Path) -> None:
    """In the follower's own folder; the primary wakes up, finds the new reign, and ends."""
    bodies = [b"%d" % one for one in range(50)]
    with Brokers(memory_folder / "group") as brokers:
        primary, replica = brokers.primary, brokers.other
        create_topic(brokers)
        send(brokers, bodies)
        brokers.wait_until_whole()
        brokers.kill(replica)
        brokers[primary].stop()
        told = restore(brokers, str(brokers.data[replica]), "--name", replica)
        assert told["epoch"] > EPOCHS_ABOVE
        assert not inspect(RealDisk(brokers.data[replica], read_only=True)).damage
        brokers.start(replica)
        record = leads(brokers, replica)
        brokers[primary].go_on()
        assert brokers[primary].wait() == EXIT_SETTINGS, brokers[primary].log
        assert "another journal" in brokers.log(primary)
        assert brokers.record() == record
        assert sorted(left_in(brokers)) == sorted(bodies)


@pytest.mark.timeout(240)
def test_a_follower_that_was_stopped_meanwhile(memory_folder: Path) -> None:
    """It neither leads the group with its old folder, nor follows."""
    bodies = [b"%d" % one for one in range(50)]
    with Brokers(memory_folder / "group") as brokers:
        primary, replica = brokers.primary, brokers.other
        create_topic(brokers)
        send(brokers, bodies)
        brokers.wait_until_whole()
        brokers[replica].stop()
        brokers.kill(primary)
        data = memory_folder / "restored"
        restore(brokers, str(data), "--from", str(brokers.data[primary]), "--name", replica)
        left = brokers.record()
        brokers[replica].go_on()
        assert brokers[replica].wait() == EXIT_SETTINGS, brokers[replica].log
        assert "another journal" in brokers.log(replica)
        assert brokers.record() == left
        brokers.data[replica] = data
        brokers.start(replica)
        leads(brokers, replica)
        assert sorted(left_in(brokers)) == sorted(bodies)
