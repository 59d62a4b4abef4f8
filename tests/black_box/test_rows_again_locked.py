"""Rows of MISSION: positions and failures of groups that lock queues, or assign them to members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess

MODES = ["queue_lock", "owned", "exclusive"]
QUEUES = 2


def reset(client: ternmq.sync.Client, place: Any, **more: Any) -> list[Any]:
    """Reset the group on all queues of the topic."""
    done: list[Any] = []
    for queue in range(QUEUES):
        done += client.admin.reset_group("t", "g", place, queue=queue, **more)
    return done


def filled(client: ternmq.sync.Client, topic: str, mode: str, rows: int) -> None:
    """Make a topic and a group of the mode, and store the numbers below ``rows`` in each queue."""
    client.admin.create_topic(topic, queues=QUEUES)
    client.admin.create_group(topic, "g", mode=mode)
    for queue in range(QUEUES):
        client.send_many(
            topic,
            [ternmq.Message(b"%d" % at, key=f"order-{at}") for at in range(rows)],
            queue=queue,
        )


def drained(client: ternmq.sync.Client, topic: str) -> list[list[int]]:
    """Take and ack all there is; return the numbers of each queue as they came."""
    found: list[list[int]] = [[] for _ in range(QUEUES)]
    while batch := client.pull(topic, group="g", max_messages=50, wait=0.3):
        found[batch[0].queue] += [int(one.body) for one in batch]
        batch.ack()
    return found


@pytest.mark.row("E19")
@pytest.mark.parametrize("mode", ["owned", "exclusive"])
def test_a_group_goes_on_where_it_is_told_while_a_queue_of_it_is_locked(
    tmp_path: Path, mode: str
) -> None:
    """Row E19 but for the switch to a replica, which there is none of yet.

    The broker is killed, or stopped, after each reset, so that its members are gone too.
    """
    with (
        BrokerProcess("dev", tmp_path / "broker") as broker,
        ternmq.sync.connect(broker.url) as client,
    ):
        filled(client, "t", mode, 40)
        stored_at = client.get("t", queue=0, offset=0).stored_at
        places: list[tuple[object, int]] = [(stored_at, 0), (30, 30), ("latest", 40)]
        for place, first in places:
            reset(client, 0)
            held = client.pull("t", group="g", max_messages=5, wait=10)
            assert [int(one.body) for one in held] == list(range(5))
            preview = reset(client, place, dry_run=True)
            assert reset(client, place) == preview
            assert [one.offset for one in preview] == [first] * QUEUES
            with pytest.raises(ternmq.LeaseExpired):
                held.ack()
            broker.restart(kill=first == 30)
            assert drained(client, "t") == [list(range(first, 40))] * QUEUES


def test_a_place_that_was_set_stays_when_the_mode_is_changed(tmp_path: Path) -> None:
    with (
        BrokerProcess("dev", tmp_path / "broker") as broker,
        ternmq.sync.connect(broker.url) as client,
    ):
        filled(client, "t", "shared", 20)
        assert drained(client, "t") == [list(range(20))] * QUEUES
        for first, mode in enumerate(["owned", "exclusive", "shared"]):
            reset(client, first)
            client.admin.change_group("t", "g", mode=mode)
            broker.restart(kill=first % 2 == 0)
            assert drained(client, "t") == [list(range(first, 20))] * QUEUES, mode


@pytest.mark.parametrize("mode", MODES)
def test_dead_letters_of_locked_queues_are_searched_recovered_downloaded_and_deleted(
    client: ternmq.sync.Client, topic: str, mode: str
) -> None:
    """Row G10 but for REST, which there is none of yet."""
    filled(client, topic, mode, 6)
    for _ in range(QUEUES):
        for delivery in client.pull(topic, group="g", max_messages=6, wait=10):
            delivery.reject("timeout" if delivery.offset % 3 else "no money")
    found = client.deadletters
    dead = list(found.browse(topic, "g"))
    assert len(dead) == 6 * QUEUES
    chosen = [one for one in dead if one.reason == "no money"]  # searched
    assert sorted((one.queue, one.offset) for one in chosen) == [(0, 0), (0, 3), (1, 0), (1, 3)]
    message = next(one.message for one in dead if (one.queue, one.offset) == (1, 4))
    assert message is not None
    assert (message.key, message.body) == ("order-4", b"4")  # downloaded
    client.send(topic, b"6", queue=0)
    for queue in range(QUEUES):
        done = found.redrive(topic, "g", [3, 0], queue=queue)
        assert [(one.offset, one.done) for one in done] == [(0, True), (3, True)]
    assert drained(client, topic) == [[0, 3, 6], [0, 3]]  # recovered, in order, before new ones
    assert found.delete(topic, "g", [1, 2], queue=0) == []
    left = found.redrive(topic, "g")
    assert sorted(one.offset for one in left) == [1, 2, 4, 4, 5, 5]
    assert drained(client, topic) == [[4, 5], [1, 2, 4, 5]]
    assert list(found.browse(topic, "g")) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_message_that_waits_for_a_retry_is_tried_now_and_the_queue_goes_on(
    client: ternmq.sync.Client, topic: str, mode: str
) -> None:
    """Row G10: recover now."""
    filled(client, topic, mode, 4)
    batch = client.pull(topic, group="g", max_messages=4, wait=10)
    queue = batch[0].queue
    batch[0].retry(delay=3600)
    (waiting,) = client.deadletters.waiting(topic, "g")
    assert (waiting.queue, waiting.offset) == (queue, 0)
    assert drained(client, topic)[queue] == []  # what is behind it waits, too
    assert client.deadletters.retry(topic, "g", [0], queue=queue) == []
    assert drained(client, topic)[queue] == [0, 1, 2, 3]
