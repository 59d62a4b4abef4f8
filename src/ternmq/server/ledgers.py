"""What each app holds of what all apps share, and who waits when it is not enough for all.

Bytes. A *budget* is a number of bytes for all apps together; an *account* is what one app holds of
it. The *fair share* is the budget divided by the apps that hold something of it. An account is
*over* when the whole is above the budget and the account above the fair share: requests of its app
wait, or its connections are cut off, as the budget says. From this follows:

* An app that is alone may use a whole budget.
* An app that holds no more than its fair share is never held back, whatever others hold.
* n apps together hold at most budget x (1 + 1/2 + ... + 1/n), and a last step of each.

Places. Of what is counted and may never be more than a limit (connections, requests that wait for
messages) the last eighth is for apps that have fewer than are free: one app never takes the last
one, and an app that has none always finds one.

Every step is O(1). Loop only.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ternmq.server.peer import Peer

ROUND: Final = 256
"""Units of work that an app may have done in a turn while no other asks for anything: 256 single
sends, some 4 ms. What the turn itself takes is 2 % of that."""
SHARED_ROUND: Final = 64
"""The same while others ask as well, all of them for much: they wait 1 ms for it in a turn."""
PORTION: Final = 16
"""The same while others ask for little: what is beyond waits for the turn's end, where portions are
run for a time."""
MUCH: Final = 100
"""An app whose work was left over so often in a second, at a portion's end, asks for much: it had
more than it may for some 40 turns."""
CONTROL_UNITS: Final = 16
"""Of a control command: 0.1 to 1 ms, where a send takes 0.015."""
RESERVE_SHIFT: Final = 3
"""An eighth of all places is for apps that have few."""
UNIT_SHIFT: Final = 14
"""Each 16 KiB of a request or an answer is another unit."""


class Budget:
    """Bytes for all apps together.

    Attributes:
        limit: How many.
        held: What all accounts hold.
        holders: How many accounts hold something.
        held_back: How often an app had to wait, or was cut off, for being over; a counter.
    """

    __slots__ = ("held", "held_back", "holders", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.holders = 0
        self.held_back = 0


class Account:
    """What one app holds of a budget."""

    __slots__ = ("budget", "held")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.held = 0

    def take(self, size: int) -> None:
        """Hold more; negative: less. The sum never becomes negative."""
        held = self.held
        budget = self.budget
        now = self.held = held + size
        budget.held += size
        if not held:
            budget.holders += 1
        if not now:
            budget.holders -= 1

    @property
    def over(self) -> bool:
        """Whether this app has to wait: the whole is too much, and so is its part."""
        budget = self.budget
        return budget.held > budget.limit and self.held * budget.holders > budget.limit


class Places:
    """Things that are counted, of which there may be so many.

    Attributes:
        limit: How many.
        taken: By all apps.
        refused: How often there was none for an app; a counter.
    """

    __slots__ = ("_of", "limit", "refused", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self.refused = 0
        self._of: dict[str, int] = {}

    def take(self, app: str, most: int | None = None) -> bool:
        """Give an app a place and return True; return False if it may not have one more.

        Args:
            app: Who asks.
            most: How many it may have in any case; None: no such limit.
        """
        held, free = self._of.get(app, 0), self.limit - self.taken
        scarce = free <= self.limit >> RESERVE_SHIFT
        if free <= 0 or (scarce and held >= free) or (most is not None and held >= most):
            self.refused += 1
            return False
        self._of[app] = held + 1
        self.taken += 1
        return True

    def give(self, app: str) -> None:
        """Take a place back."""
        self.taken -= 1
        rest = self._of[app] - 1
        if rest:
            self._of[app] = rest
        else:
            del self._of[app]

    def of(self, app: str) -> int:
        """Return how many an app has."""
        return self._of.get(app, 0)


class Ledger:
    """What one app holds, and which of its connections wait. Those without an app share one.

    Attributes:
        app: Its name.
        connections: Open ones.
        pending: Bytes of requests without an answer.
        unwritten: Bytes of answers that are made, or being made, and not taken.
        unfinished: Bytes of requests that are not whole.
        units: Work that it may still have done in this turn.
        round: The turn that ``units`` is of.
        second: In which the app asked for something last.
        left: How often some of its work was left over in this second.
        runnable: Connections with requests that wait for the next turn, or for ``pending``.
        held_back: Connections that set requests aside until ``unwritten`` has room.
        writing: Connections with a request that is not whole, and since when; the oldest first.
    """

    __slots__ = (
        "app",
        "connections",
        "held_back",
        "left",
        "pending",
        "_ledgers",
        "round",
        "runnable",
        "second",
        "unfinished",
        "units",
        "unwritten",
        "writing",
    )

    def __init__(self, app: str, ledgers: Ledgers) -> None:
        self.app = app
        self.connections = 0
        self.pending = Account(ledgers.pending)
        self.unwritten = Account(ledgers.unwritten)
        self.unfinished = Account(ledgers.unfinished)
        self.units = ROUND
        self.round = 0
        self.second = 0
        self.left = 0
        self._ledgers = ledgers
        self.runnable: OrderedDict[Peer, None] = OrderedDict()
        self.held_back: dict[Peer, None] = {}
        self.writing: OrderedDict[Peer, float] = OrderedDict()

    def begin(self, round_: int) -> None:
        """Begin a turn, once: the app may have its units of work done in it."""
        if self.round != round_:
            self.round = round_
            ledgers = self._ledgers
            if self.second != ledgers.second:
                ledgers.asks(self)
            self.units = ledgers.units

    def left_over(self) -> None:
        """Note that it has more work than a portion of units."""
        self.left += 1
        if self.left == MUCH:
            self._ledgers.asks_much()

    @property
    def empty(self) -> bool:
        """Whether nothing is known of the app that would be lost with this."""
        return not (
            self.connections or self.pending.held or self.unwritten.held or self.unfinished.held
        )


class Ledgers:
    """Of all apps that are here, or left something behind.

    Args:
        memory_bytes: Each budget.
        cool_down_s: So long an app is charged with what a connection had not taken when it ended.
    """

    def __init__(self, memory_bytes: int, cool_down_s: float) -> None:
        self.pending = Budget(memory_bytes)
        self.unwritten = Budget(memory_bytes)
        self.unfinished = Budget(memory_bytes)
        self.by_app: dict[str, Ledger] = {}
        self.strangers = Ledger("", self)
        """Of connections that have not said HELLO: their requests that are not whole."""
        self.second = 1
        """Counts seconds, by ``cool_down``."""
        self.mixed = False
        """Several apps ask, or did in the second before, and not all of them for much."""
        self.units = ROUND
        """How much work an app has done in a turn, as it comes."""
        self._asking = 0
        """Apps that asked for something in this second."""
        self._asked = 0
        """Those of the second before."""
        self._greedy = self._were_greedy = 0
        """Those that asked for much in this second, and in the one before."""
        self._cool_down_s = cool_down_s
        self._left: deque[tuple[float, Ledger, int]] = deque()
        """Until when, who, and bytes that a connection left untaken; oldest first."""

    def enter(self, app: str) -> Ledger:
        """Count one more connection of an app; return the app's ledger."""
        ledger = self.by_app.get(app)
        if ledger is None:
            ledger = self.by_app[app] = Ledger(app, self)
        ledger.connections += 1
        return ledger

    def leave(self, ledger: Ledger, untaken: int, now: float) -> None:
        """Count a connection no longer; what it did not take stays charged for a while.

        To end a connection and come again is no way around a budget, and the machine may still
        hold some of the bytes.
        """
        ledger.connections -= 1
        if untaken:
            self._left.append((now + self._cool_down_s, ledger, untaken))
        elif ledger.empty:
            self.by_app.pop(ledger.app, None)

    def asks(self, ledger: Ledger) -> None:
        """Note that an app asks for something, the first time in this second."""
        ledger.second = self.second
        ledger.left = 0
        self._asking += 1
        self._share()

    def asks_much(self) -> None:
        """Note that an app asks for more than it gets; once in a second for each."""
        self._greedy += 1
        self._share()

    def _share(self) -> None:
        asking = max(self._asking, self._asked)
        self.mixed = asking > 1 and asking > max(self._greedy, self._were_greedy)
        self.units = PORTION if self.mixed else SHARED_ROUND if asking > 1 else ROUND

    def cool_down(self, now: float) -> None:
        """Forget what was left untaken long ago, and who asked two seconds ago. Once a second."""
        self.second += 1
        self._asked, self._asking = self._asking, 0
        self._were_greedy, self._greedy = self._greedy, 0
        self._share()
        left = self._left
        while left and left[0][0] <= now:
            _, ledger, untaken = left.popleft()
            ledger.unwritten.take(-untaken)
            if ledger.empty:
                self.by_app.pop(ledger.app, None)
