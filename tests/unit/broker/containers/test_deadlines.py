"""Deadlines beside a plain list of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.containers.deadlines import STALE, Deadlines


class Living(set[int]):
    """Tokens that wait still; counts how often one is asked for."""

    asked = 0

    def __contains__(self, token: object) -> bool:
        self.asked += 1
        return super().__contains__(token)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 50)),
        st.tuples(st.just("end"), st.integers(0, 2000)),
        st.tuples(st.just("pass"), st.integers(0, 20)),
    ),
    max_size=200,
)


@given(STEPS, st.integers(1, 9))
def test_the_same_as_a_list(steps: list[tuple[str, int]], times: int) -> None:
    living = Living()
    deadlines = Deadlines(living)
    model: dict[int, int] = {}
    now, token = 0, 0
    for what, number in steps * times:
        if what == "add":
            token += 1
            living.add(token)
            model[token] = now + number
            deadlines.add(now + number, token)
        elif what == "end" and model:
            gone = sorted(model)[number % len(model)]
            living.discard(gone)
            del model[gone]
        else:
            now += number
            due = sorted((us, one) for one, us in model.items() if us <= now)
            assert deadlines.due(now) or not due
            for us, one in due:
                assert deadlines.first_us() == us
                assert deadlines.pop(now) == one
                living.discard(one)
                del model[one]
            assert deadlines.pop(now) is None
        assert deadlines.first_us() == min(model.values(), default=None)


def test_what_is_over_is_forgotten_a_few_at_a_time() -> None:
    living = Living()
    deadlines = Deadlines(living)
    for token in range(20_000):
        living.add(token)
        deadlines.add(10**6 + token, token)
    for token in range(10, 20_000):
        living.discard(token)
    most = 0
    for token in range(20_000, 24_000):
        before = living.asked
        deadlines.add(10**6 + token, token)  # over at once: it never waits
        most = max(most, living.asked - before)
    assert most <= 8, "so many were looked at in one step"
    assert len(deadlines) <= STALE + 2 * 10 + 1
    assert [deadlines.pop(10**9) for _ in range(11)] == [*range(10), None]


def test_of_the_same_time_the_oldest_is_first() -> None:
    living = Living({3, 5, 9})
    deadlines = Deadlines(living)
    for token in (5, 3, 9):
        deadlines.add(7, token)
    found = []
    while (one := deadlines.pop(7)) is not None:
        found.append(one)
        living.discard(one)
    assert found == [3, 5, 9]
