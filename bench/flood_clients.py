"""The clients of the flood measurement (OVL-2): producers whose pace is the clock's.

    python bench/flood_clients.py VERB URL [name=number ...]

What is to be sent comes when it comes: a broker that is late does not slow it down. Each message is
one application's send: it is tried ``TRIES`` times, each with a timeout of its own, with a pause
between that doubles; always with the same id, so that a try whose outcome is not known can be
followed by another. Verbs print one JSON object of figures at their end.

A message is large (``BODY``), so that what the broker does for it does not depend much on how many
come together, and the clients have less to do for it than the broker.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final

from broker_clients import Figures, percentile
from overload_clients import main

import ternmq
from ternmq.model.errors import TernMQError

TOPIC: Final = "flood"
BODY: Final = 128 * 1024
CLIENTS: Final = 4
TRIES: Final = 3
FIRST_PAUSE_S: Final = 0.1
UNKNOWN: Final = (ternmq.SendTimeout, ternmq.ConnectionLost)
"""Errors that do not say whether the message is stored; every other says that it is not."""


@dataclass(slots=True)
class Sent:
    """What became of a message.

    Attributes:
        at: When it came, seconds of the clock.
        outcome: ``ok``, ``refused`` (definitely not stored), ``unknown``.
        tries: How many it took.
        ended: When its outcome was known.
        took_s: Of the try that was answered.
    """

    at: float
    outcome: str = ""
    tries: int = 0
    ended: float = 0.0
    took_s: float = 0.0


class Flood:
    """Messages that come at a pace, and what becomes of each.

    Attributes:
        messages: In the order in which they came; the place of each is what its body begins with.
        errors: Of tries, by name.
        late_s: Longest that a message came later than at its time: the clients were late.
    """

    def __init__(self, clients: Sequence[ternmq.Client], timeout: float) -> None:
        self.messages: list[Sent] = []
        self.errors: Counter[str] = Counter()
        self.late_s = 0.0
        self._clients = clients
        self._timeout = timeout
        self._rest = b"x" * (BODY - 8)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, per_s: float, seconds: float) -> float:
        """Let messages come; return when the first did."""
        began = time.perf_counter()
        come = 0
        while (passed := time.perf_counter() - began) < seconds:
            self.late_s = max(self.late_s, passed - come / per_s)
            while come < passed * per_s:
                come += 1
                self.messages.append(Sent(time.perf_counter()))
                task = asyncio.ensure_future(self._send(len(self.messages) - 1))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0.002)
        return began

    async def over(self) -> None:
        """Wait until every outcome is known."""
        await asyncio.gather(*self._tasks)

    async def _send(self, number: int) -> None:
        one = self.messages[number]
        client = self._clients[number % len(self._clients)]
        body = number.to_bytes(8, "little") + self._rest
        outcome = "refused"
        for nth in range(TRIES):
            one.tries += 1
            began = time.perf_counter()
            try:
                await client.send(TOPIC, body, id=str(number), timeout=self._timeout)
            except TernMQError as error:
                self.errors[type(error).__name__] += 1
                if isinstance(error, UNKNOWN):
                    outcome = "unknown"
            else:
                one.took_s = time.perf_counter() - began
                outcome = "ok"
                break
            if nth + 1 < TRIES:
                await asyncio.sleep(FIRST_PAUSE_S * 2**nth * random.uniform(0.5, 1.5))
        one.outcome, one.ended = outcome, time.perf_counter()

    def share(self, begin: float, end: float) -> list[Sent]:
        """Return the messages that came in a time."""
        return [one for one in self.messages if begin <= one.at < end]


async def capacity(url: str, seconds: float, under_way: int) -> Figures:
    """Measure what the broker takes of such messages: so many are always under way."""
    body = b"x" * BODY
    clients = [await ternmq.connect(url) for _ in range(CLIENTS)]
    await clients[0].admin.create_topic(TOPIC)
    stored = 0
    began = time.perf_counter()
    counted_from, until = began + seconds / 4, began + seconds

    async def one(number: int) -> None:
        nonlocal stored
        nth = 0
        while time.perf_counter() < until:
            nth += 1
            await clients[number % CLIENTS].send(TOPIC, body, id=f"c{number}.{nth}")
            stored += counted_from <= time.perf_counter() < until

    await asyncio.gather(*[one(number) for number in range(under_way)])
    for client in clients:
        await client.close()
    return {"capacity_per_s": stored / (until - counted_from)}


async def flood(url: str, capacity: float, seconds: float, timeout_s: float) -> Figures:
    """Send half of what the broker takes, then three times as much as that, then half again."""
    clients = [await ternmq.connect(url) for _ in range(CLIENTS)]
    group = f"flood{time.time_ns()}"
    await clients[0].admin.create_group(TOPIC, group, start="latest")
    run = Flood(clients, timeout_s)
    calm = max(10.0, seconds / 4)
    before = await run.run(capacity / 2, calm)
    began = await run.run(capacity * 3, seconds)
    fell = await run.run(capacity / 2, calm)
    await run.over()
    stored = await _stored(clients[0], group)
    for client in clients:
        await client.close()
    warm = began + 3 * timeout_s  # what waits is there
    taken = [one for one in run.messages if one.outcome == "ok" and warm <= one.ended < fell]
    quiet = [one.took_s for one in run.share(before, began) if one.outcome == "ok"]
    again = [one.ended - fell for one in run.share(fell, time.perf_counter()) if one.tries > 1]
    rush = Counter(one.outcome for one in run.share(began, fell))
    goodput = len(taken) / (fell - warm)
    outcomes = [(one.outcome, stored[number]) for number, one in enumerate(run.messages)]
    return {
        "goodput_share": goodput / capacity,
        "goodput_per_s": goodput,
        "offered_per_s": len(run.share(began, fell)) / (fell - began),
        "accepted_p50_ms": percentile([one.took_s for one in taken], 0.5) * 1e3,
        "accepted_p99_ms": percentile([one.took_s for one in taken], 0.99) * 1e3,
        "calm_p99_ms": percentile(quiet, 0.99) * 1e3,
        "recovery_s": max(again, default=0.0),
        "rush_ok": float(rush["ok"]),
        "rush_refused": float(rush["refused"]),
        "rush_unknown": float(rush["unknown"]),
        "tries_refused": float(sum(run.errors.values()) - sum(run.errors[n] for n in _names())),
        "tries_unknown": float(sum(run.errors[name] for name in _names())),
        "lost": float(sum(told == "ok" and not times for told, times in outcomes)),
        "phantoms": float(sum(told == "refused" and times > 0 for told, times in outcomes)),
        "twice": float(sum(times > 1 for _, times in outcomes)),
        "clients_late_s": run.late_s,
    }


def _names() -> list[str]:
    return [error.__name__ for error in UNKNOWN]


async def _stored(client: ternmq.Client, group: str) -> Counter[int]:
    """Return how often each message is stored."""
    found: Counter[int] = Counter()
    while got := await client.pull(TOPIC, group=group, max_messages=1000, wait=1):
        found.update([int.from_bytes(body[:8], "little") for body in got.bodies])
        await got.ack()
    return found


VERBS: dict[str, Callable[..., Coroutine[None, None, Figures]]] = {
    verb.__name__: verb for verb in (capacity, flood)
}


if __name__ == "__main__":
    main(VERBS)
