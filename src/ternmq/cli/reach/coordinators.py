"""How commands reach the coordinator of a cluster.

SQLAlchemy and kazoo are imported where a coordinator is opened.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from ternmq.cli.reach.connection import be_quiet, until_told
from ternmq.cli.reach.parameters import NAME
from ternmq.cli.terminal.exits import ExitCode, Failed, Interrupted
from ternmq.cli.terminal.problems import near, not_found, one_line
from ternmq.cluster.coordination.port import Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import BadRecord

if TYPE_CHECKING:
    from ternmq.cluster.coordination.group import Group, Presence
    from ternmq.cluster.coordination.port import Coordinator, Outcome
    from ternmq.cluster.coordination.record import Leadership

CLUSTER: Final = "TERNMQ_CLUSTER"
BROKER_GROUP: Final = "TERNMQ_BROKER_GROUP"
MAIN: Final = "main"
WRITER: Final = "operator"
"""Name of the writer of what commands change."""
_DEADLINE_S: Final = 5.0
_COMPLETION_S: Final = 1.0
_NAMES: Final = ("cluster", "broker_group")

T = TypeVar("T")


class Cluster:
    """A coordinator, and the records of one broker group in it.

    Args:
        coordinator: The store.
        name: Name of the broker group.
        url: Of the store, with its password.
    """

    def __init__(self, coordinator: Coordinator, name: str, url: str = "") -> None:
        from ternmq.cluster.coordination.group import Group

        self.coordinator = coordinator
        self.name = name
        self.url = url
        self.group: Group = Group(coordinator, name, WRITER, secrets.randbits(63) | 1)

    async def brokers(self) -> list[Presence]:
        """Return the brokers that run, of all groups.

        Raises:
            Failed: The coordinator does not answer.
        """
        from ternmq.cluster.coordination.group import everybody

        return known(await everybody(self.coordinator))

    async def record(self) -> Leadership:
        """Return the leadership record.

        Raises:
            Failed: There is none, or the coordinator does not answer.
            BadRecord: It is not valid.
        """
        found = known(await self.group.read())
        if found is not None:
            return found
        groups = {one.group for one in await self.brokers()}
        raise not_found(
            f"the coordinator has no broker group {self.name!r}{near(self.name, groups)}; "
            "the first broker that runs with this coordinator begins it"
        )


def known(found: T | Unknown) -> T:
    """Return what the coordinator has said.

    Raises:
        Failed: It has said nothing.
    """
    if isinstance(found, Unknown):
        raise Failed(f"the coordinator does not answer: {found.why}", ExitCode.NO_BROKER)
    return found


def changed(outcome: Outcome) -> None:
    """Return if a change was made.

    Raises:
        Failed: It was not, or that is not known.
    """
    if isinstance(outcome, Swapped):
        return
    if isinstance(outcome, Refused):
        raise Failed("somebody else changed the same at this moment: try again", ExitCode.LATER)
    raise Failed(
        f"the coordinator does not answer: {outcome.why}; the change may have been made: `ternmq "
        "cluster status` shows it",
        ExitCode.UNKNOWN,
    )


def asks_coordinator(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a command of a coroutine function whose first argument is a ``Cluster``."""
    return asks_cluster(_of_a_group(function))


def begins_cluster(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Do the same for a command that may be the first to use the coordinator."""
    return asks_cluster(_of_a_group(function), begins=True)


def _of_a_group(function: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    return click.option(
        "--broker-group",
        metavar="NAME",
        type=NAME,
        help=f"Broker group; or ${BROKER_GROUP}. Default: {MAIN}.",
    )(function)


def asks_cluster(
    function: Callable[..., Coroutine[Any, Any, None]], *, begins: bool = False
) -> Callable[..., None]:
    """Do the same for a command about all broker groups of a cluster.

    Args:
        function: The work.
        begins: It may be the first to use the coordinator: a SQLite file is made.
    """

    @functools.wraps(function)
    def command(**arguments: Any) -> None:
        url, name = (arguments.pop(one, None) for one in _NAMES)
        run_with(url, name, lambda cluster: function(cluster, **arguments), begins=begins)

    made: Callable[..., None] = click.option(
        "--cluster",
        metavar="URL",
        help=f"URL of the coordinator, as in the setting `cluster`; or ${CLUSTER}, which hides "
        "a password in it from the process list.",
    )(command)
    return made


def run_with(
    url: str | None,
    name: str | None,
    work: Callable[[Cluster], Awaitable[None]],
    deadline_s: float = _DEADLINE_S,
    *,
    begins: bool = False,
) -> None:
    """Open the coordinator, work, close it.

    Raises:
        click.UsageError: No coordinator is named.
        Failed: The work failed, or the coordinator returned a record that is not valid.
        SettingsError: The URL is not one of a coordinator.
        Terminated, Interrupted, BrokenPipeError: It was ended from outside.
    """
    import asyncio

    place = url or os.environ.get(CLUSTER)
    if not place:
        raise click.UsageError(
            f"which coordinator? Give --cluster URL, or set {CLUSTER}: the same as the setting "
            "`cluster` of the brokers",
            click.get_current_context(),
        )
    if not begins:
        _check_file(place)
    be_quiet()

    async def session() -> None:
        from ternmq.cluster.coordination.opening import open_coordinator

        coordinator = await open_coordinator(place, deadline_s=deadline_s)
        try:
            await work(Cluster(coordinator, name or os.environ.get(BROKER_GROUP) or MAIN, place))
        except BadRecord as error:
            raise Failed(
                one_line(f"the coordinator returned a record that is not valid: {error}")
            ) from error
        finally:
            await coordinator.close()

    try:
        asyncio.run(until_told(session()))
    except KeyboardInterrupt:
        raise Interrupted from None


def _check_file(url: str) -> None:
    """Check that a SQLite file exists: a look must not make one."""
    head, _, path = url.partition(":///")
    if head == "sqlite" and path and not Path(path.partition("?")[0]).exists():
        raise Failed(
            f"there is no file {path}: the first broker that runs with this coordinator makes it",
            ExitCode.NOT_FOUND,
        )


def complete_brokers(
    context: click.Context, _: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the names of brokers for a shell's completion."""
    found: set[str] = set()

    async def ask(cluster: Cluster) -> None:
        record = await cluster.record()
        found.update([one.broker for one in record.members])
        found.update([one.broker for one in await cluster.brokers() if one.group == cluster.name])

    try:
        params = context.params
        run_with(params.get("cluster"), params.get("broker_group"), ask, _COMPLETION_S)
    except Exception:  # noqa: BLE001 - a shell that completes needs words, not errors
        return []
    return [CompletionItem(one) for one in sorted(found) if one.startswith(begun)]
