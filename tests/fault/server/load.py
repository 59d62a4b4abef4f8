"""Workload W on real connections: producers and consumers in a thread of their own, all on record.

Topics, groups, bodies and the history are those of ``tests.fault.messages`` and
``tests.fault.history``, so that the verifier of the core judges a broker process as well.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ternmq.model.errors import RefusedError
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from tests.fault.messages import GROUPS, TOPICS, Attempt, batch_of
from tests.fault.processes import DEADLINE, wait_until
from tests.fault.server.broker import Address
from tests.fault.server.client import Client, LostError
from tests.fault.server.consumer import AGAIN_S, Consumer
from tests.fault.server.desk import Desk, Plan


class Load:
    """Producers and consumers at work; leaving the context ends them without a goodbye.

    Args:
        address: Of the broker, or of a proxy; set it anew when the broker is started again.
        record: The history file.
        plan: See ``Plan``.
        number: Of this load among those of a test: producers and settles are numbered from it.
        seed: Of what is done when.
    """

    def __init__(
        self,
        address: Address,
        record: Path,
        plan: Plan | None = None,
        *,
        number: int = 0,
        seed: int = 0,
    ) -> None:
        self.address = address
        self.clients: list[Client] = []
        self.problems: list[str] = []
        self.plan = plan or Plan()
        self.desk = Desk(record, self.plan, number, seed)
        self.counts = self.desk.counts
        self._number = number
        self._sending = asyncio.Event()
        self._sending.set()
        self._consuming = True
        self._active = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="load", daemon=True)
        self._tasks: list[asyncio.Task[None]] = []

    # -- from the test's thread -------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._begin()).result(DEADLINE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(self._end()).result(DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()
        if kind is None:
            assert not self.problems, self.problems[:5]

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def sent(self, more: int, seconds: float = DEADLINE) -> None:
        """Wait until that many more messages are answered."""
        goal = self.counts.sent + more
        self.wait(lambda: self.counts.sent >= goal, f"{more} more sends answered", seconds)

    def settled(self, more: int, seconds: float = DEADLINE) -> None:
        """Wait until that many more rows are settled."""
        goal = self.counts.settled + more
        self.wait(lambda: self.counts.settled >= goal, f"{more} more rows settled", seconds)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
        """Wait for something, or fail; a client that breaks ends the wait."""

        def met() -> bool:
            return condition() or bool(self.problems)

        wait_until(met, what, seconds)
        assert not self.problems, self.problems[:5]

    def in_loop(self, call: Callable[[], None]) -> None:
        """Have something done in the clients' loop."""
        self._loop.call_soon_threadsafe(call)

    def stop_sending(self, seconds: float = DEADLINE) -> None:
        """Send nothing new; wait until every send has its answer."""
        self._loop.call_soon_threadsafe(self._sending.clear)
        wait_until(lambda: not self._sending.is_set(), "told to stop")
        self.wait(
            lambda: not self._active and not any(client.unanswered for client in self.clients),
            "every send answered",
            seconds,
        )

    def drained(self, seconds: float = DEADLINE) -> None:
        """Wait until nothing was delivered or settled for a while."""
        seen, since = (0, 0), time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            now = self.counts.delivered, self.counts.settled
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > 1.5

        wait_until(quiet, "drained", seconds)

    @property
    def losses(self) -> int:
        """How many connections were lost."""
        return sum(client.losses for client in self.clients)

    def worst_latency_s(self, since: float, share: float = 1.0) -> float:
        """Return the latency of sends since a time that so much of them did not exceed."""
        took = sorted(one for at, one in list(self.counts.latencies) if at >= since)
        assert took, "no send was answered"
        return took[min(len(took) - 1, int(len(took) * share))]

    # -- in the loop ------------------------------------------------------------------------------

    def _client(self) -> Client:
        client = Client(lambda: self.address)
        self.clients.append(client)
        self._task(client.run)
        return client

    def _task(self, call: Callable[..., Coroutine[Any, Any, None]], *given: object) -> None:
        async def guarded() -> None:
            try:
                await call(*given)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - the test must hear of it
                self.problems.append(repr(error))

        self._tasks.append(self._loop.create_task(guarded()))

    async def _begin(self) -> None:
        await self._set_up_surely(self._client())
        for number in range(self.plan.producers):
            self._task(self._produce, self._client(), number)
        for topic, group in self.plan.consumers:
            self._task(Consumer(self.desk, self._client(), topic, group).run)

    async def _end(self) -> None:
        for client in self.clients:
            client.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _set_up_surely(self, client: Client) -> None:
        """Set up, again if the broker was killed meanwhile."""
        while True:
            try:
                return await self._set_up(client)
            except LostError:
                continue

    async def _set_up(self, client: Client) -> None:
        """Make the topics and groups that are not there yet."""
        for name, spec in TOPICS.items():
            try:
                await client.ask(
                    Command.TOPIC_CREATE, control.encode(control.TopicCreate(topic=name, spec=spec))
                )
            except RefusedError as error:
                if type(error).__name__ != "TopicExists":
                    raise
                continue
            for group, subscription in GROUPS[name].items():
                await client.ask(
                    Command.GROUP_JOIN,
                    control.encode(
                        control.GroupJoin(topic=name, group=group, mode=subscription.mode)
                    ),
                )
                await client.ask(
                    Command.GROUP_CHANGE,
                    control.encode(control.GroupChange(topic=name, group=group, spec=subscription)),
                )

    # -- producers --------------------------------------------------------------------------------

    async def _produce(self, client: Client, number: int) -> None:
        """Keep ``window`` sends out."""
        producer = (self._number << 16) + number + 1
        sequence = 0
        room = asyncio.Semaphore(self.plan.window)
        while True:
            await room.acquire()
            await self._sending.wait()
            await client.open()
            chance = self.desk.chance
            topic = chance.choice(self.plan.topics)
            rows = 1 if chance.random() < 0.7 else chance.randint(1, self.plan.batch)
            packed = rows > 6 and chance.random() < 0.5
            attempt = Attempt(topic, producer, sequence, rows, time.time_ns() // 1000, packed)
            sequence += rows
            self._active += 1
            # Tasks begin in the order in which they are made: so do sequences.
            self.desk.write("try", a=attempt)
            self._task(self._answered, client, attempt, room)
            await asyncio.sleep(self.plan.pause_s)

    async def _answered(self, client: Client, attempt: Attempt, room: asyncio.Semaphore) -> None:
        """Send a batch, and write down what comes of it."""
        began = time.monotonic()
        counts = self.counts
        body = bodies.pack_send(attempt.topic, None, batch_of(attempt))
        try:
            receipt = bodies.unpack_receipt(await client.send(body))
        except RefusedError as error:
            self.desk.write("refused", a=attempt, code=error.code, t=0)
            counts.refused[type(error).__name__] += 1
            await asyncio.sleep(AGAIN_S)
        else:
            now = time.monotonic()
            counts.sent += attempt.rows
            counts.last_answer = now
            counts.latencies.append((now, now - began))
            self.desk.write(
                "sent",
                a=attempt,
                q=receipt.queue,
                first=receipt.first_offset,
                count=receipt.stored,
                dup=receipt.duplicate,
                left=[(one.row, one.offset, one.conflict) for one in receipt.others],
            )
        finally:
            self._active -= 1
            room.release()
