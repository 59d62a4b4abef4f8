"""The producer: publishes the events in the order of their times.

``python -m ternmq.demo.producer FOLDER``: prints how much there is to publish, waits for the line
``go`` on standard input, and then prints its progress. It stops at four fifths until the line
``on`` arrives: the broker has been killed by then.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import ternmq
from ternmq.demo.bookings import booked
from ternmq.demo.clocks import MINUTES_PER_DAY, text_of
from ternmq.demo.flights import Event, Timetable, read
from ternmq.demo.plan import FLIGHTS, WITHOUT_AIRCRAFT, Run, Sabotage, owed, target_of, topic_of
from ternmq.demo.records import PRODUCER, Ended, Planted, Stored, SyncedFile, now_us, read_run
from ternmq.demo.reminders import Reminding, plan
from ternmq.demo.wires import lines_of, tell

log: Final = logging.getLogger("ternmq.demo")

MOST: Final = 500
"""Messages in one send_many."""
HELD_BACK: Final = 5
"""One message in this many waits for ``on``."""
_TURN: Final = 0.01
_REPORT_EVERY: Final = 0.1


class Item(NamedTuple):
    """A message to send."""

    event: Event
    again: bool = False
    """Whether it is sent a second time, with another id: this is sabotage."""

    @property
    def message(self) -> ternmq.Message:
        """The message to send. With its own id: if it is sent again, it is stored only once."""
        event = self.event
        return ternmq.Message(
            event.body,
            key=event.flight.key,
            ordering_key=event.flight.tail,
            tag=event.flight.carrier,
            content_type="application/json",
            id=f"{event.id}/again" if self.again else event.id,
        )


def items(timetable: Timetable, run: Run, planted: list[Planted]) -> Iterator[Item]:
    """Yield the messages to send, including the fault to plant."""
    if run.sabotage in {None, Sabotage.EARLY}:  # that one is planted among the reminders
        yield from map(Item, timetable)
        return
    departure, landing = target_of(timetable, run)
    planted.append(Planted(run.sabotage.value, timetable[departure].id))
    for place, event in enumerate(timetable):
        if place != departure or run.sabotage is Sabotage.DUPLICATE:
            yield Item(event)
        if place == departure and run.sabotage is Sabotage.DUPLICATE:
            yield Item(event, again=True)
        if place == landing and run.sabotage is Sabotage.ORDER:
            yield Item(timetable[departure])


class Producer:
    """Sends due messages, one send_many of each topic after the other, to keep the order."""

    def __init__(
        self, client: ternmq.Client, file: SyncedFile, run: Run, reminding: Reminding
    ) -> None:
        self._client = client
        self._reminding = reminding
        self._file = file
        self._run = run
        self._reported = 0.0
        self.sent = 0
        self.stored = 0
        self.minute = 0

    async def publish(self, timetable: Timetable, on: asyncio.Event) -> None:
        """Send all events; returns when all are stored."""
        loop = asyncio.get_running_loop()
        planted: list[Planted] = []
        first, start = timetable[0].minute, loop.time()
        held_back = len(timetable) - len(timetable) // HELD_BACK
        due: list[Item] = []
        self.minute = first
        for item in items(timetable, self._run, planted):
            while self._run.speed and item.event.minute > first + (
                (loop.time() - start) * self._run.speed * MINUTES_PER_DAY
            ):
                await self._send(due)
                await asyncio.sleep(_TURN)
            due.append(item)
            if len(due) >= MOST:
                await self._send(due)
            if self.sent + len(due) >= held_back and not on.is_set():
                await self._send(due)
                self._report()
                await on.wait()
        await self._send(due)
        self._report()
        for record in planted:
            self._file.note(record)

    async def _send(self, due: list[Item]) -> None:
        """Send the due messages and clear the list, then the reminders of this time.

        Returns when all are stored.
        """
        if due:
            self.minute = due[-1].event.minute
            self.sent += len(due)
            await asyncio.gather(
                *[
                    self._send_all(
                        topic, [one.message for one in due if topic_of(one.event) == topic]
                    )
                    for topic in (FLIGHTS, WITHOUT_AIRCRAFT)
                ]
            )
            due.clear()
        await self._reminding.go_on(self.minute)
        now = asyncio.get_running_loop().time()
        if now - self._reported >= _REPORT_EVERY:
            self._reported = now
            self._report()

    async def _send_all(self, topic: str, messages: list[ternmq.Message]) -> None:
        if not messages:
            return
        while True:
            try:
                receipts = await self._client.send_many(topic, messages)
            except (
                ternmq.CannotConnect,
                ternmq.SendTimeout,
                ternmq.PartialSendError,
                ternmq.ConnectionLost,
            ) as error:
                log.warning("sent again, with the same ids: %s", error)
                continue
            self.stored += len(receipts)
            duplicates = sum(receipt.duplicate for receipt in receipts)
            self._file.note(Stored(topic, len(messages), len(receipts), duplicates, now_us()))
            return

    def _report(self) -> None:
        tell(sent=self.sent, stored=self.stored, date=text_of(self.minute))


async def main(folder: Path) -> None:
    """Publish according to ``run.json`` in the folder."""
    run = read_run(folder)
    timetable = Timetable(await asyncio.to_thread(read, run.period))
    reminders = plan(timetable.flights, run, timetable[0].minute)
    tell(
        total=len(timetable),
        flights=len(timetable.flights),
        without_aircraft=sum(not flight.tail for flight in timetable.flights),
        cancelled=sum(flight.departed is None for flight in timetable.flights),
        reminders=len(reminders),
        owed_till=2 * sum(not run.refused(one.key) for one in booked(timetable.flights, run)),
        owed_gate=sum(one.cancelled is None for one in reminders),
        **{f"owed_{name}": count for name, count in owed(timetable.flights).items()},
    )
    on = asyncio.Event()
    words = lines_of(sys.stdin)
    await anext(words)

    async def listen() -> None:
        async for _ in words:
            on.set()

    listening = asyncio.create_task(listen())
    file = SyncedFile(folder / PRODUCER)
    async with ternmq.connect() as client:
        reminding = Reminding(client, file, run, reminders)
        await Producer(client, file, run, reminding).publish(timetable, on)
    file.note(Ended(now_us()))
    await file.close()
    listening.cancel()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(Path(sys.argv[1])))
