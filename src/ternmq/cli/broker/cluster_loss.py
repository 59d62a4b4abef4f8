"""What ``ternmq cluster promote --accept-loss`` says before it acts, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from ternmq.cli.broker.cluster_view import View, reach_document
from ternmq.cli.terminal.exits import Failed
from ternmq.cli.terminal.output import Cell
from ternmq.cluster.coordination.loss import Gap, gap, goes_first
from ternmq.cluster.coordination.record import Reach
from ternmq.model.types import Position


@dataclass(frozen=True, slots=True)
class Known:
    """What is known to be missing in the copy of a broker that is to lead.

    Attributes:
        broker: The broker.
        recorded: Position that the group reached at least, as the coordinator has it.
        reach: How far its copy reaches, as it has announced; None: it does not run.
        gap: What is missing; None if ``reach`` is.
        further: Brokers that are no members and reach further than this one, by name.
    """

    broker: str
    recorded: Position
    reach: Reach | None
    gap: Gap | None
    further: tuple[str, ...]

    @property
    def accepted(self) -> Position:
        """Position from which on a loss is accepted."""
        return Position(0) if self.reach is None else self.reach.end


def known_loss(view: View, broker: str) -> Known:
    """Return what is known to be missing in the copy of a broker.

    Raises:
        Failed: Nothing has to be lost, because a broker runs that has what was answered; or the
            broker does not say how far its copy reaches.
    """
    primary = view.record.primary
    running = {one.broker: one.incarnation for one in view.present.values()}
    if broker == primary and primary in view.present:
        raise Failed(f"{broker} is the primary already, of epoch {view.record.epoch}, and runs")
    members = {one.broker for one in view.record.members if view.lives(one)}
    if broker in members:
        raise Failed(
            f"{broker} is a member: it has everything that was answered, so nothing has to be "
            f"lost: `ternmq cluster promote {broker}`"
        )
    first = goes_first(view.record, running, broker)
    if first == primary:
        raise Failed(
            f"the primary {primary} runs, or was killed a moment ago: nothing has to be lost. "
            f"Wait until {broker} is a member, then `ternmq cluster switch --to {broker}`. If "
            f"{primary} must not lead again, stop it first"
        )
    if first:
        raise Failed(
            f"{first} is a member and runs: it has everything that was answered, so nothing has to "
            f"be lost: `ternmq cluster promote {first}`"
        )
    nothing = Reach(view.record.epoch, Position(0), Position(0))
    recorded = gap(view.record, view.progress, nothing).recorded
    if broker == primary:
        return Known(broker, recorded, None, None, _further(view, broker, 0))
    reach = view.present[broker].reach
    if reach is None:
        raise Failed(
            f"{broker} does not say how far its copy reaches: it is empty, or the broker has just "
            "started. Try again; `ternmq cluster status` shows what the brokers say"
        )
    found = gap(view.record, view.progress, reach)
    return Known(broker, recorded, reach, found, _further(view, broker, found.shared))


def _further(view: View, broker: str, shared: int) -> tuple[str, ...]:
    return tuple(
        name
        for name, one in sorted(view.present.items())
        if name != broker
        and one.reach is not None
        and gap(view.record, view.progress, one.reach).shared > shared
    )


def loss_lines(view: View, known: Known) -> list[tuple[str, Cell]]:
    """Return names and values, for people."""
    primary, broker, reach, found = view.record.primary, known.broker, known.reach, known.gap
    if reach is None or found is None:
        has = "not known here, because it does not run; its log says how far its journal reaches"
        missing = "not known"
    else:
        has = f"up to {reach.end:,}, epoch {reach.epoch}; surely the same as others up to "
        has += f"{found.promised:,}"
        if found.shared < reach.end:
            has += f", surely another history from {found.shared:,} on"
        missing = f"at least {found.missing_bytes:,} bytes of the journal"
    lost = (
        "what was answered and is missing: messages, also of durability `normal` and `strict`, "
        "transactions, settings. What was acked is delivered again if its ack is missing"
    )
    return [
        ("recorded", f"epoch {view.record.epoch}; {primary} had at least up to {known.recorded:,}"),
        (f"{broker} has", has),
        ("missing", f"{missing}, and up to 10 s more: {primary} said how far it was every 10 s"),
        *[("", f"{one} reaches further than {broker}") for one in known.further],
        ("lost", lost),
    ]


def loss_document(view: View, known: Known) -> dict[str, object]:
    """Return the same in the form of the JSON output."""
    found = known.gap
    return {
        "broker": known.broker,
        "epoch": view.record.epoch,
        "recorded": known.recorded,
        "reach": reach_document(known.reach),
        "shared": None if found is None else found.shared,
        "missing_bytes": None if found is None else found.missing_bytes,
        "further": list(known.further),
    }
