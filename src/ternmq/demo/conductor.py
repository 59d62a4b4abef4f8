"""The course of a run: starts the processes, kills some of them, and starts the judge."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

import ternmq
from ternmq.demo import cashier, records
from ternmq.demo.judge.verdict import Verdict
from ternmq.demo.plan import (
    ATTEMPTS,
    EVERYBODY,
    FIRST_RETRY_US,
    FLIGHTS,
    GROUPS,
    PAYMENTS,
    REMINDERS,
    TICKETS,
    WITHOUT_AIRCRAFT,
    Consumers,
    Run,
)
from ternmq.demo.processes import Broker, Child, Processes, ProcessFailed
from ternmq.demo.records import (
    CONDUCTOR,
    DEAD_LETTERS,
    Back,
    DeadLetter,
    Ended,
    Handled,
    Killed,
    SyncedFile,
    now_us,
    write_run,
)
from ternmq.demo.screen import Bar, Screen
from ternmq.demo.tables import Tables

CONSUMER_DIES: Final = (0.25, 0.40)
BROKER_DIES: Final = (0.50, 0.70)
"""Shares of all messages; the seed selects a point between each two."""
_TICK: Final = 0.05
_ASK_EVERY: Final = 0.2
_PATIENCE: Final = 60.0
"""Seconds without any progress after which a run has failed."""


class Conductor:
    """A run of the demo."""

    def __init__(self, run: Run, processes: Processes, screen: Screen) -> None:
        self._run = run
        self._processes = processes
        self._screen = screen
        self._folder = processes.folder
        self._broker = Broker(processes)
        self._producer: Child | None = None
        self._cashiers: list[Child] = []
        self._left: list[str] = []
        self._began = time.time()
        self._consumers: dict[str, list[Child]] = {group.name: [] for group in EVERYBODY}

    async def conduct(self, page: Path | None = None) -> Verdict:
        """Run it from beginning to end; return the verdict.

        Args:
            page: Path of the report, if tables are made.

        Raises:
            ProcessFailed: A process ended early, failed, or made no progress.
        """
        write_run(self._folder, self._run)
        self._file = SyncedFile(self._folder / CONDUCTOR)
        await self._broker.start()
        environment = self._broker.environment
        url, app, token = (environment[f"TERNMQ_{name}"] for name in ("URL", "APP", "TOKEN"))
        async with ternmq.connect(url, app=app, token=token) as client:
            await self._set_up(client)
            await self._start_all()
            await self._publish()
            await self._until(self._drained(client), "the groups have processed all messages")
            await self._list_dead_letters(client)
            for children in self._consumers.values():
                await asyncio.gather(*[child.stop() for child in children if child.running])
            if self._run.tables and page is not None:
                await self._make_tables(client, page)
        await self._broker.stop()
        self._file.note_now(Ended(now_us()))
        await self._file.close()
        self._show()
        self._screen.close()
        return await self._judge()

    # -- the beginning

    async def _set_up(self, client: ternmq.Client) -> None:
        """Create topics and groups, with the groups' retry policy."""
        admin = client.admin
        await admin.create_topic(FLIGHTS, ordered=True)
        await admin.create_topic(WITHOUT_AIRCRAFT)
        for topic in (REMINDERS, TICKETS, PAYMENTS):
            await admin.create_topic(topic)
        await admin.put_producer_group(cashier.GROUP, first=1, cap=5)
        retry = ternmq.RetryPolicy(
            first=timedelta(microseconds=FIRST_RETRY_US), jitter=0, attempts=ATTEMPTS
        )
        for group in EVERYBODY:
            for topic in group.topics:
                await admin.create_group(
                    topic, group.name, tags=group.tags or None, mode=group.mode(topic)
                )
                await admin.change_group(topic, group.name, retry=retry)

    async def _start_all(self) -> None:
        """Start the producer and the consumers; returns when all are ready."""
        producer = self._producer = await self._processes.start(
            "producer", "ternmq.demo.producer", str(self._folder), env=self._broker.environment
        )
        for group in EVERYBODY:
            for _ in range(group.processes):
                await self._start_consumer(group)
        first = await self._start_cashier()
        self._screen.say("reading the flights, starting the processes")
        await self._until(
            lambda: (
                "total" in producer.facts
                and "bookings" in first.facts
                and all(child.number("connections") for child in self._all())
            ),
            "the producer and the consumers are ready",
        )
        facts = producer.facts
        self._screen.say(
            f"{facts['flights']:,} flights, {facts['cancelled']:,} of them cancelled: "
            f"{facts['total']:,} messages; {facts['without_aircraft']:,} without a tail number, "
            "to the topic that is not ordered"
        )
        self._screen.say(
            f"{facts['reminders']:,} reminders are scheduled on the way, and some are cancelled;"
            f" {first.facts['bookings']:,} bookings are paid"
        )

    async def _start_cashier(self) -> Child:
        name = f"cashier-{len(self._cashiers) + 1}"
        child = await self._processes.start(
            name, "ternmq.demo.cashier", str(self._folder), name, env=self._broker.environment
        )
        self._cashiers.append(child)
        return child

    async def _kill_cashier(self) -> None:
        """Kill the cashier while it has open transactions; another one takes over."""
        (first,) = self._cashiers
        await self._until(
            lambda: first.number("open") >= cashier.HELD, "the cashier has open transactions"
        )
        await first.kill()
        await self._processes.gone(first)
        self._file.note_now(Killed(first.name, now_us()))
        second = await self._start_cashier()
        second.say("go")
        second.expected = True
        self._screen.say(
            f"killed {first.name} (SIGKILL) in {cashier.HELD} transactions;"
            f" {second.name} takes over"
        )

    async def _start_consumer(self, group: Consumers) -> None:
        children = self._consumers[group.name]
        name = f"{group.name}-{len(children) + 1}"
        children.append(
            await self._processes.start(
                name, "ternmq.demo.worker", str(self._folder), group.name, name,
                env=self._broker.environment,
            )
        )  # fmt: skip

    # -- the middle

    async def _publish(self) -> None:
        """Publish everything; on the way, kill one consumer and the broker."""
        producer = self._producer
        assert producer is not None
        total = producer.number("total")
        (victims,) = [group for group in GROUPS if group.killed]
        producer.say("go")
        self._cashiers[0].say("go")
        self._screen.begin()
        at = total * self._between(CONSUMER_DIES)
        first = self._consumers[victims.name][0]
        await self._until(
            lambda: producer.number("stored") >= at and first.number("handled") > 0,
            "a part is published",
        )
        await first.kill()
        await self._processes.gone(first)
        written = records.read(self._folder / records.consumer_file(first.name), killed=True)
        first.facts["handled"] = sum(isinstance(record, Handled) for record in written)
        self._file.note_now(Killed(first.name, now_us()))
        await self._start_consumer(victims)
        self._screen.say(f"killed {first.name} (SIGKILL); {victims.name}-2 takes over")

        await self._kill_cashier()

        at = total * self._between(BROKER_DIES)
        await self._until(lambda: producer.number("stored") >= at, "more is published")
        await self._broker.kill()
        self._file.note_now(Killed("broker", now_us()))
        producer.say("on")
        begun = time.monotonic()
        await self._broker.start()
        self._file.note_now(Back(now_us()))
        self._screen.say(
            f"killed the broker (SIGKILL); it listens again after {time.monotonic() - begun:.1f} s"
        )
        producer.expected = True
        await self._until(lambda: not producer.running, "all is published")
        await producer.wait()
        self._screen.say("all is published")
        await self._until(lambda: not self._cashiers[-1].running, "all bookings are paid")
        await self._cashiers[-1].wait()

    def _between(self, shares: tuple[float, float]) -> float:
        low, high = shares
        return low + (high - low) * self._run.chance(f"{low}")

    # -- the end

    def _drained(self, client: ternmq.Client) -> Callable[[], bool]:
        """Return a condition: every group has settled all published messages."""
        asking: asyncio.Task[list[str]] | None = None

        async def ask() -> list[str]:
            await asyncio.sleep(_ASK_EVERY)
            try:
                scheduled = sum(one.messages for one in await client.admin.scheduled(REMINDERS))
                groups = await client.admin.groups()
            except ternmq.TernMQError as error:
                return [str(error)]  # the broker was killed a moment ago
            waiting = [f"{scheduled} reminders are not due"] if scheduled else []
            return waiting + [
                f"{group.group} of {group.topic}: {queue.lag} unread, {queue.leased} leased,"
                f" {queue.ready} ready, {queue.waiting} waiting"
                for group in groups
                for queue in group.queues
                if queue.lag or queue.leased or queue.ready or queue.waiting
            ]

        def drained() -> bool:
            nonlocal asking
            if asking is None:
                asking = asyncio.create_task(ask())
            if not asking.done():
                return False
            asked, asking = asking, None
            self._left = asked.result()
            return not self._left

        return drained

    async def _list_dead_letters(self, client: ternmq.Client) -> None:
        """Record the dead letters of the groups, read as an operator would."""
        file = SyncedFile(self._folder / DEAD_LETTERS)
        for group in EVERYBODY:
            for topic in group.topics:
                async for dead in client.deadletters.browse(topic, group.name):
                    message = dead.message
                    event = f"{message.key}/{message.value['event']}" if message else ""
                    file.note(DeadLetter(group.name, topic, event, dead.attempts, dead.reason))
        file.note(Ended(now_us()))
        await file.close()

    async def _judge(self) -> Verdict:
        """Compare the records with the flights file, in a separate process."""
        self._screen.say("comparing the records of every process with the flights file")
        judge = await self._processes.start(
            "check", "ternmq.demo.check", str(self._folder), "--json", env=os.environ
        )
        await judge.ended()
        verdict = self._folder / "verdict.json"
        if not verdict.exists():
            await judge.wait()
            raise ProcessFailed("the check wrote no verdict")
        return msgspec.json.decode(verdict.read_bytes(), type=Verdict)

    async def _make_tables(self, client: ternmq.Client, page: Path) -> None:
        """Make tables of all published messages and their outcomes."""
        tables = Tables(
            self._run, self._processes, self._broker.environment, self._screen, self._show,
            self._began,
        )  # fmt: skip
        await tables.make(client, page)
        self._screen.say(f"report of the day: {page}")

    # -- waiting

    def _all(self) -> list[Child]:
        return [child for children in self._consumers.values() for child in children]

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, and show the progress.

        Raises:
            ProcessFailed: A process ended, or there is no progress any more.
        """
        before, moved = -1, time.monotonic()
        while not condition():
            self._processes.check()
            self._show()
            now = self._progress()
            if now != before:
                before, moved = now, time.monotonic()
            elif time.monotonic() - moved > _PATIENCE:
                left = "; ".join(["", *self._left])
                raise ProcessFailed(
                    f"no progress for {_PATIENCE:g} s while waiting until {what}{left}"
                )
            await asyncio.sleep(_TICK)

    def _progress(self) -> int:
        sent = self._producer.number("stored") if self._producer is not None else 0
        sent += sum(child.number("paid") for child in self._cashiers)
        return sent + sum(child.number("handled") + child.number("failed") for child in self._all())

    def _show(self, more: Bar | None = None) -> None:
        producer = self._producer
        if producer is None or "total" not in producer.facts:
            return
        bars = [
            Bar("published", producer.number("stored"), producer.number("total"),
                str(producer.facts.get("date", ""))[:10])
        ]  # fmt: skip
        for group in EVERYBODY:
            children = self._consumers[group.name]
            done = sum(one.number("handled") + one.number("failed") // ATTEMPTS for one in children)
            alive = [child.name for child in children if child.running]
            bars.append(
                Bar(group.name, done, producer.number(f"owed_{group.name}"), _who(group, alive))
            )
        if more is not None:
            bars.append(more)
        self._screen.show(bars)


def _who(group: Consumers, alive: list[str]) -> str:
    if not alive:
        return ""
    return f"{len(alive)} processes" if group.processes > 1 else alive[-1]
