"""What people type wrong: each gets an error that says what to do, at once, and nothing hangs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import broker

Call = Callable[[Any], object]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with broker(manual=False) as one:
        yield one.url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[ternmq.sync.Client]:
    with ternmq.sync.connect(url) as client:
        client.send("t", b"x")
        client.admin.create_topic("two", queues=2)
        yield client


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("localhost:7117", "form is ternmq://host:7117"),
        ("http://localhost:7117", "form is ternmq://host:7117"),
        ("ternmq://", "has no host"),
        ("ternmq://localhost:99999", "out of range"),
        ("ternmq://localhost:7117/orders", "nothing may follow the port"),
        (7117, "form is ternmq://host:7117"),
    ],
)
def test_a_url_that_is_none(given: Any, says: str) -> None:
    with pytest.raises(ternmq.InvalidUrl, match=says):
        ternmq.connect(given)


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda c: c.send("my topic", b"x"), ternmq.InvalidName, "use 1 to 127"),
        (lambda c: c.send("$mine", b"x"), ternmq.InvalidName, "reserved for the broker"),
        (lambda c: c.send(7, b"x"), ternmq.InvalidName, "a str, not int"),
        (lambda c: c.send("t", b"x", id=""), ternmq.InvalidRequest, "id is empty"),
        (
            lambda c: c.send_many("t", [ternmq.Message(b"x", id="")]),
            ternmq.PartialSendError,
            "id is empty",
        ),
        (lambda c: c.send("t", b"x", id=7), ternmq.InvalidRequest, "id is a str, not int"),
        (lambda c: c.send("t", b"x", key=7), ternmq.InvalidRequest, "key is a str, not int"),
        (lambda c: c.send("t", b"x", key=None), ternmq.InvalidRequest, "not NoneType"),
        (
            lambda c: c.send("t", b"x", headers={"n": 1}),
            ternmq.InvalidRequest,
            "the value of 'n' is of type int: write str",
        ),
        (
            lambda c: c.send("t", b"x", headers={1: "n"}),
            ternmq.InvalidRequest,
            "the name 1 is of type int: write str",
        ),
        (lambda c: c.send("t", b"x", headers=["n"]), ternmq.InvalidRequest, "are a list"),
        (lambda c: c.send("t", None, content_type="text/plain"), ternmq.EncodeError, "is not text"),
        (lambda c: c.send("t", {"a": object()}), ternmq.EncodeError, "object is not supported"),
        (lambda c: c.send("t", ternmq.Message(b"x")), ternmq.EncodeError, "goes to send_many"),
        (lambda c: c.send_many("t", "abc"), ternmq.InvalidRequest, "goes to send"),
        (lambda c: c.send_many("t", {"a": 1}), ternmq.InvalidRequest, "goes to send"),
        (lambda c: c.pull("t", group=""), ternmq.InvalidName, "use 1 to 127"),
        (lambda c: c.pull("t", group="g", mode="fifo"), ternmq.InvalidRequest, "shared, ordered"),
        (lambda c: c.pull("t", group="g", start="now"), ternmq.InvalidRequest, "latest"),
        (lambda c: c.pull("t", group="g", max_messages=0), ternmq.InvalidRequest, "1 or more"),
        (lambda c: c.pull("t", group="g", tags="a &&"), ternmq.InvalidRequest, "paid || refunded"),
        (lambda c: next(c.read("t")).ack(), ternmq.InvalidRequest, "cannot be settled"),
        (lambda c: next(c.read("t", start="x")), ternmq.InvalidRequest, "'earliest' or 'latest'"),
        (
            lambda c: next(c.read("t", start=datetime(2026, 1, 1))),  # noqa: DTZ001
            ternmq.InvalidRequest,
            "names no time zone",
        ),
        (lambda c: c.get("t"), ternmq.InvalidRequest, "give id= or offset="),
        (lambda c: c.find("t", key=""), ternmq.InvalidRequest, "key is empty"),
        (
            lambda c: c.admin.create_topic("new", durability="always"),
            ternmq.InvalidRequest,
            "normal, strict, fast",
        ),
        (lambda c: c.admin.reset_group("two", "g", 3), ternmq.InvalidRequest, "such as queue=0"),
        (lambda c: c.admin.reset_group("t", "g", "x"), ternmq.InvalidRequest, "earliest"),
        (lambda c: c.admin.group("t", "none"), ternmq.UnknownGroup, "begins to consume"),
        (lambda c: c.handler("t", group="g")(lambda: 0), ternmq.InvalidRequest, "a body, a del"),
    ],
)
def test_a_call_that_cannot_be_meant_so(
    call: Call, kind: type[Exception], says: str, client: ternmq.sync.Client
) -> None:
    with pytest.raises(kind) as caught:
        call(client)
    assert says in str(caught.value)
    assert client.send("t", b"and it works on").durable


def test_consume_without_async_with(url: str) -> None:
    async def work() -> None:
        async with ternmq.connect(url) as client:
            with pytest.raises(ternmq.InvalidRequest, match="async with"):
                async for _ in client.consume("t", group="g"):
                    pass

    asyncio.run(work())


def test_consume_without_with(client: ternmq.sync.Client) -> None:
    with pytest.raises(ternmq.InvalidRequest, match="use it as `with client"):
        next(iter(client.consume("t", group="g")))


@pytest.mark.parametrize("rows", ["no money", 3, ["a"], [0.5]])
def test_rows_that_are_no_places(client: ternmq.sync.Client, rows: Any) -> None:
    client.send("t", b"x")
    batch = client.pull("t", group=f"rows-{type(rows).__name__}", max_messages=1)
    with pytest.raises(ternmq.InvalidRequest, match="by their places"):
        batch.reject(rows)
    batch.ack()


def test_settling_twice(client: ternmq.sync.Client) -> None:
    client.send("t", b"x")
    delivery = client.pull("t", group="twice", max_messages=1)[0]
    delivery.ack()
    with pytest.raises(ternmq.AlreadySettled, match="settle a delivery once"):
        delivery.ack()


def test_a_script_that_closes_nothing_loses_nothing(url: str, client: ternmq.sync.Client) -> None:
    script = (
        "import sys, ternmq.sync\n"
        "client = ternmq.sync.connect(sys.argv[1])\n"
        "client.pull('unclosed', group='g', wait=0)\n"
        "for n in range(100): client.send_soon('unclosed', n)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, url],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [one.value for one in client.read("unclosed")] == list(range(100))
