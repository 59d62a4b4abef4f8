"""``ternmq topic``: makes, lists, shows, changes and deletes topics."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.arguments import topic_argument
from ternmq.cli.reach.connection import administers, confirm, yes_option
from ternmq.cli.reach.parameters import (
    COUNT,
    DURATION,
    NAME,
    POSITIVE_DURATION,
    Whole,
    given,
    unchangeable,
)
from ternmq.cli.terminal import output
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.forms import topics as forms
from ternmq.model.specs import MAX_LEVELS, Durability
from ternmq.model.units import write_duration
from ternmq.model.words import counted
from ternmq.wire.control import TopicInfo

_DURABILITY: Final = click.Choice([one.value for one in Durability])


@click.group(cls=Group)
def topic() -> None:
    """Create, change and list topics."""


@topic.command()
@click.argument("name", type=NAME)
@click.option(
    "--queues",
    type=COUNT,
    default=1,
    help="Number of queues. One is enough, unless a group locks queues. Default: 1.",
)
@click.option("--ordered", is_flag=True, help="Deliver the messages of each ordering key in order.")
@click.option(
    "--durability",
    type=_DURABILITY,
    default="normal",
    help="When a send is answered. normal: synced to disk; strict: two copies stored (sends are "
    "refused while only one copy counts); fast: written, not yet synced. Default: normal.",
)
@click.option(
    "--retention",
    type=POSITIVE_DURATION,
    metavar="DURATION",
    help="How long messages are kept. Default: 7d.",
)
@click.option(
    "--keep-until-consumed/--drop-unread",
    default=True,
    help="Whether messages are kept beyond the retention until every group has finished them. With "
    "--keep-until-consumed, sends are refused if such messages fill the disk. Default: keep.",
)
@click.option(
    "--ignore-ordering-keys",
    is_flag=True,
    help="Accept messages with ordering keys although the topic is not ordered; their order "
    "is not kept.",
)
@click.option(
    "--levels",
    type=Whole(min=1, max=MAX_LEVELS),
    default=1,
    help="Number of levels of priority: messages of a higher level are delivered first. --queues "
    "is then the number of queues of each level. The number of levels cannot be changed later. "
    "Default: 1.",
)
@click.option(
    "--expires",
    "expires_after",
    type=DURATION,
    metavar="DURATION",
    help="Time after which messages expire, counted from when they were stored. An expired message "
    "is neither delivered for the first time nor retried. 0s: no limit. Default: no limit.",
)
@click.option(
    "--broadcast",
    is_flag=True,
    help="Deliver every message to every consumer: consumers of the topic are broadcast instances, "
    "without a group. This cannot be changed later.",
)
@administers
async def create(
    client: AdminClient,
    name: str,
    queues: int,
    ordered: bool,
    durability: str,
    retention: timedelta | None,
    keep_until_consumed: bool,
    ignore_ordering_keys: bool,
    levels: int,
    expires_after: timedelta | None,
    broadcast: bool,
) -> None:
    """Create a topic."""
    await client.admin.create_topic(
        name,
        queues=queues,
        ordered=ordered,
        durability=durability,
        retention=retention,
        keep_until_consumed=keep_until_consumed,
        ignore_ordering_keys=ignore_ordering_keys,
        levels=levels,
        expires_after=expires_after,
        broadcast=broadcast,
    )
    output.note(f"created topic {name}")
    if durability == Durability.STRICT.value:
        output.note(
            "sends to it are refused while only one copy counts, and always if the broker is alone"
        )


@topic.command("list")
@output.json_option
@administers
async def list_(client: AdminClient, as_json: bool) -> None:
    """List the topics on which this app has a right."""
    found = await client.admin.topics()
    if as_json:
        output.document([forms.plain(one) for one in found])
        return
    output.table(
        ("topic", "queues", "kind", "durability", "retention", "messages", "groups", "scheduled"),
        [
            (
                one.spec.name,
                one.spec.queues,
                _kind_of(one),
                one.spec.durability.value,
                write_duration(one.spec.retention_us),
                forms.messages_kept(one),
                len(one.groups),
                one.scheduled,
            )
            for one in found
        ],
        f"{output.none_of('topics', client.admin.app)}; `ternmq topic create` creates one",
        spare=("durability", "scheduled", "kind"),
    )


@topic.command()
@topic_argument()
@output.json_option
@administers
async def show(client: AdminClient, topic: str, as_json: bool) -> None:
    """Show the settings, queues and groups of a topic."""
    info = await client.admin.topic(topic)
    if as_json:
        output.document(forms.plain(info))
        return
    spec = info.spec
    output.details(
        [
            ("topic", spec.name),
            ("kind", _kind_of(info)),
            ("durability", spec.durability.value),
            ("retention", write_duration(spec.retention_us)),
            *([("ordering keys", "stored, and ignored")] if spec.ignore_ordering_keys else []),
            *([("expires", f"{write_duration(spec.expires_us)} after it was stored")]
              if spec.expires_us else []),
            (
                "unread",
                "kept until every group has finished them"
                if spec.keep_until_consumed
                else "removed after the retention, too",
            ),
            ("scheduled", f"{counted(info.scheduled, 'message')} not due yet"),
            ("groups", ", ".join(info.groups)),
            *([("instances", info.instances)] if info.spec.broadcast or info.instances else []),
        ]
    )  # fmt: skip
    click.echo()
    levels = spec.levels
    output.table(
        ("queue", *(["level"] if levels > 1 else []), "first", "next", "messages"),
        [
            (
                at, *([at % levels] if levels > 1 else []), one.first, one.next,
                one.next - one.first,
            )
            for at, one in enumerate(info.queues)
        ],
    )  # fmt: skip


@topic.command("set")
@topic_argument()
@click.option(
    "--queues",
    type=COUNT,
    help="Number of queues; it can only be increased, and not at all on an ordered topic.",
)
@click.option(
    "--durability",
    type=_DURABILITY,
    help="When a send is answered. normal: synced to disk; strict: two copies stored (sends are "
    "refused while only one copy counts); fast: written, not yet synced.",
)
@click.option(
    "--retention", type=POSITIVE_DURATION, metavar="DURATION", help="How long messages are kept."
)
@click.option(
    "--keep-until-consumed/--drop-unread",
    default=None,
    help="Whether messages are kept beyond the retention until every group has finished them. With "
    "--keep-until-consumed, sends are refused if such messages fill the disk.",
)
@click.option(
    "--ignore-ordering-keys/--refuse-ordering-keys",
    default=None,
    help="Whether a topic that is not ordered accepts messages with ordering keys, or refuses "
    "them.",
)
@click.option(
    "--expires",
    "expires_after",
    type=DURATION,
    metavar="DURATION",
    help="Time after which messages expire, counted from when they were stored. An expired message "
    "is neither delivered for the first time nor retried. 0s: no limit.",
)
@unchangeable(
    "--ordered",
    "whether a topic is ordered cannot be changed: create another one with `ternmq topic create "
    "NAME --ordered`",
    flag=True,
)
@unchangeable(
    "--levels",
    "the levels of a topic cannot be changed: create another one with `ternmq topic create NAME "
    "--levels N`",
)
@unchangeable(
    "--broadcast",
    "whether a topic is a broadcast topic cannot be changed: create another one with `ternmq topic "
    "create NAME --broadcast`",
    flag=True,
)
@administers
async def set_(client: AdminClient, topic: str, **changes: Any) -> None:
    """Change settings of a topic. Other settings stay as they are."""
    stated = given(**changes)
    if not stated:
        raise click.UsageError("name at least one option to change", click.get_current_context())
    before = (await client.admin.topic(topic)).spec
    changed = await client.admin.change_topic(topic, **stated) != before
    output.note(
        f"changed topic {topic}" if changed else f"topic {topic} has these settings already"
    )


@topic.command()
@topic_argument()
@yes_option
@administers
async def delete(client: AdminClient, topic: str, yes: bool) -> None:
    """Delete a topic with all its messages and groups."""
    info = await client.admin.topic(topic)
    parts = [counted(forms.messages_kept(info), "message")]
    if info.scheduled:
        parts.append(counted(info.scheduled, "scheduled message"))
    if info.groups:
        parts.append(counted(len(info.groups), "group"))
    if info.instances:
        parts.append(counted(info.instances, "broadcast instance"))
    lost = f"topic {topic} with {', '.join(parts[:-1])}{' and ' if parts[1:] else ''}{parts[-1]}"
    if not yes:
        output.note(f"this deletes {lost}; it cannot be undone")
    confirm("delete it?", yes=yes)
    await client.admin.delete_topic(topic)
    output.note(f"deleted {lost}")


def _kind_of(info: TopicInfo) -> str:
    """Return the kind of a topic: broadcast, ordered, with so many levels, or plain."""
    if info.spec.broadcast:
        return "broadcast"
    if info.spec.ordered:
        return "ordered"
    return "plain" if info.spec.levels == 1 else counted(info.spec.levels, "level")
