"""``ternmq message``: looks messages up."""

from __future__ import annotations

import sys
from datetime import datetime

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach import archived
from ternmq.cli.reach.arguments import topic_argument
from ternmq.cli.reach.connection import reads_broker
from ternmq.cli.reach.finding import only_queue
from ternmq.cli.reach.parameters import COUNT, NAME, OFFSET, QUEUE, WHEN, check_one, check_span
from ternmq.cli.terminal import output
from ternmq.cli.terminal.problems import not_found
from ternmq.cli.terminal.shapes import details, line
from ternmq.cli.topics.message_trace import trace
from ternmq.cli.topics.tail import INDENT, merged
from ternmq.client.client import Client
from ternmq.client.forms.messages import Found, Shown, plain, shown
from ternmq.model.errors import MessageNotFound, OffsetExpired, UnknownQueue, UnknownTopic


@click.group(cls=Group)
def message() -> None:
    """Look up messages."""


@message.command()
@click.argument("place", metavar="TOPIC[/QUEUE/OFFSET]")
@click.argument("id_", metavar="[ID]", required=False, default="")
@click.option("--offset", type=OFFSET, help="Offset of the message, instead of an id.")
@click.option(
    "--queue", type=QUEUE, help="Queue of --offset; required if the topic has several queues."
)
@click.option("--raw", is_flag=True, help="Print only the body, unchanged.")
@archived.tables_option
@output.json_option
@reads_broker
async def get(
    client: Client,
    place: str,
    id_: str,
    offset: int | None,
    queue: int | None,
    raw: bool,
    tables: str | None,
    as_json: bool,
) -> None:
    """Show one message, selected by id or by place.

    The id is the one in the receipt, or your own. Examples: `get orders 00f3a1c2d4e5b697:1f`, `get
    orders order-7-paid`, `get orders --offset 17`, `get orders/0/17`. With --tables, messages that
    the broker no longer keeps are looked up in the archive.
    """
    topic, number, at = _place(place)
    if at is not None and (offset is not None or queue is not None):
        raise click.UsageError("the place is given twice", click.get_current_context())
    if at is None:
        number, at = queue, offset
    if not id_ and at is None:
        raise click.UsageError(
            f"{topic} is taken as the topic: give an id or a place as well, as in "
            f"`{topic} order-7` or `{topic}/0/17`",
            click.get_current_context(),
        )
    check_one(bool(id_), at is not None, of="an id and a place")
    click.get_current_context().params["topic"] = topic  # for the error if it does not exist
    if number is None:
        number = 0 if at is None else await only_queue(client, topic)
    try:
        whose = None if at is None else number
        found = shown(await client.get(topic, id_ or None, queue=whose, offset=at))
    except (MessageNotFound, OffsetExpired, UnknownQueue, UnknownTopic):
        tables = archived.folder(tables)
        kept = archived.get(tables, topic, id_, number, at) if tables else None
        if kept is None:
            raise
        output.note("from the archive: the broker does not keep it any more")
        found = kept
    if raw:
        sys.stdout.buffer.write(found.body)
    elif as_json:
        output.document(plain(found))
    else:
        details(found)


message.add_command(trace)


@message.command()
@topic_argument()
@click.option(
    "-k", "--key", help="Messages with this key. Default: all messages of the time range."
)
@click.option(
    "--since",
    type=WHEN,
    metavar="TIME",
    help="Messages stored at or after this time: 10m (ago), 14:30, 2026-01-31T14:30Z.",
)
@click.option("--until", type=WHEN, metavar="TIME", help="Messages stored before this time.")
@click.option(
    "-n",
    "--limit",
    type=COUNT,
    default=100,
    help="Maximum number of messages to show. Default: 100.",
)
@archived.tables_option
@output.ndjson_option
@reads_broker
async def find(
    client: Client,
    topic: str,
    key: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    tables: str | None,
    as_json: bool,
) -> None:
    """Find messages by key, or by the time when they were stored.

    With --key, the newest messages come first; without it, the oldest. With --key and --tables, the
    archive is searched too. If no message is found, the exit status is 4.
    """
    if key is None and since is None and until is None:
        raise click.UsageError(
            "give --key, --since or --until, or several of them", click.get_current_context()
        )
    check_span(since, until)
    found: list[Shown] = []
    tables = archived.folder(tables)
    if key is not None:
        found += await _of_key(client, topic, key, since, until, limit, tables)
    else:
        queues = (await client.admin.topic(topic)).queues
        streams = [
            client.read(topic, start=since or "earliest", stop=until or one.next, queue=at)
            for at, one in enumerate(queues)
        ]
        async for delivery in merged(streams):
            found.append(delivery)
            if len(found) >= limit:
                break
    for one in found:
        if as_json:
            output.json_line(plain(one))
        else:
            click.echo(output.folded(line(one), INDENT))
    if not found:
        raise not_found(f"no such message is kept in {topic}")
    if len(found) >= limit:
        output.note(f"showing {limit:,}; there may be more (--limit)")


async def _of_key(
    client: Client,
    topic: str,
    key: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    tables: str,
) -> list[Found]:
    """Return messages with a key, newest first: from the broker and the archive."""
    try:
        kept = await client.find(topic, key=key, since=since, until=until, limit=limit)
    except UnknownTopic:
        if not tables:
            raise
        kept = []
    found = [shown(one) for one in kept]
    if tables and len(found) < limit:
        ids = {one.id for one in found}
        # Messages that both have must not displace older ones.
        most = min(limit + len(found), 1000)
        older = archived.find(tables, topic, key, since, until, most)
        found += [one for one in older if one.id not in ids]
        found.sort(key=lambda one: one.stored_at, reverse=True)
    return found[:limit]


def _place(text: str) -> tuple[str, int | None, int | None]:
    """Parse ``orders/0/17`` to topic, queue and offset; the last two are None for ``orders``."""
    topic, *rest = text.split("/")
    NAME.convert(topic, None, click.get_current_context())
    if not rest:
        return topic, None, None
    if len(rest) != 2 or not all(part.isdecimal() for part in rest):
        raise click.UsageError(f"{text!r} is not TOPIC/QUEUE/OFFSET", click.get_current_context())
    return topic, int(rest[0]), int(rest[1])
