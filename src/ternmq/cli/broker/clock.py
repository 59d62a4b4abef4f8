"""``ternmq clock``: broker time, and the clock of the broker's machine."""

from __future__ import annotations

from datetime import timedelta

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import (
    administers,
    confirm,
    connection_options,
    run_admin,
    timeout_of,
    where,
    yes_option,
)
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.forms import values
from ternmq.wire.control import Status


@click.group(cls=Group, invoke_without_command=True)
@output.json_option
@connection_options
def clock(as_json: bool, **connection: object) -> None:
    """Show the gap between broker time and the clock of the machine, or accept the clock.

    The broker does not follow jumps of the clock while it runs, nor a clock that is too far ahead
    of the journal at a start (setting `start_jump`). While it does not follow the clock, nothing is
    delivered early, and nothing expires early. Without a subcommand, both times are shown.
    """
    del connection
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        return

    async def show(client: AdminClient) -> None:
        found = await client.admin.status()
        if as_json:
            output.document(
                {
                    "broker_time": found.now,
                    "clock": found.clock,
                    "gap_s": found.clock_gap.total_seconds(),
                    "followed": found.clock_followed,
                }
            )
            return
        output.details(
            [
                ("broker time", values.iso(found.now)),
                ("clock", values.iso(found.clock)),
                ("gap", gap_of(found)),
            ]
        )

    run_admin(show, where(context), timeout_of(context))


@clock.command()
@yes_option
@administers
async def accept(client: AdminClient, yes: bool) -> None:
    """Let broker time follow the clock of its machine. This cannot be undone.

    If the clock is ahead, broker time jumps to it at once, with the same effects as a stop of that
    length: leases end, retries and scheduled messages come due, and the broker may delete what is
    older than its retention. If the clock is behind, broker time stays: it never goes back.
    """
    found = await client.admin.status()
    if found.clock_followed:
        output.note(f"nothing to accept: {gap_of(found)}")
        return
    if found.clock_gap < timedelta():
        raise Failed(
            f"{gap_of(found)}: broker time never goes back, so this clock cannot be accepted",
            ExitCode.FAILED,
        )
    moment = values.iso(found.clock)
    gap = output.span(found.clock_gap.total_seconds())
    confirm(f"let broker time jump {gap} ahead, to {moment}? this cannot be undone", yes=yes)
    done = await client.admin.accept_clock()
    output.note(f"broker time was {values.iso(done.before)}, and is now {values.iso(done.now)}")


def gap_of(found: Status) -> str:
    """Return a line about the gap between broker time and the clock."""
    gap = output.span(abs(found.clock_gap).total_seconds())
    side = "ahead of" if found.clock_gap > timedelta() else "behind"
    if found.clock_followed:
        return f"{gap}; broker time follows the clock"
    return f"the clock is {gap} {side} broker time, which does not follow it"
