"""The timer store against a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.clock.timers import Timer, TimerStore
from tests.unit.broker.kit import World

settings = st.tuples(st.just("set"), st.integers(0, 20), st.sampled_from(Timer))
pops = st.tuples(st.just("pop"), st.integers(0, 20), st.just(Timer.DUE))


@given(st.lists(settings | pops, max_size=60))
def test_times_fire_in_order_and_equal_ones_as_they_were_set(
    steps: list[tuple[str, int, Timer]],
) -> None:
    timers = TimerStore()
    model: list[tuple[int, int, Timer]] = []
    for number, (what, when_us, kind) in enumerate(steps):
        if what == "set":
            timers.set(when_us, kind)
            model.append((when_us, number, kind))
            model.sort()
        else:
            fired = timers.pop(when_us)
            if model and model[0][0] <= when_us:
                first_us, _, first = model.pop(0)
                assert fired == (first_us, first, None)
            else:
                assert fired is None
        assert len(timers) == len(model)
        assert timers.next_us() == (model[0][0] if model else None)


def test_a_kind_of_timer_is_registered_once() -> None:
    timers = TimerStore()
    timers.on(Timer.FREE, lambda *_: 0)
    with pytest.raises(ValueError, match="FREE is registered already"):
        timers.on(Timer.FREE, lambda *_: 0)


def test_every_kind_of_timer_is_registered() -> None:
    assert sorted(World().broker.timers.table) == sorted(Timer)
