"""The transactions of a client that are undecided, as far as it knows: no checker decides them."""

from __future__ import annotations

from typing import Final

from ternmq.client.transaction.steps import Opening, Steps
from ternmq.model.errors import TransactionDecided, UnknownTransaction
from ternmq.wire import control

MOST: Final = 10_000
"""Most transactions of a kind that are remembered."""


class Unfinished:
    """Remembers them. Not thread-safe: call it from the client's loop.

    Attributes:
        open: Numbers of the transactions whose blocks have not ended.
        undone: Numbers of those whose roll back was not answered, or refused, oldest first.
    """

    def __init__(self, steps: Steps) -> None:
        self.open: set[int] = set()
        self.undone: dict[int, None] = {}
        self._lost: dict[int, Opening] = {}
        """Openings whose outcome is not known, by counter: such a transaction can only be rolled
        back, and is known by its name."""
        self._steps = steps

    def undo(self, number: int) -> None:
        """Note that a transaction is to be rolled back when the broker asks about it."""
        self.undone[number] = None
        if len(self.undone) > MOST:
            del self.undone[next(iter(self.undone))]

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
