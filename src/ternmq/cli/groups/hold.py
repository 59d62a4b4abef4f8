"""``ternmq hold``: keeps the journal from a position on, whatever the age of its messages."""

from __future__ import annotations

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import administers, confirm, yes_option
from ternmq.cli.reach.parameters import NAME, OFFSET
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.output import Cell
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.forms import values
from ternmq.wire.control import HoldInfo


@click.group(cls=Group)
def hold() -> None:
    """Manage holds: a hold keeps the journal from a position on."""


@hold.command("list")
@output.json_option
@administers
async def list_(client: AdminClient, as_json: bool) -> None:
    """List the holds, with the size of the journal that they keep."""
    found = await client.admin.holds()
    if as_json:
        output.document([plain(one) for one in found])
        return
    output.table(
        ("hold", "position", "keeps", "moved", "app", "note", "state"),
        [
            (
                one.name,
                one.position,
                output.size(one.lag_bytes),
                values.iso(values.of_us(one.moved_us)),
                one.app,
                one.note,
                state_of(one),
            )
            for one in found
        ],
        "no holds",
        spare=("note", "app", "moved", "position"),
    )


@hold.command("set")
@click.argument("name", type=NAME)
@click.argument("position", type=OFFSET)
@click.option(
    "--note", default="", metavar="TEXT", help="Purpose of the hold; `hold list` shows it."
)
@click.option(
    "--back", is_flag=True, help="Allow moving the hold back, as far as the journal reaches."
)
@administers
async def set_(client: AdminClient, name: str, position: int, note: str, back: bool) -> None:
    """Create a hold, or move it forward: the journal is kept from POSITION on."""
    stands = await client.admin.put_hold(name, position, note=note, back=back)
    if stands > position and not back:
        output.note(f"hold {name} stays at position {stands}: --back moves it back")
    else:
        output.note(f"hold {name} is at position {stands}")


@hold.command()
@click.argument("name", type=NAME)
@yes_option
@administers
async def delete(client: AdminClient, name: str, yes: bool) -> None:
    """Delete a hold. The broker may then delete the part of the journal that the hold kept."""
    if not any(one.name == name for one in await client.admin.holds()):
        raise Failed(
            f"there is no hold {name!r}; `ternmq hold list` lists the holds",
            ExitCode.NOT_FOUND,
        )
    confirm(f"delete hold {name}? the broker may then remove what it keeps", yes=yes)
    await client.admin.delete_hold(name)
    output.note(f"deleted hold {name}")


def state_of(one: HoldInfo) -> str:
    """Return the state of a hold, in a word or two."""
    return "blocks sends" if one.blocking else "holding"


def row_of(one: HoldInfo) -> tuple[Cell, ...]:
    """Return the cells of a hold in a table of groups; its lag is in bytes."""
    lag = output.size(one.lag_bytes)
    return ("(journal)", one.name, lag, *(None,) * 5, state_of(one))


def plain(one: HoldInfo) -> dict[str, object]:
    """Return a hold in the form of the JSON output."""
    return {
        "hold": one.name,
        "position": one.position,
        "lag_bytes": one.lag_bytes,
        "note": one.note,
        "app": one.app,
        "created_at": values.of_us(one.created_us),
        "moved_at": values.of_us(one.moved_us),
        "state": state_of(one),
    }
