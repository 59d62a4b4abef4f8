"""Each app's part of the shared memory and places, and which app waits when they run out.

Bytes. A *budget* is a number of bytes for all apps together; an *account* is the part of it that
one app holds. The *fair share* is the budget divided by the number of apps that hold something. An
account is *over* when the sum of all accounts exceeds the budget and this account exceeds the fair
share: then requests of its app wait, or its connections are cut off, depending on the budget. From
this follows:

* An app that is alone may use a whole budget.
* An app that holds no more than its fair share is never held back, whatever others hold.
* n apps together hold at most budget x (1 + 1/2 + ... + 1/n), and a last step of each.

Places. Connections, and requests that wait for messages, are limited in number. The last eighth of
such places is for apps that hold fewer places than are free: one app alone never takes them all,
and an app that holds none gets one as long as one is free.

Every step is O(1). Not thread-safe: call it from the broker's loop.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Protocol

ROUND: Final = 256
"""Units of work that an app may have done in a turn while no other app is active: 256 single sends,
some 4 ms. The turn itself adds 2 % to that."""
SHARED_ROUND: Final = 64
"""Units for each app in a turn while several apps are active, all of them busy: each app delays the
others by 1 ms a turn."""
PORTION: Final = 16
"""Units for each app in a turn while several apps are active, not all of them busy: further work
waits for the turn's end, where more portions run for a limited time."""
MUCH: Final = 100
"""An app is busy if its units left some of its work over this often in one second: it had more work
than it may have done for some 40 turns."""
MANY: Final = 25
"""An app that opens more connections than this in one second is busy with that."""
CONTROL_UNITS: Final = 16
"""Units of a control command: it takes 0.1 to 1 ms, a send 0.015 ms."""
RESERVE_SHIFT: Final = 3
"""An eighth of all places is for apps that hold few."""
UNIT_SHIFT: Final = 14
"""Each 16 KiB of a request or an answer count as one more unit."""


class Budget:
    """Bytes for all apps together.

    Attributes:
        limit: The budget.
        held: Sum of all accounts.
        holders: Number of accounts that hold something.
        held_back: Counter: an account was over, so a request had to wait or a connection was cut
            off.
    """

    __slots__ = ("held", "held_back", "holders", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.holders = 0
        self.held_back = 0


class Account:
    """The part of a budget that one app holds."""

    __slots__ = ("budget", "held")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.held = 0

    def take(self, size: int) -> None:
        """Add to the held bytes; a negative size subtracts. The result must not be negative."""
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
        """Whether this app has to wait: all accounts exceed the budget, and this one its share."""
        budget = self.budget
        return budget.held > budget.limit and self.held * budget.holders > budget.limit


class Places:
    """A limited number of places that all apps share.

    Attributes:
        limit: Number of places.
        taken: Places that all apps hold.
        refused: Counter: an app got no place.
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
            app: Name of the app.
            most: Most places that one app may hold; None: no such limit.
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
        """Return a place of an app."""
        self.taken -= 1
        rest = self._of[app] - 1
        if rest:
            self._of[app] = rest
        else:
            del self._of[app]

    def of(self, app: str) -> int:
        """Return the number of places that an app holds."""
        return self._of.get(app, 0)


class Connected(Protocol):
    """A connection, as its app's accounts know it."""

    def go_on(self) -> None:
        """Run requests that had to wait for the next turn, or for memory."""
        ...

    def take_up(self) -> None:
        """Run requests that were set aside: the app's answers have been taken."""
        ...

    def cut(self, why: str) -> None:
        """Close at once; ``why`` is for the log and the metrics."""
        ...


class AppAccounts:
    """One app's accounts, and its waiting connections.

    Attributes:
        app: Name of the app.
        connections: Number of open connections.
        entered: Number of connections that it has opened in the second ``entered_second``.
        pending: Bytes of requests without an answer.
        unwritten: Bytes of answers that are made, or being made, and not taken.
        unfinished: Bytes of requests that are not received whole.
        units: Units of work that the app may still have done in this turn.
        round: Number of the turn that ``units`` is for.
        second: Number of the second in which the app last had a request.
        left: How often some of its work was left over in this second.
        runnable: Connections with requests that wait for the next turn, or for ``pending``.
        held_back: Connections that set requests aside until ``unwritten`` has room.
        writing: Connections with a request that is not received whole -> loop time at which it
            began; the oldest first.
    """

    __slots__ = (
        "app",
        "connections",
        "entered",
        "entered_second",
        "held_back",
        "left",
        "pending",
        "_accounts",
        "round",
        "runnable",
        "second",
        "unfinished",
        "units",
        "unwritten",
        "writing",
    )

    def __init__(self, app: str, accounts: Accounts) -> None:
        self.app = app
        self.connections = 0
        self.entered = 0
        self.entered_second = 0
        self.pending = Account(accounts.pending)
        self.unwritten = Account(accounts.unwritten)
        self.unfinished = Account(accounts.unfinished)
        self.units = ROUND
        self.round = 0
        self.second = 0
        self.left = 0
        self._accounts = accounts
        self.runnable: OrderedDict[Connected, None] = OrderedDict()
        self.held_back: dict[Connected, None] = {}
        self.writing: OrderedDict[Connected, float] = OrderedDict()

    def begin(self, round_: int) -> None:
        """Set ``units`` for a new turn; has no effect if the turn was begun already."""
        if self.round != round_:
            self.round = round_
            accounts = self._accounts
            if self.second != accounts.second:
                accounts.asks(self)
            self.units = accounts.units

    def left_over(self) -> None:
        """Note that the app has more work than its units in this turn."""
        self.left += 1
        if self.left == MUCH:
            self._accounts.asks_much()

    @property
    def empty(self) -> bool:
        """Whether this may be dropped: the app has no connections and holds no bytes."""
        return not (
            self.connections or self.pending.held or self.unwritten.held or self.unfinished.held
        )


class Accounts:
    """The accounts of all apps that are connected, or still charged for ended connections.

    Args:
        memory_bytes: Size of each budget.
        cool_down_s: Seconds for which an app is charged for the answers that a connection had not
            taken when it ended.
    """

    def __init__(self, memory_bytes: int, cool_down_s: float) -> None:
        self.pending = Budget(memory_bytes)
        self.unwritten = Budget(memory_bytes)
        self.unfinished = Budget(memory_bytes)
        self.by_app: dict[str, AppAccounts] = {}
        self.strangers = AppAccounts("", self)
        """Those of all connections before HELLO: bytes of their unfinished requests."""
        self.second = 1
        """Number of the current second; ``cool_down`` increments it."""
        self.mixed = False
        """Several apps are active, or were in the second before, and not all of them are busy."""
        self.units = ROUND
        """Units of work with which each app begins a turn."""
        self._asking = 0
        """Number of apps that were active (had a request) in this second."""
        self._asked = 0
        """Number of apps that were active in the second before."""
        self._greedy = self._were_greedy = 0
        """Numbers of apps that were busy (``MUCH``) in this second, and in the one before."""
        self._cool_down_s = cool_down_s
        self._left: deque[tuple[float, AppAccounts, int]] = deque()
        """(loop time at which the charge ends, accounts, untaken bytes) of ended connections; the
        oldest first."""

    def enter(self, app: str) -> AppAccounts:
        """Count one more connection of an app; return the app's accounts."""
        app_accounts = self.by_app.get(app)
        if app_accounts is None:
            app_accounts = self.by_app[app] = AppAccounts(app, self)
        app_accounts.connections += 1
        if app_accounts.entered_second != self.second:
            app_accounts.entered_second, app_accounts.entered = self.second, 0
        app_accounts.entered += 1
        return app_accounts

    def leave(self, app_accounts: AppAccounts, untaken: int, now: float) -> None:
        """Stop counting a connection; its untaken bytes stay charged for a while.

        Otherwise a client could evade the budget by reconnecting, and the machine may still hold
        some of the bytes.
        """
        app_accounts.connections -= 1
        if untaken:
            self._left.append((now + self._cool_down_s, app_accounts, untaken))
        elif app_accounts.empty:
            self.by_app.pop(app_accounts.app, None)

    def asks(self, app_accounts: AppAccounts) -> None:
        """Note an app's first request in this second."""
        app_accounts.second = self.second
        app_accounts.left = 0
        self._asking += 1
        self._share()

    def asks_much(self) -> None:
        """Note that an app is busy; called at most once a second for each app."""
        self._greedy += 1
        self._share()

    def _share(self) -> None:
        asking = max(self._asking, self._asked)
        self.mixed = asking > 1 and asking > max(self._greedy, self._were_greedy)
        self.units = PORTION if self.mixed else SHARED_ROUND if asking > 1 else ROUND

    def cool_down(self, now: float) -> None:
        """End old charges for untaken bytes, and begin a new second. Called once a second."""
        self.second += 1
        self._asked, self._asking = self._asking, 0
        self._were_greedy, self._greedy = self._greedy, 0
        self._share()
        left = self._left
        while left and left[0][0] <= now:
            _, app_accounts, untaken = left.popleft()
            app_accounts.unwritten.take(-untaken)
            if app_accounts.empty:
                self.by_app.pop(app_accounts.app, None)
