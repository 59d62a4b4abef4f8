"""A broker whose turns are timed, for ``broker_lists``; it listens on what its parent says.

    python bench/broker_lists_server.py FOLDER fill TOPICS APPS
    python bench/broker_lists_server.py FOLDER serve METRICS_GROUPS

``fill`` makes topics with a group each, and apps of five grants. ``serve`` prints its two ports and
then answers lines: ``reset`` begins anew, ``report`` prints what a callback of the loop took at
most since, in CPU time of the loop's thread (others share the machine) and by the wall clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from ternmq.access import seal
from ternmq.model.secret import Secret
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.record.fact.control import Grant
from ternmq.server.app import Server
from ternmq.server.process.own_process import own_process
from ternmq.settings import load

TOKEN: Final = "a token that is long enough for a measurement"
GRANTS: Final = 5
GROUP: Final = "billing"
_TOGETHER: Final = 200


def topic(number: int) -> str:
    """Return the name of a topic."""
    return f"service.orders.{number:05}"


def app(number: int) -> str:
    """Return the name of an app."""
    return f"app-{number:04}"


def grants(number: int, topics: int) -> list[Grant]:
    """Return what an app may do: consume from five topics, wide apart."""
    places = [(number * 16 + at * topics // GRANTS) % topics for at in range(GRANTS)]
    return [Grant("consume", topic(place), "*", False) for place in places]


class Turns:
    """What callbacks of the loop take at most."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def watch(self) -> None:
        """Time every callback from here on."""
        run = asyncio.events.Handle._run

        def timed(handle: Any) -> None:
            wall, cpu = time.perf_counter(), time.thread_time()
            run(handle)
            self.cpu_s = max(self.cpu_s, time.thread_time() - cpu)
            self.wall_s = max(self.wall_s, time.perf_counter() - wall)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign, assignment]

    def answer(self, line: str) -> None:
        """Do what the parent says."""
        if line == "report":
            told = {"cpu_ms": self.cpu_s * 1e3, "wall_ms": self.wall_s * 1e3}
            print(json.dumps(told), flush=True)
        self.cpu_s = self.wall_s = 0.0


def _server(folder: Path, **more: object) -> Server:
    told = {
        "data": str(folder), "listen": "127.0.0.1:0", "http": "127.0.0.1:0", "segment": "256MiB",
        "retention_watermark": "0.98", "admin_token": TOKEN, "log_level": "error", **more,
    }  # fmt: skip
    return Server(load(flags=told))


async def fill(folder: Path, topics: int, apps: int) -> None:
    """Make what there is, and stop cleanly."""
    server = _server(folder)
    await server.start()
    core = server.core
    make = core.broker.administration
    for number in range(topics):
        name = topic(number)
        make.create_topic(core.now_us(), TopicSpec(name=name))
        make.subscribe(core.now_us(), name, GROUP, SubscriptionSpec())
        if number % _TOGETHER == 0:
            core.touch()
            await core.settle_down()
    for number in range(apps):
        sealed = seal(app(number), Secret(TOKEN), owner="", grants=grants(number, topics), now_us=0)
        make.put_app(core.now_us(), sealed)
    core.touch()
    await core.settle_down()
    await server.close()


async def serve(folder: Path, metrics_groups: int) -> None:
    """Run until the parent closes the pipe."""
    server = _server(folder, metrics_groups=str(metrics_groups))
    await server.start()
    own_process(lambda: server.core.asked)  # as ``ternmq serve`` does
    turns = Turns()
    turns.watch()
    print(json.dumps({"port": server.port, "http": server.http_port}), flush=True)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        turns.answer(line.decode().strip())
    await server.close()


if __name__ == "__main__":
    path, verb, *numbers = sys.argv[1:]
    if verb == "fill":
        asyncio.run(fill(Path(path), int(numbers[0]), int(numbers[1])))
    else:
        asyncio.run(serve(Path(path), int(numbers[0])))
