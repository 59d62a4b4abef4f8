"""``ternmq retry``: messages that failed and wait for another attempt."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ternmq.cli.commands import Group
from ternmq.cli.groups.failed import chosen, deleting, listing, of_kind, selected, showing
from ternmq.cli.groups.selection import (
    dry_run_option,
    query_options,
    rate_option,
    skipped_note,
    told_outcomes,
)
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import asks_broker
from ternmq.cli.reach.finding import known
from ternmq.cli.reach.parameters import QUEUE
from ternmq.cli.reach.places import some
from ternmq.cli.terminal import output
from ternmq.cli.terminal.problems import not_found
from ternmq.client.admin.failedquery import FailedQuery
from ternmq.client.client import Client
from ternmq.model.words import counted, verb


@click.group(cls=Group)
def retry() -> None:
    """List, show and delete messages that wait for a retry, or retry them now."""


retry.add_command(
    listing(
        "List messages that wait for a retry or are held, with their last failure.\n\n"
        "A group with the setting `--exhausted hold` holds a message after its last attempt, until "
        "you run `retry now` or `retry delete`. In groups of mode shared, the setting has no "
        "effect.",
        dead=False,
    )
)
retry.add_command(
    showing("Show a message that waits for a retry or is held, with all its failures.", dead=False)
)
retry.add_command(
    deleting(
        "Delete messages that wait for a retry or are held: the group does not receive them again. "
        "Messages that waited behind them are then delivered.\n\n"
        "Select messages by offset (7), range (10-12) or place (1/7), by options, or use --all.",
        dead=False,
    )
)


@retry.command()
@topic_argument()
@group_argument()
@click.argument("offsets", metavar="[OFFSET]...", nargs=-1)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Select all messages that wait for a retry or are held.",
)
@click.option(
    "--queue",
    type=QUEUE,
    help="Only this queue; required with offsets (7) if the topic has several queues.",
)
@query_options(dead=False)
@rate_option
@dry_run_option
@output.json_option
@asks_broker
async def now(
    client: Client,
    topic: str,
    group: str,
    offsets: Sequence[str],
    everything: bool,
    queue: int | None,
    query: FailedQuery | None,
    rate: float | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Retry messages now, without waiting for their delay. Held messages are retried too.

    Select messages by offset (7), range (10-12) or place (1/7), by options, or use --all.
    """
    if query is not None or rate is not None or (dry_run and not offsets):
        asked = selected(query, offsets, everything=everything, dead=False)
        await known(client, topic, group, queue)
        told = await client.deadletters.retry_matching(
            topic, group, asked, queue=queue, rate=rate, dry_run=dry_run
        )
        done = sum([one.done for one in told])
        if as_json:
            messages = told_outcomes(told, "retried", "not selected any more")
            output.document({"done": 0 if dry_run else done, "messages": messages})
        else:
            comes = "would be" if dry_run else verb(done, "is", "are")
            output.note(
                f"{counted(done, 'message')} of {topic} {comes} delivered to {group} again now"
            )
            skipped_note(told)
        return
    found = await chosen(client, topic, group, offsets, queue, everything=everything, dead=False)
    missing: list[tuple[int, int]] = []
    count = 0
    there = await of_kind(client, topic, group, found, dead=False) if dry_run else {}
    for number, rows in found.items():
        if dry_run:
            lost = sorted(set(rows).difference(there[number]))
        else:
            lost = await client.deadletters.retry(topic, group, rows, queue=number)
        missing += [(number, offset) for offset in lost]
        count += len(rows) - len(lost)
    if as_json:
        done = 0 if dry_run else count
        output.document({"done": done, "missing": [offset for _, offset in missing]})
    elif count or not missing:
        comes = "would be" if dry_run else verb(count, "is", "are")
        output.note(
            f"{counted(count, 'message')} of {topic} {comes} delivered to {group} again now"
        )
    if missing and not everything:
        raise not_found(f"these messages do not wait for a retry: {some(missing)}")
