"""``ternmq transaction``: undecided transactions, their writers, and producer groups."""

from __future__ import annotations

import contextlib

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import administers, asks_broker, confirm, yes_option
from ternmq.cli.reach.parameters import COUNT, NAME, OFFSET
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import near, not_found
from ternmq.cli.topics import checked
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.client import Client
from ternmq.client.forms import values
from ternmq.model.errors import Forbidden
from ternmq.model.words import counted
from ternmq.wire.control import (
    CheckedTransaction,
    DecisionInfo,
    TransactionInfo,
    Transactions,
    WriterInfo,
)

_MOST = 10_000


@click.group(cls=Group)
def transaction() -> None:
    """List and decide undecided transactions, and set how they are checked.

    A transaction with check-back (`client.transaction`) belongs to a producer group, and has an id
    such as t-1f3: the broker asks the checkers of the group about it. A named transaction
    (`client.prepare`, Spark) has a writer and a batch id as its name.
    """


@transaction.command("list")
@click.option("--group", type=NAME, help="Only transactions of this producer group.")
@click.option("--query-id", metavar="ID", help="Only transactions with this query id.")
@click.option("--writer", metavar="WRITER", help="Only transactions of this writer.")
@click.option(
    "-n",
    "--limit",
    type=COUNT,
    default=100,
    help="Maximum number of transactions of each kind, and of writers. Default: 100.",
)
@output.json_option
@asks_broker
async def list_(
    client: Client,
    group: str | None,
    query_id: str | None,
    writer: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List undecided transactions, oldest first, and the writers with their latest decision."""
    of_groups = group is not None or query_id is not None
    if query_id == "":
        raise Failed("--query-id is empty: leave it out for all of them", ExitCode.USAGE)
    if of_groups and writer is not None:
        raise Failed("a transaction has a producer group or a writer, not both", ExitCode.USAGE)
    asked: list[CheckedTransaction] = []
    if writer is None:
        asked = await client.admin.checked_transactions(
            group or "", query_id=query_id or "", limit=limit + 1
        )
    more = len(asked) > limit
    asked = asked[:limit]
    if of_groups:
        if group is not None and not asked:
            await _check_group(client, group)
        if as_json:
            output.document({"checked": [checked.plain(one) for one in asked], "more": more})
        else:
            checked.print_transactions(asked, _none_of(group, query_id))
        if more and not as_json:
            output.note("there are more: increase --limit")
        return
    found = await client.admin.transactions(writer or "", limit=min(limit, _MOST))
    if writer is not None and not found.writers:
        raise await _no_writer(client, writer)
    if as_json:
        output.document(
            {
                "checked": [checked.plain(one) for one in asked],
                "undecided": [plain(one) for one in found.undecided],
                "writers": [plain_writer(one) for one in found.writers],
                "more": found.more or more,
            }
        )
        return
    _print_all(asked, found)
    if found.more or more:
        output.note("there are more: increase --limit, or give --group or --writer")


async def _check_group(client: Client, group: str) -> None:
    """Check that a producer group exists, if the app may know the groups.

    Raises:
        Failed: It does not exist.
    """
    with contextlib.suppress(Forbidden):
        await checked.known_group(client, group)


def _none_of(group: str | None, query_id: str | None) -> str:
    """Return the text for an empty list of the transactions of a group or with a query id."""
    whose = "" if group is None else f" of producer group {group}"
    which = "" if query_id is None else f" with query id {query_id}"
    return f"no undecided transaction{whose}{which}"


def _print_all(asked: list[CheckedTransaction], found: Transactions) -> None:
    """Print a table of each kind of which there are some, with empty lines between them."""
    if asked:
        checked.print_transactions(asked)
    if found.undecided:
        if asked:
            click.echo()
        _print_undecided(found)
    if found.writers:
        if asked or found.undecided:
            click.echo()
        _print_writers(found)
    if not (asked or found.undecided):
        output.note("no transaction is undecided")


def _print_undecided(found: Transactions) -> None:
    output.table(
        ("writer", "batch", "app", "rows", "size", "opened", "ends", "topics"),
        [
            (
                one.writer,
                one.batch_id,
                one.app,
                one.rows,
                output.size(one.bytes),
                values.iso(values.of_us(one.opened_us)),
                values.iso(values.of_us(one.expires_us)),
                " ".join(one.topics),
            )
            for one in found.undecided
        ],
        spare=("opened", "app", "size", "ends"),
    )


def _print_writers(found: Transactions) -> None:
    output.table(
        ("writer", "app", "last active", "batch", "decided", "rows", "decision"),
        [(one.writer, one.app, values.iso(values.of_us(one.last_us)), *_cells(one.newest))
         for one in found.writers],
        spare=("app", "rows", "last active", "decided"),
    )  # fmt: skip


@transaction.command()
@click.argument("id_", metavar="ID")
@output.json_option
@administers
async def show(client: AdminClient, id_: str, as_json: bool) -> None:
    """Show a transaction, decided or not.

    A decision is known as long as its record is in the journal.
    """
    found = await client.admin.transaction(id_)
    if as_json:
        output.document(checked.plain(found))
    else:
        checked.print_transaction(found)


@transaction.command()
@click.argument("name", metavar="ID|WRITER")
@click.argument("batch", type=OFFSET, required=False)
@click.option("--commit", is_flag=True, help="Commit the transaction: its messages are delivered.")
@click.option(
    "--rollback",
    "--roll-back",
    is_flag=True,
    help="Roll the transaction back: its messages are never delivered.",
)
@yes_option
@asks_broker
async def resolve(
    client: Client, name: str, batch: int | None, commit: bool, rollback: bool, yes: bool
) -> None:
    """Commit or roll back an undecided transaction, in place of its client.

    ID is the id of a transaction with check-back, such as t-1f3. Find out first whether the work
    that belongs to it was done: `transaction show` prints its query id.

    WRITER and BATCH are the name of a named transaction. It can only be rolled back, because only
    the writer knows whether it is complete. The writer may prepare it again, under the same name.
    """
    if batch is not None:
        if commit or not rollback:
            raise Failed("add --rollback: only its writer can commit it", ExitCode.USAGE)
        await _resolve_of_writer(client, name, batch, yes=yes)
        return
    if commit == rollback:
        raise Failed("add one of --commit and --rollback", ExitCode.USAGE)
    found = await client.admin.transaction(name)
    done = "committed" if commit else "rolled back"
    if found.state in {"undecided", "parked"}:
        rows = f"{counted(found.rows, 'message')} for {', '.join(found.topics) or 'no topic'}"
        what = f"{found.id} of {found.group} ({rows})"
        confirm(f"{'commit' if commit else 'roll back'} transaction {what}?", yes=yes)
    decided = await client.admin.resolve_transaction(name, commit=commit)
    output.note(f"{done} transaction {name}" if decided else f"{name} is {done} already")


@transaction.command()
@click.argument("id_", metavar="ID")
@administers
async def check(client: AdminClient, id_: str) -> None:
    """Ask the checkers about an undecided transaction again, at once.

    The questions are counted from 1 again. Use this, for example, for a parked transaction, after
    its checker was repaired.
    """
    await client.admin.check_transaction(id_)
    output.note(f"the checkers are asked about {id_} again")


transaction.add_command(checked.policy)


async def _resolve_of_writer(client: Client, writer: str, batch: int, *, yes: bool) -> None:
    found = await client.admin.transactions(writer, limit=_MOST)
    if not writer or not found.writers:
        raise await _no_writer(client, writer)
    one = next((one for one in found.undecided if one.batch_id == batch), None)
    if one is None:
        raise _not_undecided(found, batch)
    rows = f"{counted(one.rows, 'row')} for {', '.join(one.topics)}"
    confirm(f"roll back batch {batch} of writer {writer} ({rows})?", yes=yes)
    await client.abort_prepared(writer, batch)
    output.note(f"rolled back batch {batch} of writer {writer} ({rows})")


async def _no_writer(client: Client, writer: str) -> Failed:
    others = (await client.admin.transactions(limit=_MOST)).writers
    text = f"there is no writer {writer!r}{near(writer, [one.writer for one in others])}"
    return not_found(f"{text} (`ternmq transaction list` shows them)")


def _not_undecided(found: Transactions, batch: int) -> Failed:
    """Return the failure for a batch that is not undecided."""
    (writer,) = found.writers
    newest = writer.newest
    if batch == writer.highest or (newest is not None and newest.committed
                                   and newest.batch_id == batch):  # fmt: skip
        return Failed(
            f"batch {batch} of writer {writer.writer!r} is committed, and cannot be rolled back"
        )
    known = ", ".join([str(one.batch_id) for one in found.undecided[:10]]) or "none"
    return not_found(
        f"batch {batch} of writer {writer.writer!r} is not undecided: it was decided before, or "
        f"never prepared (undecided: {known})"
    )


def _cells(newest: DecisionInfo | None) -> tuple[output.Cell, ...]:
    if newest is None:
        return (None, None, None, None)
    decided = values.iso(values.of_us(newest.decided_us))
    return (newest.batch_id, decided, newest.rows, _outcome(newest))


def _outcome(decision: DecisionInfo) -> str:
    return "committed" if decision.committed else "rolled back"


def plain(one: TransactionInfo) -> dict[str, object]:
    """Return a transaction in the form of the JSON output."""
    return {
        "writer": one.writer,
        "batch": one.batch_id,
        "app": one.app,
        "topics": one.topics,
        "batches": one.batches,
        "rows": one.rows,
        "bytes": one.bytes,
        "opened_at": values.of_us(one.opened_us),
        "ends_at": values.of_us(one.expires_us),
    }


def plain_writer(one: WriterInfo) -> dict[str, object]:
    """Return a writer in the form of the JSON output."""
    newest = one.newest
    return {
        "writer": one.writer,
        "app": one.app,
        "last_active_at": values.of_us(one.last_us),
        "decisions": one.decisions,
        "highest_committed": one.highest,
        "newest": None
        if newest is None
        else {
            "batch": newest.batch_id,
            "decision": _outcome(newest),
            "rows": newest.rows,
            "decided_at": values.of_us(newest.decided_us),
        },
    }
