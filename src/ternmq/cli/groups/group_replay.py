"""``ternmq group replay``: delivers messages to a group again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import asks_broker, confirm, yes_option
from ternmq.cli.reach.finding import check_only, known
from ternmq.cli.reach.parameters import QUEUE, WHEN, check_one, check_span, ranges_of
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.cli.terminal.problems import not_found
from ternmq.client.admin.replay import Replayed
from ternmq.model.words import counted, verb

if TYPE_CHECKING:  # imports the client that moves messages, which `group list` does not need
    from ternmq.client.client import Client


@click.command(cls=Command)
@topic_argument()
@group_argument()
@click.option(
    "--offset",
    "offsets",
    metavar="OFFSET",
    multiple=True,
    help="Offset (7) or range (10-12) of one queue. May be repeated.",
)
@click.option(
    "--since",
    type=WHEN,
    metavar="TIME",
    help="Messages stored at or after this time: 10m (ago), 14:30, 2026-01-31T14:30Z.",
)
@click.option("--until", type=WHEN, metavar="TIME", help="Messages stored before this time.")
@click.option(
    "--id",
    "ids",
    metavar="ID",
    multiple=True,
    help="Message with this id: from its receipt, or your own. May be repeated.",
)
@click.option(
    "--queue",
    type=QUEUE,
    help="Only this queue; required with --offset if the topic has several queues.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@yes_option
@output.json_option
@asks_broker
async def replay(
    client: Client,
    topic: str,
    group: str,
    offsets: Sequence[str],
    since: datetime | None,
    until: datetime | None,
    ids: Sequence[str],
    queue: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Deliver messages to a group again, even if they are acked.

    Other groups do not receive them. The command shows the messages and asks for confirmation
    first. Attempts are counted from 1.
    """  # fmt: skip
    context = click.get_current_context()
    timed = since is not None or until is not None
    check_one(bool(offsets), timed, bool(ids), of="--offset, --since with --until, and --id")
    check_span(since, until)
    count = await known(client, topic, group, queue)
    if offsets and queue is None:
        check_only(topic, count)
    if ids and queue is not None:
        raise click.UsageError("an id names one message of any queue: leave out --queue", context)
    named: dict[str, Any] = {"since": since, "until": until, "queue": queue}
    if offsets:
        named = {"offsets": ranges_of(offsets), "queue": queue}
    elif ids:
        named = {"ids": list(ids)}
    preview = await client.replay(topic, group, **named, dry_run=True)
    if not as_json:
        _show(preview)
    if dry_run:
        if as_json:
            output.document(_plain(preview, done=False))
        _check_found(topic, preview)
        return
    if as_json and not yes:
        raise Failed("nothing was done: --json does not prompt: add --yes or --dry-run")
    done = Replayed(missing=preview.missing)
    if preview.again:
        confirm(f"hand {counted(preview.again, 'message')} of {topic} to {group} again?", yes=yes)
        done = await client.replay(topic, group, **named)
    if as_json:
        output.document(_plain(done, done=True))
    else:
        comes = verb(done.again, "is", "are")
        messages = counted(done.again, "message")
        output.note(f"{messages} of {topic} {comes} delivered to {group} again")
    _check_found(topic, done)


def _check_found(topic: str, replayed: Replayed) -> None:
    if replayed.missing:
        raise not_found(
            f"{topic} has no message with the {_ids(replayed.missing)}: the id may be mistyped, "
            "or its message is no longer kept"
        )


def _ids(missing: Sequence[str]) -> str:
    """Return ids as text; at most the first ten."""
    word = "id" if len(missing) == 1 else "ids"
    more = f" and {len(missing) - 10:,} more" if len(missing) > 10 else ""
    return f"{word} {', '.join(missing[:10])}{more}"


def _show(found: Replayed) -> None:
    output.details(
        [
            ("delivered again", found.again),
            ("not read yet", found.unread),
            ("not kept", found.expired),
            ("not for this group", found.filtered),
            *([("not found by id", len(found.missing))] if found.missing else []),
        ]
    )


def _plain(found: Replayed, *, done: bool) -> dict[str, object]:
    return {
        "done": done,
        "again": found.again,
        "unread": found.unread,
        "expired": found.expired,
        "filtered": found.filtered,
        "missing": list(found.missing),
    }
