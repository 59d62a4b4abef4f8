"""``ternmq outbox status|list|show|resend|discard``: the rows of an outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.outbox.databases import (
    Opened,
    database_option,
    databases_option,
    each,
    opened,
    schema_option,
)
from ternmq.cli.reach.connection import confirm, yes_option
from ternmq.cli.reach.parameters import COUNT, NAME, Whole, check_one
from ternmq.cli.terminal import output
from ternmq.cli.terminal.problems import not_found
from ternmq.cli.terminal.shapes import whole
from ternmq.client.forms import values
from ternmq.client.forms.messages import plain_body
from ternmq.model.words import counted, verb

if TYPE_CHECKING:
    from ternmq.reliable.database.port import Work
    from ternmq.reliable.outbox.operating import Holder, Overview
    from ternmq.reliable.outbox.rows import Row
    from ternmq.reliable.outbox.table import Table

SEQ: Final = Whole(1, 2**63 - 1)
STATES: Final = ("sending", "held", "failed", "sent")
_SPARE: Final = ("key", "tries", "ordering key")
_MOST_NAMED: Final = 10


@click.command(cls=Command)
@databases_option
@schema_option
@output.ndjson_option
def status(urls: Sequence[str], schema: str, as_json: bool) -> None:
    """Show how many rows an outbox has in each state, and which process is its compensator.

    sending: it is sent, or waits to be sent. held: a row before it, of the same ordering key, is
    refused, or its topic does not accept messages now. failed: it was refused and is not tried
    again; see `outbox resend` and `outbox discard`. sent: it is stored at the broker, and kept for
    a while.
    """
    several = len(urls) > 1

    def show_one(url: str) -> None:
        from ternmq.reliable.outbox.operating import overview

        with opened(url, schema) as one, one.database.reading() as work:
            found = overview(one.table, work)
        if as_json:
            output.json_line(_plain_status(one.name, found))
        else:
            _print_status(one.name, found)
            if several:
                click.echo()

    each(urls, show_one, "shown", output.note)


def _plain_status(name: str, found: Overview) -> dict[str, object]:
    holder = found.holder
    return {
        "database": name,
        **{state.name.lower(): count for state, count in found.rows.items()},
        "oldest_s": None if found.oldest_ms is None else found.oldest_ms / 1000,
        "compensator": None
        if holder is None
        else {"holder": holder.name, "epoch": holder.epoch, "left_s": holder.left_ms / 1000},
    }


def _print_status(name: str, found: Overview) -> None:
    counts = {state.name.lower(): f"{count:,}" for state, count in found.rows.items()}
    if found.oldest_ms is not None:
        counts["sending"] += f", the oldest one for {output.span(found.oldest_ms / 1000)}"
    output.details(
        [("database", name), *counts.items(), ("compensator", _holder(found.holder))]
    )  # fmt: skip


def _holder(holder: Holder | None) -> str:
    if holder is None:
        return "none"
    if holder.left_ms <= 0:
        ended = output.span(-holder.left_ms / 1000)
        return f"none; the lease of {holder.name} ended {ended} ago"
    return f"{holder.name}, epoch {holder.epoch}"


@click.command("list", cls=Command)
@database_option
@schema_option
@click.option("--state", type=click.Choice(STATES), help="Only rows of this state.")
@click.option("--topic", type=NAME, metavar="TOPIC", help="Only rows of this topic.")
@click.option(
    "-n", "--limit", type=COUNT, default=100, help="Maximum number of rows to show. Default: 100."
)
@output.ndjson_option
def list_(
    url: str, schema: str, state: str | None, topic: str | None, limit: int, as_json: bool
) -> None:
    """List the rows of an outbox, in the order in which they were written."""
    from ternmq.reliable.database.tables import State
    from ternmq.reliable.outbox.operating import select

    with opened(url, schema) as one, one.database.reading() as work:
        chosen = None if state is None else State[state.upper()]
        rows = select(one.table, work, state=chosen, topic=topic or "", limit=limit + 1)
    if as_json:
        for row in rows[:limit]:
            output.json_line(_plain(row))
    else:
        output.table(
            ("seq", "state", "tries", "written", "topic", "key", "ordering key", "error"),
            [
                (
                    row.seq, _state(row), row.tries, values.iso(_time(row.written_ms)), row.topic,
                    row.key, row.ordering_key, row.error,
                )
                for row in rows[:limit]
            ],
            "the outbox has no such rows" if state or topic else "the outbox is empty",
            spare=_SPARE,
        )  # fmt: skip
    if len(rows) > limit:
        output.note(f"showing the first {limit:,}; there are more (--limit)")


@click.command(cls=Command)
@database_option
@schema_option
@click.argument("seq", type=SEQ)
@output.json_option
def show(url: str, schema: str, seq: int, as_json: bool) -> None:
    """Show a row of an outbox, with the body of its message."""
    from ternmq.reliable.outbox.operating import read

    with opened(url, schema) as one, one.database.reading() as work:
        row = read(one.table, work, seq)
    if row is None or row.body is None:
        raise not_found(f"the outbox has no row {seq}: its message is stored, or was discarded")
    if as_json:
        output.document(_plain(row) | plain_body(row.body, row.content_type))
        return
    output.details(
        [
            ("seq", row.seq),
            ("state", _state(row)),
            ("written at", values.iso(_time(row.written_ms))),
            ("tries", row.tries),
            *([("next try", values.iso(_next(row)))] if _next(row) is not None else []),
            *([("error", row.error)] if row.error else []),
            ("topic", row.topic),
            *([("queue", row.queue)] if row.queue is not None else []),
            ("key", row.key),
            ("ordering key", row.ordering_key),
            ("tag", row.tag),
            *[(f"header {name}", value) for name, value in row.headers.items()],
            *([("priority", row.priority)] if row.priority else []),
            *([("due at", values.iso(_time(row.due_ms)))] if row.due_ms is not None else []),
            *([("expires at", values.iso(_time(row.expires_ms)))]
              if row.expires_ms is not None else []),
            *([("items", row.items)] if row.items > 1 else []),
            ("application id", row.id),
            ("content type", row.content_type),
            ("size", counted(len(row.body), "byte")),
        ]
    )  # fmt: skip
    click.echo()
    click.echo(whole(row.body, row.content_type))


@click.command(cls=Command)
@database_option
@schema_option
@click.argument("numbers", metavar="[SEQ]...", type=SEQ, nargs=-1)
@click.option("--topic", type=NAME, metavar="TOPIC", help="All failed rows of this topic.")
@click.option("--all-failed", is_flag=True, help="All failed rows.")
@output.json_option
def resend(
    url: str,
    schema: str,
    numbers: Sequence[int],
    topic: str | None,
    all_failed: bool,
    as_json: bool,
) -> None:
    """Have failed rows sent again, as if they were new.

    Rows that were held behind them, because of their ordering key, are sent after them. A
    compensator sends them: an application that runs, or `outbox run`.
    """
    from ternmq.reliable.outbox import operating

    check_one(bool(numbers), topic is not None, all_failed, of="rows, --topic and --all-failed")
    with opened(url, schema) as one:
        if numbers:
            done, missing = _changed(one, numbers, operating.resend, ("failed",))
        else:
            done, missing = sum(_all_failed(one, topic or "")), []
    if as_json:
        output.document({"done": done, "missing": missing})
    elif done or not missing:
        output.note(f"{counted(done, 'row')} {verb(done, 'is', 'are')} sent again")
    if missing:
        raise not_found(f"these rows are not failed: {_some(missing)}")


def _all_failed(one: Opened, topic: str) -> Iterator[int]:
    """Have all failed rows be sent again, a page at a time; yield how many of each."""
    from ternmq.reliable.database.tables import State
    from ternmq.reliable.outbox import operating
    from ternmq.reliable.outbox.table import PAGE_ROWS

    while True:
        with one.database.writing(durable=True) as work:
            rows = operating.select(
                one.table, work, state=State.FAILED, topic=topic, limit=PAGE_ROWS
            )
            yield operating.resend(one.table, work, rows)
        if len(rows) < PAGE_ROWS:
            return


@click.command(cls=Command)
@database_option
@schema_option
@click.argument("numbers", metavar="SEQ...", type=SEQ, nargs=-1, required=True)
@yes_option
@output.json_option
def discard(url: str, schema: str, numbers: Sequence[int], yes: bool, as_json: bool) -> None:
    """Delete rows from an outbox: their messages are not sent.

    Rows that were held behind them, because of their ordering key, are sent. A row that is not
    failed may be on its way: its message may still arrive.
    """
    from ternmq.reliable.outbox import operating

    with opened(url, schema) as one:
        count = counted(len(numbers), "row")
        confirm(f"discard {count} of {one.name}, so that the messages are not sent?", yes=yes)
        done, missing = _changed(
            one, numbers, operating.discard, ("sending", "held", "failed")
        )  # fmt: skip
    if as_json:
        output.document({"done": done, "missing": missing})
    elif done or not missing:
        output.note(f"discarded {counted(done, 'row')}")
    if missing:
        raise not_found(f"the outbox has no such rows that are not sent: {_some(missing)}")


def _changed(
    one: Opened,
    numbers: Sequence[int],
    change: Callable[[Table, Work, Sequence[Row]], int],
    states: Sequence[str],
) -> tuple[int, list[int]]:
    """Change rows that are named; return how many, and the numbers of the others."""
    from ternmq.reliable.outbox.operating import named
    from ternmq.reliable.outbox.table import PAGE_ROWS

    wanted = sorted(set(numbers))
    done, missing = 0, []
    for begin in range(0, len(wanted), PAGE_ROWS):
        some = wanted[begin : begin + PAGE_ROWS]
        with one.database.writing(durable=True) as work:
            rows = [row for row in named(one.table, work, some) if _state(row) in states]
            done += change(one.table, work, rows)
        missing += sorted(set(some) - {row.seq for row in rows})
    return done, missing


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    more = len(numbers) - _MOST_NAMED
    return shown if more <= 0 else f"{shown} and {more:,} more"


def _state(row: Row) -> str:
    return STATES[row.state]


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else values.of_us(ms * 1000)


def _next(row: Row) -> datetime | None:
    """Return when a row that was refused is sent again, at the earliest."""
    return _time(row.next_ms) if row.tries and _state(row) in {"sending", "held"} else None


def _plain(row: Row) -> dict[str, object]:
    """Return a row in the form of the JSON output, without its body."""
    return {
        "seq": row.seq,
        "state": _state(row),
        "written_at": _time(row.written_ms),
        "tries": row.tries,
        "next_try_at": _next(row),
        "error": row.error,
        "topic": row.topic,
        "queue": row.queue,
        "key": row.key,
        "ordering_key": row.ordering_key,
        "tag": row.tag,
        "headers": dict(row.headers),
        "priority": row.priority,
        "due_at": _time(row.due_ms),
        "expires_at": _time(row.expires_ms),
        "items": row.items,
        "application_id": row.id,
        "content_type": row.content_type,
    }
