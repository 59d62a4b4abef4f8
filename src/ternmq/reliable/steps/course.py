"""The course of an orderly session: all decisions. No I/O; the time is an argument.

::

                 all items are there              the last step
    collecting ----------------------> running ------------------> done
      |    ^                            |  ^  |
      |    | an item                    |  |  | "compensate"
      v    |                 gives up   v  |  v
    incomplete                  stopped    undoing ---> undone
                                (resume)      |  ^
                                              v  | (resume)
                                           undo stopped

An operator may cancel a session that is neither done nor undone: ``cancelled``.

``step`` is the number of steps that are done. It is changed by the first statement of the
transaction in which a step's function works, so it counts exactly what is committed.

A session is gone on with by a *wake-up*: a message that the consumer sends to itself. A wake-up
increases ``turn`` and has it; one with an older turn has no effect. So what is planned counts once,
however many wake-ups are delivered, and a worker that comes again after a crash has the right one.
A wake-up for one that was lost has the turn of that one: if both come, the second finds nothing to
do.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final, Literal

from ternmq.reliable.modes.numbering import MOST_STEPS

OnFailure = Literal["retry", "stop", "compensate"]
"""What happens when a step fails."""

LONGEST_WAIT_MS: Final = 60_000
"""Longest pause between two looks at a session that is incomplete, and between two attempts."""
FIRST_BACKOFF_MS: Final = 1_000
"""Pause before the second attempt of a step; doubled for each further one."""
_MOST_DOUBLED: Final = 30


class State(enum.IntEnum):
    """State of a session; the numbers are those of the table."""

    COLLECTING = 0
    """Items are missing, and waited for."""
    RUNNING = 1
    """All items are there, and steps are done one after the other."""
    UNDOING = 2
    """A step failed, and the steps before it are undone, the last one first."""
    DONE = 3
    UNDONE = 4
    STOPPED = 5
    """A step failed; an operator decides."""
    INCOMPLETE = 6
    """Items are missing, and not waited for any more; it goes on when they come."""
    CANCELLED = 7
    UNDO_STOPPED = 8
    """The undoing of a step failed; an operator decides."""


ENDED: Final = (State.DONE, State.UNDONE, State.CANCELLED)
ACTIVE: Final = (State.COLLECTING, State.RUNNING, State.UNDOING)
"""States that have a wake-up."""
NAMES: Final = {state: state.name.lower().replace("_", " ") for state in State}
"""States as operators read them."""


@dataclass(slots=True, frozen=True)
class Rules:
    """How a consumer treats its sessions.

    Attributes:
        wait_ms: When a session is looked at for the first time, after its first item.
        give_up_ms: How long missing items are waited for.
        on_failure: What happens when a step fails.
        attempts: Most attempts of a step, and of its undoing.
    """

    wait_ms: int
    give_up_ms: int
    on_failure: OnFailure
    attempts: int


@dataclass(slots=True, frozen=True)
class Standing:
    """Where a session stands: its row. Times are ms since 1970, by the database's clock.

    Attributes:
        size: Number of its items.
        state: Its state.
        stored: Number of items that are there.
        step: Number of steps that are done.
        tries: Of a session that collects: number of looks; else of failed attempts of the step that
            is next.
        turn: Turn of the wake-up that counts.
        since_ms: Since when missing items are waited for.
        next_ms: When the wake-up is due, or since when the session is in its state.
        error: Why the last attempt failed; None: it did not.
    """

    size: int
    state: State
    stored: int
    step: int
    tries: int
    turn: int
    since_ms: int
    next_ms: int
    error: str | None = None


@dataclass(slots=True, frozen=True)
class Change:
    """A change of a row, to be made if the row is still as it was.

    Attributes:
        before: The row; None: there is none.
        after: The row to be.
        wake_ms: In how many ms the wake-up of ``after.turn`` is due, 0 for at once; None: none is
            written.
    """

    before: Standing | None
    after: Standing
    wake_ms: int | None = None


@dataclass(slots=True, frozen=True)
class Refused:
    """What was asked for does not fit the session; nothing changes.

    Attributes:
        reason: Why, for people.
    """

    reason: str


@dataclass(slots=True, frozen=True)
class Attempt:
    """A step to be done or undone.

    Attributes:
        number: Of its item, from 1.
        undo: Whether it is undone.
        change: Made first, in the transaction in which the function works.
    """

    number: int
    undo: bool
    change: Change


class Fault(enum.Enum):
    """How an attempt failed."""

    FAILED = "failed"
    """Another attempt may succeed."""
    DEFINITE = "definite"
    """The function rejected the item: another attempt would not succeed."""
    LATER = "later"
    """The function asked to be called again, whatever ``on_failure`` says."""
    CUT_OFF = "cut off"
    """The process ended while the function ran. Processes are ended for many reasons, so it is
    tried again, whatever ``on_failure`` says; but the function may be the reason, so it counts. The
    wake-up that has come again goes on with it."""


# -- items ----------------------------------------------------------------------------------------


def check_place(number: int, size: int) -> Refused | None:
    """Return why an item with this number cannot belong to a session of this size; None: it can."""
    if not 1 <= size <= MOST_STEPS:
        return Refused(f"a session has 1 to {MOST_STEPS:,} steps, and this message says {size:,}")
    if not 1 <= number <= size:
        return Refused(f"number {number:,} is outside of 1 to {size:,}")
    return None


def arrived(
    standing: Standing | None,
    number: int,
    size: int,
    equal: bool | None,
    now_ms: int,
    rules: Rules,
) -> Change | Refused | None:
    """Return what becomes of a session when an item comes.

    Args:
        standing: The session; None: it has no row yet.
        number: Number of the item.
        size: Size of the session, as the item says.
        equal: Whether the item is the same as the one that is stored under its number; None: none
            is stored.
        now_ms: The database's clock.
        rules: Those of the consumer.

    Returns:
        A change: the item is stored with it. Refused: it is not the session's. None: it is stored
        already.
    """
    misplaced = check_place(number, size)
    if misplaced is not None:
        return misplaced
    if standing is not None and standing.size != size:
        return Refused(f"the session has {standing.size:,} steps, and this message says {size:,}")
    if equal is not None:
        return None if equal else Refused(f"step {number:,} has come before with another body")
    begun = standing or Standing(size, State.COLLECTING, 0, 0, 0, 0, now_ms, now_ms)
    after = replace(begun, stored=begun.stored + 1)
    if begun.state not in {State.COLLECTING, State.INCOMPLETE}:  # cancelled
        return Change(standing, after)
    if after.stored == size:
        return _waking(standing, after, State.RUNNING, 0, now_ms)
    if standing is None or begun.state is State.INCOMPLETE:
        after = replace(after, since_ms=now_ms)
        return _waking(standing, after, State.COLLECTING, rules.wait_ms, now_ms)
    return Change(standing, after)


# -- wake-ups -------------------------------------------------------------------------------------


def woken(
    standing: Standing | None, turn: int, now_ms: int, rules: Rules
) -> Attempt | Change | None:
    """Return what a wake-up does next; None: nothing, or it is not the one that counts.

    Args:
        standing: The session; None: it has no row.
        turn: Turn of the wake-up.
        now_ms: The database's clock.
        rules: Those of the consumer.
    """
    if standing is None or standing.turn != turn:
        return None
    if standing.state is State.COLLECTING:
        return _collecting(standing, now_ms, rules)
    if standing.state is State.RUNNING:
        step = standing.step + 1
        state = State.DONE if step == standing.size else State.RUNNING
        return Attempt(step, undo=False, change=_stepped(standing, step, state, now_ms))
    if standing.state is State.UNDOING:
        step = standing.step - 1
        state = State.UNDOING if step else State.UNDONE
        return Attempt(standing.step, undo=True, change=_stepped(standing, step, state, now_ms))
    return None


def _collecting(standing: Standing, now_ms: int, rules: Rules) -> Change:
    left_ms = standing.since_ms + rules.give_up_ms - now_ms
    if left_ms <= 0:
        after = replace(standing, state=State.INCOMPLETE, tries=0, next_ms=now_ms)
        return Change(standing, after)
    longest = max(LONGEST_WAIT_MS, rules.wait_ms)
    pause = min(longest, rules.wait_ms << min(standing.tries + 1, _MOST_DOUBLED), left_ms)
    after = replace(standing, tries=standing.tries + 1)
    return _waking(standing, after, State.COLLECTING, pause, now_ms, keep_tries=True)


def _stepped(standing: Standing, step: int, state: State, now_ms: int) -> Change:
    why = standing.error if standing.state is State.UNDOING else None  # why it is undone
    after = replace(standing, step=step, state=state, tries=0, next_ms=now_ms, error=why)
    return Change(standing, after)


def failed(
    standing: Standing,
    fault: Fault,
    error: str,
    now_ms: int,
    rules: Rules,
    after_ms: int | None = None,
) -> Change:
    """Return what becomes of a session when an attempt has failed, and was rolled back.

    If the change has no wake-up and the session is undone from now on, the worker goes on at once.

    Args:
        standing: The session as the attempt found it.
        fault: How it failed.
        error: Why, for people.
        now_ms: The database's clock.
        rules: Those of the consumer.
        after_ms: When the function wants to be called again; None: by back-off.
    """
    undoing = standing.state is State.UNDOING
    tried = replace(standing, tries=standing.tries + 1, error=error)
    again = fault in {Fault.LATER, Fault.CUT_OFF} or (
        fault is Fault.FAILED and (undoing or rules.on_failure == "retry")
    )
    if again and tried.tries < rules.attempts:
        if fault is Fault.CUT_OFF:
            return Change(standing, replace(tried, next_ms=now_ms))
        pause = after_ms
        if pause is None:
            pause = min(LONGEST_WAIT_MS, FIRST_BACKOFF_MS << min(standing.tries, _MOST_DOUBLED))
        return _waking(standing, tried, standing.state, pause, now_ms, keep_tries=True)
    if undoing:
        return Change(standing, replace(tried, state=State.UNDO_STOPPED, next_ms=now_ms))
    if rules.on_failure == "compensate":
        state = State.UNDOING if standing.step else State.UNDONE
        return Change(standing, replace(tried, state=state, tries=0, next_ms=now_ms))
    return Change(standing, replace(tried, state=State.STOPPED, next_ms=now_ms))


def overdue(standing: Standing, now_ms: int) -> Change | None:
    """Return a change with another wake-up, for one that was lost; None: none is missing."""
    if standing.state not in ACTIVE:
        return None
    # The same turn: one that is only late must not lose its place to this one.
    return Change(standing, replace(standing, next_ms=now_ms), wake_ms=0)


def _waking(
    before: Standing | None,
    after: Standing,
    state: State,
    wake_ms: int,
    now_ms: int,
    *,
    keep_tries: bool = False,
) -> Change:
    """Return a change with a wake-up, which is the one that counts from then on."""
    after = replace(
        after, state=state, tries=after.tries if keep_tries else 0, turn=after.turn + 1,
        next_ms=now_ms + wake_ms,
    )  # fmt: skip
    return Change(before, after, wake_ms)


# -- operators ------------------------------------------------------------------------------------


def resumed(standing: Standing, now_ms: int) -> Change | Refused:
    """Return what an operator's *resume* does: the step that failed is tried again."""
    goes_on = {
        State.STOPPED: State.RUNNING, State.UNDO_STOPPED: State.UNDOING,
        State.INCOMPLETE: State.COLLECTING,
    }.get(standing.state)  # fmt: skip
    if goes_on is None:
        return Refused(f"it is {NAMES[standing.state]}: only a session that stopped is resumed")
    return _waking(standing, replace(standing, since_ms=now_ms), goes_on, 0, now_ms)


def skipped(standing: Standing, now_ms: int) -> Change | Refused:
    """Return what an operator's *skip* does: the step that failed counts as done, or as undone."""
    if standing.state is State.STOPPED:
        after = replace(standing, step=standing.step + 1, error=None)
        ended, goes_on = State.DONE, State.RUNNING
        over = after.step == standing.size
    elif standing.state is State.UNDO_STOPPED:
        after = replace(standing, step=standing.step - 1, error=None)
        ended, goes_on = State.UNDONE, State.UNDOING
        over = after.step == 0
    else:
        return Refused(
            f"it is {NAMES[standing.state]}: only a step that failed, and stopped its session, is "
            "skipped"
        )
    if over:
        return Change(standing, replace(after, state=ended, tries=0, next_ms=now_ms))
    return _waking(standing, after, goes_on, 0, now_ms)


def cancelled(standing: Standing, now_ms: int, *, undo: bool) -> Change | Refused:
    """Return what an operator's *cancel* does: no further step is done.

    Args:
        standing: The session.
        now_ms: The database's clock.
        undo: The steps that are done are undone.
    """
    if standing.state in ENDED:
        return Refused(f"it is {NAMES[standing.state]} already")
    if undo and standing.step:
        return _waking(standing, standing, State.UNDOING, 0, now_ms)
    # A wake-up that is under way must not find its turn: it would go on after a resume.
    return Change(
        standing,
        replace(standing, state=State.CANCELLED, tries=0, turn=standing.turn + 1, next_ms=now_ms),
    )
