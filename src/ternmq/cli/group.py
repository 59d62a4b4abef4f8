"""``ternmq group``: consumer groups on topics; creating, showing and changing them."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any, Final

import click

from ternmq.cli import output
from ternmq.cli.commands import Group
from ternmq.cli.connection import administers, confirm, yes_option
from ternmq.cli.exits import Failed
from ternmq.cli.finding import group_of
from ternmq.cli.group_lag import lag
from ternmq.cli.group_places import reset, skip
from ternmq.cli.group_replay import replay
from ternmq.cli.parameters import (
    COUNT,
    DURATION,
    POSITIVE_DURATION,
    given,
    group_argument,
    topic_argument,
    unchangeable,
)
from ternmq.client.admin_client import AdminClient
from ternmq.client.policy import RetryPolicy
from ternmq.model import specs
from ternmq.model.policies import write_retry
from ternmq.model.specs import Exhausted, Mode, Start
from ternmq.model.units import write_duration
from ternmq.model.words import counted, verb
from ternmq.wire.control import GroupInfo

_MODE: Final = click.Choice([one.value for one in Mode])
_START: Final = click.Choice([one.value for one in Start])
_EXHAUSTED: Final = click.Choice([one.value for one in Exhausted])


@click.group(cls=Group)
def group() -> None:
    """Consumer groups: settings, lag, positions."""


@group.command()
@topic_argument()
@group_argument()
@click.option("--tags", metavar="FILTER", help="Only these, such as 'paid || refunded'.")
@click.option("--mode", type=_MODE, help="By default as the topic is: shared, or ordered.")
@click.option("--start", type=_START, help="Where it begins; by default earliest.")
@administers
async def create(
    client: AdminClient,
    topic: str,
    group: str,
    tags: str | None,
    mode: str | None,
    start: str | None,
) -> None:
    """Make a group on a topic; consuming does it by itself."""
    await client.admin.topic(topic)
    if await group_of(client, topic, group) is not None:
        raise Failed(f"group {group!r} consumes {topic!r} already; `ternmq group set` changes it")
    spec = await client.admin.create_group(topic, group, tags=tags, mode=mode, start=start)
    output.note(f"made group {group} on {topic}, starting at {spec.start.value}")


@group.command("list")
@topic_argument(required=False)
@output.json_option
@administers
async def list_(client: AdminClient, topic: str | None, as_json: bool) -> None:
    """List the groups of a topic, or of all topics."""
    if topic is not None:
        await client.admin.topic(topic)
    found = await client.admin.groups(topic)
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
        f"{output.none_of('groups', client.admin.app)}; consuming makes one, or "
        "`ternmq group create`",
    )


@group.command()
@topic_argument()
@group_argument()
@output.json_option
@administers
async def show(client: AdminClient, topic: str, group: str, as_json: bool) -> None:
    """Show the settings of a group on a topic, and how it stands on each queue."""
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
            ("start", spec.start.value),
            ("retry", write_retry(spec.policy)),
            ("lease", write_duration(spec.lease_us)),
            ("window", spec.window),
            ("members", ", ".join(info.members)),
        ]
    )
    click.echo()
    output.table(
        ("queue", "floor", "cursor", "end", "lag", "ready", "leased", "retrying", "dead"),
        [
            (at, one.floor, one.cursor, one.end, one.lag, one.ready, one.leased, one.waiting,
             one.dead)
            for at, one in enumerate(info.queues)
        ],
    )  # fmt: skip


@group.command("set")
@topic_argument()
@group_argument()
@click.option("--tags", metavar="FILTER", help="Only these; '' for every message.")
@click.option(
    "--lease",
    type=POSITIVE_DURATION,
    metavar="DURATION",
    help="How long a consumer that says nothing keeps a message: 100ms to 1d.",
)
@click.option("--window", type=COUNT, help="Most messages of a queue that are leased at one time.")
@click.option("--retry/--no-retry", default=None, help="Whether failed messages come again.")
@click.option("--retry-first", type=DURATION, metavar="DURATION", help="Delay of the first retry.")
@click.option("--retry-factor", type=float, help="Each delay is so many times the one before.")
@click.option("--retry-cap", type=DURATION, metavar="DURATION", help="Longest delay.")
@click.option("--retry-jitter", type=float, help="Random share of each delay: 0.2 is 20 % around.")
@click.option("--retry-attempts", type=COUNT, help="Attempts in all.")
@click.option("--exhausted", type=_EXHAUSTED, help="What becomes of it after the last attempt.")
@unchangeable(
    "--mode",
    "the mode of a group cannot be changed: make another group with `ternmq group create --mode`, "
    "or delete this one and make it anew",
)
@unchangeable(
    "--start",
    "the start is where a new group begins, and cannot be changed: `ternmq group reset` sets where "
    "this one goes on",
)
@administers
async def set_(
    client: AdminClient,
    topic: str,
    group: str,
    tags: str | None,
    lease: timedelta | None,
    window: int | None,
    **policy: Any,
) -> None:
    """Change settings of a group on a topic; those that are not named stay."""
    own = given(tags=tags, lease=lease, window=window)
    changes = _policy(**policy)
    if not own and not changes:
        raise click.UsageError("say what to change", click.get_current_context())
    off = False
    if changes:
        now = RetryPolicy.of((await client.admin.group(topic, group)).spec.retry)
        own["retry"] = changed = dataclasses.replace(now, **changes)
        off = not changed.enabled and bool(_OF_RETRIES & changes.keys())
    await client.admin.change_group(topic, group, **own)
    output.note(f"changed group {group} on {topic}" + (f"; {_RETRY_IS_OFF}" if off else ""))


_OF_RETRIES: Final = {"first", "factor", "cap", "jitter", "attempts"}
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
    )
    useless = [one for one in changes if retry is False and one in _OF_RETRIES]
    if useless:
        raise click.UsageError(
            f"--retry-{useless[0]} says how failed messages come again, and --no-retry that they "
            "do not: give one of them",
            click.get_current_context(),
        )
    return changes


@group.command()
@topic_argument()
@group_argument()
@administers
async def pause(client: AdminClient, topic: str, group: str) -> None:
    """Hand out no more messages to a group until it is resumed."""
    await client.admin.pause_group(topic, group)
    output.note(f"paused group {group} on {topic}; `ternmq group resume {topic} {group}` ends it")


@group.command()
@topic_argument()
@group_argument()
@administers
async def resume(client: AdminClient, topic: str, group: str) -> None:
    """Hand out messages to a group again."""
    await client.admin.resume_group(topic, group)
    output.note(f"resumed group {group} on {topic}")


@group.command()
@topic_argument()
@group_argument()
@yes_option
@administers
async def delete(client: AdminClient, topic: str, group: str, yes: bool) -> None:
    """Let a group no longer consume a topic; what it was owed is forgotten.

    Consumers that run, or are started again, make the group anew. It then begins with the oldest
    message that is kept, unless they state another start: stop them first.
    """
    info = await client.admin.group(topic, group)
    if info.members:
        consume = f"{counted(len(info.members), 'member')} of group {group} "
        consume += verb(len(info.members), "consumes", "consume")
        output.note(
            f"{consume} {topic} now: a consumer that runs on, or is started again, makes the group "
            "anew, from the oldest message kept unless it states start='latest'"
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


def plain(info: GroupInfo) -> dict[str, object]:
    """Return a group in the form of the JSON output."""
    spec = info.spec
    return {
        "topic": info.topic,
        "group": info.group,
        "mode": spec.mode.value,
        "tags": spec.tags,
        "start": spec.start.value,
        "paused": spec.paused,
        "lease_s": spec.lease_us / 1e6,
        "window": spec.window,
        "retry": _plain_policy(spec.policy),
        "members": info.members,
        "queues": [
            {
                "queue": at,
                "floor": one.floor,
                "cursor": one.cursor,
                "end": one.end,
                "lag": one.lag,
                "leased": one.leased,
                "ready": one.ready,
                "waiting": one.waiting,
                "retrying": one.waiting,
                "dead": one.dead,
            }
            for at, one in enumerate(info.queues)
        ],
    }


def _plain_policy(policy: specs.RetryPolicy) -> dict[str, object]:
    return {
        "enabled": policy.enabled,
        "first_s": policy.first_us / 1e6,
        "factor": policy.factor,
        "cap_s": policy.cap_us / 1e6,
        "jitter": policy.jitter,
        "attempts": policy.attempts,
        "exhausted": policy.exhausted.value,
    }
