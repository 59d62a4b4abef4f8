"""All states that a run can come to, the nearest first, until one violates an invariant.

Breadth first, so a violation that is found has a shortest way to it. Only the code of a state and
the number of the state before it are kept; the way is found by taking its steps again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tests.model.codes import Codes
from tests.model.invariants import KINDS, Kind, violations
from tests.model.run import Run
from tests.model.state import State, Step
from tests.model.steps import steps


@dataclass(frozen=True, slots=True)
class Found:
    """A violation: which invariant, in words, and the steps that lead to it."""

    kind: Kind
    text: str
    trace: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What an exploration came to.

    Attributes:
        exhausted: There is no state that was not looked at.
        states: How many were found; of those that differ in names only, one.
        depth: How many steps lead to the last of them.
        seconds: Of wall time.
        cpu_seconds: Of processor time.
        found: The violation at which it ended.
    """

    exhausted: bool
    states: int
    depth: int
    seconds: float
    cpu_seconds: float
    found: Found | None


Progress = Callable[[int, int, int], None]
"""Called behind each depth: the depth, all states so far, those that are new."""


def explore(
    run: Run,
    *,
    judged: Collection[Kind] = KINDS,
    most_states: float = math.inf,
    most_seconds: float = math.inf,
    progress: Progress | None = None,
) -> Result:
    """Explore a run until nothing is left, an invariant is violated, or it was enough.

    Args:
        run: What may happen.
        judged: The invariants that count.
        most_states: End when there are so many.
        most_seconds: End when so much time has passed.
        progress: Told of each depth.
    """
    began, used = time.monotonic(), time.process_time()
    codes = Codes(run.brokers)
    start = run.start()
    # The code of each state, and the number of the state before it; the n-th has the number n.
    seen = {codes.code(start, codes.numbered(start)): 0}
    level, first, depth = [start], 0, 0

    def result(found: Found | None = None, *, exhausted: bool = False) -> Result:
        seconds, cpu_seconds = time.monotonic() - began, time.process_time() - used
        return Result(exhausted, len(seen), depth, seconds, cpu_seconds, found)

    while level:
        following: list[State] = []
        for number, state in enumerate(level, first):
            before = codes.numbered(state)
            for _, after in steps(run, state):
                if after.asked_to_cut and "asked to cut" not in judged:
                    continue
                code = codes.code(after, before)
                if code in seen:
                    continue
                seen[code] = number
                following.append(after)
                for kind, text in violations(after):
                    if kind in judged:
                        depth += 1
                        return result(Found(kind, text, _trace(run, codes, seen)))
            if len(seen) >= most_states:
                return result()
        if time.monotonic() - began >= most_seconds:
            return result()
        depth += bool(following)
        if progress is not None:
            progress(depth, len(seen), len(following))
        first += len(level)
        level = following
    return result(exhausted=True)


def _trace(run: Run, codes: Codes, seen: dict[int, int]) -> tuple[Step, ...]:
    """Return the steps from the beginning to the state that was found last.

    The states between are known by their codes only, and a code stands for all states that differ
    in names. From each of them the same steps are possible, so one with the code that is wanted is.
    """
    numbers = list(seen.values())
    wanted = [len(numbers) - 1]
    while wanted[-1]:
        wanted.append(numbers[wanted[-1]])
    all_codes = list(seen)
    trace: list[Step] = []
    state = run.start()
    for number in reversed(wanted[:-1]):
        before, code = codes.numbered(state), all_codes[number]
        step = next(one for one in steps(run, state) if codes.code(one.state, before) == code)
        trace.append(step)
        state = step.state
    return tuple(trace)
