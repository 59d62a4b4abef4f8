"""Options that select failed messages: by time, attempts, key, id, and state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.reach.connection import confirm
from ternmq.cli.reach.parameters import COUNT, WHEN, Real, check_span
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.client.admin.failedquery import FailedQuery
from ternmq.model.words import counted

if TYPE_CHECKING:  # imports the client that moves messages, which commands of groups do not need
    from ternmq.client.client import Client

WAYS: Final = "a selection (--since, --until, --attempts, --key, --id)"
WAYS_WAITING: Final = "a selection (--since, --until, --attempts, --key, --id, --state)"


def ways(*, dead: bool) -> str:
    """Return the names of the options, for an error."""
    return WAYS if dead else WAYS_WAITING


def query_options(*, dead: bool) -> Callable[[Any], Any]:
    """Return a decorator that adds the options; the command gets ``query``, None without any.

    Args:
        dead: Whether the command is about dead letters; otherwise about those that wait.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def command(
            since: datetime | None,
            until: datetime | None,
            attempts: int | None,
            key: str | None,
            id_: str | None,
            state: str | None = None,
            **others: Any,
        ) -> Any:
            check_span(since, until)
            given = (since, until, attempts, key, id_, state)
            if key is not None and id_ is not None:
                raise click.UsageError(
                    "give only one of --key and --id", click.get_current_context()
                )
            states: Any = ("dead",) if dead else ("waiting", "held") if state is None else (state,)
            query = FailedQuery(
                states=states,
                since=since,
                until=until,
                attempts=attempts or 0,
                key=key,
                id=id_,
            )
            selects = any(one is not None for one in given)
            return function(query=query if selects else None, **others)

        options = [
            click.option(
                "--since",
                type=WHEN,
                metavar="TIME",
                help="Only messages whose last failure was at or after this time: 10m (ago), "
                "14:30, 2026-01-31T14:30Z.",
            ),
            click.option(
                "--until",
                type=WHEN,
                metavar="TIME",
                help="Only messages whose last failure was before this time.",
            ),
            click.option(
                "--attempts", type=COUNT, help="Only messages with at least this many attempts."
            ),
            click.option("--key", metavar="KEY", help="Only messages with this key."),
            click.option(
                "--id",
                "id_",
                metavar="ID",
                help="Only the message with this id: from its receipt, or the sender's own.",
            ),
        ]
        if not dead:
            options.append(
                click.option(
                    "--state",
                    type=click.Choice(["waiting", "held"]),
                    help="Only messages that wait for a retry, or only messages that are held.",
                )
            )
        made: Any = command
        for option in reversed(options):
            made = option(made)
        return made

    return decorate


rate_option = click.option(
    "--rate",
    type=Real(min=0, min_open=True),
    metavar="NUMBER",
    help="With --all, or with options that select messages: maximum number of messages per second. "
    "Default: no limit.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would happen.")


def whole_query(*, dead: bool) -> FailedQuery:
    """Return a query for all dead letters, or all that wait or are held."""
    return FailedQuery(states=["dead"] if dead else ["waiting", "held"])


async def agreed(
    client: Client,
    topic: str,
    group: str,
    query: FailedQuery,
    queue: int | None,
    question: str,
    what: str,
    *,
    yes: bool,
    as_json: bool,
) -> bool:
    """Ask before something is done to what a query selects; return whether there is any.

    Args:
        client: A connected client.
        topic: The topic.
        group: The group.
        query: The query.
        queue: Only this queue.
        question: What to ask; ``{}`` stands for the number of messages.
        what: What the messages are called.
        yes: Whether the user agreed already.
        as_json: Whether the output is JSON, which asks nothing.

    Raises:
        Failed: The user did not agree; nothing was changed.
    """
    if yes:
        return True
    total = (await client.deadletters.count(topic, group, query, queue=queue)).total
    if not total:
        return False
    if as_json:
        raise Failed("nothing was done: --json does not prompt: add --yes or --dry-run")
    confirm(question.replace("{}", counted(total, what)), yes=False)
    return True


def told_outcomes(rows: Sequence[Any], done: str, otherwise: str) -> list[dict[str, object]]:
    """Return outcomes in the form of the JSON output."""
    return [
        {
            "queue": one.queue,
            "offset": one.offset,
            "outcome": done if one.done else otherwise,
        }
        for one in rows
    ]


def skipped_note(rows: Sequence[Any]) -> None:
    """Say how many messages were selected, and were left alone when it was their turn."""
    left = sum([not one.done for one in rows])
    if left:
        output.note(f"{counted(left, 'message')} did not match any more, and stayed as they were")
