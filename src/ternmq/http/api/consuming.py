"""Consuming: pulls, settles and extensions of messages that are leased to nobody's session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Literal

import msgspec

from ternmq.client.forms import messages as forms
from ternmq.http.api import receipts
from ternmq.http.api.call import Answer, Call, Route, outcome_of
from ternmq.http.api.detached import Held, Place
from ternmq.model.errors import InvalidRequest, LeaseExpired, TernMQError
from ternmq.model.units import read_duration
from ternmq.record.fact.facts import Outcome
from ternmq.wire.commands import Command

MOST: Final = 100
"""Most messages of a pull."""
LONGEST_WAIT_S: Final = 60.0
LONGEST_LEASE_S: Final = 86_400.0
_MOST_RECEIPTS: Final = 1000
_GROUP: Final = "/v1/topics/{topic}/groups/{group}"
_OUTCOMES: Final = {
    "ack": Outcome.DONE,
    "retry": Outcome.RETRY,
    "reject": Outcome.DEAD,
    "release": Outcome.RELEASED,
}


class Pull(msgspec.Struct, forbid_unknown_fields=True):
    """What a pull asks for; every field may be left out."""

    max: int = 1
    wait: str = "0"
    lease: str = ""


class Settle(msgspec.Struct, forbid_unknown_fields=True):
    """The outcome of leased messages."""

    receipts: list[str]
    outcome: Literal["ack", "retry", "reject", "release"]
    delay: str = ""
    reason: str = ""


class Extend(msgspec.Struct, forbid_unknown_fields=True):
    """A longer lease."""

    receipts: list[str]
    lease: str


async def pull(call: Call) -> Answer:
    """POST: lease messages, waiting for the first if asked to."""
    asked = call.take(Pull, optional=True)
    if not 1 <= asked.max <= MOST:
        raise InvalidRequest(f"max is 1 to {MOST}, not {asked.max}")
    wait = 0.0 if call.stopping.is_set() else _seconds("wait", asked.wait, LONGEST_WAIT_S)
    lease = _seconds("lease", asked.lease, LONGEST_LEASE_S) if asked.lease else None
    if lease is not None and lease < 1:
        raise InvalidRequest("lease is at least 1s")
    topic, group = call.path["topic"], call.path["group"]
    pulling = asyncio.ensure_future(call.detached.pull(topic, group, asked.max, wait, lease))
    stopping = asyncio.ensure_future(call.stopping.wait())
    try:
        await asyncio.wait({pulling, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not pulling.done():
            return Answer({"messages": []})
        return Answer({"messages": [leased_form(topic, group, one) for one in pulling.result()]})
    except asyncio.CancelledError:  # the caller is gone
        if pulling.done() and not pulling.cancelled() and pulling.exception() is None:
            for place in {one.place[1:4] for one in pulling.result()}:
                call.detached.give_back(topic, group, *place)
        raise
    finally:
        stopping.cancel()
        if not pulling.done():
            pulling.cancel()
            await asyncio.wait({pulling})


def leased_form(topic: str, group: str, one: Held) -> dict[str, Any]:
    """Return a leased message in the form of JSON."""
    message = one.message
    return {
        "receipt": receipts.pack(one.place, topic, group),
        "attempt": message.attempt,
        "deliveries": message.deliveries,
        "maybe_redelivered": message.maybe_redelivered,
        "last_reason": one.last_reason,
        "lease_until": one.until,
        **forms.plain(message),
    }


async def settle(call: Call) -> Answer:
    """POST: settle leased messages; each receipt has an outcome of its own."""
    asked = call.take(Settle)
    outcome = _OUTCOMES[asked.outcome]
    delay = None
    if asked.delay:
        if outcome is not Outcome.RETRY:
            raise InvalidRequest("delay goes with the outcome retry only")
        delay = _seconds("delay", asked.delay, timedelta(days=730).total_seconds())
    topic, group = call.path["topic"], call.path["group"]
    places = _places(asked.receipts, topic, group)
    done = await call.detached.settle(topic, group, places, outcome, delay, asked.reason)
    return _results(
        asked.receipts,
        [None if one else LeaseExpired("it is not leased under this receipt any more")
         for one in done],
    )  # fmt: skip


async def extend(call: Call) -> Answer:
    """POST: extend the leases of messages; of all that were pulled together with them."""
    asked = call.take(Extend)
    lease = _seconds("lease", asked.lease, LONGEST_LEASE_S)
    topic, group = call.path["topic"], call.path["group"]
    places = _places(asked.receipts, topic, group)
    errors: dict[tuple[int, ...], TernMQError | None] = {}
    for place in places:
        if place[1:4] in errors:
            continue  # of one lease
        try:
            await call.detached.extend(topic, group, place, lease)
            errors[place[1:4]] = None
        except LeaseExpired as error:
            errors[place[1:4]] = error
    return _results(asked.receipts, [errors[place[1:4]] for place in places])


def _places(texts: Sequence[str], topic: str, group: str) -> list[Place]:
    if not 1 <= len(texts) <= _MOST_RECEIPTS:
        raise InvalidRequest(f"receipts are 1 to {_MOST_RECEIPTS:,}, not {len(texts):,}")
    return [receipts.unpack(one, topic, group) for one in texts]


def _results(texts: Sequence[str], errors: Sequence[TernMQError | None]) -> Answer:
    results = [
        {"receipt": text, "done": True}
        if error is None
        else {"receipt": text, "done": False, "error": outcome_of(error)}
        for text, error in zip(texts, errors, strict=True)
    ]
    return Answer({"results": results, "failed": sum(not one["done"] for one in results)})


def _seconds(name: str, text: str, most: float) -> float:
    try:
        found = read_duration(text) / 1_000_000
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"{name}: {text[:60]!r} {error}") from error
    if found > most:
        raise InvalidRequest(f"{name} is at most {most:g} s, not {found:g} s")
    return found


ROUTES: Final = (
    Route(
        "POST", f"{_GROUP}/pull", (Command.GROUP_JOIN, Command.PULL),
        "Lease messages to the caller: at most `max`, waiting up to `wait` for the first. The "
        "group is made at its first pull. What is not settled until `lease_until` comes again.",
        pull, (), Pull, "leased messages", optional=True,
    ),
    Route(
        "POST", f"{_GROUP}/settle", (Command.SETTLE,),
        "Settle leased messages by their receipts: `ack`, `retry` (after `delay`, or as the policy "
        "of the group says), `reject` (a dead letter), `release` (no attempt is counted).",
        settle, (), Settle, "outcomes",
    ),
    Route(
        "POST", f"{_GROUP}/extend", (Command.EXTEND,),
        "Let the leases of messages last longer, counted from now; never shorter. A lease is one "
        "for all messages that came in one answer.",
        extend, (), Extend, "outcomes",
    ),
)  # fmt: skip
