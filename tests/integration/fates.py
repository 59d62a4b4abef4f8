"""Messages that expire, that fail in a broadcast instance, and those of groups of every mode."""

from __future__ import annotations

from collections.abc import Iterator

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker
from tests.black_box.process import wait_until

Ids = dict[tuple[str, int, int | None], str]
"""Ids of messages by topic, queue and offset."""


def day(timed: InProcessBroker) -> Ids:
    """Let messages meet with all that; return their ids."""
    with ternmq.sync.connect(timed.url, app="shop", instance="web-1") as client:
        ids = {
            (one.topic, one.queue, one.offset): one.id
            for some in (_expiring, _broadcast, _owned, _switched)
            for one in some(timed, client)
        }
        for group in ("traders", "screen"):
            assert len(_taken(client, "quotes", group)) == 4
    return ids


def _expiring(timed: InProcessBroker, client: ternmq.sync.Client) -> Iterator[ternmq.sync.Receipt]:
    """Two of six messages expire: for one group they are dead, the other one drops them."""
    client.admin.create_topic("quotes")
    client.admin.create_group("quotes", "traders")
    client.admin.create_group("quotes", "screen")
    client.admin.change_group("quotes", "screen", expired="drop")
    for number in range(6):
        yield client.send("quotes", number, expires_after=5 if number in {1, 3} else None)
    timed.clock.advance(seconds=6)


def _broadcast(timed: InProcessBroker, client: ternmq.sync.Client) -> Iterator[ternmq.sync.Receipt]:
    """The last of three messages fails in an instance; another one ends before it gets any."""
    client.admin.create_topic("prices", broadcast=True)
    with (
        ternmq.sync.connect(timed.url, instance="web-2") as other,
        ternmq.sync.connect(timed.url) as gone,
    ):
        for one in (client, other, gone):
            assert not len(one.pull("prices", wait=0))
        for number in range(3):
            yield client.send("prices", number)
        batch = client.pull("prices")
        assert len(batch) == 3
        batch.reject(rows=[2], reason="KeyError: 'tea'")
        batch.ack(rows=[0, 1])
        other.pull("prices").ack()
    left = client.admin.groups
    wait_until(lambda: len(left("prices", broadcast=True)) == 2, "an instance ends with its client")


def _owned(timed: InProcessBroker, client: ternmq.sync.Client) -> Iterator[ternmq.sync.Receipt]:
    """Members own the queues of two groups; a third one begins behind the messages."""
    client.admin.create_topic("accounts", queues=2)
    for group, mode in (("ledger", "owned"), ("leader", "exclusive")):
        client.admin.create_group("accounts", group, mode=mode)
    for number in range(8):
        yield client.send("accounts", number, queue=number % 2)
    client.admin.create_group("accounts", "late", start="latest")
    for group in ("ledger", "leader"):
        assert len(_taken(client, "accounts", group)) == 8


def _switched(timed: InProcessBroker, client: ternmq.sync.Client) -> Iterator[ternmq.sync.Receipt]:
    """The mode of a group changes while messages wait for another one of their key; more follow."""
    client.admin.create_topic("jobs", ordered=True)
    client.admin.create_group("jobs", "work", mode="ordered")
    for number in range(4):
        yield client.send("jobs", number, ordering_key="k")
    first = client.pull("jobs", group="work", max_messages=2)
    assert not len(client.pull("jobs", group="work", wait=0))
    for mode in ("shared", "queue_lock", "owned", "exclusive"):
        client.admin.change_group("jobs", "work", mode=mode)
    first.ack()
    for number in range(4, 8):
        yield client.send("jobs", number, ordering_key="k")
    with ternmq.sync.connect(timed.url) as member:
        assert len(first) + len(_taken(member, "jobs", "work")) == 8


def _taken(client: ternmq.sync.Client, topic: str, group: str) -> list[object]:
    """Pull and ack two at a time until nothing comes; return the values."""
    found: list[object] = []
    while len(batch := client.pull(topic, group=group, max_messages=2, wait=0)):
        found += [one.value for one in batch]
        batch.ack()
    return found
