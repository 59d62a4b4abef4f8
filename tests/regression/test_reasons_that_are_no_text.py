"""A reason that is no ``str`` ended the whole worker, and its message was never a dead letter.

``raise ternmq.Retry(error)`` is the most natural slip. An exception whose ``__str__`` raises did
the same, and so did a subclass of ``Retry`` that does not call its base.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

import ternmq
import ternmq.sync
from ternmq.model.errors import DecodeError, EncodeError
from ternmq.testing import InProcessBroker
from tests.asynchronous import until

POLICY = ternmq.RetryPolicy(first=0.01, attempts=2, jitter=0)


class Unspeakable(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise KeyError("no text")


class Base(BaseException):
    """The same, of what is no ``Exception``."""

    def __str__(self) -> str:
        raise KeyError("no text")


class Own(ternmq.Retry):
    """Does not call its base."""

    def __init__(self) -> None:
        pass


class OwnReject(ternmq.Reject):
    """Does not call its base."""

    def __init__(self) -> None:
        pass


def late() -> ternmq.Retry:
    """Return one whose delay was set to what is none."""
    error = ternmq.Retry("late", after=0.01)
    error.after = "2h"  # type: ignore[assignment]
    return error


def of_bank() -> ternmq.TernMQError:
    """Return an error of the library around one without text."""
    return ternmq.TernMQError(Unspeakable())


MUTE = "<Unspeakable, whose text cannot be made: KeyError>"
RAISED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "Retry(error)": (lambda: ternmq.Retry(ConnectionError("bank")), "ConnectionError: bank"),
    "Retry(int)": (lambda: ternmq.Retry(5), "5"),
    "Retry(None)": (lambda: ternmq.Retry(None), ""),
    "Retry(bytes)": (lambda: ternmq.Retry(b"bank \xff"), "bank \\xff"),
    "Retry(dict)": (lambda: ternmq.Retry({"code": 7}), "{'code': 7}"),
    "Retry(mute)": (lambda: ternmq.Retry(Unspeakable()), f"Unspeakable: {MUTE}"),
    "Retry, late": (late, "late: after is a number of seconds or a timedelta, not str"),
    "own Retry": (Own, ""),
    "Reject(error)": (lambda: ternmq.Reject(ValueError("x")), "ValueError: x"),
    "Reject(dict)": (lambda: ternmq.Reject({"code": 7}), "{'code': 7}"),
    "Reject(None)": (lambda: ternmq.Reject(None), ""),
    "own Reject": (OwnReject, ""),
    "mute": (Unspeakable, f"Unspeakable: {MUTE}"),
    "mute, of the library": (of_bank, f"TernMQError: {MUTE}"),
    "mute, no Exception": (
        Base,
        "RuntimeError: the handler raised Base: <Base, whose text cannot be made: KeyError>",
    ),
}


@pytest.mark.parametrize("threaded", [False, True], ids=["async def", "def"])
@pytest.mark.parametrize("raised", RAISED)
async def test_only_its_message_fails(real: InProcessBroker, raised: str, threaded: bool) -> None:
    make, said = RAISED[raised]
    client = ternmq.connect(real.url)
    good: list[str] = []

    def handle(body: str) -> None:
        if body == "bad":
            raise make()
        good.append(body)

    async def handle_async(body: str) -> None:
        handle(body)

    client.handler("t", group="g")(handle if threaded else handle_async)
    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t")
        await other.admin.create_group("t", "g", retry=POLICY)
        run = asyncio.ensure_future(client.run())
        await other.send_many("t", ["bad", "good"])
        async with asyncio.timeout(20):
            while not (letters := [one async for one in other.deadletters.browse("t", "g")]):
                assert not run.done()
                await asyncio.sleep(0.01)
    await until(lambda: good == ["good"])
    client.stop()
    await run
    assert [one.reason for one in letters] == [said]


async def test_process_goes_on(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.send_many("t", ["a", "b", "c"])
        one, *rest = await client.pull("t", group="g")
        async with one.process():
            raise ternmq.Retry(ConnectionError("bank"))
        async with rest[0].process():
            raise Unspeakable
        await rest[1].ack()
        waiting: dict[int, ternmq.FailedMessage] = {}
        async with asyncio.timeout(20):
            while len(waiting) < 2:
                waiting = {w.offset: w async for w in client.deadletters.waiting("t", "g")}
        reasons = [waiting[at].failures[-1].reason for at in sorted(waiting)]
        assert reasons == ["ConnectionError: bank", f"Unspeakable: {MUTE}"]


async def test_verbs_take_them(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.send_many("t", ["a", "b", "c", "d"])
        batch = await client.pull("t", group="g")
        await batch[0].reject(ValueError("x"))
        await batch[1].reject(5)
        await batch.reject([2], reason={"code": 7})
        await batch.retry([3], reason=b"late", delay=timedelta(hours=1))
        letters = [one.reason async for one in client.deadletters.browse("t", "g")]
        assert letters == ["ValueError: x", "5", "{'code': 7}"]
        (waits,) = [one async for one in client.deadletters.waiting("t", "g")]
        assert waits.failures[-1].reason == "late"


def test_verbs_take_them_blocking(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.send_many("t", ["a", "b", "c"])
        batch = client.pull("t", group="g")
        batch[0].reject(ValueError("x"))
        with batch[1].process():
            raise ternmq.Reject(5)
        batch.reject([2], reason=None)
        letters = [one.reason for one in client.deadletters.browse("t", "g")]
        assert letters == ["ValueError: x", "5", ""]


def test_a_codec_may_raise_what_has_no_text() -> None:
    codecs = ternmq.connect("ternmq://127.0.0.1:1").codecs

    def fail(*_: object) -> bytes:
        raise Unspeakable

    codecs.register("application/x", encode=fail, decode=fail)
    with pytest.raises(DecodeError, match="whose text cannot be made"):
        codecs.decode(b"", "application/x", int)
    with pytest.raises(EncodeError, match="whose text cannot be made"):
        codecs.encode({}, "application/x")
