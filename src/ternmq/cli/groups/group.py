"""``ternmq group``: consumer groups on topics; creating, showing and changing them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from shlex import quote
from typing import Any, Final, TypeVar

import click

from ternmq.cli.commands import Group
from ternmq.cli.groups.group_lag import lag, no_groups
from ternmq.cli.groups.group_places import reset, skip
from ternmq.cli.groups.group_replay import replay
from ternmq.cli.reach.arguments import group_argument, topic_argument
from ternmq.cli.reach.connection import administers, confirm, yes_option
from ternmq.cli.reach.finding import group_of
from ternmq.cli.reach.parameters import (
    COUNT,
    DURATION,
    POSITIVE_DURATION,
    Real,
    Whole,
    given,
    unchangeable,
)
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.declaration.policy import RetryPolicy
from ternmq.client.forms.groups import plain
from ternmq.model.assignments import read_assignment, write_assignment
from ternmq.model.policies import write_retry_of
from ternmq.model.specs import Exhausted, Expired, Mode, Start
from ternmq.model.units import write_duration
from ternmq.model.words import counted, verb

F = TypeVar("F", bound=Callable[..., Any])
_MODE: Final = click.Choice([one.value for one in Mode if one is not Mode.BROADCAST])
_START: Final = click.Choice([one.value for one in Start])
_EXPIRED: Final = click.Choice([one.value for one in Expired])
_EXHAUSTED: Final = click.Choice([one.value for one in Exhausted])


def _assign(help: str) -> Callable[[F], F]:  # noqa: A002
    return click.option("--assign", metavar="QUEUES=CONSUMERS", multiple=True, help=help)


def _assigned(entries: tuple[str, ...]) -> dict[str, list[int]]:
    """Return the entries of ``--assign``, by the pattern of consumers."""
    found: dict[str, list[int]] = {}
    for entry in entries:
        if entry:
            one = read_assignment(entry)
            found.setdefault(one.member, []).extend(one.queues)
    return found


@click.group(cls=Group)
def group() -> None:
    """Manage consumer groups: settings, lag, positions."""


@group.command()
@topic_argument()
@group_argument()
@click.option(
    "--tags",
    metavar="FILTER",
    help="Tag filter: deliver only matching messages, such as 'paid || refunded'.",
)
@click.option(
    "--filter",
    metavar="EXPRESSION",
    help="Header filter: deliver only matching messages, such as \"region = 'eu' AND amount >= "
    '100".',
)
@click.option(
    "--mode",
    type=_MODE,
    help="Mode of the group: shared, ordered (each ordering key in order, on an ordered topic), "
    "queue_lock (each queue in order, one consumer at a time), owned (the same, and each queue "
    "belongs to one consumer), or exclusive (all queues belong to one consumer). Default: ordered "
    "on an ordered topic, else shared.",
)
@_assign(
    "Only in mode owned: queues and the consumers that own them, such as '0-2,5=billing-*'. May "
    "be repeated. Default: the queues are divided equally among the consumers."
)
@click.option(
    "--start",
    type=_START,
    help="Where the group starts: oldest message, or new messages only. Default: earliest.",
)
@administers
async def create(
    client: AdminClient,
    topic: str,
    group: str,
    tags: str | None,
    filter: str | None,  # noqa: A002
    mode: str | None,
    start: str | None,
    assign: tuple[str, ...],
) -> None:
    """Create a group on a topic. A consumer also creates its group if it does not exist.

    `ternmq group set` changes the other settings, such as --concurrency, --expired and --retry.
    """
    await client.admin.topic(topic)
    if await group_of(client, topic, group) is not None:
        raise Failed(f"group {group!r} consumes {topic!r} already; `ternmq group set` changes it")
    spec = await client.admin.create_group(
        topic, group, tags=tags, filter=filter, mode=mode, start=start,
        assign=_assigned(assign) if assign else None,
    )  # fmt: skip
    output.note(f"created group {group} on {topic}, starting at {spec.start.value}")


@group.command("list")
@topic_argument(required=False)
@click.option(
    "--broadcast",
    is_flag=True,
    help="List the broadcast instances, too: groups whose names begin with $b.",
)
@output.json_option
@administers
async def list_(client: AdminClient, topic: str | None, broadcast: bool, as_json: bool) -> None:
    """List the groups of a topic, or of all topics."""
    known = None if topic is None else await client.admin.topic(topic)
    found = await client.admin.groups(topic, broadcast=broadcast)
    if as_json:
        output.document([plain(one) for one in found])
        return
    output.table(
        ("topic", "group", "mode", "lag", "ready", "dead", "members", "state", "tags"),
        [
            (
                one.topic,
                one.group,
                one.spec.mode.value,
                sum([queue.lag for queue in one.queues]),
                sum([queue.ready for queue in one.queues]),
                sum([queue.dead for queue in one.queues]),
                len(one.members),
                "paused" if one.spec.paused else "running",
                one.spec.tags,
            )
            for one in found
        ],
        no_groups(client.admin.app, known),
        spare=("mode", "tags", "members", "dead", "ready"),
    )


@group.command()
@topic_argument()
@group_argument()
@output.json_option
@administers
async def show(client: AdminClient, topic: str, group: str, as_json: bool) -> None:
    """Show the settings of a group on a topic, and its progress on each queue."""
    info = await client.admin.group(topic, group)
    if as_json:
        output.document(plain(info))
        return
    spec = info.spec
    output.details(
        [
            ("topic", info.topic),
            ("group", info.group),
            ("state", "paused" if spec.paused else "running"),
            ("mode", spec.mode.value),
            ("tags", spec.tags),
            ("filter", spec.filter),
            ("start", spec.start.value),
            ("retry", write_retry_of(spec)),
            ("lease", write_duration(spec.lease_us)),
            ("window", spec.window),
            *([("concurrency", spec.concurrency)] if spec.concurrency else []),
            *([("offline", ", ".join(spec.offline))] if spec.offline else []),
            ("expired", "dropped" if spec.expired is Expired.DROP else "dead letters"),
            ("assign", " ".join([write_assignment(one) for one in spec.assign])),
            ("members", ", ".join(info.members)),
        ]
    )
    click.echo()
    owned = spec.mode.assigns_queues
    output.table(
        ("queue", "floor", "cursor", "end", "lag", "ready", "leased", "retrying", "dead",
         *(["owner"] if owned else [])),
        [
            (at, one.floor, one.cursor, one.end, one.lag, one.ready, one.leased, one.waiting,
             one.dead, *([one.owner or "nobody"] if owned else []))
            for at, one in enumerate(info.queues)
        ],
        spare=("floor", "dead", "retrying", "leased", "cursor"),
    )  # fmt: skip


@group.command("set")
@topic_argument()
@group_argument()
@click.option(
    "--mode",
    type=_MODE,
    help="Mode of the group, from the next pull on; `ternmq group create --help` explains the "
    "modes. A group can become ordered only while none of its messages is leased, ready, waiting "
    "for a retry or held.",
)
@click.option(
    "--concurrency",
    type=Whole(min=0),
    help="Maximum number of messages that one client holds at the same time, in all queues "
    "together; 0: no limit.",
)
@click.option(
    "--tags",
    metavar="FILTER",
    help="Tag filter: deliver only matching messages; '' for all messages.",
)
@click.option(
    "--filter",
    metavar="EXPRESSION",
    help="Header filter: deliver only matching messages, such as \"region = 'eu' AND amount >= "
    "100\"; '' for all messages.",
)
@click.option(
    "--lease",
    type=POSITIVE_DURATION,
    metavar="DURATION",
    help="How long a message is leased to a consumer that does not extend it: 100ms to 1d.",
)
@click.option(
    "--window", type=COUNT, help="Maximum number of leased messages per queue, at most 60,000."
)
@click.option("--retry/--no-retry", default=None, help="Whether to retry failed messages.")
@click.option(
    "--retry-first", type=DURATION, metavar="DURATION", help="Delay before the first retry."
)
@click.option(
    "--retry-factor", type=Real(min=1), help="Factor by which the delay grows with each retry."
)
@click.option("--retry-cap", type=DURATION, metavar="DURATION", help="Maximum delay.")
@click.option(
    "--retry-jitter",
    type=Real(min=0, max=1, max_open=True),
    help="Random variation of each delay, 0 to below 1: 0.2 is up to 20 % more or less.",
)
@click.option(
    "--retry-attempts", type=COUNT, help="Maximum number of attempts, including the first."
)
@click.option(
    "--exhausted",
    type=_EXHAUSTED,
    help="What happens to a message after its last attempt: dead letter, or hold. Hold has "
    "no effect in mode shared: the message becomes a dead letter.",
)
@click.option(
    "--retry-expires",
    type=DURATION,
    metavar="DURATION",
    help="Time after which a message is no longer retried, counted from when it was stored. If "
    "the next attempt would be later, the failure is the last one. 0s: no limit.",
)
@click.option(
    "--expired",
    type=_EXPIRED,
    help="What happens to messages that expire before their first delivery or a retry: dead "
    "letter, or drop.",
)
@_assign(
    "Only in mode owned: queues and the consumers that own them, such as '0-2,5=billing-*'. May "
    "be repeated. Replaces the whole assignment; '': the queues are divided equally among the "
    "consumers."
)
@unchangeable(
    "--start",
    "the start applies only to a new group and cannot be changed: `ternmq group reset` changes the "
    "position of this group",
)
@administers
async def set_(
    client: AdminClient,
    topic: str,
    group: str,
    mode: str | None,
    concurrency: int | None,
    tags: str | None,
    filter: str | None,  # noqa: A002
    lease: timedelta | None,
    window: int | None,
    expired: str | None,
    assign: tuple[str, ...],
    **policy: Any,
) -> None:
    """Change settings of a group on a topic. Other settings stay as they are.

    Consumers continue during the change, and no message is lost. A message that a consumer holds
    stays leased to it.
    """
    own = given(
        tags=tags, filter=filter, lease=lease, window=window, expired=expired, mode=mode,
        concurrency=concurrency,
    )  # fmt: skip
    if assign:
        own["assign"] = _assigned(assign)
    changes = _policy(**policy)
    if not own and not changes:
        raise click.UsageError("name at least one option to change", click.get_current_context())
    off = False
    before = (await client.admin.group(topic, group)).spec
    if changes:
        now = RetryPolicy.of(before.retry)
        own["retry"] = changed = dataclasses.replace(now, **changes)
        off = not changed.enabled and bool(_OF_RETRIES & changes.keys())
    after = await client.admin.change_group(topic, group, **own)
    if after == before:
        done = f"group {group} on {topic} has these settings already"
    else:
        done = f"changed group {group} on {topic}"
    output.note(done + (f"; {_RETRY_IS_OFF}" if off else ""))
    if before.assign and not after.assign and not assign:
        lost = " ".join([f"--assign {quote(write_assignment(one))}" for one in before.assign])
        output.note(
            "its assignment of queues is removed, because only groups of mode owned have one; to "
            f"assign the queues again when the mode is owned, add {lost}"
        )
    if policy["exhausted"] == Exhausted.HOLD.value:
        info = await client.admin.group(topic, group)
        if not info.spec.mode.keeps_order:
            output.note(
                f"group {group} has mode {info.spec.mode.value}: its messages become dead letters, "
                "they are not held"
            )


_OF_RETRIES: Final = {"first", "factor", "cap", "jitter", "attempts", "expires"}
"""Fields of a retry policy without effect while retry is off."""
_RETRY_IS_OFF: Final = "retry is off: a message that fails once is not tried again until --retry"


def _policy(
    retry: bool | None,
    retry_first: timedelta | None,
    retry_factor: float | None,
    retry_cap: timedelta | None,
    retry_jitter: float | None,
    retry_attempts: int | None,
    exhausted: str | None,
    retry_expires: timedelta | None,
) -> dict[str, Any]:
    """Return the fields of a retry policy to change."""
    changes = given(
        enabled=retry,
        first=retry_first,
        factor=retry_factor,
        cap=retry_cap,
        jitter=retry_jitter,
        attempts=retry_attempts,
        exhausted=None if exhausted is None else Exhausted(exhausted),
        expires=retry_expires,
    )
    useless = [one for one in changes if retry is False and one in _OF_RETRIES]
    if useless:
        raise click.UsageError(
            f"--retry-{useless[0]} and --no-retry contradict each other: give one of them",
            click.get_current_context(),
        )
    return changes


@group.command()
@topic_argument()
@group_argument()
@administers
async def pause(client: AdminClient, topic: str, group: str) -> None:
    """Pause delivery to a group, until it is resumed."""
    await client.admin.pause_group(topic, group)
    output.note(
        f"paused group {group} on {topic}; `ternmq group resume {topic} {quote(group)}` ends it"
    )


@group.command()
@topic_argument()
@group_argument()
@administers
async def resume(client: AdminClient, topic: str, group: str) -> None:
    """Resume delivery to a group."""
    await client.admin.resume_group(topic, group)
    output.note(f"resumed group {group} on {topic}")


@group.command()
@topic_argument()
@group_argument()
@yes_option
@administers
async def delete(client: AdminClient, topic: str, group: str, yes: bool) -> None:
    """Delete a group from a topic, with its position and its unfinished messages.

    Stop the consumers of the group first. A consumer that still runs ends with an error (a worker:
    with exit status 4). A consumer that starts later creates the group again; the new group starts
    with the oldest message that is kept, unless the consumer states another start.
    """
    info = await client.admin.group(topic, group)
    if info.members:
        consume = f"{counted(len(info.members), 'member')} of group {group} "
        consume += verb(len(info.members), "consumes", "consume")
        output.note(
            f"{consume} {topic} now: a consumer that runs ends with an error. A consumer that "
            "starts later creates the group again, starting with the oldest message that is kept, "
            "unless the consumer states start='latest'"
        )
    if not yes:
        lag = sum([one.lag for one in info.queues])
        open_ = sum([one.leased + one.ready + one.waiting + one.dead for one in info.queues])
        output.note(
            f"group {group} on {topic} has {counted(lag, 'unread message')} and "
            f"{counted(open_, 'open one')}"
        )
    confirm("delete it?", yes=yes)
    await client.admin.delete_group(topic, group)
    output.note(f"deleted group {group} on {topic}")


group.add_command(lag)
group.add_command(reset)
group.add_command(skip)
group.add_command(replay)
