"""``ternmq client``: the clients of the broker; switching them off and on for a group."""

from __future__ import annotations

import contextlib
from shlex import quote

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import administers
from ternmq.cli.reach.parameters import NAME
from ternmq.cli.terminal import output
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.forms.clients import plain
from ternmq.model.errors import Forbidden
from ternmq.model.offline import CLIENT_SHOWN, is_offline
from ternmq.wire.control import ConsumedGroup


@click.group(cls=Group)
def client() -> None:
    """List the clients, and switch them off or on for a group."""


@client.command("list")
@click.argument("of_app", metavar="[APP]", type=NAME, required=False)
@click.option(
    "--topic",
    type=NAME,
    metavar="TOPIC",
    help="Only connected clients that have sent to, consumed or read this topic.",
)
@click.option("--away", is_flag=True, help="Only clients that have no connection now.")
@output.json_option
@administers
async def list_(
    client: AdminClient, of_app: str | None, topic: str | None, away: bool, as_json: bool
) -> None:
    """List the clients, or those of one app, oldest first.

    Each client has a session; `age` is the time since the session began. A client without a
    connection is `away`. The broker keeps its session and its leases for a short time (10s by
    default, setting `limits.session_grace`), so that it can reconnect and continue. `away for` is
    the time since its last connection ended, or since the broker started, if that was later.
    `consumes` lists the groups whose messages the client holds or waits for; `(off)` after a group
    means that the client is switched off for it.
    """
    if topic is not None and away:
        raise click.UsageError(
            "give only one of --topic and --away: --topic lists connected clients only",
            click.get_current_context(),
        )
    found = [
        one
        for one in await client.admin.clients()
        if (of_app is None or one.app == of_app)
        and (topic is None or topic in one.topics)
        and not (away and one.connected)
    ]
    if as_json:
        output.document([plain(one) for one in found])
        return
    now_us = client.now_us
    output.table(
        (
            "session",
            "app",
            "client",
            "address",
            "pid",
            "state",
            "away for",
            "age",
            "consumes",
            "library",
        ),
        [
            (
                one.session,
                one.app,
                one.client,
                one.address,
                one.pid,
                "connected" if one.connected else "away",
                _since(one.away_since_us, now_us),
                _since(one.since_us, now_us),
                ", ".join(map(_consumed, one.consumes)),
                one.library,
            )
            for one in found
        ],
        "no such client",
        spare=("library", "age", "pid", "consumes", "address", "app", "session"),
    )


@client.command()
@topic_argument()
@group_argument()
@click.argument("clients", metavar="CLIENT...", nargs=-1, required=True)
@administers
async def offline(client: AdminClient, topic: str, group: str, clients: tuple[str, ...]) -> None:
    """Switch clients off for a group: they receive no more of its messages; the others continue.

    CLIENT is a name as `ternmq client list` shows it, or APP/CLIENT. Either part may end in *:
    'billing/*' means all clients of app billing. A client may still settle the messages that it
    already holds. It stays switched off until `ternmq client online`, also if the broker restarts.
    A program that is started again is a new client, with another name.
    """
    spec = await client.admin.switch_off(topic, group, *clients)
    output.note(f"switched off for group {group} on {topic}: {', '.join(spec.offline)}")
    with contextlib.suppress(Forbidden):
        found = await client.admin.clients()
        for entry in dict.fromkeys(clients):
            if not any(is_offline([entry], one.app, one.client) for one in found):
                output.note(_fits_none(entry))


@client.command()
@topic_argument()
@group_argument()
@click.argument("clients", metavar="[CLIENT...]", nargs=-1)
@administers
async def online(client: AdminClient, topic: str, group: str, clients: tuple[str, ...]) -> None:
    """Switch clients on again for a group.

    CLIENT is the name or pattern that was given to `ternmq client offline`. Without CLIENT, all
    clients are switched on.
    """
    spec = await client.admin.switch_on(topic, group, *clients)
    left = ", ".join(spec.offline)
    output.note(
        f"still switched off for group {group} on {topic}: {left}"
        if left
        else f"no client is switched off for group {group} on {topic}"
    )


def _fits_none(entry: str) -> str:
    """Return the note on an entry that names no client of the broker."""
    name = entry.rpartition("/")[2]
    part = not name.endswith("*") and len(name) < CLIENT_SHOWN
    whole = f"; for all clients whose names begin with {name}, write {quote(f'{entry}*')}"
    return f"no client is named {entry} now: `ternmq client list` lists them" + whole * part


def _consumed(one: ConsumedGroup) -> str:
    return f"{one.topic}/{one.group}" + ("(off)" if one.offline else "")


def _since(time_us: int, now_us: int) -> str | None:
    """Return how long ago a broker time was; None for 0."""
    return output.span(max(0, now_us - time_us) / 1e6) if time_us else None
