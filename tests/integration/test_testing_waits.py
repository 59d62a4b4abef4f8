"""A wait that a program states is real time, also where the broker's time stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import broker


@pytest.mark.parametrize("manual", [True, False])
def test_a_pull_that_nothing_comes_to_ends_after_its_wait(*, manual: bool) -> None:
    with broker(manual=manual) as one, ternmq.sync.connect(one.url) as client:
        client.admin.create_topic("orders")
        # Behind the client's own timeout of a request it would be an error.
        assert not client.pull("orders", group="g", wait=0.3)
        client.send("orders", b"x")
        (delivery,) = client.pull("orders", group="g", wait=0.3)
        delivery.ack()


@pytest.mark.parametrize("manual", [True, False])
def test_less_than_a_batch_is_handed_out_after_its_wait(*, manual: bool) -> None:
    with broker(manual=manual) as one, ternmq.sync.connect(one.url) as client:
        client.send("orders", b"x")
        batches = client.consume_batches("orders", group="g", max_messages=500, max_wait=0.3)
        batch = next(iter(batches))
        assert batch.bodies == [b"x"]
        batch.ack()


@pytest.mark.parametrize("clean", [True, False])
def test_time_that_passes_after_a_start_finds_the_workers_back(*, clean: bool) -> None:
    attempts: list[int] = []
    with broker() as one:
        worker = ternmq.sync.connect(one.url)

        @worker.handler("orders", group="g", retry=ternmq.RetryPolicy(first=60, jitter=0))
        def handle(order: str, delivery: ternmq.sync.Delivery) -> None:
            attempts.append(delivery.attempt)
            raise ternmq.Retry("later")

        thread = threading.Thread(target=worker.run, kwargs={"signals": False})
        thread.start()
        with ternmq.sync.connect(one.url) as client:
            client.send("orders", "x")
            one.wait_idle("orders", "g")
            one.restart(clean=clean)
            one.clock.advance(seconds=61)
            assert attempts == [1, 2]
        worker.stop()
        thread.join(30)


def test_a_wait_takes_a_topic_as_declared_and_refuses_what_is_no_name() -> None:
    topic = ternmq.Topic("orders")
    with broker() as one, ternmq.sync.connect(one.url) as client:
        client.send(topic, b"x")
        client.pull(topic, group="g").ack()
        one.wait_idle(topic, "g")
        client.send(topic, b"x")
        client.pull(topic, group="g").reject(reason="no")
        one.wait_failed(topic, "g")
        waits: list[Callable[..., None]] = [one.wait_idle, one.wait_failed]
        wrong: list[tuple[object, object]] = [(["o"], "g"), ("", "g"), ("orders", topic), (7, "g")]
        for wait in waits:
            for names in wrong:
                with pytest.raises(ternmq.InvalidRequest):
                    wait(*names)


@pytest.mark.parametrize("wrong", [7, "settings.toml", [("create_topics", False)], object])
def test_settings_of_a_wrong_type(wrong: object) -> None:
    with pytest.raises(ternmq.InvalidRequest, match="settings are a mapping"):
        broker(settings=wrong).__enter__()  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "says"), [(7, "7 is an int"), (None, "None is a NoneType")])
def test_names_of_settings_of_a_wrong_type(wrong: Any, says: str) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=f"name of a setting is a str, and {says}"):
        broker(settings={wrong: 1}).__enter__()
