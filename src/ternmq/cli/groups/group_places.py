"""``ternmq group reset`` and ``skip``: where a group continues."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import administers, confirm, yes_option
from ternmq.cli.reach.finding import check_only
from ternmq.cli.reach.parameters import OFFSET, QUEUE, WHEN, check_one
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import not_found
from ternmq.client.admin.admin import Place
from ternmq.client.admin.admin_client import AdminClient
from ternmq.model.words import counted
from ternmq.wire.control import GroupInfo, ResetQueue

_WORDS: Final = ("earliest", "latest")


class _To(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """``earliest``, ``latest`` or a time."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word, or the time."""
        return value if value in _WORDS else WHEN.convert(value, param, ctx)


@click.command(cls=Command)
@topic_argument()
@group_argument()
@click.option(
    "--to",
    type=_To(),
    metavar="earliest|latest|TIME",
    help="New position. A time means the first message stored at or after it: 10m (ago), "
    "14:30, 2026-01-31T14:30Z.",
)
@click.option(
    "--offset",
    type=OFFSET,
    help="New position in one queue (--queue): the next offset to deliver.",
)
@click.option("--queue", type=QUEUE, help="Only this queue.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@yes_option
@output.json_option
@administers
async def reset(
    client: AdminClient,
    topic: str,
    group: str,
    to: str | datetime | None,
    offset: int | None,
    queue: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Set the position from which a group continues.

    The command shows the effect and asks for confirmation before it changes anything.
    """
    check_one(to is not None, offset is not None, of="--to and --offset")
    place: Place = offset if offset is not None else to  # type: ignore[assignment]
    info = await client.admin.group(topic, group)
    if offset is not None and queue is None:
        check_only(topic, len(info.queues))
        queue = 0
    _check_queue(info, queue)
    preview = await client.admin.reset_group(topic, group, place, queue=queue, dry_run=True)
    if not as_json:
        _show(info, preview)
    if dry_run:
        if as_json:
            output.document({"done": False, "queues": [_plain(info, one) for one in preview]})
        return
    if as_json and not yes:
        raise Failed("nothing was changed: --json does not prompt: add --yes or --dry-run")
    confirm(f"reset group {group} on {topic}?", yes=yes)
    done = await client.admin.reset_group(topic, group, place, queue=queue)
    if as_json:
        output.document({"done": True, "queues": [_plain(info, one) for one in done]})
    else:
        output.note(f"reset group {group} on {topic}")


def _check_queue(info: GroupInfo, queue: int | None) -> None:
    if queue is not None and queue >= len(info.queues):
        raise not_found(f"topic {info.topic!r} has no queue {queue}: it has {len(info.queues)}")


def _show(info: GroupInfo, preview: list[ResetQueue]) -> None:
    output.table(
        ("queue", "now at", "goes on at", "skipped", "unread then", "forgotten"),
        [
            (
                one.queue,
                info.queues[one.queue].cursor,
                one.offset,
                _skipped(info, one),
                one.unread,
                one.forgotten,
            )
            for one in preview
        ],
        spare=("unread then", "now at"),
    )
    skipped = sum([_skipped(info, one) for one in preview])
    if skipped:
        output.note(f"skipped: {counted(skipped, 'message')} that the group has not read")
    forgotten = sum([one.forgotten for one in preview])
    if forgotten:
        output.folded_note(
            f"forgotten: {counted(forgotten, 'message')} that consumers hold, that are ready, or "
            "that wait for a retry; those below the new position are not delivered again"
        )


def _skipped(info: GroupInfo, one: ResetQueue) -> int:
    """Return the number of messages that the group will then never read."""
    return max(0, one.offset - info.queues[one.queue].cursor)


def _plain(info: GroupInfo, one: ResetQueue) -> dict[str, object]:
    return {
        "queue": one.queue,
        "before": info.queues[one.queue].cursor,
        "offset": one.offset,
        "skipped": _skipped(info, one),
        "unread": one.unread,
        "forgotten": one.forgotten,
    }


@click.command(cls=Command)
@topic_argument()
@group_argument()
@click.option(
    "--offset",
    type=OFFSET,
    required=True,
    help="Next offset to deliver; messages below it are skipped.",
)
@click.option(
    "--queue", type=QUEUE, help="Queue of the offset; required if the topic has several queues."
)
@yes_option
@administers
async def skip(
    client: AdminClient, topic: str, group: str, offset: int, queue: int | None, yes: bool
) -> None:
    """Skip messages that a group has not read: all messages of a queue below an offset.

    A skip never moves the group back.
    """
    info = await client.admin.group(topic, group)
    if queue is None:
        check_only(topic, len(info.queues))
        queue = 0
    _check_queue(info, queue)
    now = info.queues[queue]
    count = min(offset, now.end) - now.cursor
    if count <= 0:
        if now.cursor >= now.end:
            text = f"group {group} has read queue {queue} to its end, offset {now.end}"
        else:
            text = f"group {group} is at offset {now.cursor} of queue {queue}"
            text += f", past {offset}" if offset < now.cursor else ""
        output.note(f"nothing to skip: {text}")
        return
    if offset > now.end:
        raise Failed(
            f"offset must be {now.cursor} to {now.end}, the end of queue {queue} of {topic}",
            ExitCode.USAGE,
        )
    if not yes:
        span = f"{now.cursor} to {now.cursor + count - 1} of queue {queue}"
        output.note(f"{counted(count, 'message')} ({span}) will not be delivered to {group}")
    confirm("skip them?", yes=yes)
    await client.admin.skip(topic, group, queue=queue, offset=offset)
    output.note(f"group {group} skipped {counted(count, 'message')} of queue {queue} of {topic}")
