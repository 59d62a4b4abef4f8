"""Shared parts of ``retry`` and ``deadletter``: showing failed messages, and selecting them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.groups.selection import (
    agreed,
    dry_run_option,
    query_options,
    rate_option,
    skipped_note,
    told_outcomes,
    ways,
    whole_query,
)
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import asks_broker, confirm, yes_option
from ternmq.cli.reach.finding import known
from ternmq.cli.reach.parameters import COUNT, QUEUE, check_one
from ternmq.cli.reach.places import placed, some
from ternmq.cli.terminal import output
from ternmq.cli.terminal.output import Cell
from ternmq.cli.terminal.problems import not_found
from ternmq.cli.terminal.shapes import details
from ternmq.client.content.causes import reason_of
from ternmq.client.forms import values
from ternmq.client.forms.failures import plain, said
from ternmq.client.forms.messages import shown
from ternmq.model.words import counted, verb

if TYPE_CHECKING:  # imports the client that moves messages, which commands of groups do not need
    from ternmq.client.admin.failedmessage import FailedMessage, FailedOutcome
    from ternmq.client.admin.failedquery import FailedQuery
    from ternmq.client.client import Client
    from ternmq.wire.control import FailedCounts


MOST_NEWEST: Final = 1000
"""Most messages that are shown newest first: ``client.deadletters.matching`` returns no more."""
_SHOWN: Final = 100
"""How many messages are shown if no limit is given."""
_SPARE: Final = ("ordering key", "attempts", "key")
"""Columns that are dropped first on a narrow terminal, so that the reason has room."""


def columns(*, dead: bool) -> tuple[str, ...]:
    """Return the heads of the columns: dead letters have died, others are due."""
    return ("place", "attempts", "died" if dead else "due", "key", "ordering key", "reason")


def rows_of(
    client: Client, topic: str, group: str, queue: int | None, *, dead: bool
) -> AsyncIterator[FailedMessage]:
    """Return dead letters, or messages that wait for a retry."""
    letters = client.deadletters
    return (letters.browse if dead else letters.waiting)(topic, group, queue=queue)


def cells(one: FailedMessage) -> tuple[Cell, ...]:
    """Return the cells of ``columns``."""
    when = "held" if one.held else values.iso(one.when)
    message = one.message
    key, ordering_key = (message.key, message.ordering_key) if message is not None else ("", "")
    return (f"{one.queue}/{one.offset}", one.attempts, when, key, ordering_key, said(one))


def listing(about: str, *, dead: bool) -> click.Command:
    """Return the command ``list``: of dead letters, or of messages that wait."""

    @click.command("list", cls=Command, help=about)
    @topic_argument()
    @group_argument()
    @click.option("--queue", type=QUEUE, help="Only this queue.")
    @query_options(dead=dead)
    @click.option(
        "--newest-first", is_flag=True, help="Sort by the time of the last failure, newest first."
    )
    @click.option("--count", is_flag=True, help="Only show the number of messages.")
    @click.option(
        "-n",
        "--limit",
        type=COUNT,
        help="Maximum number of messages to show; at most 1,000 with --newest-first. Default: 100.",
    )
    @output.ndjson_option
    @asks_broker
    async def list_(
        client: Client,
        topic: str,
        group: str,
        queue: int | None,
        query: FailedQuery | None,
        newest_first: bool,
        count: bool,
        limit: int | None,
        as_json: bool,
    ) -> None:
        if count and (newest_first or limit is not None):
            raise click.UsageError(
                "--count only shows the number of messages: leave out --newest-first and --limit",
                click.get_current_context(),
            )
        limit = _SHOWN if limit is None else limit
        if newest_first and limit > MOST_NEWEST:
            raise click.UsageError(
                f"--limit is at most {MOST_NEWEST:,} with --newest-first",
                click.get_current_context(),
            )
        await known(client, topic, group, queue)
        if count:
            asked = query or whole_query(dead=dead)
            counts = await client.deadletters.count(topic, group, asked, queue=queue)
            _show_counts(counts, dead=dead, as_json=as_json)
            return
        if query is None and not newest_first:
            rows = rows_of(client, topic, group, queue, dead=dead)
        else:
            most = min(limit + 1, MOST_NEWEST) if newest_first else limit + 1
            rows = client.deadletters.matching(
                topic,
                group,
                query or whole_query(dead=dead),
                queue=queue,
                newest_first=newest_first,
                limit=most,
            )
        selects = query is not None
        shown = await _list_rows(
            rows, topic, group, limit, dead=dead, selects=selects, as_json=as_json
        )
        if newest_first and shown == MOST_NEWEST:  # the broker finds no more in this order
            asked = query or whole_query(dead=dead)
            counts = await client.deadletters.count(topic, group, asked, queue=queue)
            there = counts.dead if dead else counts.waiting + counts.held
            if there > shown:
                output.note(
                    f"showing the first {shown:,} of {there:,}: leave out --newest-first to see "
                    "more"
                )

    return list_


def _show_counts(counts: FailedCounts, *, dead: bool, as_json: bool) -> None:
    if as_json:
        held = {} if dead else {"waiting": counts.waiting, "held": counts.held}
        output.json_line({**held, **({"dead": counts.dead} if dead else {})})
    elif dead:
        output.line(counted(counts.dead, "dead letter"))
    else:
        output.line(f"{counted(counts.waiting, 'message')} waiting, {counts.held:,} held")


async def _list_rows(
    rows: AsyncIterator[FailedMessage],
    topic: str,
    group: str,
    limit: int,
    *,
    dead: bool,
    selects: bool,
    as_json: bool,
) -> int:
    """Show messages, and whether there are more than the limit; return how many were shown."""
    found: list[FailedMessage] = []
    more = False
    async for one in rows:
        if len(found) >= limit:
            more = True
            break
        found.append(one)
    if as_json:
        for one in found:
            output.json_line(plain(topic, group, one))
    else:
        what = "dead letters" if dead else "messages that wait for a retry"
        such = "such " if selects else ""
        output.table(
            columns(dead=dead),
            map(cells, found),
            f"group {group} has no {such}{what} on {topic}",
            spare=(*_SPARE, columns(dead=dead)[2]),
        )
    if more:
        output.note(f"showing the first {limit:,}; there are more (--limit)")
    return len(found)


def showing(about: str, *, dead: bool) -> click.Command:
    """Return the command ``show``: of a dead letter, or of a message that waits."""

    @click.command("show", cls=Command, help=about + " OFFSET can also be a place (1/7).")
    @topic_argument()
    @group_argument()
    @click.argument("place", metavar="OFFSET")
    @click.option(
        "--queue",
        type=QUEUE,
        help="Only this queue; required with offsets (7) if the topic has several queues.",
    )
    @output.json_option
    @asks_broker
    async def show(
        client: Client, topic: str, group: str, place: str, queue: int | None, as_json: bool
    ) -> None:
        count = await known(client, topic, group, queue)
        ((number, offsets),) = placed(topic, count, [place], queue).items()
        if len(offsets) != 1:
            raise click.UsageError(
                f"{place!r} names several messages: name one", click.get_current_context()
            )
        await _show_row(client, topic, group, offsets[0], number, dead=dead, as_json=as_json)

    return show


async def _show_row(
    client: Client,
    topic: str,
    group: str,
    offset: int,
    queue: int,
    *,
    dead: bool,
    as_json: bool,
) -> None:
    found = None
    async for one in rows_of(client, topic, group, queue, dead=dead):
        if one.offset >= offset:
            found = one if one.offset == offset else None
            break
    if found is None:
        what = "is not a dead letter of" if dead else "does not wait for a retry in"
        raise not_found(f"{topic}/{queue}/{offset} {what} group {group}")
    if as_json:
        output.document(plain(topic, group, found))
        return
    output.details(
        [
            ("group", group),
            ("attempts", found.attempts),
            ("deliveries", found.deliveries),
            ("dead since" if dead else "next attempt",
             "held: `ternmq retry now` delivers it" if found.held else values.iso(found.when)),
        ]
    )  # fmt: skip
    click.echo()
    output.table(
        ("time", "attempt", "outcome", "cause", "reason"),
        [
            (
                values.iso(values.of_us(one.time_us)),
                one.attempt,
                one.outcome,
                one.cause,
                reason_of(one.reason, one.cause),
            )
            for one in found.failures
        ],
        spare=("outcome", "time"),
    )
    click.echo()
    if found.message is None:
        output.note("its content is not kept any more")
    else:
        details(shown(found.message))


def deleting(about: str, *, dead: bool) -> click.Command:
    """Return the command ``delete``: of dead letters, or of messages that wait."""
    what = "dead letter" if dead else "message"
    all_ = "dead letters" if dead else "messages that wait for a retry or are held"

    @click.command("delete", cls=Command, help=about)
    @topic_argument()
    @group_argument()
    @click.argument("offsets", metavar="[OFFSET]...", nargs=-1)
    @click.option("--all", "everything", is_flag=True, help=f"Select all {all_}.")
    @click.option(
        "--queue",
        type=QUEUE,
        help="Only this queue; required with offsets (7) if the topic has several queues.",
    )
    @query_options(dead=dead)
    @rate_option
    @dry_run_option
    @yes_option
    @output.json_option
    @asks_broker
    async def delete(
        client: Client,
        topic: str,
        group: str,
        offsets: Sequence[str],
        everything: bool,
        queue: int | None,
        query: FailedQuery | None,
        rate: float | None,
        dry_run: bool,
        yes: bool,
        as_json: bool,
    ) -> None:
        if query is not None or rate is not None or (dry_run and not offsets):
            asked = selected(query, offsets, everything=everything, dead=dead)
            await known(client, topic, group, queue)
            await _delete_matching(
                client, topic, group, asked, queue, rate,
                dead=dead, dry_run=dry_run, yes=yes, as_json=as_json,
            )  # fmt: skip
            return
        named = await chosen(client, topic, group, offsets, queue, everything=everything, dead=dead)
        found = named if everything else await of_kind(client, topic, group, named, dead=dead)
        missing = [
            (number, offset)
            for number, rows in named.items()
            for offset in sorted(set(rows) - set(found[number]))
        ]
        total = sum(map(len, found.values()))
        if total and not dry_run:
            if not yes:
                rows_ = [(number, offset) for number, rows in found.items() for offset in rows]
                output.note(f"{counted(total, what)}: {some(rows_)}")
            whose = f"of {group} on {topic}" if dead else f"of {topic} from the retries of {group}"
            confirm(f"delete {counted(total, what)} {whose}?", yes=yes)
        count = total
        for number, rows in () if dry_run else found.items():
            lost = await client.deadletters.delete(topic, group, rows, queue=number)
            missing += [(number, offset) for offset in lost]
            count -= len(lost)
        if as_json:
            done = 0 if dry_run else count
            output.document({"done": done, "missing": [offset for _, offset in missing]})
        elif dry_run:
            whose = f"of {group} on {topic}" if dead else f"of {topic} from the retries of {group}"
            output.note(f"{counted(count, what)} {whose} would be deleted")
        elif count or not missing:
            if dead:
                output.note(f"deleted {counted(count, what)} of {group} on {topic}")
            else:
                output.note(
                    f"{counted(count, what)} of {topic} {verb(count, 'is', 'are')} not delivered "
                    f"to {group} again; other groups are not affected"
                )
        if missing and not everything:
            were = "are not dead letters" if dead else "do not wait for a retry"
            raise not_found(f"these messages {were}: {some(missing)}")

    return delete


async def _delete_matching(
    client: Client,
    topic: str,
    group: str,
    query: FailedQuery,
    queue: int | None,
    rate: float | None,
    *,
    dead: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    what = "dead letter" if dead else "message"
    whose = f"of {group} on {topic}" if dead else f"of {topic} from the retries of {group}"
    rows: Sequence[FailedOutcome] = ()
    if await agreed(
        client, topic, group, query, queue, f"delete {{}} {whose}?", what,
        yes=yes or dry_run, as_json=as_json,
    ):  # fmt: skip
        rows = await client.deadletters.delete_matching(
            topic, group, query, queue=queue, rate=rate, dry_run=dry_run
        )
    done = sum([one.done for one in rows])
    if as_json:
        messages = told_outcomes(rows, "deleted", "not selected any more")
        output.document({"done": 0 if dry_run else done, "messages": messages})
    else:
        would = "would be deleted" if dry_run else verb(done, "is", "are") + " deleted"
        output.note(f"{counted(done, what)} {whose} {would}")
        skipped_note(rows)


def selected(
    query: FailedQuery | None, offsets: Sequence[str], *, everything: bool, dead: bool
) -> FailedQuery:
    """Return what a selection or --all means.

    Raises:
        click.UsageError: None of them is given, or several.
    """
    check_one(
        bool(offsets), everything, query is not None, of=f"offsets, {ways(dead=dead)} and --all"
    )
    if offsets:
        raise click.UsageError(
            "--rate is for --all and for selections", click.get_current_context()
        )
    return query or whole_query(dead=dead)


async def of_kind(
    client: Client, topic: str, group: str, named: dict[int, list[int]], *, dead: bool
) -> dict[int, list[int]]:
    """Return those that are dead letters, or that wait; the broker would delete both kinds."""
    found: dict[int, list[int]] = {}
    for number, offsets in named.items():
        meant, last = set(offsets), max(offsets)
        there = found.setdefault(number, [])
        async for one in rows_of(client, topic, group, number, dead=dead):
            if one.offset > last:
                break
            if one.offset in meant:
                there.append(one.offset)
    return found


async def chosen(
    client: Client,
    topic: str,
    group: str,
    offsets: Sequence[str],
    queue: int | None,
    *,
    everything: bool,
    dead: bool,
) -> dict[int, list[int]]:
    """Return the selected offsets, by queue.

    Raises:
        click.UsageError: Both or neither of offsets and --all are given; the queue is not clear.
    """
    check_one(bool(offsets), everything, of=f"offsets, {ways(dead=dead)} and --all")
    count = await known(client, topic, group, queue)
    if not everything:
        return placed(topic, count, offsets, queue)
    found: dict[int, list[int]] = {}
    async for one in rows_of(client, topic, group, queue, dead=dead):
        found.setdefault(one.queue, []).append(one.offset)
    return found
