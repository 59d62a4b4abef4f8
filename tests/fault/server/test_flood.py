"""More than the broker can do, from applications that try again, then little again (OVL-2).

The short form: what is sent has a definite outcome, the broker's work is not in vain, and it is
over when the load is. How much of the capacity is left is measured by ``bench/overload.py flood``.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

import ternmq
from tests.asynchronous import until
from tests.fault.processes import DEADLINE
from tests.fault.server.broker import APP, TOKEN, Broker

pytestmark = [pytest.mark.fault, pytest.mark.slow]

RUNS_S, RESTS_S = 0.004, 0.096
BODY: Final = 64 << 10
CLIENTS: Final = 2
TRIES: Final = 3
AT_ONCE: Final = 3
"""Messages that come every 2 ms: several times what such a broker takes."""
REFUSED: Final = 200
STORED_BESIDE: Final = 100
IN_A_ROW: Final = 20


@contextlib.contextmanager
def starved(broker: Broker) -> Iterator[None]:
    """Have a broker run a little of the time only: no machine is too quick for the test."""
    code = (
        "import os, signal, time\n"
        "while True:\n"
        f"    os.kill({broker.pid}, signal.SIGSTOP); time.sleep({RESTS_S})\n"
        f"    os.kill({broker.pid}, signal.SIGCONT); time.sleep({RUNS_S})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()
            process.wait(DEADLINE)
            broker.go_on()


@dataclass
class Flood:
    """Messages that come whatever becomes of those before.

    Attributes:
        outcomes: Of each that is over: ``ok``, ``refused`` (not stored), ``unknown``.
        tries: How they ended.
    """

    clients: list[ternmq.Client]
    outcomes: dict[int, str] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def come(self, until_: Callable[[], bool], what: str) -> None:
        """Let messages come until something is so."""

        def more() -> bool:
            for _ in range(AT_ONCE):
                self.tasks.append(asyncio.ensure_future(self._message(len(self.tasks))))
            return until_()

        await until(more, what, DEADLINE)

    async def _message(self, number: int) -> None:
        outcome = "refused"
        for nth in range(TRIES):
            told = await self.send(number)
            self.tries[told] += 1
            if told == "ok":
                outcome = told
                break
            if told == "unknown":
                outcome = told
            await asyncio.sleep(0.1 * 2**nth)
        self.outcomes[number] = outcome

    async def send(self, number: int) -> str:
        """Try once; any other error than those that are told of ends the test."""
        client = self.clients[number % len(self.clients)]
        body = number.to_bytes(8, "little") + b"x" * BODY
        try:
            await client.send("t", body, id=str(number))
        except (ternmq.SendTimeout, ternmq.ConnectionLost):
            return "unknown"
        except (ternmq.BufferFull, ternmq.CannotConnect, ternmq.Busy):
            return "refused"
        return "ok"


@pytest.mark.timeout(240)
def test_too_much_is_refused_definitely_and_the_rest_goes_on(memory_folder):
    asyncio.run(flood(memory_folder))


async def flood(folder: Path) -> None:
    """See the test."""
    with Broker(folder / "data", folder / "logs", log_level="warning") as broker:
        address = broker.ready()

        def connect() -> ternmq.Client:
            return ternmq.connect(
                f"ternmq://{address.host}:{address.port}", app=APP, token=TOKEN, timeout=1.0
            )

        clients = [await connect() for _ in range(CLIENTS)]
        await clients[0].admin.create_topic("t")
        await clients[0].admin.create_group("t", "g")
        run = Flood(clients)
        with starved(broker):
            tries = run.tries
            await run.come(lambda: tries["refused"] >= REFUSED, "definite refusals")
            goal = tries["ok"] + STORED_BESIDE
            await run.come(lambda: tries["ok"] >= goal, "stored while too much comes")
            # Little comes now, to the same slow broker, and it is well again.
            async with asyncio.timeout(DEADLINE):
                await asyncio.gather(*run.tasks)
                number, in_a_row = len(run.tasks), 0
                while in_a_row < IN_A_ROW:
                    outcome = run.outcomes[number] = await run.send(number)
                    in_a_row = in_a_row + 1 if outcome == "ok" else 0
                    number += 1
        stored = await everything(clients[0])
        for client in clients:
            await client.close()
        assert "Traceback" not in broker.log, broker.log
        broker.terminate()
        assert broker.wait() == 0, broker.log
    print(Counter(run.outcomes.values()), run.tries)
    told = {
        kind: {n for n, one in run.outcomes.items() if one == kind} for kind in ("ok", "refused")
    }
    assert told["ok"] <= stored.keys(), "lost"
    assert not told["refused"] & stored.keys(), "refused, and stored"
    assert max(stored.values()) == 1, "stored twice"


async def everything(client: ternmq.Client) -> Counter[int]:
    """Return how often each message is stored."""
    found: Counter[int] = Counter()
    while got := await client.pull("t", group="g", max_messages=500, wait=1):
        found.update([int.from_bytes(body[:8], "little") for body in got.bodies])
        await got.ack()
    return found
