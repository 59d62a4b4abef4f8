"""How a retry policy is written for people."""

from __future__ import annotations

import pytest

from ternmq.model.policies import write_retry
from ternmq.model.specs import RetryPolicy


@pytest.mark.parametrize(("attempts", "said"), [(1, "1 attempt"), (2, "2 attempts")])
def test_one_attempt_is_one(attempts: int, said: str) -> None:
    policy = RetryPolicy(attempts=attempts)
    assert f", {said}, then dead-letter" in write_retry(policy)
