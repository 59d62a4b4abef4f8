"""Delays of retries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.group.retry import delay_us
from ternmq.model.specs import RetryPolicy


class Fixed:
    """Chance that is known beforehand."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


policies = st.builds(
    RetryPolicy,
    first_us=st.integers(0, 10**9),
    factor=st.floats(1, 50),
    cap_us=st.integers(10**9, 10**13),
    jitter=st.floats(0, 0.99),
)


@given(policies, st.integers(1, 65_000), st.floats(0, 1, exclude_max=True))
def test_delays_grow_to_the_cap_give_or_take_the_jitter(
    policy: RetryPolicy, attempts: int, chance: float
) -> None:
    delay = delay_us(policy, attempts, Fixed(chance))
    try:
        exact = min(policy.first_us * policy.factor ** (attempts - 1), float(policy.cap_us))
    except OverflowError:
        exact = float(policy.cap_us if policy.first_us else 0)
    assert exact * (1 - policy.jitter) - 1 <= delay <= exact * (1 + policy.jitter) + 1
    assert delay >= 0


def test_without_jitter_chance_is_not_asked() -> None:
    class Never:
        def random(self) -> float:
            raise AssertionError

    policy = RetryPolicy(first_us=100, factor=3.0, cap_us=1000, jitter=0.0)
    assert [delay_us(policy, at, Never()) for at in (1, 2, 3, 4, 70)] == [
        100, 300, 900, 1000, 1000,
    ]  # fmt: skip


def test_a_policy_without_growth_stays_at_its_first_delay() -> None:
    policy = RetryPolicy(first_us=100, factor=1.0, cap_us=1000, jitter=0.0)
    assert {delay_us(policy, at, Fixed(0)) for at in (1, 64, 65, 1000, 65_000)} == {100}


def test_a_policy_without_delay_has_none_however_often() -> None:
    policy = RetryPolicy(first_us=0, factor=2.0, cap_us=1000)
    assert {delay_us(policy, at, Fixed(0.9)) for at in (1, 64, 65, 65_000)} == {0}
