"""A cashier: pays the bookings; ``python -m ternmq.demo.cashier FOLDER NAME``.

It prints how many bookings there are, waits for the line ``go`` on standard input, and then prints
its progress. What it has paid is in its own file, which it writes before it commits.

The first cashier is to be killed: after a third of the bookings it stops in three transactions, at
three places. In one, a message is missing: the checker rolls it back, and the next cashier pays the
booking in another transaction. In the next, only the work is missing: the checker finishes it. In
the last, only the commit is missing: the checker commits. The next cashier knows what is done from
the files of those before.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import ternmq
from ternmq.demo import records
from ternmq.demo.bookings import KINDS, booked, message_of
from ternmq.demo.clocks import MINUTES_PER_DAY
from ternmq.demo.flights import Flight, read
from ternmq.demo.plan import PAYMENTS, TICKETS, Run
from ternmq.demo.records import CASHIERS, Ended, Paid, Paying, Refused, SyncedFile, now_us
from ternmq.demo.wires import lines_of, tell

log: Final = logging.getLogger("ternmq.demo")

GROUP: Final = "cashiers"
"""The producer group."""
HELD: Final = 3
"""Transactions in which the first cashier stops."""
_WORKERS: Final = 4
_SHARE: Final = 3
"""The first cashier stops after the n-th part of the bookings."""
_TURN: Final = 0.05


class CardRefused(Exception):
    """The card is refused."""


class Books:
    """What cashiers have done, by their files; ids of transactions by flight.

    Attributes:
        begun: The last transaction of each booking.
        paid: The transaction in which each was paid.
        refused: The bookings whose card was refused.
    """

    def __init__(self) -> None:
        self.begun: dict[str, str] = {}
        self.paid: dict[str, str] = {}
        self.refused: set[str] = set()

    def add(self, record: records.AnyRecord) -> None:
        """Add a record."""
        if isinstance(record, Paying):
            self.begun[record.flight] = record.transaction
        elif isinstance(record, Paid):
            self.paid[record.flight] = record.transaction
        elif isinstance(record, Refused):
            self.refused.add(record.flight)

    def done(self, flight: str) -> bool:
        """Return whether a booking was paid or refused."""
        return flight in self.paid or flight in self.refused


class Cashier:
    """Pays bookings, and answers questions about transactions. For one event loop.

    Args:
        client: Of the broker.
        file: Its own file.
        run: The options of the run.
        books: What earlier cashiers have done.
        stops: It stops in ``HELD`` transactions, to be killed.
    """

    def __init__(
        self, client: ternmq.Client, file: SyncedFile, run: Run, books: Books, *, stops: bool
    ) -> None:
        self._client = client
        self._file = file
        self._run = run
        self._books = books
        self._stops = stops
        self._left = dict(books.begun)
        """Transactions of earlier cashiers."""
        self._open: dict[str, str] = {}
        """Bookings that it pays now, and the transaction of each."""
        self._held = 0
        client.checker(GROUP)(self.check)

    async def check(self, tx: ternmq.PreparedTransaction) -> ternmq.Decision:
        """Say what became of a booking; finish what another cashier has left."""
        flight = tx.query_id
        if (paid := self._books.paid.get(flight)) is not None:
            return ternmq.Decision.COMMIT if paid == tx.id else ternmq.Decision.ROLLBACK
        if flight in self._open:
            mine = self._open[flight] == tx.id
            return ternmq.Decision.UNKNOWN if mine else ternmq.Decision.ROLLBACK
        if self._run.refused(flight) or set(tx.topics) != {TICKETS, PAYMENTS}:
            return ternmq.Decision.ROLLBACK
        await self._write(Paid(flight, tx.id, by_checker=True, at_us=now_us()))
        return ternmq.Decision.COMMIT

    async def pay_all(self, flights: list[Flight]) -> None:
        """Pay all bookings that are not done; return when every transaction is decided."""
        begun = asyncio.get_running_loop().time()
        left = [(one, -1) for one in flights if one.key not in self._left]
        if self._stops:
            cut = len(left) // _SHARE
            rest = [one for one, _ in left[cut:] if not self._run.refused(one.key)]
            left = left[:cut] + [(one, place) for place, one in enumerate(rest[:HELD])]
        first = flights[0].scheduled if flights else 0
        some = iter(left)
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work(some, first, begun))
        for flight in flights:
            if flight.key in self._left:
                await self._take_over(flight)
        self.report()

    async def _work(self, left: Iterator[tuple[Flight, int]], first: int, begun: float) -> None:
        """Pay one booking after the other; the first cashier does at the time of each."""
        loop = asyncio.get_running_loop()
        speed = self._run.speed * MINUTES_PER_DAY if self._stops else 0
        for flight, holds in left:
            if speed:
                await asyncio.sleep(begun + (flight.scheduled - first) / speed - loop.time())
            await self._pay(flight, holds)

    async def _take_over(self, flight: Flight) -> None:
        """Wait until the transaction of an earlier cashier is decided; pay if it is rolled back."""
        while True:
            try:
                outcome = await self._client.transaction_outcome(self._left[flight.key])
            except ternmq.TernMQError as error:
                if not error.retriable:
                    raise
                continue
            if outcome is not ternmq.Decision.UNKNOWN:
                break
            await asyncio.sleep(_TURN)
        if outcome is ternmq.Decision.ROLLBACK and not self._books.done(flight.key):
            await self._pay(flight, -1)

    async def _pay(self, flight: Flight, holds: int) -> None:
        """Pay a booking, in one transaction after the other until one is not lost."""
        while not self._books.done(flight.key):
            self._open[flight.key] = ""
            try:
                await self._try(flight, holds)
            except CardRefused:
                await self._write(Refused(flight.key, now_us()))
            except ternmq.TernMQError as error:
                # If the card was charged before, the checker commits.
                log.warning("booking of %s: %s", flight.key, error)
            finally:
                del self._open[flight.key]
        self.report()

    async def _try(self, flight: Flight, holds: int) -> None:
        ticket, payment = (message_of(flight, kind) for kind in KINDS)
        async with self._client.transaction(GROUP, query_id=flight.key) as tx:
            await tx.open()
            self._open[flight.key] = tx.id
            await self._write(Paying(flight.key, tx.id))
            await tx.send_many(TICKETS, [ticket])
            if holds == 0:
                await self._hold()
            await tx.send_many(PAYMENTS, [payment])
            if holds == 1:
                await self._hold()
            if self._run.refused(flight.key):
                raise CardRefused
            await self._write(Paid(flight.key, tx.id, by_checker=False, at_us=now_us()))
            if holds == 2:
                await self._hold()

    async def _write(self, record: Paying | Paid | Refused) -> None:
        """Write down what is done; durable at return."""
        await self._file.write(record)
        self._books.add(record)

    async def _hold(self) -> None:
        """Stop, to be killed."""
        self._held += 1
        self.report()
        await asyncio.Event().wait()

    def report(self) -> None:
        """Print the progress."""
        tell(paid=len(self._books.paid), open=self._held)


def books_of(folder: Path) -> Books:
    """Return what the cashiers of a run have done."""
    found = Books()
    for path in sorted(folder.glob(CASHIERS)):
        for record in records.read(path, killed=True):
            found.add(record)
    return found


async def main(folder: Path, name: str) -> None:
    """Pay the bookings of the run in a folder."""
    run = records.read_run(folder)
    books = books_of(folder)
    flights = booked(await asyncio.to_thread(read, run.period), run)
    tell(bookings=len(flights))
    await anext(lines_of(sys.stdin))
    file = SyncedFile(folder / records.cashier_file(name))
    client = ternmq.connect()
    cashier = Cashier(client, file, run, books, stops=not books.begun)
    try:
        # Without ``async with``: the first call connects, and waits for a broker that starts again.
        await cashier.pay_all(flights)
    finally:
        await client.close()
    file.note(Ended(now_us()))
    await file.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
