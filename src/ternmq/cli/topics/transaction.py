"""``ternmq transaction``: undecided transactions, and their writers."""

from __future__ import annotations

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import asks_broker, confirm, yes_option
from ternmq.cli.reach.parameters import COUNT, OFFSET
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import near, not_found
from ternmq.client.client import Client
from ternmq.model.words import counted
from ternmq.wire.control import DecisionInfo, TransactionInfo, Transactions, WriterInfo

_MOST = 10_000


@click.group(cls=Group)
def transaction() -> None:
    """List undecided transactions and their writers, and roll transactions back."""


@transaction.command("list")
@click.option("--writer", metavar="WRITER", help="Only transactions of this writer.")
@click.option(
    "-n",
    "--limit",
    type=COUNT,
    default=100,
    help="Maximum number of transactions, and of writers. Default: 100.",
)
@output.json_option
@asks_broker
async def list_(client: Client, writer: str | None, limit: int, as_json: bool) -> None:
    """List undecided transactions, oldest first, and the writers with their latest decision."""
    found = await client.admin.transactions(writer or "", limit=min(limit, _MOST))
    if writer is not None and not found.writers:
        raise await _no_writer(client, writer)
    if as_json:
        output.document(
            {
                "undecided": [plain(one) for one in found.undecided],
                "writers": [plain_writer(one) for one in found.writers],
                "more": found.more,
            }
        )
        return
    output.table(
        ("writer", "batch", "app", "rows", "size", "opened", "ends", "topics"),
        [
            (
                one.writer,
                one.batch_id,
                one.app,
                one.rows,
                output.size(one.bytes),
                output.iso(output.of_us(one.opened_us)),
                output.iso(output.of_us(one.expires_us)),
                " ".join(one.topics),
            )
            for one in found.undecided
        ],
        "nothing is undecided",
    )
    click.echo()
    output.table(
        ("writer", "app", "heard of", "batch", "decided", "rows", "decision"),
        [(one.writer, one.app, output.iso(output.of_us(one.last_us)), *_cells(one.newest))
         for one in found.writers],
        "no writers",
    )  # fmt: skip
    if found.more:
        output.note("there are more: say --limit, or --writer")


@transaction.command()
@click.argument("writer")
@click.argument("batch", type=OFFSET)
@click.option(
    "--rollback",
    is_flag=True,
    help="Required: roll the transaction back. Its rows never become messages.",
)
@yes_option
@asks_broker
async def resolve(client: Client, writer: str, batch: int, rollback: bool, yes: bool) -> None:
    """Roll back an undecided transaction whose writer does not come back.

    Only the writer can commit it, because only the writer knows whether it is complete. The writer
    may prepare it again, under the same name.
    """
    if not rollback:
        raise Failed("add --rollback: only its writer can commit it", ExitCode.USAGE)
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
        return Failed(f"batch {batch} of writer {writer.writer!r} is committed, which is final")
    known = ", ".join([str(one.batch_id) for one in found.undecided[:10]]) or "none"
    return not_found(
        f"batch {batch} of writer {writer.writer!r} is not undecided: it was decided before, or "
        f"never prepared (undecided: {known})"
    )


def _cells(newest: DecisionInfo | None) -> tuple[output.Cell, ...]:
    if newest is None:
        return (None, None, None, None)
    decided = output.iso(output.of_us(newest.decided_us))
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
        "opened_at": output.of_us(one.opened_us),
        "ends_at": output.of_us(one.expires_us),
    }


def plain_writer(one: WriterInfo) -> dict[str, object]:
    """Return a writer in the form of the JSON output."""
    newest = one.newest
    return {
        "writer": one.writer,
        "app": one.app,
        "heard_of_at": output.of_us(one.last_us),
        "decisions": one.decisions,
        "highest_committed": one.highest,
        "newest": None
        if newest is None
        else {
            "batch": newest.batch_id,
            "decision": _outcome(newest),
            "rows": newest.rows,
            "decided_at": output.of_us(newest.decided_us),
        },
    }
