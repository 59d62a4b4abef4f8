"""``ternmq alarm``: what the broker says that needs a person."""

from __future__ import annotations

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import administers
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.forms import values


@click.group(cls=Group)
def alarm() -> None:
    """List and clear the alarms of the broker."""


@alarm.command("list")
@output.json_option
@administers
async def list_(client: AdminClient, as_json: bool) -> None:
    """List the open alarms, oldest first."""
    found = await client.admin.alarms()
    if as_json:
        output.document(
            [
                {
                    "alarm": one.name,
                    "subject": one.subject,
                    "since": one.since,
                    "text": one.text,
                }
                for one in found
            ]
        )
        return
    output.table(
        ("alarm", "subject", "since", "what happened"),
        [(one.name, one.subject, values.iso(one.since), one.text) for one in found],
        "no alarms",
        spare=("since",),
    )


@alarm.command()
@click.argument("name")
@click.argument("subject", default="")
@administers
async def clear(client: AdminClient, name: str, subject: str) -> None:
    """Clear an alarm, named as `ternmq alarm list` shows it.

    The broker clears an alarm itself when its reason has been gone for 10 seconds. Only the alarms
    `due-unreadable` and `expired-dropped` stay until you clear them. If you clear an alarm whose
    reason still exists, the broker raises it again.
    """
    named = f"{name} {subject}".rstrip()
    if not await client.admin.clear_alarm(name, subject):
        raise Failed(
            f"there is no alarm {named!r}; `ternmq alarm list` lists the alarms",
            ExitCode.NOT_FOUND,
        )
    output.note(f"cleared alarm {named}")
