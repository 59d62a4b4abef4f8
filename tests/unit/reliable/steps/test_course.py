"""The course of a session: whatever comes again or is killed, effects come once and in order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.reliable.steps import course
from ternmq.reliable.steps.course import Attempt, Change, Fault, Refused, Rules, Standing, State

RULES = Rules(wait_ms=1_000, give_up_ms=600_000, on_failure="retry", attempts=3)
LATE_MS = 60_000


@dataclass
class World:
    """A database with one session, and its messages; the simplest that can be."""

    size: int
    rules: Rules
    now_ms: int = 1_000_000
    standing: Standing | None = None
    items: set[int] = field(default_factory=set)
    effects: list[int] = field(default_factory=list)
    """Numbers of steps that were done; those that were undone are negative."""
    wake_ups: list[int] = field(default_factory=list)
    """Turns of messages that were not acked."""

    def commit(self, change: Change) -> bool:
        """Make a change, if the row is as it was."""
        if self.standing != change.before:
            return False
        self.standing = change.after
        if change.wake_ms is not None:
            self.wake_ups.append(change.after.turn)
        return True

    def deliver(self, number: int, body_equal: bool = True, size: int = 0) -> object:
        """Deliver an item; return what was decided."""
        equal = body_equal if number in self.items else None
        found = course.arrived(
            self.standing, number, size or self.size, equal, self.now_ms, self.rules
        )
        if isinstance(found, Change):
            assert self.commit(found)
            self.items.add(number)
        return found

    def next(self, turn: int) -> Attempt | None:
        """Return the step that a wake-up would do; changes without a step are made at once."""
        found = course.woken(self.standing, turn, self.now_ms, self.rules)
        if isinstance(found, Change):
            assert self.commit(found)
            return None
        return found

    def done(self, attempt: Attempt) -> bool:
        """Commit an attempt: its counter and its effect are one transaction."""
        if not self.commit(attempt.change):
            return False
        self.effects.append(-attempt.number if attempt.undo else attempt.number)
        return True

    def failed(self, attempt: Attempt, fault: Fault = Fault.FAILED) -> Change:
        """Note that an attempt failed."""
        assert attempt.change.before is not None
        change = course.failed(attempt.change.before, fault, "no", self.now_ms, self.rules)
        self.commit(change)
        return change

    def run(self, turn: int) -> None:
        """Do steps until there is none."""
        while (attempt := self.next(turn)) is not None:
            assert self.done(attempt)

    def renew(self) -> None:
        """Look for a lost wake-up, as every minute."""
        if self.standing is None or self.standing.next_ms >= self.now_ms - LATE_MS:
            return
        found = course.overdue(self.standing, self.now_ms)
        if found is not None:
            assert self.commit(found)

    @property
    def state(self) -> State:
        assert self.standing is not None
        return self.standing.state


def complete(size: int = 3, rules: Rules = RULES) -> World:
    """Return a world with all items of a session."""
    world = World(size, rules)
    for number in range(1, size + 1):
        world.deliver(number)
    assert world.state is State.RUNNING
    return world


def standing_of(world: World) -> Standing:
    assert world.standing is not None
    return world.standing


# -- whatever happens -----------------------------------------------------------------------------

ENDS = ("commit", "killed before the commit", "killed after the commit", "fails", "later")


@st.composite
def actions(draw: st.DrawFn) -> tuple[int, list[tuple[str, int, str]]]:
    size = draw(st.integers(1, 5))
    kinds = st.sampled_from(("item", "wake", "hold", "release", "clock", "lose", "renew"))
    one = st.tuples(kinds, st.integers(0, 20), st.sampled_from(ENDS))
    return size, draw(st.lists(one, max_size=40))


@given(actions(), st.sampled_from(("retry", "stop", "compensate")))
def test_effects_come_once_and_in_order(
    given_actions: tuple[int, list[tuple[str, int, str]]], on_failure: course.OnFailure
) -> None:
    size, todo = given_actions
    world = World(size, replace(RULES, on_failure=on_failure))
    held: list[Attempt] = []
    """Attempts of workers that were frozen before their commit."""
    for action in todo:
        happens(world, held, *action)
        check(world)
    for number in range(1, size + 1):
        world.deliver(number)
    for _ in range(50):  # all goes well from now on
        check(world)
        assert world.standing is not None
        if world.state in {State.STOPPED, State.UNDO_STOPPED}:
            resume = course.resumed(world.standing, world.now_ms)
            assert isinstance(resume, Change)
            world.commit(resume)
        world.now_ms += 2 * LATE_MS
        world.renew()
        waiting, world.wake_ups = world.wake_ups, []
        for turn in waiting:
            world.run(turn)
    done = list(range(1, size + 1))
    if world.state is State.DONE:
        assert world.effects == done
    else:
        assert world.state is State.UNDONE
        assert on_failure == "compensate"
        reached = world.effects.index(min(world.effects)) if world.effects else 0
        assert world.effects == done[:reached] + [-one for one in reversed(done[:reached])]


def happens(world: World, held: list[Attempt], kind: str, number: int, end: str) -> None:
    """Have something happen to a session, if it can."""
    if kind == "item" and end != "killed before the commit":
        world.deliver(number % world.size + 1)
    elif kind == "clock":
        world.now_ms += number * 10_000
    elif kind == "renew":
        world.renew()
    elif kind == "release" and held:
        world.done(held.pop(number % len(held)))
    elif kind in {"wake", "hold", "lose"} and world.wake_ups:
        turn = world.wake_ups.pop(number % len(world.wake_ups))
        if kind == "wake" and not wake(world, turn, end):
            world.wake_ups.append(turn)  # it was not acked
        elif kind == "hold":
            attempt = world.next(turn)
            held += [] if attempt is None else [attempt]
            world.wake_ups.append(turn)


def wake(world: World, turn: int, end: str) -> bool:
    """Do steps of a wake-up, the last of them with such an end; return whether it is acked."""
    attempt = world.next(turn)
    if attempt is None:
        return True
    if end == "killed before the commit":
        return False
    if end == "killed after the commit":
        world.done(attempt)
        return False
    if end == "commit":
        assert world.done(attempt)
        world.run(turn)
        return True
    change = world.failed(attempt, Fault.FAILED if end == "fails" else Fault.LATER)
    if change.wake_ms is None and change.after.state is State.UNDOING:
        world.run(turn)
    return True


def check(world: World) -> None:
    """Check what holds at all times."""
    standing = world.standing
    if standing is None:
        return
    assert standing.stored == len(world.items)
    net = [one for one in world.effects if one > 0][: standing.step]
    assert net == list(range(1, standing.step + 1))
    assert sum(1 if one > 0 else -1 for one in world.effects) == standing.step
    if world.effects:
        assert standing.stored == world.size  # nothing is done before all items are there


# -- items ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_a_session_runs_when_all_items_are_there_whichever_comes_last(
    order: tuple[int, ...],
) -> None:
    world = World(3, RULES)
    for number in order:
        assert world.standing is None or world.state is State.COLLECTING
        assert not any(world.next(turn) for turn in list(world.wake_ups))
        world.deliver(number)
        world.deliver(number)  # it comes twice
    assert world.state is State.RUNNING
    world.run(standing_of(world).turn)
    assert world.effects == [1, 2, 3]


def test_the_first_item_has_the_session_looked_at_and_the_last_one_has_it_run() -> None:
    world = World(3, RULES)
    first = world.deliver(3)
    assert isinstance(first, Change)
    assert (first.wake_ms, first.after.state) == (RULES.wait_ms, State.COLLECTING)
    second = world.deliver(1)
    assert isinstance(second, Change)
    assert second.wake_ms is None
    last = world.deliver(2)
    assert isinstance(last, Change)
    assert (last.wake_ms, last.after.state) == (0, State.RUNNING)
    assert world.wake_ups == [1, 2]
    world.run(1)  # the delayed one is not the one that counts any more
    assert world.effects == []
    world.run(2)
    assert world.effects == [1, 2, 3]
    assert world.state is State.DONE
    assert world.deliver(2) is None


@pytest.mark.parametrize(
    ("number", "size", "equal", "said"),
    [
        (1, 4, True, "the session has 3 steps, and this message says 4"),
        (0, 3, True, "number 0 is outside of 1 to 3"),
        (4, 3, True, "number 4 is outside of 1 to 3"),
        (-1, 3, True, "number -1 is outside of 1 to 3"),
        (1, 0, True, "a session has 1 to 10,000 steps, and this message says 0"),
        (1, 10_001, True, "a session has 1 to 10,000 steps, and this message says 10,001"),
        (2, 3, False, "step 2 has come before with another body"),
    ],
)
def test_wrong_input_is_refused_and_harms_no_session(
    number: int, size: int, equal: bool, said: str
) -> None:
    world = World(3, RULES)
    world.deliver(2)
    before = world.standing
    found = course.arrived(
        before, number, size, equal if number in world.items else None, world.now_ms, RULES
    )
    assert found == Refused(said)
    world.deliver(1)
    world.deliver(3)
    for state in State:  # in every state
        assert world.standing is not None
        standing = replace(world.standing, state=state)
        again = course.arrived(
            standing, number, size, equal if number in {1, 2, 3} else None, world.now_ms, RULES
        )
        assert again == Refused(said)


def test_missing_items_are_waited_for_longer_and_longer_then_given_up() -> None:
    world = World(3, RULES)
    world.deliver(1)
    pauses = []
    while world.state is State.COLLECTING:
        assert world.standing is not None
        world.now_ms = world.standing.next_ms
        pauses.append(world.standing.next_ms)
        world.next(world.wake_ups.pop())
    gaps = [(after - before) // 1000 for before, after in pairwise(pauses)]
    assert gaps == [2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60, 60, 57]
    assert world.now_ms == 1_000_000 + RULES.give_up_ms
    assert world.wake_ups == []
    assert standing_of(world).state is State.INCOMPLETE
    world.now_ms += 86_400_000
    late = world.deliver(3)  # it goes on, also if another one is still missing
    assert isinstance(late, Change)
    assert (late.after.state, late.wake_ms) == (State.COLLECTING, RULES.wait_ms)
    assert world.next(world.wake_ups[-1]) is None
    assert standing_of(world).state is State.COLLECTING  # not given up at once
    world.deliver(2)
    world.run(world.wake_ups[-1])
    assert world.effects == [1, 2, 3]


def test_an_incomplete_session_runs_when_the_last_item_comes() -> None:
    world = World(2, RULES)
    world.deliver(2)
    world.now_ms += RULES.give_up_ms
    world.next(world.wake_ups.pop())
    assert standing_of(world).state is State.INCOMPLETE
    world.deliver(1)
    assert world.state is State.RUNNING
    world.run(world.wake_ups.pop())
    assert world.effects == [1, 2]


# -- failures -------------------------------------------------------------------------------------


def test_retry_backs_off_then_stops_and_a_success_begins_anew() -> None:
    world = complete(2)
    attempt = world.next(world.wake_ups.pop())
    assert attempt is not None
    assert world.failed(attempt).wake_ms == 1_000
    attempt = world.next(world.wake_ups.pop())
    assert attempt is not None
    assert world.failed(attempt).wake_ms == 2_000
    turn = world.wake_ups[-1]
    attempt = world.next(turn)
    assert attempt is not None
    world.done(attempt)  # the third one
    assert world.standing is not None
    assert (world.standing.tries, world.standing.error) == (0, None)
    for _ in range(2):
        attempt = world.next(world.wake_ups.pop())
        assert attempt is not None
        assert world.failed(attempt).wake_ms is not None
    attempt = world.next(world.wake_ups.pop())
    assert attempt is not None
    assert world.failed(attempt).wake_ms is None
    assert world.state is State.STOPPED
    assert world.effects == [1]


def test_an_old_wake_up_does_not_shorten_a_back_off() -> None:
    """It comes again if its worker died after it had noted the failure, and before the ack."""
    world = complete()
    old = standing_of(world).turn
    attempt = world.next(old)
    assert attempt is not None
    change = world.failed(attempt)
    assert change.wake_ms == course.FIRST_BACKOFF_MS
    assert world.next(old) is None
    assert world.next(change.after.turn) is not None


def test_a_long_back_off_is_a_minute() -> None:
    standing = replace(standing_of(complete()), tries=40)
    found = course.failed(standing, Fault.FAILED, "no", 0, replace(RULES, attempts=100))
    assert found.wake_ms == course.LONGEST_WAIT_MS


@pytest.mark.parametrize(
    ("on_failure", "fault", "state", "wakes"),
    [
        ("retry", Fault.FAILED, State.RUNNING, True),
        ("retry", Fault.DEFINITE, State.STOPPED, False),
        ("retry", Fault.LATER, State.RUNNING, True),
        ("stop", Fault.FAILED, State.STOPPED, False),
        ("stop", Fault.LATER, State.RUNNING, True),
        ("compensate", Fault.FAILED, State.UNDOING, False),
        ("compensate", Fault.DEFINITE, State.UNDOING, False),
        ("compensate", Fault.LATER, State.RUNNING, True),
    ],
)
def test_what_a_failure_leads_to(
    on_failure: course.OnFailure, fault: Fault, state: State, wakes: bool
) -> None:
    world = complete(3, replace(RULES, on_failure=on_failure))
    turn = world.wake_ups.pop()
    attempt = world.next(turn)
    assert attempt is not None
    world.done(attempt)
    attempt = world.next(turn)
    assert attempt is not None
    change = world.failed(attempt, fault)
    assert (change.after.state, change.wake_ms is not None) == (state, wakes)
    assert change.after.error == "no"


def test_compensation_undoes_from_the_last_step_and_keeps_why() -> None:
    world = complete(4, replace(RULES, on_failure="compensate"))
    turn = world.wake_ups.pop()
    for _ in range(2):
        attempt = world.next(turn)
        assert attempt is not None
        world.done(attempt)
    attempt = world.next(turn)
    assert attempt is not None
    world.failed(attempt)
    world.run(turn)
    assert world.effects == [1, 2, -2, -1]
    assert world.state is State.UNDONE
    assert world.standing is not None
    assert world.standing.error == "no"
    first = complete(2, replace(RULES, on_failure="compensate"))
    attempt = first.next(first.wake_ups.pop())
    assert attempt is not None
    first.failed(attempt)
    assert (first.state, first.effects) == (State.UNDONE, [])


def test_an_undoing_that_fails_is_tried_again_then_stops() -> None:
    world = complete(2, replace(RULES, on_failure="compensate"))
    turn = world.wake_ups.pop()
    for one in ("done", "failed"):
        attempt = world.next(turn)
        assert attempt is not None
        world.done(attempt) if one == "done" else world.failed(attempt)
    for _ in range(3):
        attempt = world.next(turn)
        assert attempt is not None
        assert attempt.undo
        world.failed(attempt)
        turn = world.wake_ups.pop() if world.wake_ups else turn
    assert world.state is State.UNDO_STOPPED
    assert world.standing is not None
    resume = course.resumed(world.standing, world.now_ms)
    assert isinstance(resume, Change)
    world.commit(resume)
    world.run(world.wake_ups.pop())
    assert world.effects == [1, -1]


def test_when_the_function_asks_for_a_time() -> None:
    standing = standing_of(complete())
    found = course.failed(standing, Fault.LATER, "later", 5, RULES, after_ms=7_000)
    assert (found.wake_ms, found.after.next_ms) == (7_000, 7_005)


# -- operators ------------------------------------------------------------------------------------


def stopped(step: int, state: State = State.STOPPED) -> Standing:
    return Standing(3, state, 3, step, 2, 5, 0, 0, "no")


def test_resume_skip_and_cancel() -> None:
    resumed = course.resumed(stopped(1), 9)
    assert isinstance(resumed, Change)
    assert (resumed.after.state, resumed.after.tries, resumed.after.turn) == (State.RUNNING, 0, 6)
    assert resumed.wake_ms == 0
    skipped = course.skipped(stopped(1), 9)
    assert isinstance(skipped, Change)
    assert (skipped.after.state, skipped.after.step) == (State.RUNNING, 2)
    last = course.skipped(stopped(2), 9)
    assert isinstance(last, Change)
    assert (last.after.state, last.after.step, last.wake_ms) == (State.DONE, 3, None)
    undo = course.skipped(stopped(2, State.UNDO_STOPPED), 9)
    assert isinstance(undo, Change)
    assert (undo.after.state, undo.after.step, undo.wake_ms) == (State.UNDOING, 1, 0)
    undone = course.skipped(stopped(1, State.UNDO_STOPPED), 9)
    assert isinstance(undone, Change)
    assert (undone.after.state, undone.after.step) == (State.UNDONE, 0)
    cancelled = course.cancelled(stopped(1), 9, undo=False)
    assert isinstance(cancelled, Change)
    assert (cancelled.after.state, cancelled.after.step) == (State.CANCELLED, 1)
    assert cancelled.after.turn == 6  # a wake-up that is under way has no effect
    undoing = course.cancelled(stopped(1), 9, undo=True)
    assert isinstance(undoing, Change)
    assert (undoing.after.state, undoing.wake_ms) == (State.UNDOING, 0)
    nothing = course.cancelled(stopped(0), 9, undo=True)
    assert isinstance(nothing, Change)
    assert nothing.after.state is State.CANCELLED
    waiting = course.resumed(Standing(3, State.INCOMPLETE, 2, 0, 0, 5, 0, 0), 9)
    assert isinstance(waiting, Change)
    assert (waiting.after.state, waiting.after.since_ms) == (State.COLLECTING, 9)


@pytest.mark.parametrize("state", State)
def test_what_operators_cannot_do(state: State) -> None:
    standing = stopped(1, state)
    resumable = {State.STOPPED, State.UNDO_STOPPED, State.INCOMPLETE}
    assert isinstance(course.resumed(standing, 9), Change) == (state in resumable)
    skippable = {State.STOPPED, State.UNDO_STOPPED}
    assert isinstance(course.skipped(standing, 9), Change) == (state in skippable)
    ended = {State.DONE, State.UNDONE, State.CANCELLED}
    assert isinstance(course.cancelled(standing, 9, undo=False), Refused) == (state in ended)
    assert (course.overdue(standing, 9) is not None) == (state in course.ACTIVE)


def test_an_item_that_comes_after_a_cancel_is_stored_and_starts_nothing() -> None:
    world = World(2, RULES)
    world.deliver(1)
    assert world.standing is not None
    cancel = course.cancelled(world.standing, world.now_ms, undo=False)
    assert isinstance(cancel, Change)
    world.commit(cancel)
    late = world.deliver(2)
    assert isinstance(late, Change)
    assert (late.after.state, late.wake_ms) == (State.CANCELLED, None)
    assert world.next(world.wake_ups[-1]) is None
