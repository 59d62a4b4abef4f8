"""``ternmq consume``: prints messages for a group, then acks them."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final, NamedTuple

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
from ternmq.model.errors import ConnectionLost, GroupPaused, LeaseExpired, UnknownTopic
from ternmq.model.specs import Mode, Start
from ternmq.model.words import counted
from ternmq.record.fact.facts import Outcome

_PULL: Final = 500
_LOOK: Final = 100
_LONG_S: Final = 60.0


@click.command(cls=Command)
@topic_argument()
@click.option("-g", "--group", type=NAME, help="Consumer group; created if it does not exist.")
@click.option(
    "--broadcast",
    is_flag=True,
    help="Consume as a broadcast instance, without a group: the instance receives every message "
    "that is sent from now on. On a broadcast topic this is the default.",
)
@click.option(
    "--instance",
    type=NAME,
    metavar="NAME",
    help="Name of the broadcast instance: the broker keeps its place for 7 days after it stopped. "
    "Default: TERNMQ_INSTANCE, else no name.",
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
    "--filter",
    metavar="EXPRESSION",
    help="Header filter of a new group, such as \"region = 'eu' AND amount >= 100\".",
)
@click.option(
    "--mode",
    type=click.Choice([one.value for one in Mode if one is not Mode.BROADCAST]),
    help="Mode of a new group: shared, ordered (each ordering key in order, on an ordered topic), "
    "queue_lock (each queue in order, one consumer at a time), owned (the same, and each queue "
    "belongs to one consumer), or exclusive (all queues belong to one consumer). Default: ordered "
    "on an ordered topic, else shared.",
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
    group: str | None,
    broadcast: bool,
    instance: str | None,
    most: int | None,
    wait: timedelta | None,
    no_ack: bool,
    tags: str | None,
    filter: str | None,  # noqa: A002
    mode: str | None,
    start: str | None,
    raw: bool,
    as_json: bool,
) -> None:
    """Consume messages for a group, or as a broadcast instance, until Ctrl-C, and print them.

    Each batch is acked after it is printed. Messages that were printed but not acked, because the
    broker or this command was killed, are delivered again. If the group is paused, the command
    waits until it is resumed; with --wait, it ends after this time. With --no-ack and without
    --wait, it does not wait: it shows what is available now, and fails if the group is paused.
    """
    if raw and as_json:
        raise click.UsageError("give only one of --raw and --json", click.get_current_context())
    if group is not None and (broadcast or instance is not None):
        other = "--broadcast" if broadcast else "--instance"
        raise click.UsageError(
            f"give only one of --group and {other}: a broadcast instance has no group",
            click.get_current_context(),
        )
    printer = Printer(as_json=as_json, raw=raw)
    if no_ack:
        most = _LOOK if most is None else most
        wait = timedelta(0) if wait is None else wait
    settings: dict[str, Any] = {"tags": tags, "filter": filter, "mode": mode, "start": start}
    settings |= {"broadcast": broadcast or None, "instance": instance}
    made, paused = _First("")
    if group is not None and not broadcast and instance is None:
        made, paused = await _at_first(client, topic, group, start)
    pulls = _Pulls(client, topic, group, settings, wait, paused=paused)
    held: list[Deliveries] = []
    told = ExitStack()
    try:
        told.enter_context(connection_told())
        left = most
        while left is None or left > 0:
            batch = await pulls.next(left, at_once=bool(made))
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
            to = group or f"the instance of {topic}"
            output.note(f"giving {counted(sum(map(len, held)), 'message')} back to {to}")
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


class _Pulls:
    """The pulls of a command, also while the group is paused.

    Args:
        client: The client.
        topic: The topic.
        group: The group.
        settings: What a new group has, for each pull.
        wait: How long a pull waits; None: until messages arrive.
        paused: Whether the group is paused. A note says so, unless the error after ``wait`` will.
    """

    def __init__(
        self, client: Client, topic: str, group: str | None, settings: dict[str, Any],
        wait: timedelta | None, *, paused: bool,
    ) -> None:  # fmt: skip
        self._client = client
        self._topic = topic
        self._group = group
        self._settings = settings
        self._wait = wait
        self._noted = False
        if paused and wait is None:
            self._note()

    async def next(self, most: int | None, *, at_once: bool) -> Deliveries:
        """Return the next messages; empty: none came in time.

        Raises:
            GroupPaused: The group is paused at the end of ``wait``.
        """
        seconds = _LONG_S if self._wait is None else self._wait.total_seconds()
        while True:
            try:
                batch = await self._client.pull(
                    self._topic,
                    group=self._group,
                    max_messages=_PULL if most is None else min(most, _PULL),
                    wait=0 if at_once else seconds,
                    **self._settings,
                )
            except GroupPaused:
                if self._wait is not None:
                    raise
                self._note()
            else:
                self._noted = False
                return batch

    def _note(self) -> None:
        if self._noted:
            return
        self._noted = True
        what = f"group {self._group}" if self._group else "the broadcast instance"
        output.note(f"{what} is paused on {self._topic}: `ternmq group resume` resumes it")


class _First(NamedTuple):
    """What is known before the first pull.

    Attributes:
        made: A line about what this pull will create; empty if the group exists.
        paused: Whether the group is paused.
    """

    made: str
    paused: bool = False


async def _at_first(client: Client, topic: str, group: str, start: str | None) -> _First:
    """Look the group up before the first pull."""
    try:
        found = await group_of(client, topic, group)
    except UnknownTopic:
        return _First(f"created topic {topic}, and group {group} on it")  # if use creates topics
    if found is None:
        where = start or Start.EARLIEST.value
        meaning = (
            "the oldest message kept" if where == Start.EARLIEST.value else "new messages only"
        )
        return _First(f"group {group} is new on {topic}: it starts at {where}, {meaning}")
    return _First("", found.spec.paused)
