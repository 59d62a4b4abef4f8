"""Waits until a group has processed the sent messages, or has failed on some of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ternmq.broker.query.messages import Queries
from ternmq.client.content.validation import check_positive, seconds_of
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import InvalidRequest, UnknownGroup, UnknownTopic
from ternmq.model.specs import INSTANCE_GROUPS, check_group
from ternmq.model.words import counted
from ternmq.server.engine.engine import Core

_LOOK_S: Final = 0.002
_LEAST_S: Final = 1.0
"""Least time that a broker is given to commit what it has."""
Leading = Callable[[], Core | None]
"""Returns the core of the broker that serves; None: no broker does."""


@dataclass(slots=True, frozen=True)
class Standing:
    """State of a group on all queues of a topic, as counts of messages."""

    lag: int
    ready: int
    """``behind`` of them wait for a failed message of their ordering key."""
    behind: int
    leased: int
    waiting: int
    """Failed messages that are to be tried again; ``due`` of them are due now."""
    due: int
    dead: int

    @property
    def idle(self) -> bool:
        """Whether no message is leased, and none can be delivered now."""
        return not (self.lag or self.ready - self.behind or self.leased or self.due)

    def __str__(self) -> str:
        told = f"lag {self.lag}, ready {self.ready - self.behind + self.due}, leased {self.leased}"
        if self.behind:
            told += f", behind a retry {self.behind}"
        retrying = self.waiting - self.due
        if retrying:
            told += f", retrying {retrying} (they come again with `clock.advance`)"
        return f"{told}, dead {self.dead}" if self.dead else told


def wait_idle(
    core: Leading, topic: str | Topic, group: str, timeout: float | timedelta
) -> Coroutine[object, object, None]:
    """Return what waits in the broker's loop, as ``InProcessBroker.wait_idle``.

    Raises:
        InvalidName, InvalidRequest: An argument is not valid.
    """
    name, patience_s = name_of(topic), seconds_of("timeout", timeout)
    return _wait_idle(core, name, check_group(group), patience_s)


def wait_failed(
    core: Leading, topic: str | Topic, group: str, messages: int, timeout: float | timedelta
) -> Coroutine[object, object, None]:
    """Return what waits in the broker's loop, as ``InProcessBroker.wait_failed``.

    Raises:
        InvalidName, InvalidRequest: An argument is not valid.
    """
    name, patience_s = name_of(topic), seconds_of("timeout", timeout)
    if check_group(group).startswith(INSTANCE_GROUPS):
        raise InvalidRequest(
            f"{group!r} is a broadcast instance, where a message that fails is done at once: "
            "wait_idle waits for it"
        )
    check_positive("messages", messages)
    return _wait_failed(core, name, group, messages, patience_s)


async def _wait_idle(core: Leading, topic: str, group: str, patience_s: float) -> None:
    left = await _until(core, topic, group, patience_s, lambda found: found.idle)
    if left:
        raise TimeoutError(
            f"group {group!r} on {topic!r} is not idle after {patience_s:g} s: {left}"
        )


async def _wait_failed(
    core: Leading, topic: str, group: str, messages: int, patience_s: float
) -> None:
    left = await _until(
        core, topic, group, patience_s, lambda found: found.waiting + found.dead >= messages
    )
    if left:
        raise TimeoutError(
            f"group {group!r} on {topic!r} has not failed on {counted(messages, 'message')} after "
            f"{patience_s:g} s: {left}"
        )


async def _until(
    core: Leading, topic: str, group: str, patience_s: float, reached: Callable[[Standing], bool]
) -> str:
    """Wait until a group reaches a state; return its current state on a timeout, else ""."""
    until = time.monotonic() + patience_s
    while True:
        found = await _standing(core(), topic, group, max(_LEAST_S, until - time.monotonic()))
        if isinstance(found, Standing) and reached(found):
            return ""
        if time.monotonic() > until:
            return str(found)
        await asyncio.sleep(_LOOK_S)


async def _standing(core: Core | None, topic: str, group: str, patience_s: float) -> Standing | str:
    """Return the state of a group, or why it is not known."""
    if core is None:
        return "no broker leads"
    await core.settle_down(patience_s)
    if not core.works:
        return "the broker has ended"
    if core.broker.journal.committed < core.broker.journal.end:
        return "records wait for a copy that counts and is lost: see `clock.advance`"
    queries = Queries(core.broker.ledger)
    try:
        count = len(core.broker.views.catalog.subscription(topic, group).queues)
        queues = [queries.status(topic, group, number) for number in range(count)]
        now_us = core.now_us()
        behind = sum(
            queries.ready_behind(topic, group, number, now_us)
            for number, one in enumerate(queues)
            if one.ready
        )
        due = sum(
            queries.due(topic, group, number, now_us)
            for number, one in enumerate(queues)
            if one.waiting
        )
    except (UnknownTopic, UnknownGroup) as error:
        return str(error)
    except WouldBlock as blocked:
        read = asyncio.Event()
        core.cold_reads.read(blocked, read.set)
        await read.wait()
        return "its place is being read"
    return Standing(
        lag=sum(one.lag for one in queues),
        ready=sum(one.ready for one in queues),
        behind=behind,
        leased=sum(one.leased for one in queues),
        waiting=sum(one.waiting for one in queues),
        due=due,
        dead=sum(one.dead for one in queues),
    )
