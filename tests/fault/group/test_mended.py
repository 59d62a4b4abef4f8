"""Damaged bytes in old segments of brokers that run: found by a read or the scrub, and mended."""

from __future__ import annotations

from pathlib import Path

import pytest

import ternmq.sync
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.scan import RawRecord, scan
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.record.fact.header import Kind
from tests.fault.group.brokers import Brokers, url_of, wait
from tests.fault.group.checks import at_rest, differences
from tests.fault.server.broker import APP, TOKEN, Broker
from tests.fault.server.tools import SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

BODIES = [b"%07d" % number * 150 for number in range(6000)]
"""6 MB: some segments are full and closed."""
SIZE = 3 << 20


def fill(url: str) -> None:
    """Make a group, and messages that nobody has read."""
    with ternmq.sync.connect(url, app=APP, token=TOKEN, timeout=60) as client:
        client.admin.create_topic("orders")
        client.admin.create_group("orders", "g")
        for start in range(0, len(BODIES), 500):
            client.send_many("orders", BODIES[start : start + 500])


def messages(data: Path) -> list[RawRecord]:
    """The records of messages in the segments that are closed."""
    disk = RealDisk(data, read_only=True)
    sealed = segment_bases(disk)[-3]  # an active one and a spare may follow
    return [
        one
        for one in scan(disk, segment_bases(disk)[0])
        if one.kind == Kind.MESSAGES and one.position < sealed
    ]


def flip(data: Path, record: RawRecord) -> None:
    """Change a quarter of a record, in the middle of it."""
    base = record.position - record.position % SIZE
    with (data / segment_name(base)).open("r+b") as file:
        at = record.position - base + record.length // 2
        file.seek(at)
        found = file.read(record.length // 4)
        file.seek(at)
        file.write(bytes(one ^ 0xFF for one in found))


def restarted(brokers: Brokers) -> str:
    """Have another broker lead, which has no old messages in memory; return its name."""
    old, new = brokers.primary, brokers.other
    brokers.kill(old)
    brokers.wait_for_primary(new)
    brokers.start(old)
    brokers.wait_until_whole()
    return new


@pytest.mark.timeout(240)
@pytest.mark.parametrize("copies", ["primary", "both"])
def test_a_consumer_gets_what_was_damaged_at_the_primary(memory_folder, copies):
    """Each message at its first attempt, and in order. ``both``: damaged at different places."""
    with Brokers(memory_folder / "group", scrub="0") as brokers:
        fill(brokers.url)
        primary = restarted(brokers)
        records = messages(brokers.data[primary])
        flip(brokers.data[primary], records[1])
        flip(brokers.data[primary], records[len(records) // 2])
        if copies == "both":
            flip(brokers.data[brokers.other], records[3])
        got: list[bytes] = []
        with ternmq.sync.connect(brokers.url, app=APP, token=TOKEN, timeout=60) as client:
            while len(got) < len(BODIES):
                found = client.pull("orders", group="g", max_messages=500, wait=30)
                assert {one.attempt for one in found} == {1}
                got += [one.body for one in found]
                found.ack()
            assert got == BODIES
            wait(lambda: "mended" in {one.name for one in client.admin.alarms()}, "an alarm")
        assert brokers.log(primary).count("were mended from the copy") == 2
        assert sorted((brokers.data[primary] / "repair").iterdir())
        other = brokers.other
        at_rest(brokers)
        left = differences(brokers.data[primary], brokers.data[other])
        assert len(left) == (copies == "both"), left


@pytest.mark.timeout(240)
def test_the_scrub_mends_both_copies(memory_folder):
    """Each from the other; afterwards they are equal."""
    with Brokers(memory_folder / "group", scrub="2s") as brokers:
        fill(brokers.url)
        primary, replica = brokers.primary, brokers.other
        records = messages(brokers.data[primary])
        for at, name in enumerate((primary, replica)):
            flip(brokers.data[name], records[1 + at])
            flip(brokers.data[name], records[-1 - at])
        assert differences(brokers.data[primary], brokers.data[replica])
        for name in (primary, replica):
            wait(
                lambda name=name: brokers.log(name).count("were mended from the copy") == 2,
                f"{name} has mended its copy",
            )
        at_rest(brokers)
        assert not differences(brokers.data[primary], brokers.data[replica])


@pytest.mark.timeout(240)
def test_what_is_damaged_in_both_copies_is_an_alarm(memory_folder):
    """And nothing is written; once the other one is good again, it is mended."""
    with Brokers(memory_folder / "group", scrub="2s") as brokers:
        fill(brokers.url)
        primary, replica = brokers.primary, brokers.other
        record = messages(brokers.data[primary])[1]
        for name in (replica, primary):
            flip(brokers.data[name], record)
        with ternmq.sync.connect(brokers.url, app=APP, token=TOKEN, timeout=60) as client:

            def alarm() -> bool:
                return any(one.name == "damaged" for one in client.admin.alarms())

            wait(alarm, "an alarm")
            (told,) = [one for one in client.admin.alarms() if one.name == "damaged"]
        assert told.subject == segment_name(record.position - record.position % SIZE)
        assert replica in told.text
        assert not (brokers.data[primary] / "repair").exists()
        at_rest(brokers)
        assert not differences(brokers.data[primary], brokers.data[replica])


@pytest.mark.timeout(240)
def test_a_broker_that_is_alone_raises_an_alarm(memory_folder):
    """It changes nothing; the alarm says what to do. It goes away with the damage."""
    data = memory_folder / "data"
    with Broker(data, memory_folder / "logs", **{**SMALL, "scrub": "2s"}) as broker:
        url = url_of(broker.ready())
        fill(url)
        record = messages(data)[1]
        flip(data, record)
        with ternmq.sync.connect(url, app=APP, token=TOKEN, timeout=60) as client:
            wait(lambda: bool(client.admin.alarms()), "an alarm")
            (told,) = client.admin.alarms()
            assert told.name == "damaged"
            assert told.subject == segment_name(record.position - record.position % SIZE)
            assert "repair the journal from a backup" in told.text
            assert client.admin.status().scrub.damaged == 1
            assert not (data / "repair").exists()
            flip(data, record)
            wait(lambda: not client.admin.alarms(), "no alarm")
            assert client.admin.status().scrub.damaged == 0
            wait(lambda: bool(client.admin.status().scrub.completed_us), "a whole round")
