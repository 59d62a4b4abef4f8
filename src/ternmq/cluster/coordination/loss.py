"""Loss that an operator accepts: a broker that is no member leads, and others cut what it lacks.

    copy that is to lead    ====================|  end
    told to be committed    ===============|       cut_below
    the journal of others   ==================xxxxxxxxxx   what differs is cut there, and kept aside

A broker that is no member may lack messages that were answered. It leads only if an operator asks
for it and accepts the loss. The record then says from which position on (``cut_below``), and with
which reign (``cut_epoch``). What the copy was told to be committed is never lost: every journal of
the group has it. So histories part at ``cut_below`` or behind it.

A copy whose records are all of earlier reigns may then be cut below its commit mark, as far as
``cut_below``. As soon as it has a record of the new reign, its commit mark is a promise again. So
the permission needs no end, and a copy that comes back after a year is treated as one that comes at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ternmq.cluster.coordination.record import Leadership, Progress, Reach
from ternmq.model.types import Epoch, Position


class Loss(NamedTuple):
    """A loss that was accepted.

    Attributes:
        epoch: The reign that began with it.
        cut_below: Position from which on it was accepted.
    """

    epoch: Epoch
    cut_below: Position

    def promised(self, committed: Position, last: Epoch, followed: Epoch) -> Position:
        """Return below which position a copy must not be cut.

        Args:
            committed: The commit mark that it was told.
            last: Epoch of its last record.
            followed: Epoch of the primary that lacks what is to be cut.
        """
        if last >= self.epoch or followed < self.epoch:
            return committed
        return min(committed, self.cut_below)


class Gap(NamedTuple):
    """What is known to be missing in a copy that is to lead.

    Attributes:
        recorded: Position that the group reached at least, as the coordinator has it.
        shared: Position up to which the copy can have the group's journal; at most its end.
        promised: Position up to which it surely has it.
    """

    recorded: Position
    shared: Position
    promised: Position

    @property
    def missing_bytes(self) -> int:
        """How many bytes are missing at least; up to 10 s of the journal may be missing besides."""
        return max(0, self.recorded - self.shared)


def loss_of(record: Leadership) -> Loss | None:
    """Return the loss that was accepted last; None: none was."""
    if record.cut_below is None or not record.cut_epoch:
        return None
    return Loss(record.cut_epoch, record.cut_below)


def recorded(record: Leadership, progress: Progress | None) -> Position:
    """Return the position up to which a journal must reach to lead, but for the floor.

    What reigns before an accepted loss have reached beyond it is not wanted any more.
    """
    if progress is None or progress.epoch > record.epoch:
        return Position(0)
    loss = loss_of(record)
    if loss is not None and progress.epoch < loss.epoch:
        return min(progress.position, loss.cut_below)
    return progress.position


def gap(record: Leadership, progress: Progress | None, reach: Reach) -> Gap:
    """Return what is known to be missing in a copy of the journal.

    A copy without records of the reign of the floor cannot have the floor. One without records of
    the reign that began with a loss may part from the journal where that loss begins.
    """
    shared, floor, loss = reach.end, record.floor, loss_of(record)
    promised = min(reach.committed, reach.end)
    if floor is not None and reach.epoch < floor.epoch:
        shared = min(shared, floor.position)
    if loss is not None and reach.epoch < loss.epoch:
        shared, promised = min(shared, loss.cut_below), min(promised, loss.cut_below)
    reached = max(recorded(record, progress), Position(0) if floor is None else floor.position)
    return Gap(reached, shared, min(promised, shared))


def goes_first(record: Leadership, running: Mapping[str, int], broker: str) -> str:
    """Return a broker that has what was answered, and runs; empty: there is none.

    Args:
        record: The leadership record.
        running: Incarnations of the brokers that run, by name.
        broker: The one that is to lead; it is not meant.
    """
    if record.primary != broker and record.primary in running:
        return record.primary
    for one in record.members:
        runs = one.broker in running and one.incarnation in {0, running[one.broker]}
        if runs and one.broker not in {broker, record.primary}:
            return one.broker
    return ""
