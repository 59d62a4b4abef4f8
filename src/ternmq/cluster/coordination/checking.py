"""Whether a store works as a coordinator: a change is made, read back, and not made twice.

This finds a server that cannot be reached, an account without rights, and a proxy that sends reads
to a replica that lags behind. What a store forgets in a failover, no check finds (ADR 0020).
"""

from __future__ import annotations

import secrets
from typing import Final

from ternmq.cluster.coordination.port import (
    FIRST_VERSION,
    Coordinator,
    Refused,
    Stored,
    Swapped,
    Unknown,
)

KEY: Final = "check/coordinator"
"""Where the value of a check is stored; it stays there."""
_TRIES: Final = 5


class DoesNotAnswer(Exception):
    """The store does not answer, or refuses the account; the text says why."""


class Unfit(Exception):
    """The store answers, and must not be a coordinator; the text says why."""


async def check(coordinator: Coordinator) -> None:
    """Return if a store works; it holds one value more, or another one, afterwards.

    Raises:
        DoesNotAnswer: See there.
        Unfit: See there.
        BadRecord: It holds something under the key that is no value.
    """
    await _announce(coordinator)
    value = secrets.token_bytes(16)
    version = await _change(coordinator, value)
    found = await coordinator.read(KEY)
    if isinstance(found, Unknown):
        raise DoesNotAnswer(found.why)
    if found is None or found.version < version:
        raise Unfit("a read does not return what was changed just before: it reads from a replica?")
    if found != Stored(value, version):
        return  # another check has changed it since, as it may
    outcome = await coordinator.create(KEY, b"created twice")
    if isinstance(outcome, Unknown):
        raise DoesNotAnswer(outcome.why)
    if not isinstance(outcome, Refused):
        raise Unfit("it creates what is there already")
    if version > FIRST_VERSION:
        outcome = await coordinator.swap(KEY, version - 1, b"replaced twice")
        if isinstance(outcome, Unknown):
            raise DoesNotAnswer(outcome.why)
        if not isinstance(outcome, Refused):
            raise Unfit("it replaces a version that was replaced already")


async def _change(coordinator: Coordinator, value: bytes) -> int:
    """Change the value under the key; return its version."""
    for _ in range(_TRIES):
        found = await coordinator.read(KEY)
        if isinstance(found, Unknown):
            raise DoesNotAnswer(found.why)
        if found is None:
            outcome = await coordinator.create(KEY, value)
        else:
            outcome = await coordinator.swap(KEY, found.version, value)
        if isinstance(outcome, Swapped):
            return outcome.version
        if isinstance(outcome, Unknown):
            raise DoesNotAnswer(outcome.why)
    raise Unfit(f"{_TRIES} changes were refused, one after another")


async def _announce(coordinator: Coordinator) -> None:
    """Announce a name that is no broker's; it is withdrawn when the coordinator is closed."""
    name = f"check-{secrets.token_hex(8)}"
    done = await coordinator.announce(name, b"")
    if isinstance(done, Unknown):
        raise DoesNotAnswer(done.why)
    found = await coordinator.announced()
    if isinstance(found, Unknown):
        raise DoesNotAnswer(found.why)
    if name not in found:
        raise Unfit("what was announced is not there")
