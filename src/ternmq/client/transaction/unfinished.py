"""The transactions of a client that are undecided, as far as it knows: no checker decides them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, cast
from weakref import WeakMethod

from ternmq.client.transaction.steps import Opening, Steps
from ternmq.model.errors import TernMQError, TransactionDecided, UnknownTransaction
from ternmq.model.transaction_ids import transaction_number
from ternmq.wire import control

log: Final = logging.getLogger("ternmq")

MOST: Final = 10_000
"""Most transactions of a kind that are remembered."""
_MOST_AT_CLOSE: Final = 1_000
"""Most of a kind that are rolled back when the client is closed."""


Closes = Callable[[float], Coroutine[None, None, None]]
"""Rolls a transaction back within some seconds, unless a checker is to decide it."""


class Unfinished:
    """Remembers them. Not thread-safe: call it from the client's loop.

    Attributes:
        closed: The client is closed, or about to be.
        open: Numbers of the transactions whose blocks have not ended; see ``runs``.
        undone: Numbers of those whose roll back was not answered, or refused, oldest first.
    """

    def __init__(self, steps: Steps) -> None:
        self.closed = False
        self._blocks: dict[int, WeakMethod[Closes]] = {}
        """What rolls back the transactions whose blocks have not ended, opened or not."""
        self._dropped = False
        """A block was dropped without an end; ``open`` may have its number."""
        self.open: set[int] = set()
        self.undone: dict[int, None] = {}
        self._lost: dict[int, Opening] = {}
        """Openings whose outcome is not known, by counter: such a transaction can only be rolled
        back, and is known by its name."""
        self._opening: dict[int, tuple[Opening, asyncio.Event]] = {}
        """Openings that are under way, by counter, each with the event of its answer."""
        self._steps = steps

    def begun(self, key: int, closes: Closes) -> None:
        """Note that a block began.

        Args:
            key: Names it until it ends.
            closes: A method of the transaction; the transaction is not kept alive by it.
        """
        self._blocks[key] = WeakMethod(closes, lambda _: self._drop(key))

    def _drop(self, key: int) -> None:
        """Note that a transaction was dropped by the application; called in any thread."""
        self._dropped = True
        self.ended(key)

    def runs(self, number: int) -> bool:
        """Return whether the block of a transaction has not ended; one that was dropped has."""
        if self._dropped:
            self._dropped = False
            blocks = [one() for one in list(self._blocks.values())]
            ids = [cast("Any", closes).__self__.id for closes in blocks if closes is not None]
            self.open.intersection_update([transaction_number(id_) for id_ in ids if id_])
        return number in self.open

    def ended(self, key: int) -> None:
        """Note that a block ended."""
        self._blocks.pop(key, None)

    def undo(self, number: int) -> None:
        """Note that a transaction is to be rolled back when the broker asks about it."""
        self.undone[number] = None
        if len(self.undone) > MOST:
            del self.undone[next(iter(self.undone))]

    def decided(self, number: int) -> None:
        """Note that a transaction is decided: nothing is left to roll back."""
        self.undone.pop(number, None)

    @contextmanager
    def opening(self, opening: Opening) -> Iterator[None]:
        """Note that a transaction is being opened: its number is not known yet."""
        answered = asyncio.Event()
        self._opening[opening.counter] = opening, answered
        try:
            yield
        finally:
            self._opening.pop(opening.counter, None)
            answered.set()  # who waits goes on in a later turn, when the transaction has its number

    async def opened(self, asked: control.TransactionCheck) -> None:
        """Wait for the answers to the openings under way that a question may be about.

        The broker may ask about a transaction before this client knows its number: after an outage
        the question may come before the answer to the repeated request. Each opening has a timeout.
        """
        for opening, answered in list(self._opening.values()):
            if (opening.group, opening.query_id) == (asked.group, asked.query_id):
                await answered.wait()

    def lose(self, opening: Opening) -> None:
        """Note that it is not known whether a transaction was opened."""
        self._lost[opening.counter] = opening
        if len(self._lost) > MOST:
            del self._lost[next(iter(self._lost))]

    def found(self, opening: Opening) -> None:
        """Note that a transaction has a number, or was rolled back."""
        self._lost.pop(opening.counter, None)

    async def roll_back_lost(self, asked: control.TransactionCheck, timeout: float) -> bool:
        """Roll back those that a question may be about, and of which only names are known.

        Returns:
            Whether one of them is the one that is asked about.

        Raises:
            TernMQError: The broker does not answer, or refuses it; that may be so again.
        """
        for opening in list(self._lost.values()):
            if (opening.group, opening.query_id) != (asked.group, asked.query_id):
                continue
            try:
                done = await self._steps.decide(opening, 0, timeout, commit=False)
            except (UnknownTransaction, TransactionDecided):
                self.found(opening)
                continue
            self.found(opening)
            if done.transaction == asked.transaction:
                return True
        return False

    async def close(self, timeout: float) -> None:
        """Roll back what only this client would: its blocks can decide nothing any more.

        What cannot be rolled back in time is left to the checkers.

        Args:
            timeout: Seconds for all of them together.
        """
        self.closed = True
        blocks = [one() for one in islice(self._blocks.values(), _MOST_AT_CLOSE)]
        jobs: list[Coroutine[None, None, None]] = [
            closes(timeout) for closes in blocks if closes is not None
        ]
        jobs += [
            self._roll_back(None, number, timeout) for number in islice(self.undone, _MOST_AT_CLOSE)
        ]
        jobs += [
            self._roll_back(opening, 0, timeout)
            for opening in islice(self._lost.values(), _MOST_AT_CLOSE)
        ]
        if jobs:
            await asyncio.gather(*jobs)

    async def _roll_back(self, opening: Opening | None, number: int, timeout: float) -> None:
        """Roll back one that its block wanted to roll back, or may have opened."""
        try:
            await self._steps.decide(opening, number, timeout, commit=False)
        except (UnknownTransaction, TransactionDecided):
            pass
        except TernMQError as error:
            log.info("a transaction could not be rolled back at the end of its client: %s", error)
            return
        self.decided(number)
        if opening is not None:
            self.found(opening)
