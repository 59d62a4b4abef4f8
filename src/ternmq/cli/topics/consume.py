"""``ternmq consume``: prints messages for a group, then acks them."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.arguments import topic_argument
from ternmq.cli.reach.connection import asks_broker, connection_told
from ternmq.cli.reach.finding import group_of
from ternmq.cli.reach.parameters import COUNT, DURATION, NAME
from ternmq.cli.terminal import output
from ternmq.cli.topics.tail import Printer, raw_option
from ternmq.client.client import Client
from ternmq.client.consumer.deliveries import Deliveries
from ternmq.model.errors import ConnectionLost, LeaseExpired, UnknownTopic
from ternmq.model.specs import Mode, Start
from ternmq.model.words import counted
from ternmq.record.fact.facts import Outcome

_PULL: Final = 500
_LOOK: Final = 100
_LONG_S: Final = 60.0


@click.command(cls=Command)
@topic_argument()
@click.option(
    "-g", "--group", type=NAME, required=True, help="Consumer group; created if it does not exist."
)
@click.option("-n", "--max", "most", type=COUNT, help="Stop after this number of messages.")
@click.option(
    "--wait",
    type=DURATION,
    metavar="DURATION",
    help="Stop when no message arrives for this time; 0: take only the messages that are "
    "available.",
)
@click.option(
    "--no-ack",
    is_flag=True,
    help="Only look: messages are returned to the group, and no attempt is counted. Shows 100 "
    "messages, unless --max is given.",
)
@click.option(
    "--tags", metavar="FILTER", help="Tag filter of a new group, such as 'paid || refunded'."
)
@click.option(
    "--mode",
    type=click.Choice([one.value for one in Mode]),
    help="Mode of a new group. Default: ordered on an ordered topic, else shared.",
)
@click.option(
    "--start",
    type=click.Choice([one.value for one in Start]),
    help="Where a new group starts: oldest message, or new messages only. Default: earliest.",
)
@raw_option
@output.ndjson_option
@asks_broker
async def consume(
    client: Client,
    topic: str,
    group: str,
    most: int | None,
    wait: timedelta | None,
    no_ack: bool,
    tags: str | None,
    mode: str | None,
    start: str | None,
    raw: bool,
    as_json: bool,
) -> None:
    """Consume messages for a group until Ctrl-C, and print them.

    Each batch is acked after it is printed. Messages that were printed but not acked, because the
    broker or this command was killed, are delivered again.
    """
    if raw and as_json:
        raise click.UsageError("give only one of --raw and --json", click.get_current_context())
    printer = Printer(as_json=as_json, raw=raw)
    if no_ack:
        most = _LOOK if most is None else most
        wait = timedelta(0) if wait is None else wait
    at_once = wait is not None and not wait
    made = await _made_by_use(client, topic, group, start, told_by_pull=at_once)
    held: list[Deliveries] = []
    told = ExitStack()
    try:
        told.enter_context(connection_told())
        left = most
        while left is None or left > 0:
            batch = await client.pull(
                topic,
                group=group,
                max_messages=_PULL if left is None else min(left, _PULL),
                wait=0 if made else _LONG_S if wait is None else wait.total_seconds(),
                tags=tags,
                mode=mode,
                start=start,
            )
            if made:  # printed after the pull: the broker may have refused it
                output.note(made)
                made = ""
                if not batch:
                    continue
            if batch:
                held.append(batch)
                left = None if left is None else left - len(batch)
                _print(printer, batch)
                if not no_ack:
                    await _ack(batch, last=left == 0)
                    held.clear()
            elif wait is not None:
                break
        if no_ack and held:
            output.note(f"giving {counted(sum(map(len, held)), 'message')} back to {group}")
    finally:
        told.close()
        # Release what was not acked: because of --no-ack, or because the output's pipe broke.
        for one in held:
            if one.unsettled:
                one.settle_soon(None, Outcome.RELEASED)


async def _ack(batch: Deliveries, *, last: bool) -> None:
    """Ack printed messages; if the lease or the connection was lost, they come again.

    Raises:
        ConnectionLost, LeaseExpired: For the last batch, after which nothing more is received.
    """
    try:
        await batch.ack()
    except (ConnectionLost, LeaseExpired) as error:
        if last:
            raise
        output.note(f"{error.args[0]}: the printed messages may be delivered again")


def _print(printer: Printer, batch: Deliveries) -> None:
    for delivery in batch:
        printer.print(
            delivery,
            group=delivery.group,
            attempt=delivery.attempt,
            deliveries=delivery.deliveries,
        )


async def _made_by_use(
    client: Client, topic: str, group: str, start: str | None, *, told_by_pull: bool
) -> str:
    """Return a line about what the first pull will create; empty if the group exists.

    If the group is paused, a note is printed, unless the pull does not wait (``told_by_pull``):
    then its error says the same.
    """
    try:
        found = await group_of(client, topic, group)
    except UnknownTopic:
        return f"created topic {topic}, and group {group} on it"  # if it makes topics by use
    if found is None:
        where = start or Start.EARLIEST.value
        meaning = (
            "the oldest message kept" if where == Start.EARLIEST.value else "new messages only"
        )
        return f"group {group} is new on {topic}: it starts at {where}, {meaning}"
    if found.spec.paused and not told_by_pull:
        output.note(f"group {group} is paused on {topic}: `ternmq group resume` resumes it")
    return ""
