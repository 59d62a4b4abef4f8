"""Transactions with check-back and their producer groups, as commands show and change them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.connection import Administers, administers, confirm
from ternmq.cli.reach.parameters import DURATION, NAME, Real, Whole, given
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import near, not_found
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.forms import values
from ternmq.model.errors import UnknownProducerGroup
from ternmq.model.words import counted
from ternmq.wire.control import CheckedTransaction, ProducerGroupInfo

_STATES: Final = {"rolled-back": "rolled back"}
_THEN: Final = ("park", "roll-back", "commit")


def print_transactions(
    found: Sequence[CheckedTransaction],
    nothing: str = "no transaction with check-back is undecided",
) -> None:
    """Print undecided transactions as a table; without any, print ``nothing``."""
    output.table(
        ("id", "group", "query id", "state", "rows", "opened", "asked", "next question", "app",
         "topics"),
        [
            (
                one.id,
                one.group,
                one.query_id,
                _state(one),
                one.rows,
                values.iso(one.time),
                one.attempt,
                values.iso(one.next),
                one.app,
                " ".join(one.topics),
            )
            for one in found
        ],
        nothing,
        spare=("topics", "app", "asked", "opened", "rows"),
    )  # fmt: skip


def print_transaction(one: CheckedTransaction) -> None:
    """Print everything that is known of a transaction, one property a line."""
    decided = one.state in {"committed", "rolled-back"}
    pairs: list[tuple[str, output.Cell]] = [("id", one.id), ("state", _state(one))]
    if one.why:
        pairs.append(("decided by", one.why))
    pairs += [("producer group", one.group), ("query id", one.query_id), ("app", one.app)]
    if decided:
        pairs += [("decided at", values.iso(one.time)), ("messages", one.rows)]
    else:
        pairs += [
            ("opened at", values.iso(one.time)),
            ("questions asked", one.attempt),
            ("next question", values.iso(one.next)),
            ("topics", " ".join(one.topics)),
            ("messages", one.rows),
            ("scheduled messages", one.due_rows),
            ("size", output.size(one.bytes)),
            ("messages it settles", one.settled_rows),
            ("offsets it commits", one.moves),
        ]
    output.details(pairs)


def _state(one: CheckedTransaction) -> str:
    return _STATES.get(one.state, one.state)


def plain(one: CheckedTransaction) -> dict[str, object]:
    """Return a transaction in the form of the JSON output."""
    decided = one.state in {"committed", "rolled-back"}
    return {
        "id": one.id,
        "state": one.state,
        "decided_by": one.why or None,
        "group": one.group,
        "query_id": one.query_id,
        "app": one.app,
        "opened_at": None if decided else one.time,
        "decided_at": one.time if decided else None,
        "asked": one.attempt,
        "next_question_at": one.next,
        "topics": one.topics,
        "rows": one.rows,
        "scheduled_rows": one.due_rows,
        "bytes": one.bytes,
        "settled_rows": one.settled_rows,
        "offsets": one.moves,
    }


# -- producer groups -------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("group", type=NAME, required=False)
@click.option(
    "--first",
    type=DURATION,
    metavar="DURATION",
    help="Time from the opening of a transaction to the first question, 1s to 1h. New groups: 60s.",
)
@click.option(
    "--factor",
    type=Real(min=1, max=100),
    help="Factor by which the pause between two questions grows each time. New groups: 1.5.",
)
@click.option(
    "--cap",
    type=DURATION,
    metavar="DURATION",
    help="Longest pause between two questions, at least --first and at most 1d. New groups: 10m.",
)
@click.option(
    "--jitter",
    type=Real(min=0, max=1, max_open=True),
    help="Random variation of each pause, 0 to below 1: 0.2 is up to 20 % more or less. New "
    "groups: 0.1.",
)
@click.option(
    "--attempts",
    type=Whole(min=1, max=10_000),
    help="Maximum number of questions about a transaction. New groups: 15.",
)
@click.option(
    "--give-up",
    type=DURATION,
    metavar="DURATION",
    help="Time from the opening of a transaction until no more questions are asked, at least "
    "--first. New groups: 1d.",
)
@click.option(
    "--then",
    type=click.Choice(_THEN),
    help="What happens to a transaction after the last question: park leaves it undecided, with an "
    "alarm, until you resolve it. New groups: park.",
)
@click.option(
    "--without-checker",
    type=click.Choice(("allow", "refuse")),
    help="Whether transactions may be opened while no checker is connected. New groups: refuse.",
)
@click.option(
    "--owner", metavar="APP", help="The app that a new group belongs to. Default: your own."
)
@click.option(
    "--delete",
    is_flag=True,
    help="Delete the group: any app may use its name again. Refused while it has undecided"
    " transactions.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@output.json_option
@administers
async def policy(
    client: AdminClient,
    group: str | None,
    without_checker: str | None,
    owner: str | None,
    delete: bool,
    yes: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Show or change how undecided transactions of a producer group are checked.

    Without GROUP, list all producer groups. Without options, show the group. With options, change
    these settings; the group is created if it does not exist. Undecided transactions follow the new
    settings from their next question on.
    """
    changes = given(**settings, app=owner)
    if without_checker is not None:
        changes["without_checker"] = without_checker == "allow"
    if group is None:
        if changes or delete:
            raise Failed("name the producer group to change", ExitCode.USAGE)
        _print_groups(await client.admin.producer_groups(), as_json=as_json)
        return
    if delete and changes:
        raise Failed("--delete cannot be combined with settings", ExitCode.USAGE)
    if delete:
        await known_group(client, group)
        confirm(f"delete producer group {group}?", yes=yes)
        await client.admin.delete_producer_group(group)
        output.note(f"deleted producer group {group}")
        return
    if not changes:
        _print_group(await known_group(client, group), as_json=as_json)
        return
    new = all(one.group != group for one in await client.admin.producer_groups())
    await client.admin.put_producer_group(group, **changes)
    info = await known_group(client, group)
    if new and owner is None and info.app:
        output.note(
            f"created producer group {group}: only app {info.app} can use it; --owner names another"
        )
    _print_group(info, as_json=as_json)


async def known_group(client: Administers, group: str) -> ProducerGroupInfo:
    """Return a producer group.

    Raises:
        Failed: There is none of this name.
    """
    groups = await client.admin.producer_groups()
    found = next((one for one in groups if one.group == group), None)
    if found is None:
        names = near(group, [one.group for one in groups])
        raise not_found(
            f"there is no producer group {group!r}{names} ({UnknownProducerGroup.hint})"
        )
    return found


def _print_groups(groups: list[ProducerGroupInfo], *, as_json: bool) -> None:
    if as_json:
        output.document([_plain_group(one) for one in groups])
        return
    output.table(
        ("group", "app", "checkers", "undecided", "first", "attempts", "give up", "then"),
        [
            (
                one.group,
                one.app,
                one.checkers,
                one.undecided,
                _span(one.first_us),
                one.attempts,
                _span(one.give_up_us),
                one.then,
            )
            for one in groups
        ],
        "no producer groups: a transaction or a checker creates one",
        spare=("give up", "attempts", "first"),
    )


def _print_group(one: ProducerGroupInfo, *, as_json: bool) -> None:
    if as_json:
        output.document(_plain_group(one))
        return
    output.details(
        [
            ("producer group", one.group),
            ("app", one.app or "none yet"),
            ("checkers connected", one.checkers),
            ("undecided", counted(one.undecided, "transaction")),
            ("first question after", _span(one.first_us)),
            ("factor", f"{one.factor:g}"),
            ("longest pause", _span(one.cap_us)),
            ("jitter", f"{one.jitter:g}"),
            ("attempts", one.attempts),
            ("give up after", _span(one.give_up_us)),
            ("then", one.then),
            ("without a checker", "allow" if one.without_checker else "refuse"),
        ]
    )


def _span(time_us: int) -> str:
    return output.span(time_us / 1e6)


def _plain_group(one: ProducerGroupInfo) -> dict[str, object]:
    return {
        "group": one.group,
        "app": one.app or None,
        "checkers": one.checkers,
        "undecided": one.undecided,
        "first_s": timedelta(microseconds=one.first_us),
        "factor": one.factor,
        "cap_s": timedelta(microseconds=one.cap_us),
        "jitter": one.jitter,
        "attempts": one.attempts,
        "give_up_s": timedelta(microseconds=one.give_up_us),
        "then": one.then,
        "without_checker": one.without_checker,
    }
