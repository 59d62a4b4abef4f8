"""Text of a retry policy, for terminals, logs and errors."""

from __future__ import annotations

from ternmq.model.specs import Mode, RetryPolicy, SubscriptionSpec
from ternmq.model.units import write_duration
from ternmq.model.words import counted


def write_retry_of(spec: SubscriptionSpec) -> str:
    """Return the effective policy of a group, or what happens in a broadcast instance, as text."""
    if spec.mode is Mode.BROADCAST:
        return "none: a failed message is done for this instance, and is no dead letter"
    return write_retry(spec.policy)


def write_retry(policy: RetryPolicy) -> str:
    """Return a policy as text: ``1s x 2, cap 5m, jitter 20%, 16 attempts, then dead-letter``."""
    if not policy.enabled:
        return f"off: the first failure is the last, then {policy.exhausted.value}"
    ends = f", at most {write_duration(policy.expires_us)}" if policy.expires_us else ""
    return (
        f"{write_duration(policy.first_us)} x {policy.factor:g}, "
        f"cap {write_duration(policy.cap_us)}, jitter {policy.jitter:.0%}, "
        f"{attempts_of(policy)}{ends}, then {policy.exhausted.value}"
    )


def attempts_of(policy: RetryPolicy) -> str:
    """Return the number of attempts as text: ``16 attempts``, ``1 attempt``."""
    return counted(policy.attempts, "attempt")
