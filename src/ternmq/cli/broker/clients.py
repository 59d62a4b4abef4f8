"""``ternmq client``: the connected clients."""

from __future__ import annotations

import time

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import administers
from ternmq.cli.terminal import output
from ternmq.client.admin.admin_client import AdminClient


@click.group(cls=Group)
def client() -> None:
    """Show the connected clients."""


@client.command("list")
@output.json_option
@administers
async def list_(client: AdminClient, as_json: bool) -> None:
    """List the sessions of clients, oldest first.

    A session outlives its connection for a short time (10s by default).
    """
    found = await client.admin.clients()
    if as_json:
        output.document(
            [
                {
                    "session": one.session,
                    "app": one.app,
                    "client": one.client,
                    "address": one.address,
                    "library": one.library,
                    "pid": one.pid,
                    "connected": one.connected,
                    "since": output.of_us(one.since_us) if one.since_us else None,
                }
                for one in found
            ]
        )
        return
    now = time.time()
    output.table(
        ("session", "app", "client", "address", "pid", "state", "for", "library"),
        [
            (
                one.session,
                one.app,
                one.client,
                one.address,
                one.pid,
                "connected" if one.connected else "away",
                output.span(max(0.0, now - one.since_us / 1e6)) if one.since_us else None,
                one.library,
            )
            for one in found
        ],
        spare=("library", "for", "pid"),
    )
