"""Which of several brokers is tried when, and what is wrong if none accepts: no I/O, no clock.

The first address begins at once, each further one 250 ms after the one before, or as soon as one
has failed ("happy eyeballs", RFC 8305): two dead addresses cost half a second. The first broker
that accepts HELLO wins. While an address is silent, those that failed are tried again, since a
broker that was no primary may become one meanwhile. The attempt ends when no address is left.
"""

from __future__ import annotations

import copy
import math
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ternmq.client.connection.address import Address
from ternmq.client.connection.backoff import Backoff
from ternmq.client.connection.connecting import reason_at
from ternmq.model.errors import CannotConnect, NotPrimary, RefusedError, TernMQError

STAGGER_S: Final = 0.25
"""Seconds from one address to the next, as RFC 8305 recommends."""


class Failure(NamedTuple):
    """An address, and why it does not serve."""

    address: Address
    error: TernMQError


@dataclass(slots=True)
class _Runner:
    """One address in an attempt."""

    address: Address
    tries: int = 0
    """Number of times that it was begun."""
    pending: bool = False
    """Whether it has neither accepted nor failed since."""
    error: TernMQError | None = None
    """Why it failed last."""
    due: float = math.inf
    """When it may be tried again."""


class Choice:
    """One attempt to find the broker that serves. Times are seconds of any monotonic clock.

    Args:
        addresses: In the order in which they are tried.
        backoff: The pauses before an address is tried again.
    """

    def __init__(self, addresses: Sequence[Address], backoff: Backoff) -> None:
        self._runners = [_Runner(address) for address in addresses]
        self._backoff = backoff
        self._next_at = -math.inf
        """When the next address that was not tried yet is to begin."""

    def begin(self, now: float) -> list[Address]:
        """Return the addresses that are to be tried now; each is to be reported to ``failed``."""
        begun: list[Address] = []
        for one in self._runners:
            if one.tries == 0:
                if now < self._next_at:
                    break
                self._next_at = now + STAGGER_S
            elif not (one.due <= now and self._waits):
                continue
            one.tries += 1
            one.pending, one.due = True, math.inf
            begun.append(one.address)
        return begun

    def failed(self, address: Address, error: TernMQError, now: float) -> None:
        """Note that an address failed or refused: the next one begins at once."""
        one = next(one for one in self._runners if one.address == address)
        one.pending, one.error = False, error
        if error.retriable:
            one.due = now + self._backoff.pause(one.tries)
        self._next_at = min(self._next_at, now)

    def next_at(self) -> float:
        """Return when ``begin`` is to be called, unless an address fails; infinity: not at all."""
        if any(one.tries == 0 for one in self._runners):
            return self._next_at
        return min(one.due for one in self._runners) if self._waits else math.inf

    @property
    def _waits(self) -> bool:
        """Whether an address may be silent: it has neither accepted nor failed for the first time.

        Only as long as that is so are others tried again: the attempt must end.
        """
        return any(one.tries == 0 or (one.tries == 1 and one.pending) for one in self._runners)

    @property
    def over(self) -> bool:
        """Whether every address has failed."""
        return all(one.tries and not one.pending for one in self._runners)

    def failures(self) -> list[Failure]:
        """Return the addresses that failed, in the order of the attempt, with the last errors."""
        return [Failure(one.address, one.error) for one in self._runners if one.error is not None]


def verdict(failures: Sequence[Failure]) -> TernMQError:
    """Return the error for brokers of which none serves; of one, its own.

    It is the most telling one, with the reason of every address: a refusal that is final (of the
    app or the token, for example), then that no broker is the primary now, then another refusal.
    """
    errors = [one.error for one in failures]
    if len(errors) == 1:
        return errors[0]
    each = "; ".join(f"{address}: {reason_at(address, error)}" for address, error in failures)
    for address, error in failures:
        if isinstance(error, RefusedError) and not error.retriable:
            return _with_text(error, f"{address} refuses this client: {each}")
    for error in sorted(errors, key=lambda one: not isinstance(one, NotPrimary)):
        if error.refresh_routes:
            return _with_text(error, f"none of the brokers leads now: {each}")
    for error in errors:
        if isinstance(error, RefusedError):
            return _with_text(error, f"no broker accepts this client now: {each}")
    if not any(error.retriable for error in errors):
        return _with_text(errors[0], f"no broker at any of these addresses: {each}")
    none = CannotConnect(f"no broker at any of these addresses: {each}")
    secured = [error for error in errors if isinstance(error.__cause__, ssl.SSLError)]
    hints = {error.hint for error in secured or errors}
    if len(hints) == 1 and none.hint not in hints:
        none.hint = hints.pop()
    return none


def _with_text(error: TernMQError, text: str) -> TernMQError:
    """Return an error of the same class and hint with another text."""
    told = copy.copy(error)
    told.args = (text,)
    return told
