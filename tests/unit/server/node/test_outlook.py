"""What a broker that does not lead shows: lines, figures, the HTTP port."""

from __future__ import annotations

import asyncio
import logging
import urllib.error
import urllib.request
from typing import cast

import pytest

from ternmq.cluster.coordination.group import Presence
from ternmq.cluster.coordination.record import Leadership, Member, Writer
from ternmq.http.port import Answer
from ternmq.model.types import Epoch
from ternmq.model.units import Address
from ternmq.server.metrics.health import Health
from ternmq.server.node.figures import CopyFigures
from ternmq.server.node.follower import Replica
from ternmq.server.node.outlook import Outlook
from ternmq.settings import Settings
from ternmq.settings.settings import Follower as FollowerKind

ME = Member("b", 2)
PRESENT = {"a": Presence("main", "a", 1, "host-a:7117")}


def record(*members: Member) -> Leadership:
    return Leadership(
        version=3,
        writer=Writer("a", 1, 3),
        journal=5,
        epoch=Epoch(4),
        primary="a",
        members=(Member("a", 1), *members),
    )


class Disk:
    def free_bytes(self) -> int:
        return 10

    def total_bytes(self) -> int:
        return 30

    def size_bytes(self) -> int:
        return 40


class Follows:
    """As much of a ``Replica`` as is shown."""

    disk = Disk()
    now = CopyFigures(
        written=900, synced=800, committed=850, behind_bytes=1234, heard_s=0.5, connected=True
    )

    def figures(self) -> CopyFigures:
        return self.now


class Clock:
    us = 0

    def __call__(self) -> int:
        return self.us


def outlook(clock: Clock | None = None, **more: object) -> Outlook:
    settings = Settings(name="b", **more)  # type: ignore[arg-type]
    return Outlook(settings, ME, clock or Clock())


def numbers(one: Outlook) -> dict[str, float]:
    return {
        family.family.name + "".join(values): number
        for family in one._follower_numbers()
        for values, number in family.series
    }


def test_a_broker_without_a_role_says_why() -> None:
    one = outlook()
    assert one.why_not_ready() == (
        "b has no role in broker group main yet: it has not read the leadership record yet"
    )
    one.troubled("the coordinator does not answer: no")
    assert one.why_not_ready().endswith("yet: the coordinator does not answer: no")
    assert numbers(one)["ternmq_cluster_rolemainfollower"] == 0


def test_a_follower_says_whom_it_follows_and_how_far_behind_it_is() -> None:
    one = outlook()
    follows = Follows()
    one.learned(record(), PRESENT)
    one.follows(cast("Replica", follows))
    assert one.why_not_ready() == (
        "follows a at host-a:7117, 1,234 bytes behind; its copy does not count yet"
    )
    one.learned(record(ME), PRESENT)
    assert one.why_not_ready().endswith("; its copy counts")
    follows.now = CopyFigures()
    one.learned(record(ME), {})
    assert one.why_not_ready() == "follows a, not connected; its copy counts"


def test_the_metrics_of_a_follower() -> None:
    clock = Clock()
    one = outlook(clock)
    one.learned(record(ME), PRESENT)
    one.follows(cast("Replica", Follows()))
    found = numbers(one)
    assert found["ternmq_cluster_rolemainfollower"] == 1
    assert found["ternmq_cluster_rolemainprimary"] == 0
    assert found["ternmq_cluster_epoch"] == 4
    assert found["ternmq_cluster_copies"] == 2
    assert found["ternmq_cluster_member"] == 1
    assert found["ternmq_cluster_coordinator_silent_seconds"] == 0
    assert found["ternmq_copy_written"] == 900
    assert found["ternmq_copy_synced"] == 800
    assert found["ternmq_copy_behind_bytes"] == 1234
    assert found["ternmq_copy_heard_seconds"] == 0.5
    assert found["ternmq_disk_used_bytes"] == 20
    one.troubled("the coordinator does not answer: no")
    clock.us = 7_000_000
    one.troubled("the coordinator does not answer: still no")
    assert numbers(one)["ternmq_cluster_coordinator_silent_seconds"] == 7
    one.troubled("")
    assert numbers(one)["ternmq_cluster_coordinator_silent_seconds"] == 0


def test_a_member_whose_every_process_counts_is_one() -> None:
    one = outlook()
    one.learned(record(Member("b", 0)), PRESENT)
    assert numbers(one)["ternmq_cluster_member"] == 1
    one.learned(record(Member("b", 77)), PRESENT)  # another life of it
    assert numbers(one)["ternmq_cluster_member"] == 0


def test_a_copy_that_does_not_count_is_logged_once_and_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ternmq.cluster")
    clock = Clock()
    one = outlook(clock)
    one.learned(record(), PRESENT)
    one.follows(cast("Replica", Follows()))
    for second in range(10):
        clock.us = second * 1_000_000
        one.look()
    (told,) = caplog.messages
    assert told == (
        "the copy of b has not counted for 5 seconds: it follows a at host-a:7117, 1,234 bytes "
        "behind; its copy does not count yet"
    )
    one.learned(record(ME), PRESENT)
    one.look()
    one.look()
    assert caplog.messages[1:] == ["the copy of b counts again"]


def test_a_backup_is_no_copy_that_is_missed(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    one = outlook(clock, follower=FollowerKind.BACKUP)
    one.learned(record(), PRESENT)
    one.follows(cast("Replica", Follows()))
    for second in range(10):
        clock.us = second * 1_000_000
        one.look()
    assert not caplog.messages
    assert one.why_not_ready() == ("follows a at host-a:7117, 1,234 bytes behind; it is a backup")
    assert numbers(one)["ternmq_cluster_rolemainbackup"] == 1
    assert numbers(one)["ternmq_cluster_rolemainfollower"] == 0


def test_who_is_missing_is_said() -> None:
    one = outlook()
    assert one.missing() == "no other broker of the group has been seen since the start"
    one.learned(record(), {})
    assert one.missing() == "no other broker of the group has been seen since the start"
    one.learned(record(), PRESENT | {"c": Presence("main", "c", 3, "host-c:7117")})
    one.learned(record(Member("d", 4)), {"c": Presence("main", "c", 3, "host-c:7117")})
    one.learned(record(), {"c": Presence("main", "c", 3, "host-c:7117")})
    assert one.missing() == "c at host-c:7117 runs, and does not follow; d does not run"


async def _page(port: int, path: str) -> tuple[int, str]:
    def read() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    return await asyncio.to_thread(read)


class Leads:
    """A ``Health`` of a broker that leads."""

    def __init__(self) -> None:
        async def ready() -> Answer:
            return Answer([b"ok\n"])

        async def scraped() -> Answer:
            await asyncio.sleep(0)
            raise asyncio.CancelledError  # the broker stops while it is scraped

        self.paths = {"/readyz": ready, "/livez": ready, "/metrics": scraped}


async def test_one_port_answers_in_every_role() -> None:
    one = outlook(http=Address("127.0.0.1", 0))
    await one.open("ternmq://127.0.0.1:1")
    try:
        port = one.probes.port
        assert port
        one.learned(record(ME), PRESENT)
        one.follows(cast("Replica", Follows()))
        assert await _page(port, "/livez") == (200, "ok\n")
        assert (await _page(port, "/readyz"))[0] == 503
        code, text = await _page(port, "/metrics")
        assert code == 200
        assert "ternmq_copy_behind_bytes 1234.0" in text
        assert "ternmq_uptime_seconds" in text
        assert one.answers(cast("Health", Leads())) == port
        assert await _page(port, "/readyz") == (200, "ok\n")
        one.answers(None)
        assert (await _page(port, "/readyz"))[0] == 503
        assert (await _page(port, "/nothing"))[0] == 404
    finally:
        await one.close()


async def test_a_scrape_of_a_broker_that_stops_to_lead_is_answered() -> None:
    one = outlook(http=Address("127.0.0.1", 0))
    await one.open("ternmq://127.0.0.1:1")
    try:
        leads = Leads()

        async def scraped() -> Answer:
            one.answers(None)
            raise asyncio.CancelledError

        leads.paths["/metrics"] = scraped
        port = one.answers(cast("Health", leads))
        code, text = await _page(port, "/metrics")
        assert code == 200
        assert "ternmq_cluster_role" in text
    finally:
        await one.close()


async def test_a_broker_without_an_http_port_has_none() -> None:
    one = outlook(http=None)
    await one.open("ternmq://127.0.0.1:1")
    assert one.probes.port == 0
    await one.close()
