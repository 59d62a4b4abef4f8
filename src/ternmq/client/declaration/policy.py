"""The retry policy of a group, as applications write it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from ternmq.client.content.validation import choose, flag, limit_us, real, seconds_us, whole
from ternmq.model import specs
from ternmq.model.errors import InvalidRequest
from ternmq.model.policies import write_retry
from ternmq.model.specs import Exhausted


@dataclass(frozen=True, init=False)
class RetryPolicy:
    """When a failed message is delivered again, and how often.

    The n-th delay is ``first * factor ** (n - 1)``, at most ``cap``, plus or minus the jitter.

    Attributes:
        enabled: False: the first failure is the last.
        first: Delay before the second attempt.
        factor: Each delay is this many times the previous one; 1 to 1000.
        cap: Longest delay.
        jitter: Share of a delay that is random, up and down; 0 to below 1.
        attempts: Attempts in all, the first included; 1 to 65,000.
        exhausted: What happens to a message after its last attempt.
        expires: Time after which a message is no longer retried, counted from when it was stored:
            if the next attempt would be later, the failure is the last one. None: no limit.
    """

    enabled: bool
    first: timedelta
    factor: float
    cap: timedelta
    jitter: float
    attempts: int
    exhausted: Exhausted
    expires: timedelta | None

    def __init__(
        self,
        *,
        enabled: bool = True,
        first: float | timedelta = 1.0,
        factor: float = 2.0,
        cap: float | timedelta = 300.0,
        jitter: float = 0.2,
        attempts: int = 16,
        exhausted: Exhausted | str = Exhausted.DEAD_LETTER,
        expires: float | timedelta | None = None,
    ) -> None:
        """Times are seconds or timedeltas.

        Raises:
            InvalidRequest: A value is out of its range; the text names the argument.
        """
        put = object.__setattr__
        put(self, "enabled", flag("enabled", enabled))
        put(self, "first", timedelta(microseconds=seconds_us("first", first)))
        put(self, "factor", real("factor", factor))
        put(self, "cap", timedelta(microseconds=seconds_us("cap", cap)))
        put(self, "jitter", real("jitter", jitter))
        put(self, "attempts", whole("attempts", attempts))
        put(self, "exhausted", choose("exhausted", Exhausted, exhausted))
        limit = 0 if expires is None else limit_us("expires", expires)
        put(self, "expires", timedelta(microseconds=limit) if limit else None)
        spec_of(self).check()

    @classmethod
    def of(cls, spec: specs.RetryPolicy) -> Self:
        """Return the policy of a group: ``RetryPolicy.of(info.spec.retry)``."""
        return cls(
            enabled=spec.enabled,
            first=timedelta(microseconds=spec.first_us),
            factor=spec.factor,
            cap=timedelta(microseconds=spec.cap_us),
            jitter=spec.jitter,
            attempts=spec.attempts,
            exhausted=spec.exhausted,
            expires=timedelta(microseconds=spec.expires_us) if spec.expires_us else None,
        )

    def __str__(self) -> str:
        """One line: ``1s x 2, cap 5m, jitter 20%, 16 attempts, then dead-letter``."""
        return write_retry(spec_of(self))


def spec_of(policy: RetryPolicy) -> specs.RetryPolicy:
    """Return a policy as the broker stores it.

    Raises:
        InvalidRequest: The argument is not a ``RetryPolicy``.
    """
    if not isinstance(policy, RetryPolicy):
        raise InvalidRequest(f"retry is a ternmq.RetryPolicy, not {type(policy).__name__}")
    return specs.RetryPolicy(
        enabled=policy.enabled,
        first_us=seconds_us("first", policy.first),
        factor=policy.factor,
        cap_us=seconds_us("cap", policy.cap),
        jitter=policy.jitter,
        attempts=policy.attempts,
        exhausted=policy.exhausted,
        expires_us=limit_us("expires", policy.expires or 0),
    )
