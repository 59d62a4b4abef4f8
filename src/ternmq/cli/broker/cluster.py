"""``ternmq cluster``: a broker group, as its coordinator knows it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import click
import msgspec
from click.shell_completion import CompletionItem

from ternmq.cli.broker import cluster_view
from ternmq.cli.broker.cluster_dev import dev
from ternmq.cli.broker.cluster_orders import promote, switch
from ternmq.cli.broker.cluster_restore import init, restore
from ternmq.cli.broker.cluster_view import View
from ternmq.cli.commands import Group
from ternmq.cli.reach.coordinators import Cluster, asks_coordinator, changed, known
from ternmq.cli.reach.parameters import POSITIVE_DURATION
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.cli.terminal.live import KEYS, Screen, Seen, every, watch
from ternmq.cli.terminal.problems import near
from ternmq.client.forms import values
from ternmq.cluster.coordination.wishes import Copying, Failover, GroupSettings, problem_of
from ternmq.model.types import DAY_US
from ternmq.model.units import read_duration, write_duration

_INTERVAL: Final = timedelta(seconds=1)
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "failover": tuple(one.value for one in Failover),
    "copy": tuple(one.value for one in Copying),
    "read_only_behind": (),
    "lease": (),
    "silent": (),
    "copies": (),
}
"""Name of a setting -> its values; empty: a number or a duration."""
_WORDS: Final = frozenset(name for name, values in _CHOICES.items() if values)
_MOST_US: Final = DAY_US
_DIGITS: Final = 10


@click.group(cls=Group)
def cluster() -> None:
    """Show and change broker groups: copies, primary, failover.

    These commands connect to the coordinator of the cluster, not to a broker, so they also work
    while there is no primary.
    """


@cluster.command()
@click.option("-w", "--watch", "watches", is_flag=True, help="Update the output until q or Ctrl-C.")
@click.option(
    "--interval",
    type=POSITIVE_DURATION,
    metavar="DURATION",
    help="Time between updates, with --watch. Default: 1s.",
)
@output.json_option
@asks_coordinator
async def status(
    cluster: Cluster, watches: bool, interval: timedelta | None, as_json: bool
) -> None:
    """Show the copies of a broker group, its primary, its settings, and the brokers that run.

    The first line says whether all is well, or what is wrong. `member` lists the primary and the
    followers whose copies count: answers wait for them, so each of them has all messages that were
    answered. `committed` shows the position up to which all members have the journal, as the
    primary last reported it. `ternmq broker status` shows how far each copy is behind.
    """
    if interval is not None and not watches:
        raise click.UsageError("--interval is for --watch", click.get_current_context())
    between = (interval or _INTERVAL).total_seconds()
    with Screen(watches and not as_json) as screen:
        if screen.on:
            await _live(cluster, screen, between)
            return
        said = ""
        async for _ in every(between if watches else None):
            view = await cluster_view.look(cluster)
            if as_json and watches:
                output.json_line(cluster_view.document(view))
            elif as_json:
                output.document(cluster_view.document(view))
            elif watches:
                line = f"epoch {view.record.epoch}: {cluster_view.headline(view)}"
                if line != said:
                    output.line(f"{values.iso(view.at)}  {line}")
                said = line
            else:
                output.line(cluster_view.headline(view))
                output.line("")
                output.details(cluster_view.lines(view))


async def _live(cluster: Cluster, screen: Screen, seconds: float) -> None:
    from rich.text import Text

    async def look() -> tuple[View | None, str]:
        try:
            return await cluster_view.look(cluster), ""
        except Failed as error:
            return None, str(error)

    last: list[View] = []

    def draw(seen: Seen[tuple[View | None, str]], _: int) -> None:
        view, why = seen.view
        if view is not None:
            last[:] = [view]
        shown = list(_text(last[0])) if last else []
        now = values.iso(cluster_view.clock()) or ""
        screen.draw(Text("\n".join([*shown, "", f"{now}  {KEYS}", *([why] if why else [])])))

    await watch(look, seconds, draw)


def _text(view: View) -> Sequence[str]:
    rows = [(name, output.shown(value)) for name, value in cluster_view.lines(view)]
    width = max(len(name) for name, _ in rows)
    return [cluster_view.headline(view), "", *[f"{name:{width}}  {text}" for name, text in rows]]


def _complete(_context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    every_one = [
        f"{name}={value}" for name, values in _CHOICES.items() for value in values or ("",)
    ]
    return [CompletionItem(one) for one in every_one if one.startswith(begun)]


@cluster.command("set")
@click.argument(
    "settings", metavar="NAME=VALUE...", nargs=-1, required=True, shell_complete=_complete
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@output.json_option
@asks_coordinator
async def set_(cluster: Cluster, settings: Sequence[str], dry_run: bool, as_json: bool) -> None:
    """Change the settings of a broker group. The brokers apply them within a second.

    `failover=automatic`: if the primary is lost, a member takes over. `failover=reads`: a member
    takes over for deliveries and acks, and accepts new messages when two copies exist again.
    `failover=operator`: no member takes over until you run `ternmq cluster promote`.
    `copy=asynchronous`: answers do not wait for copies. So if the primary's machine is lost,
    messages are lost, and no other broker takes over by itself. `read_only_behind=30s`: new
    messages are refused while every copy is further behind than this; `off`: never. `lease=3s`: a
    member takes over this long after the last word of the primary. `silent=2s`: a follower that is
    silent for this long is removed from the members, and sends go on; at most four fifths of the
    lease. `copies=2`: new messages are refused while fewer copies count; the copy of the primary is
    one of them.
    """
    given = _read(settings)
    await cluster.record()
    before = known(await cluster.group.settings())
    after = msgspec.structs.replace(before, **given)
    if problem := problem_of(after):
        raise click.UsageError(problem, click.get_current_context())
    if after != before and not dry_run:
        changed(await cluster.group.put_settings(after))
    if as_json:
        output.document(
            {
                "done": after != before and not dry_run,
                "before": cluster_view.settings_document(before),
                "after": cluster_view.settings_document(after),
            }
        )
        return
    differences = [
        f"{name}: {_shown(before, name)} -> {_shown(after, name)}"
        for name in _CHOICES
        if _shown(before, name) != _shown(after, name)
    ]
    if not differences:
        output.note(f"broker group {cluster.name} has these settings already")
    for one in differences:
        output.line(one)
    if differences and dry_run:
        output.note("nothing was changed: --dry-run")


def _read(texts: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the settings that arguments such as ``copy=synchronous`` give.

    Raises:
        click.UsageError: One of them is no setting, or not a value of it.
    """
    found: dict[str, Any] = {}
    context = click.get_current_context()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{text!r} is not NAME=VALUE", context)
        if name not in _CHOICES:
            like = near(name, _CHOICES) or f": there are {', '.join(_CHOICES)}"
            raise click.UsageError(f"there is no setting {name!r}{like}", context)
        if name == "failover":
            found[name] = Failover(_one_of(name, value))
        elif name == "copy":
            found[name] = Copying(_one_of(name, value))
        elif name == "copies":
            found[name] = _count(name, value)
        else:
            found[f"{name}_us"] = _duration(name, value)
    return found


def _one_of(name: str, value: str) -> str:
    choices = _CHOICES[name]
    if value not in choices:
        like = near(value, choices) or f": use {', '.join(choices)}"
        raise click.UsageError(f"{name} cannot be {value!r}{like}", click.get_current_context())
    return value


def _count(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) < _DIGITS):
        text = f"{name} cannot be {value!r}: it is not a number"
        raise click.UsageError(text, click.get_current_context())
    return int(value)


def _duration(name: str, value: str) -> int:
    if value == "off" and name == "read_only_behind":
        return 0
    try:
        us = read_duration(value)
    except (ValueError, OverflowError) as error:
        text = f"{name} cannot be {value!r}: it {error}"
        raise click.UsageError(text, click.get_current_context()) from error
    if us > _MOST_US:
        text = f"{name} cannot be {value!r}: it is more than a day"
        raise click.UsageError(text, click.get_current_context())
    return us


def _shown(settings: GroupSettings, name: str) -> str:
    if name == "read_only_behind" and not settings.read_only_behind_us:
        return "off"
    if name == "copies":
        return str(settings.copies)
    if name in _WORDS:
        return str(getattr(settings, name).value)
    return write_duration(getattr(settings, f"{name}_us"))


cluster.add_command(init)
cluster.add_command(switch)
cluster.add_command(promote)
cluster.add_command(restore)
cluster.add_command(dev)
