"""Log texts about a failed message: its fate, and where its handler failed."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ternmq.model.specs import Exhausted, RetryPolicy

if TYPE_CHECKING:
    from ternmq.client.consumer.lease import Lease

log: Final = logging.getLogger("ternmq")

LIBRARY: Final = str(Path(__file__).parents[2]) + "/"
_Info = tuple[type[BaseException], BaseException, TracebackType | None]


DONE_HERE: Final = "its failure is recorded, and the message is done for this broadcast instance"
"""The fate of a message that failed in an instance, or was rejected."""


DONE_ALL_HERE: Final = "are done for this broadcast instance, with their failure recorded"
"""The fate of the messages of a batch, after "they" or "and"."""


def last_attempt(policy: RetryPolicy | None, attempt: int) -> bool:
    """Return whether the group's policy has no attempt after this one, as far as is known."""
    return policy is not None and (not policy.enabled or attempt >= policy.attempts)


def fate_of(lease: Lease, attempt: int) -> str:
    """Return the fate of a failed message, for the log."""
    if lease.broadcast:
        return DONE_HERE
    policy = lease.policy
    if policy is None:  # it was just changed: a request for it is under way
        return f"attempt {attempt}: the retry policy decides what happens to it"
    if last_attempt(policy, attempt):
        return f"{_count(policy, attempt)}: {_end(policy)}"
    return f"{_count(policy, attempt)}: it is retried by the retry policy"


def last_fate_of(lease: Lease, attempt: int) -> str:
    """Return the fate of a message after its last attempt, and why, for the log."""
    if lease.broadcast:
        return f"a broadcast instance has no retries: {DONE_HERE}"
    policy = lease.policy
    assert policy is not None, "else nobody knows which attempt is the last"
    return f"{_count(policy, attempt)} was the last: {_end(policy)}"


def dead_fate_of(lease: Lease) -> str:
    """Return the fate of a message that is rejected, for the log."""
    return DONE_HERE if lease.broadcast else "it is a dead letter now"


def over_by_time(lease: Lease) -> bool:
    """Return whether a lease is past its end, as far as this client knows.

    The broker may have kept it (an outage), or given its messages to others (a frozen process): the
    answer to the settle shows which.
    """
    return time.monotonic() >= lease.until


def _count(policy: RetryPolicy, attempt: int) -> str:
    most = policy.attempts if policy.enabled else 1
    if attempt <= most:
        return f"attempt {attempt} of {most}"
    return f"attempt {attempt} (the retry policy has {most})"  # an operator had it tried again


def _end(policy: RetryPolicy) -> str:
    if policy.exhausted is Exhausted.HOLD:
        return "its ordering key waits for an operator now (`ternmq retry list`)"
    return "it is a dead letter now"


def where(error: BaseException) -> BaseException | _Info:
    """Return an error for ``exc_info``, with a traceback that begins at the user's code.

    The frames of this library before it are of no use to readers of the log. They are kept at level
    DEBUG, and in the error itself. A traceback without the user's code is left out if a note of the
    error, or its cause, shows that code.
    """
    if log.isEnabledFor(logging.DEBUG):
        return error
    found = outside(error.__traceback__)
    inside = found is not None and _is_between(found)
    told = hasattr(error, "__notes__") or error.__cause__ is not None
    return type(error), error, None if inside and told else found


def outside(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this library at its begin; all if none is left.

    Those of ``contextlib``, by which it calls middlewares and providers, are left out, too.
    """
    found = traceback
    while found is not None and _is_between(found):
        found = found.tb_next
    return found or traceback


def _is_between(frame: TracebackType) -> bool:
    name = frame.tb_frame.f_code.co_filename
    return name.startswith(LIBRARY) or name == contextlib.__file__
