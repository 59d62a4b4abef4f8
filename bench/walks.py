"""The way of a send, a pull, a settle and a recovery through the code, call by call.

``bench/walks.py`` counts calls of functions of ``ternmq`` from the client's call to its end: all of
them, the files that they are in, those of the broker's thread, and how often the way goes from one
file to another there. ``bench/walks.py send`` prints the calls themselves. The broker runs in this
process, on a disk in memory; each way is walked twice before, so that nothing is imported on it.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import ternmq
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.testing import InProcessBroker

SOURCE: Final = str(Path(ternmq.__file__).parent) + "/"
TURN: Final = "_end_turn"
"""The function that ends a turn of the broker's loop; calls under it are counted apart."""


class Trace:
    """Calls of functions of ``ternmq``: (thread, file, function, whether in the end of a turn)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str, bool]] = []
        self.on = False

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Take note of a call; the interpreter calls this for each of them."""
        if not self.on or event != "call":
            return
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return
        inside, above = False, frame.f_back
        while above is not None and not inside:
            inside, above = above.f_code.co_name == TURN, above.f_back
        file = code.co_filename.removeprefix(SOURCE)
        self.calls.append((threading.current_thread().name, file, code.co_name, inside))

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what is called inside, and until 50 ms after it."""
        self.calls.clear()
        self.on = True
        try:
            yield
            time.sleep(0.05)  # the broker's thread ends its turn
        finally:
            self.on = False

    def row(self, name: str) -> str:
        """Return a row of the table."""
        own = [call for call in self.calls if call[0] == "ternmq-broker"]
        changes = sum(a[1] != b[1] for a, b in itertools.pairwise(own))
        turns = sum(call[2] == TURN for call in own)
        ends = sum(call[3] for call in own)
        return (
            f"| {name} | {len(self.calls)} | {len({call[1] for call in self.calls})} "
            f"| {len(own)} / {len({call[1] for call in own})} / {changes} | {ends} ({turns}) |"
        )


async def _walk(trace: Trace, broker: InProcessBroker, shown: str | None) -> None:
    client = ternmq.connect(broker.url)
    async with client:
        await client.admin.create_topic("walks")

        async def send() -> None:
            await client.send("walks", b"body", key="key")

        taken: list[Any] = []

        async def pull() -> None:
            taken.append(await client.pull("walks", group="group", max_messages=1, wait=5.0))

        async def done() -> None:
            await taken[-1][0].ack()

        async def retry() -> None:
            await taken[-1][0].retry(3600.0, reason="not now")

        steps: list[tuple[str, list[Callable[[], Awaitable[None]]]]] = [
            ("send", [send]),
            ("pull", [pull]),
            ("settle", [done]),
            ("retry", [retry]),
        ]
        for _ in range(2):
            for step in (send, pull, done, send, pull, retry):
                await step()
        for name, parts in steps:
            if name == "pull":
                await send()
            if name == "retry":
                await send()
                await pull()
            await asyncio.sleep(0.005)  # the turns of the steps before have ended
            with trace.recorded():
                for part in parts:
                    await part()
            _tell(trace, name, shown)


def _tell(trace: Trace, name: str, shown: str | None) -> None:
    if shown is None:
        print(trace.row(name))
    elif shown == name:
        for thread, file, function, inside in trace.calls:
            print(f"{thread:16} {'turn' if inside else '    '} {file}: {function}")


def main() -> None:
    """Print the table, or the calls of one way."""
    shown = sys.argv[1] if len(sys.argv) > 1 else None
    trace = Trace()
    threading.setprofile(trace.profile)
    sys.setprofile(trace.profile)
    disk = MemoryDisk()
    if shown is None:
        print(
            "| way | calls | files | of the broker's thread: calls / files / changes of file "
            "| of these in ends of turns |"
        )
        print("|---|---|---|---|---|")
    broker = InProcessBroker(clock=None, disk=disk)
    broker.start()
    asyncio.run(_walk(trace, broker, shown))
    broker.stop(clean=False)
    again = InProcessBroker(clock=None, disk=disk)
    with trace.recorded():
        again.start()
    _tell(trace, "recovery", shown)
    again.stop()


if __name__ == "__main__":
    main()
