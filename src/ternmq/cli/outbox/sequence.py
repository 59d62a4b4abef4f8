"""``ternmq sequence``: orderly sessions in the database of an application."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.commands import Command, Group
from ternmq.cli.outbox.databases import database_option, opened, schema_option
from ternmq.cli.reach.connection import confirm, yes_option
from ternmq.cli.reach.parameters import COUNT, NAME
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import not_found
from ternmq.client.forms import values
from ternmq.client.forms.messages import plain_body

if TYPE_CHECKING:
    from ternmq.reliable.libraries.alchemy import AlchemyDatabase
    from ternmq.reliable.steps.course import Standing
    from ternmq.reliable.steps.operating import Decision, Session
    from ternmq.reliable.steps.table import Consumer, SequenceTable

STATES: Final = (
    "collecting", "running", "undoing", "done", "undone", "stopped", "incomplete", "cancelled",
    "undo-stopped",
)  # fmt: skip
"""As options name them, in the order of their numbers in the table."""
_SPARE: Final = ("tries", "since", "group")
_MOST_MISSING: Final = 10


@click.group(cls=Group)
def sequence() -> None:
    """Look at orderly sessions in a database, and decide about those that stopped.

    The steps of a session are done in order by the consumers of a group. A session stops if a step
    fails as often as its consumer tries it, and is incomplete if messages of it did not come in
    time.
    """


def _one(function: Any) -> Any:
    """Add what names a session."""
    for add in (
        click.option("--topic", type=NAME, metavar="TOPIC", help="Topic of the session."),
        click.option("--group", type=NAME, metavar="GROUP", help="Group that does its steps."),
        click.argument("session"),
        schema_option,
        database_option,
    ):
        function = add(function)
    return function


@dataclass(slots=True, frozen=True)
class _Opened:
    database: AlchemyDatabase
    table: SequenceTable


@contextmanager
def _opened(url: str, schema: str) -> Iterator[_Opened]:
    with opened(url, schema) as one:
        from ternmq.reliable.steps.table import SequenceTable

        yield _Opened(one.database, SequenceTable(one.database.dialect, schema))


@sequence.command("list", cls=Command)
@database_option
@schema_option
@click.option("--state", type=click.Choice(STATES), help="Only sessions in this state.")
@click.option("--topic", type=NAME, metavar="TOPIC", help="Only sessions of this topic.")
@click.option("--group", type=NAME, metavar="GROUP", help="Only sessions of this group.")
@click.option("--all", "every", is_flag=True, help="Also sessions that need no operator.")
@click.option(
    "-n",
    "--limit",
    type=COUNT,
    default=100,
    help="Maximum number of sessions to show. Default: 100.",
)
@output.ndjson_option
def list_(
    url: str,
    schema: str,
    state: str | None,
    topic: str | None,
    group: str | None,
    every: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List sessions that need an operator: stopped ones, and incomplete ones.

    Those that have been so for longest come first. Missing are the numbers of the messages that did
    not come.
    """
    from ternmq.reliable.steps import operating
    from ternmq.reliable.steps.course import State

    states = [State(STATES.index(state))] if state else [] if every else list(operating.NEED)
    with _opened(url, schema) as one, one.database.reading() as work:
        found = operating.select(
            one.table, work, states=states, topic=topic, group=group, limit=limit + 1
        )
    if as_json:
        for each in found[:limit]:
            output.json_line(_plain(each))
    else:
        output.table(
            ("session", "state", "steps", "tries", "since", "topic", "group", "missing", "error"),
            [
                (
                    each.name, _state(each.standing),
                    f"{each.standing.step}/{each.standing.size}", each.standing.tries,
                    _since(each.standing), each.consumer.topic, each.consumer.group,
                    _missing_cell(each), each.standing.error,
                )
                for each in found[:limit]
            ],
            "there are no such sessions"
            if state or topic or group or every
            else "no session needs an operator (--all shows the others)",
            spare=_SPARE,
        )  # fmt: skip
    if len(found) > limit:
        output.note(f"showing the first {limit:,}; there are more (--limit)")


@sequence.command(cls=Command)
@_one
@output.json_option
def show(
    url: str, schema: str, session: str, topic: str | None, group: str | None, as_json: bool
) -> None:
    """Show a session, with its messages."""
    from ternmq.reliable.steps import operating

    with _opened(url, schema) as one, one.database.reading() as work:
        consumer = _consumer(one, session, topic, group)
        found = operating.read(one.table, work, consumer, session)
    if found is None:
        raise _no(session)
    if as_json:
        items = [
            {
                "number": item.number, "done": item.number <= found.standing.step, "id": item.id,
                "key": item.key, "tag": item.tag, "headers": dict(item.headers),
                "content_type": item.content_type, **plain_body(item.body, item.content_type),
            }
            for item in found.items
        ]  # fmt: skip
        output.document(_plain(found) | {"items": items})
        return
    standing = found.standing
    output.details(
        [
            ("session", found.name),
            ("topic", found.consumer.topic),
            ("group", found.consumer.group),
            ("state", _state(standing)),
            ("since", _since(standing)),
            ("steps done", f"{standing.step} of {standing.size}"),
            ("messages", f"{standing.stored} of {standing.size}"),
            *([("missing", _missing(found))] if found.missing else []),
            *([("tries", standing.tries)] if standing.tries else []),
            *([("error", standing.error)] if standing.error else []),
        ]
    )
    click.echo()
    output.table(
        ("number", "done", "id", "key", "body"),
        [
            (
                item.number, "yes" if item.number <= standing.step else "no", item.id, item.key,
                item.body.decode(errors="backslashreplace"),
            )
            for item in found.items
        ],
        "no message of it has come",
    )  # fmt: skip


@sequence.command(cls=Command)
@_one
@output.json_option
def resume(
    url: str, schema: str, session: str, topic: str | None, group: str | None, as_json: bool
) -> None:
    """Have a session that stopped go on: the step that failed is tried again.

    An incomplete session waits for its messages once more.
    """
    with _opened(url, schema) as one:
        _decided(one, session, _consumer(one, session, topic, group), "resume", as_json)


@sequence.command(cls=Command)
@_one
@yes_option
@output.json_option
def skip(
    url: str,
    schema: str,
    session: str,
    topic: str | None,
    group: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Have a session that stopped go on without the step that failed.

    The step counts as done, or as undone if its undoing failed.
    """
    with _opened(url, schema) as one:
        consumer = _consumer(one, session, topic, group)
        confirm(f"skip the step of session {session} that failed?", yes=yes)
        _decided(one, session, consumer, "skip", as_json)


@sequence.command(cls=Command)
@_one
@click.option("--undo", is_flag=True, help="Undo the steps that are done, the last one first.")
@yes_option
@output.json_option
def cancel(
    url: str,
    schema: str,
    session: str,
    topic: str | None,
    group: str | None,
    undo: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """End a session: no further step is done."""
    with _opened(url, schema) as one:
        consumer = _consumer(one, session, topic, group)
        then = "undo the steps that are done" if undo else "leave the steps that are done as done"
        confirm(f"cancel session {session}, and {then}?", yes=yes)
        _decided(one, session, consumer, "undo" if undo else "cancel", as_json)


def _consumer(one: _Opened, session: str, topic: str | None, group: str | None) -> Consumer:
    """Return whose a session is.

    Raises:
        Failed: There is none, or several have one of that name.
    """
    from ternmq.reliable.steps import operating

    with one.database.reading() as work:
        found = operating.select(
            one.table, work, topic=topic, group=group, name=session, limit=2
        )  # fmt: skip
        others = [] if found else operating.select(one.table, work, name=session, limit=2)
    if others:
        names = " and ".join([each.consumer.name for each in others])
        raise not_found(
            f"there is no session {session} of that topic and group, but one of {names}"
        )
    if not found:
        raise _no(session)
    if len(found) > 1:
        names = " and ".join([each.consumer.name for each in found])
        raise Failed(
            f"several consumers have a session {session}, such as {names}: add --topic and --group",
            ExitCode.USAGE,
        )
    return found[0].consumer


def _decided(
    one: _Opened, session: str, consumer: Consumer, decision: Decision, as_json: bool
) -> None:
    """Carry a decision out, and tell what the session is now."""
    from ternmq.reliable.steps import operating
    from ternmq.reliable.steps.course import Refused

    with one.database.writing(durable=True) as work:
        told = operating.decide(one.table, work, consumer, session, decision)
    if told is None:
        raise _no(session)
    if isinstance(told, Refused):
        raise Failed(f"session {session}: {told.reason}", ExitCode.FAILED)
    if as_json:
        output.document({"session": session, "state": _state(told)})
    else:
        output.note(f"session {session} is {_state(told)}")


def _no(session: str) -> Failed:
    return not_found(f"there is no session {session}: none of its messages has come")


def _state(standing: Standing) -> str:
    return STATES[standing.state]


def _since(standing: Standing) -> str | None:
    """Return since when a session is in a state that lasts; of others None."""
    if _state(standing) in {"collecting", "running", "undoing"}:
        return None
    return values.iso(values.of_us(standing.next_ms * 1000))


def _missing(found: Session) -> str:
    shown = ", ".join(map(str, found.missing[:_MOST_MISSING]))
    more = len(found.missing) - _MOST_MISSING
    return shown if more <= 0 else f"{shown} and {more:,} more"


def _missing_cell(found: Session) -> str:
    """Return the same without spaces, which a table would replace: ``2,5`` or ``2,5,+998``."""
    more = len(found.missing) - _MOST_MISSING
    shown = [str(one) for one in found.missing[:_MOST_MISSING]]
    return ",".join(shown if more <= 0 else [*shown, f"+{more}"])


def _plain(found: Session) -> dict[str, object]:
    """Return a session in the form of the JSON output, without its messages."""
    standing = found.standing
    return {
        "session": found.name,
        "topic": found.consumer.topic,
        "group": found.consumer.group,
        "state": _state(standing),
        "since": _since(standing),
        "size": standing.size,
        "stored": standing.stored,
        "done": standing.step,
        "missing": list(found.missing),
        "tries": standing.tries,
        "error": standing.error,
    }
