"""``ternmq group replay``: delivers messages to a group again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import asks_broker, confirm, yes_option
from ternmq.cli.reach.finding import known_group
from ternmq.cli.reach.parameters import QUEUE, WHEN, check_one, check_span
from ternmq.cli.reach.places import placed
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.cli.terminal.problems import not_found
from ternmq.client.admin.replay import Replayed
from ternmq.client.forms import values
from ternmq.model.words import counted, verb
from ternmq.wire.control import GroupInfo

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
    help="Offset (7), range (10-12) or place (1/7). May be repeated.",
)
@click.option(
    "--since",
    type=WHEN,
    metavar="TIME",
    help="Messages stored at or after this time: 10m (ago), 14:30, 2026-01-31T14:30Z.",
)
@click.option(
    "--until",
    type=WHEN,
    metavar="TIME",
    help="Messages stored before this time. Default: the time of the preview.",
)
@click.option(
    "--id",
    "ids",
    metavar="ID",
    multiple=True,
    help="Message with this id: from its receipt, or the sender's own. May be repeated.",
)
@click.option(
    "--queue",
    type=QUEUE,
    help="Only this queue; required with offsets (7) if the topic has several queues.",
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

    Other groups do not receive them. The command shows a preview and asks for confirmation first.
    Attempts are counted from 1.

    The preview counts four kinds of messages: messages that would be delivered again; messages
    that the group has not read yet, and receives anyway; messages that are no longer kept; and
    messages that the group's filter excludes. If you run the command again with --yes, it counts
    again: `--since 10m` is then a later time than in the first run. To replay exactly the same
    messages, give the time that the preview shows.
    """  # fmt: skip
    context = click.get_current_context()
    timed = since is not None or until is not None
    ways = "--offset, --id, and a time (--since, --until or both)"
    check_one(bool(offsets), timed, bool(ids), of=ways)
    check_span(since, until)
    info = await known_group(client, topic, group, queue)
    if ids and queue is not None:
        raise click.UsageError("an id names one message of any queue: leave out --queue", context)
    if timed:
        until = min(await _end(client), until or _LATEST)
    named: list[dict[str, Any]] = [{"since": since, "until": until, "queue": queue}]
    absent: list[str] = []
    if offsets:
        found = placed(topic, len(info.queues), offsets, queue)
        named = [{"offsets": rows, "queue": number} for number, rows in found.items()]
        absent = [
            f"{number}/{row}"
            for number, rows in found.items()
            for row in rows
            if row >= info.queues[number].end
        ]
    elif ids:
        named = [{"ids": list(ids)}]
    preview = await _replay(client, topic, group, named, absent, dry_run=True)
    stored = (since, until) if timed else None
    if not as_json:
        _show(preview, stored)
    if dry_run:
        if as_json:
            output.document(_plain(preview, stored, done=False))
        _check_found(info, preview, placed=bool(offsets))
        return
    if as_json and not yes:
        raise Failed("nothing was done: --json does not prompt: add --yes or --dry-run")
    done = preview
    if preview.again:
        confirm(
            f"deliver {counted(preview.again, 'message')} of {topic} to {group} again?", yes=yes
        )
        done = await _replay(client, topic, group, named, absent, dry_run=False)
    if as_json:
        output.document(_plain(done, stored, done=True))
    else:
        comes = verb(done.again, "is", "are")
        messages = counted(done.again, "message")
        why = f"; the preview counted {preview.again:,}: {_CHANGED}" * (done.again != preview.again)
        output.note(f"{messages} of {topic} {comes} delivered to {group} again{why}")
    _check_found(info, done, placed=bool(offsets))


async def _replay(
    client: Client,
    topic: str,
    group: str,
    named: Sequence[dict[str, Any]],
    absent: Sequence[str],
    *,
    dry_run: bool,
) -> Replayed:
    """Replay each selection; return the sum, with the places that no queue has."""
    each = [await client.replay(topic, group, **one, dry_run=dry_run) for one in named]
    return Replayed(
        sum([one.again for one in each]),
        sum([one.unread for one in each]),
        sum([one.expired for one in each]),
        sum([one.filtered for one in each]),
        (*absent, *[id_ for one in each for id_ in one.missing]),
    )


_LATEST: Final = datetime.max.replace(tzinfo=UTC)


async def _end(client: Client) -> datetime:
    """Return the end of what is stored now: later messages are not in the preview.

    It is a whole millisecond, as it is printed.
    """
    now = (await client.admin.status()).now
    return now.replace(microsecond=now.microsecond // 1000 * 1000) + timedelta(milliseconds=1)


def _check_found(info: GroupInfo, replayed: Replayed, *, placed: bool) -> None:
    missing = replayed.missing
    if placed and missing:
        queues = sorted({int(one.partition("/")[0]) for one in missing})
        ends = ", ".join(
            [f"the next offset of queue {one} is {info.queues[one].end}" for one in queues]
        )
        raise not_found(f"{info.topic} has no message at {_some(missing, 'offset')}: {ends}")
    if missing:
        raise not_found(
            f"{info.topic} has no message with the {_some(missing, 'id')}: the id may be mistyped, "
            "or its message is no longer kept"
        )


def _some(missing: Sequence[str], word: str) -> str:
    """Return ids or places as text; at most the first ten."""
    more = f" and {len(missing) - 10:,} more" if len(missing) > 10 else ""
    return f"{word}{'s' * (len(missing) > 1)} {', '.join(missing[:10])}{more}"


_CHANGED: Final = "meanwhile the group received others of these messages, or some were removed"


def _show(found: Replayed, stored: tuple[datetime | None, datetime | None] | None) -> None:
    since, until = stored or (None, None)
    from_ = f"from {values.iso(since)} " if since is not None else ""
    output.details(
        [
            *([("stored", f"{from_}until {values.iso(until)}")] if stored else []),
            ("delivered again", found.again),
            ("not read yet", found.unread),
            ("not kept", found.expired),
            ("not for this group", found.filtered),
            *([("not found", len(found.missing))] if found.missing else []),
        ]
    )


def _plain(
    found: Replayed, stored: tuple[datetime | None, datetime | None] | None, *, done: bool
) -> dict[str, object]:
    return {
        "done": done,
        **(dict(zip(("since", "until"), stored, strict=True)) if stored else {}),
        "again": found.again,
        "unread": found.unread,
        "expired": found.expired,
        "filtered": found.filtered,
        "missing": list(found.missing),
    }
