"""A change whose answer was lost: did it happen, and can it still happen?

    read says                                        what is known
    ----                                             -----
    the version that was to be replaced              nothing: the change may be on its way still
    the next version, this change's writer           it happened
    the next version or a later one, another writer  it can never happen any more. It may have
                                                     happened in between; what counts is the record
    nothing, or rubbish, or no answer                nothing

An unchanged version proves nothing, because a request may arrive long after its sender gave it up.
Only a newer version ends it. So ``change`` sends the same change again: both copies replace the
same version, so at most one of them is made, and with it both are decided.
"""

from __future__ import annotations

from typing import Final

from ternmq.cluster.coordination.port import Coordinator, Outcome, Refused, Stored, Swapped, Unknown
from ternmq.cluster.coordination.record import BadRecord, Leadership, Writer, pack, unpack

ATTEMPTS: Final = 3
"""How often ``change`` sends a change whose outcome stays unknown."""


class WentBack(BadRecord):
    """The coordinator holds an older version than one that it confirmed: it forgot a change.

    This is never resolved by itself: what the coordinator says cannot be relied on any more.
    """


async def resolve(coordinator: Coordinator, key: str, record: Leadership) -> Outcome:
    """Return what became of a change, as far as one reading can tell.

    Args:
        coordinator: Where the change was sent.
        key: Of the record.
        record: The change; ``record.version - 1`` is the version that it replaces.

    Returns:
        Swapped: the change happened, and is the newest. Refused: it can never happen any more;
        read the record that counts. Unknown: it may still happen.

    Raises:
        BadRecord: The coordinator holds rubbish.
        WentBack: The coordinator forgot the version that the change replaces.
    """
    found = await coordinator.read(key)
    if isinstance(found, Unknown):
        return found
    old = record.version - 1
    if found is None:
        if old == 0:
            return Unknown("there is no record yet, and the one to create may still come")
        raise WentBack(f"{key} was at version {old}, and the coordinator has no record any more")
    if found.version < old:
        raise WentBack(f"{key} was at version {old}, and the coordinator has {found.version}")
    if found.version == old:
        return Unknown(f"{key} is still at version {old}, and the change may still come")
    if found.version == record.version and _writer(found) == record.writer:
        return Swapped(found.version)
    return Refused()


async def change(coordinator: Coordinator, key: str, record: Leadership) -> Outcome:
    """Make a change, and find out what became of it: create or swap, resolve, and again.

    Takes at most ``2 * ATTEMPTS`` deadlines of the coordinator.

    Args:
        coordinator: The store.
        key: Of the record.
        record: The new record. It replaces version ``record.version - 1``, or is created if that
            is 0. Its writer must not have been used before.

    Returns:
        As ``resolve``. After Unknown, both the old record and this one may be in force; go on with
        ``resolve`` or ``change`` with the same record.

    Raises:
        BadRecord: The record is not valid, or the coordinator holds rubbish.
        WentBack: The coordinator forgot the version that the change replaces.
    """
    value = pack(record)
    outcome: Outcome = Unknown("not sent")
    for _ in range(ATTEMPTS):
        if record.version == 1:
            outcome = await coordinator.create(key, value)
        else:
            outcome = await coordinator.swap(key, record.version - 1, value)
        if isinstance(outcome, Swapped):
            return outcome
        # Refused: an earlier copy, of this call or of one before it, may be what refused this one.
        outcome = await resolve(coordinator, key, record)
        if not isinstance(outcome, Unknown):
            return outcome
    return outcome


def _writer(found: Stored) -> Writer:
    return unpack(found.value, found.version).writer
