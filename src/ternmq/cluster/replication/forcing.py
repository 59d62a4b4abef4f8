"""The record by which a broker leads that is no member: an operator accepts what it lacks.

What such a loss is, and what it lets others cut: ``coordination/loss.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ternmq.cluster.coordination.loss import goes_first
from ternmq.cluster.coordination.record import (
    MAX_WHY,
    Floor,
    Leadership,
    Member,
    Reach,
    Writer,
    Writes,
)
from ternmq.cluster.replication.standing import MayNotStand
from ternmq.model.types import Epoch, Position


class Held(NamedTuple):
    """What a journal has that is to lead.

    Attributes:
        reach: How far it reaches.
        last: Its last record.
    """

    reach: Reach
    last: Floor


def forced(
    record: Leadership,
    me: Member,
    held: Held | None,
    running: Mapping[str, int],
    accepted: Position,
    writer: Writer,
    writes: Writes,
    why: str,
    at_us: int,
) -> Leadership:
    """Return the record by which a process leads that may lack what was answered.

    It is the only member. Its last record is the floor: whatever reigns before have said of how far
    they came, from now on its journal is what a primary must have.

    Args:
        record: The record as it was read after the process had stopped acknowledging, and had
            synced all that it has.
        me: The process, as a member.
        held: What its journal has; None: it is empty.
        running: Incarnations of the brokers that run, by name.
        accepted: Position that the journal reached when the operator accepted the loss.
        writer: Who makes the change.
        writes: Whether the group is to take new messages.
        why: For people.
        at_us: The time of the wall clock, for people.

    Raises:
        MayNotStand: A broker runs that has what was answered; or the journal is empty, reaches less
            far than the operator knew, or is of a reign that the coordinator does not know.
    """
    if first := goes_first(record, running, me.broker):
        raise MayNotStand(f"{first} runs, and has what was answered")
    if held is None:
        raise MayNotStand(f"the journal of {me.broker} is empty")
    reach = held.reach
    if reach.end < accepted:
        raise MayNotStand(
            f"the journal of {me.broker} reaches to {reach.end}, and the operator accepted a loss "
            f"from {accepted} on"
        )
    if reach.epoch > record.epoch:
        raise MayNotStand(
            f"the journal of {me.broker} has records of epoch {reach.epoch}, and the coordinator "
            f"knows of {record.epoch}: it is another coordinator, or it has lost what it had"
        )
    epoch = Epoch(record.epoch + 1)
    return msgspec.structs.replace(
        record,
        version=record.version + 1,
        writer=writer,
        epoch=epoch,
        primary=me.broker,
        members=(me,),
        writes=writes,
        floor=held.last,
        cut_below=_cut_below(record, reach),
        cut_epoch=epoch,
        cut_at_us=at_us,
        why=why[:MAX_WHY],
        at_us=at_us,
    )


def _cut_below(record: Leadership, reach: Reach) -> Position:
    """Return from where on histories may part; a loss before may be a fork that is still there."""
    promised = min(reach.committed, reach.end)
    return promised if record.cut_below is None else min(promised, record.cut_below)
