"""The site of a pair is lost; the group goes on at the site of its backup (REP-7).

The backup follows through a link that is cut, and later falls behind. The coordinator is at a third
site: whoever comes back reaches it.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import ternmq.sync
from ternmq.wire.control import FollowerInfo
from tests.fault.group.brokers import Brokers, url_of, wait
from tests.fault.group.checks import differences, extent
from tests.fault.group.link import Link
from tests.fault.group.load import GroupLoad
from tests.fault.group.test_restore import leads, restore
from tests.fault.group.test_wrong import EXIT_SETTINGS, contents
from tests.fault.group.tools import LONG, PATIENT_S, passed, seconds
from tests.fault.processes import wait_until
from tests.fault.server.broker import Address

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MORE = 60
CUT_S: Final = seconds(3.0, 60.0)
BACKUP: Final = "c"
TOPIC: Final = "payments"
KEPT: Final = [b"kept %d" % number for number in range(100)]
LOST: Final = [b"lost %d" % number for number in range(100)]


@contextlib.contextmanager
def sites(folder: Path) -> Iterator[tuple[Brokers, dict[str, Link]]]:
    """A pair, and a backup that is not started yet; its way to each of the pair is a link."""
    with contextlib.ExitStack() as stack:
        links = {
            name: stack.enter_context(Link(Address("127.0.0.1", 1), of=b"backup"))
            for name in ("a", "b")
        }
        advertise = {name: f"127.0.0.1:{one.address.port}" for name, one in links.items()}
        brokers = Brokers(folder, names=("a", "b", BACKUP), later=(BACKUP,), advertise=advertise)
        for name, one in links.items():
            one.target = brokers.address(name)
        yield stack.enter_context(brokers), links


def lag_of(client: ternmq.sync.Client) -> tuple[int, FollowerInfo] | None:
    """Return the end of the journal, and what the primary says of the backup."""
    found = client.admin.status()
    for one in found.broker_group.followers:
        if one.broker == BACKUP and one.connected:
            return found.journal_end, one
    return None


def is_level(client: ternmq.sync.Client) -> bool:
    """Whether the backup has everything."""
    found = lag_of(client)
    return found is not None and found[1].behind_bytes == 0


def left_at(brokers: Brokers) -> list[bytes]:
    """Return what the topic has, in its order."""
    with ternmq.sync.connect(url_of(brokers.address(BACKUP)), timeout=60) as client:
        return [one.body for one in client.read(TOPIC)]


@pytest.mark.timeout(400)
@pytest.mark.row("D10")
def test_the_main_site_is_lost_and_comes_back(memory_folder, verdicts):
    """The backup has a prefix; the loss is what the primary said; the old site does not serve."""
    record = memory_folder / "history"
    with sites(memory_folder / "group") as (brokers, links):
        brokers.start(BACKUP, follower="backup")
        pair = brokers.addresses[:2]
        with ternmq.sync.connect(url_of(*pair), timeout=60) as client:
            client.admin.create_topic(TOPIC, queues=1)
            wait(lambda: is_level(client), "the backup follows")
            with GroupLoad(pair, record, silent_s=PATIENT_S) as load:
                load.sent(MORE)
                before = brokers.record()
                for link in links.values():
                    link.cut()
                wait(lambda: lag_of(client) is None, "the backup is cut off")
                over = passed(CUT_S)
                while not over():
                    load.sent(10)
                assert not load.noticed
                assert brokers.record() == before, "a backup is no member"
                for link in links.values():
                    link.heal()
                load.sent(MORE)
                load.stop_sending()
                load.drained()
            client.send_many(TOPIC, KEPT)
            began = time.monotonic()
            wait(lambda: is_level(client), "the backup has everything again")
            print(f"level {time.monotonic() - began:.2f} s after the last send")
            for link in links.values():
                link.hold(back=True)
            client.send_many(TOPIC, LOST)
            end, lag = measured(brokers, client)
        primary, replica = brokers.primary, brokers.other
        brokers.kill(primary, replica, BACKUP)
        assert extent(brokers.data[BACKUP]).end == end - lag.behind_bytes
        assert not differences(brokers.data[primary], brokers.data[BACKUP])
        shutil.copytree(brokers.data[BACKUP], memory_folder / "seen")
        verdicts.sound(memory_folder / "seen", record, power=True)
        kept = {name: contents(brokers.data[name]) for name in (primary, replica)}
        before = brokers.record()
        assert before is not None

        told = restore(brokers, str(brokers.data[BACKUP]), "--name", BACKUP)
        assert told["missing_bytes"] <= lag.behind_bytes
        brokers.start(BACKUP)
        assert leads(brokers, BACKUP).epoch > before.epoch
        assert left_at(brokers) == KEPT
        with ternmq.sync.connect(url_of(brokers.address(BACKUP)), timeout=60) as client:
            client.send(TOPIC, b"after")

        for name in (primary, replica):  # the site comes back
            one = brokers.begin(name)
            assert one.wait() == EXIT_SETTINGS, one.log
            brokers.kill(name)
            assert "another journal" in brokers.log(name)
            assert contents(brokers.data[name]) == kept[name], "its tail is not kept"
        tail = b"".join(kept[primary].values())
        assert all(body in tail for body in LOST)
        assert left_at(brokers) == [*KEPT, b"after"]
        if LONG:
            brokers.data[primary] = memory_folder / "empty"
            brokers.start(primary)  # and its machine is of use again
            brokers.wait_until_whole()
            brokers.kill(BACKUP)
            brokers.wait_for_primary(primary)
            with ternmq.sync.connect(brokers.url, timeout=60) as client:
                assert [one.body for one in client.read(TOPIC)] == [*KEPT, b"after"]


def measured(brokers: Brokers, client: ternmq.sync.Client) -> tuple[int, FollowerInfo]:
    """Return ``lag_of`` the backup when the primary knows exactly what that one has.

    A connection on which nothing is acknowledged for 10 s is closed; the next one is like it.
    """
    found: list[tuple[int, FollowerInfo]] = []

    def agrees() -> bool:
        said = lag_of(client)
        if said is None or not said[1].behind_bytes:
            return False
        found[:] = [said]
        return said[0] - said[1].behind_bytes == extent(brokers.data[BACKUP]).end

    wait_until(agrees, "the primary says how far the backup is behind")
    return found[0]
