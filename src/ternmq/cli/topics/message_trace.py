"""``ternmq message trace``: the history of a message, at the broker and in the table ``trace``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach import archived
from ternmq.cli.reach.connection import asks_broker
from ternmq.cli.reach.parameters import COUNT, NAME, check_one
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.cli.terminal.problems import not_found
from ternmq.client.client import Client
from ternmq.client.content.causes import reason_of
from ternmq.client.forms import values
from ternmq.client.forms.messages import Found, shown
from ternmq.model.errors import (
    Forbidden,
    InvalidFilter,
    InvalidRequest,
    MessageNotFound,
    TernMQError,
    UnknownGroup,
    UnknownQueue,
    UnknownTopic,
)
from ternmq.model.filter_tree import OneRow, passes
from ternmq.model.header_filter import parse
from ternmq.model.specs import SubscriptionSpec
from ternmq.model.tag_filter import tags_of
from ternmq.model.transaction_ids import transaction_id
from ternmq.wire.commands import Command as Request
from ternmq.wire.control import RightsQuestion, RowStanding

if TYPE_CHECKING:
    from ternmq.pipeline.trace.lookup import TraceLookup

_FIELDS: Final = (
    "state", "state_time", "deliveries", "attempts", "first_delivered", "last_delivered",
    "first_client", "last_client", "last_app", "last_cause", "last_reason", "round",
)  # fmt: skip
_ELSEWHERE: Final = {
    False: "; --tables DIR finds what the pipeline has archived",
    True: "",
}


_MOST_NAMED: Final = 5
"""Most topics named in the note about topics that were not searched."""

OVER: Final = "done or skipped"
"""State of a message that a group finished or passed over; the broker keeps no more."""
EXCLUDED: Final = "not for this group: its filter excludes it"
_ABOUT_OVER: Final = (
    "done or skipped: the group does not receive it any more. It was acked, deleted as a dead "
    "letter, skipped by a reset, or stored before the group's start; the broker does not record "
    "which. With --tables, the table `trace` shows it, if the pipeline writes this table"
)


Place = tuple[str, int, int]
Mark = Place | tuple[str, str]


@dataclass(slots=True)
class Life:
    """A message and its history.

    Attributes:
        id: Its id.
        topic: Its topic.
        place: Topic, queue, offset; None: it is in no queue.
        stored_at: When it was stored.
        born_at: When it was sent.
        key: Its key, if known.
        tag: Its tag, if known.
        application_id: The id that its sender gave, if known.
        state: Its state if it is in no queue: ``scheduled`` or ``cancelled``; else ``stored``.
        due_at: When it is or was due, if it was scheduled.
        content: What a header filter is asked about, if known.
        kept: Whether the broker has it.
        traced: Rows of the table, by group.
        now: Its state at the broker in words, by group.
        stands: Its state at the broker with failures, by group.
    """

    id: str
    topic: str
    place: Place | None
    stored_at: datetime | None
    born_at: datetime | None
    key: str = ""
    tag: str = ""
    application_id: str = ""
    state: str = "stored"
    due_at: datetime | None = None
    content: OneRow | None = None
    kept: bool = False
    traced: dict[str, dict[str, Any]] = field(default_factory=dict)
    now: dict[str, str] = field(default_factory=dict)
    stands: dict[str, RowStanding] = field(default_factory=dict)

    @property
    def mark(self) -> Mark:
        """What it is told apart by from other messages."""
        return (self.topic, self.id) if self.place is None else self.place

    @property
    def sent_in(self) -> str:
        """Id of the transaction that it was sent in, if the table tells one."""
        return next((_transaction(one, "transaction") for one in self.traced.values()), "")

    def told(self, group: str) -> dict[str, Any]:
        """Return the message's row in a group: from the table, or else from the broker."""
        stands = self.stands.get(group)
        if group in self.traced or stands is None or not (stands.deliveries or stands.failures):
            return self.traced.get(group, {})
        failures = [
            {"time": one.time, "attempt": one.attempt, "outcome": one.outcome, "cause": one.cause,
             "reason": one.reason}
            for one in stands.failures
        ]  # fmt: skip
        return {
            "state_time": failures[-1]["time"] if failures else None,
            "deliveries": stands.deliveries,
            "attempts": stands.attempts,
            "failures": failures,
        }


@click.command(cls=Command)
@click.argument("id_", metavar="[ID|TOPIC/QUEUE/OFFSET]", required=False, default="")
@click.option("-k", "--key", help="Trace the messages with this key, newest first.")
@click.option("--topic", type=NAME, metavar="TOPIC", help="Search only this topic.")
@click.option(
    "-n",
    "--limit",
    type=COUNT,
    default=10,
    help="Maximum number of messages with the key. Default: 10.",
)
@archived.tables_option
@output.json_option
@asks_broker
async def trace(
    client: Client,
    id_: str,
    key: str | None,
    topic: str | None,
    limit: int,
    tables: str | None,
    as_json: bool,
) -> None:
    """Show what happened to a message in each group.

    Select one message by the id in its receipt, your own id or its place. Select all messages of a
    key with --key.

    The broker shows the current state and, until the message is done, its failed attempts with
    their reasons. With --tables, the pipeline's table `trace` adds the time and consumer of each
    delivery and every failure, also for messages that the broker no longer keeps.

    With --tables, `sent in transaction` and `settled_by` name the transactions that sent and
    settled the message.

    `not delivered yet`: no consumer of the group has received it. `leased`: a consumer holds it.
    `waits for a consumer`: it was returned, or its retry is due. `waits behind offset N of its
    ordering key`: offset N must be done first. `waits for a retry`: it failed, and its retry is not
    due yet. `held`: its last attempt failed, and its ordering key waits for an operator. `dead`: it
    is a dead letter. `not for this group`: the group's filter excludes it. `done or skipped`:
    the group does not receive it any more. It was acked, deleted as a dead letter, skipped by a
    reset, or stored before the group's start; only the tables say which (--tables).

    Without --topic or a place, the command searches all topics that the app may read. An app may
    read a topic if it has the right `consume` on the topic and all its groups.
    """
    check_one(bool(id_), key is not None, of="an id or place, and --key")
    tables = archived.folder(tables)
    place = _place(id_, topic)
    placed, refusal = await _placed(client, place)
    unread: list[str] = []
    if placed is not None:
        id_, kept = placed.id, [placed]
    else:
        names, unread = ([topic], []) if topic else await _readable(client)
        kept, unknown = await _kept(client, names, id_, key, limit)
        if topic:
            refusal = refusal or unknown
    lives: dict[Mark, Life] = {}
    for found in kept:
        life = _life(found)
        life.kept = True
        lives[life.mark] = life
    with _traces(tables) as traces:
        if tables:
            _add_older(lives, tables, topic, place, id_, key, limit)
        if traces is not None:
            _add_traced(lives, traces, topic, place, id_)
    chosen = sorted(lives.values(), key=_when, reverse=True)[:limit]
    for life in chosen:
        if life.kept:
            await _look(client, life)
    if not chosen:
        what = id_ or f"with key {key!r}"
        raise _nothing(what, client.admin.app, topic, tables, refusal, unread)
    if unread and key is not None:
        output.note(_unsearched(unread))
    if as_json:
        output.document([_plain(one) for one in chosen])
        return
    for number, life in enumerate(chosen):
        if number:
            click.echo()
        _show(life)
    if any(said == OVER and not one.traced for one in chosen for said in one.now.values()):
        output.note(_ABOUT_OVER)


def _nothing(
    what: str,
    app: str,
    topic: str | None,
    tables: str,
    refusal: TernMQError | None,
    unread: Sequence[str],
) -> TernMQError | Failed:
    """Return the error if no message was found.

    ``refusal`` is raised if it is certainly the cause: what names no place may be an id, and the
    tables keep messages of deleted topics.
    """
    if isinstance(refusal, Forbidden) or (refusal is not None and topic and not tables):
        return refusal
    where = f"in the topics that app {app!r} may read" if app and not topic else "by the broker"
    return not_found(
        f"no message {what} is kept {where}"
        + (f" and in {tables}" if tables else "")
        + (f" ({refusal.args[0]})" if refusal is not None else "")
        + (f" ({_unsearched(unread)})" if unread else "")
        + _ELSEWHERE[bool(tables)]
    )


def _place(text: str, topic: str | None) -> Place | None:
    """Return topic, queue and offset if a text is a place on the topic (None: on any)."""
    at = text.split("/")
    if len(at) != 3 or not (at[1].isdecimal() and at[2].isdecimal()) or topic not in {None, at[0]}:
        return None
    found = at[0], int(at[1]), int(at[2])
    return found if max(found[1:]) < 1 << 63 else None


async def _placed(client: Client, place: Place | None) -> tuple[Found | None, TernMQError | None]:
    """Return the message at a place, or the error if there is no such place or it may not be read.

    An application may choose ids that look like places: the place is tried first.
    """
    if place is None:
        return None, None
    topic, queue, offset = place
    try:
        return shown(await client.get(topic, queue=queue, offset=offset)), None
    except (Forbidden, UnknownTopic, UnknownQueue) as error:
        return None, error
    except (MessageNotFound, InvalidRequest):
        return None, None


async def _readable(client: Client) -> tuple[list[str], list[str]]:
    """Return the topics that the app may read, and those on which it has other rights only.

    Rights are queried first, because each refused read is a line in the broker's audit log.
    """
    names = [one.spec.name for one in await client.admin.topics()]
    refusals = await client.admin.refusals(
        RightsQuestion(command=Request.FIND, topic=name) for name in names
    )
    if refusals is None:  # an older broker: the first refused read reports it
        return names, []
    told = list(zip(names, refusals, strict=True))
    return [name for name, lacks in told if not lacks], [name for name, lacks in told if lacks]


def _unsearched(topics: Sequence[str]) -> str:
    """Return a text that names the topics that were not searched because a right is missing."""
    more = f" and {len(topics) - _MOST_NAMED} more" if len(topics) > _MOST_NAMED else ""
    named = ", ".join(topics[:_MOST_NAMED]) + more
    return f"not searched, without the right to consume them for every group: {named}"


async def _kept(
    client: Client, topics: Iterable[str], id_: str, key: str | None, limit: int
) -> tuple[list[Found], UnknownTopic | None]:
    """Return the messages that the broker has, and the error of a topic that does not exist."""
    found: list[Found] = []
    unknown: UnknownTopic | None = None
    for topic in topics:
        try:
            if key is None:
                found.append(shown(await client.get(topic, id_)))
            else:
                found += [shown(one) for one in await client.find(topic, key=key, limit=limit)]
        except MessageNotFound:
            continue
        except UnknownTopic as error:
            unknown = error
    return found, unknown


@contextmanager
def _traces(tables: str) -> Iterator[TraceLookup | None]:
    """Open the table ``trace``; None if it does not exist."""
    if not tables:
        yield None
        return
    try:
        from ternmq.pipeline.tables.folder import Folder
        from ternmq.pipeline.trace.lookup import TraceLookup
        from ternmq.pipeline.trace.schema import TRACE
    except ImportError as error:
        raise archived.missing(error, "tables cannot be read without") from None
    folder = Folder(tables)
    if not folder.inside(TRACE.name).exists():
        yield None
        return
    lookup = TraceLookup(folder)
    try:
        yield lookup
    finally:
        lookup.close()


def _add_older(
    lives: dict[Mark, Life],
    tables: str,
    topic: str | None,
    place: Place | None,
    id_: str,
    key: str | None,
    limit: int,
) -> None:
    """Add the messages that the archive has; a place is looked up if the broker has nothing."""
    from ternmq.pipeline.archive.schema import ARCHIVE
    from ternmq.pipeline.tables.folder import Folder

    if not Folder(tables).inside(ARCHIVE.name).exists():
        return
    with archived.archive(tables) as lookup:
        if key is not None:
            rows = lookup.by_key(key, topic=topic, limit=min(limit, 1000))
        else:
            one = lookup.by_id(id_) if archived.is_printed(id_) else None
            if place is not None and not lives:
                one = lookup.at(*place)
            rows = lookup.by_application_id(id_, topic=topic) if one is None else [one]
    for row in rows:
        life = _life(archived.shown(row))
        if topic is None or row.topic == topic:
            lives.setdefault(life.mark, life)


def _add_traced(
    lives: dict[Mark, Life],
    traces: TraceLookup,
    topic: str | None,
    place: Place | None,
    id_: str,
) -> None:
    """Add the rows of the table ``trace``."""
    places = [life.place for life in lives.values() if life.place is not None]
    rows = [row for place in places for row in traces.at(*place)]
    if not lives and id_:
        rows = (traces.at(*place) if place is not None else []) or traces.by_id(id_)
    for row in rows:
        if topic is not None and row["topic"] != topic:
            continue
        place = row["topic"], row["queue"], row["offset"]
        life = lives.setdefault(
            place,
            Life(
                row["message_id"] or id_, row["topic"], place, row["stored_time"], row["born_time"]
            ),
        )
        if not row["message_id"] or row["message_id"] == life.id:
            # Otherwise the row is of another message, on a deleted topic of the same name.
            life.traced[row["group"] or ""] = row


async def _look(client: Client, life: Life) -> None:
    """Get the state of the message in each group from the broker."""
    if life.place is None:
        return
    topic, queue, offset = life.place
    for info in await client.admin.groups(topic):
        if info.group.startswith("spark."):
            continue
        try:
            stands = await client.deadletters.standing(topic, info.group, offset, queue=queue)
        except UnknownGroup:  # deleted meanwhile
            continue
        if stands is None:
            life.now[info.group] = "unknown: the broker is older than this command"
        else:
            life.stands[info.group] = stands
            passed = stands.state in {"not_owed", "unread"} and _excluded(life, info.spec)
            life.now[info.group] = EXCLUDED if passed else _now(stands)


def _excluded(life: Life, spec: SubscriptionSpec) -> bool:
    """Return whether a group's filters exclude a message, as far as its content is known."""
    tags = tags_of(spec.tags)
    if tags is not None and life.tag not in tags:
        return True
    if life.content is None:
        return False
    try:
        return not passes(parse(spec.filter), life.content)
    except InvalidFilter:  # of a newer broker
        return False


_NOW: Final = {
    "unread": "not delivered yet", "leased": "leased", "ready": "waits for a consumer",
    "waiting": "waits for a retry", "not_owed": OVER,
}  # fmt: skip
"""Texts for the broker's states; other states are shown by name."""


def _now(stands: RowStanding) -> str:
    """Return the state of a message as text, with the reason if it failed."""
    if stands.state == "ready":
        if stands.behind is not None:
            return f"waits behind offset {stands.behind} of its ordering key"
        return f"{_NOW[stands.state]}: given back" if stands.deliveries else _NOW[stands.state]
    what = _NOW.get(stands.state, stands.state)
    if stands.due:
        since = values.iso(values.of_us(stands.retry_us))
        what = f"{_NOW['ready']}, its retry has been due since {since}"
    reason = stands.failures[-1].reason if stands.failures else ""
    return f"{what}: {reason}" if reason and stands.state in {"waiting", "held", "dead"} else what


def _life(found: Found) -> Life:
    place: Place | None = None
    if found.queue is not None and found.offset is not None:
        place = found.topic, found.queue, found.offset
    return Life(
        found.id, found.topic, place, found.stored_at, found.born_at, found.key, found.tag,
        found.application_id, found.state, found.due_at,
        OneRow(found.headers, found.tag, found.key, found.priority, found.content_type),
    )  # fmt: skip


def _when(life: Life) -> tuple[float, str, Place]:
    stored_s = life.stored_at.timestamp() if life.stored_at else 0.0
    return stored_s, life.topic, life.place or (life.topic, -1, -1)


def _show(life: Life) -> None:
    given = [("application id", life.application_id)] if life.application_id else []
    sent_in = [("sent in transaction", life.sent_in)] if life.sent_in else []
    output.details(
        [
            ("id", life.id),
            *given,
            ("place", f"{life.topic}: in no queue" if life.place is None else _text(life.place)),
            *([("state", life.state)] if life.place is None else []),
            ("born at", values.iso(life.born_at)),
            ("stored at", values.iso(life.stored_at)),
            *([("due at", values.iso(life.due_at))] if life.due_at is not None else []),
            ("key", life.key),
            *sent_in,
            ("kept by the broker", "yes" if life.kept else "no"),
        ]
    )
    if life.place is None:
        return
    click.echo()
    groups = sorted({*life.traced, *life.now} - {""})
    rows: list[tuple[output.Cell, ...]] = []
    for group in groups:
        row = life.told(group)
        rows.append(
            (group, row.get("state"), values.iso(row.get("state_time")), row.get("deliveries"),
             row.get("attempts"), row.get("last_client"), _transaction(row, "settled_by"),
             life.now.get(group))
        )  # fmt: skip
    columns = ("group", "state", "since", "deliveries", "attempts", "client", "settled_by", "now")
    # Without the table, some columns are known for some messages only.
    shown_ = [at for at in range(len(columns)) if any(row[at] not in {None, ""} for row in rows)]
    output.table(
        [columns[at] for at in shown_],
        [tuple(row[at] for at in shown_) for row in rows],
        "no group receives it",
    )
    failures: list[tuple[output.Cell, ...]] = [
        (group, values.iso(one["time"]), one["attempt"], one["outcome"], one["cause"],
         reason_of(one["reason"], one["cause"]))
        for group in groups for one in life.told(group).get("failures") or ()
    ]  # fmt: skip
    if failures:
        click.echo()
        output.table(
            ("failed_in", "time", "attempt", "outcome", "cause", "reason"),
            failures,
            spare=("cause",),
        )


def _transaction(row: dict[str, Any], column: str) -> str:
    """Return the id of the transaction in a column of the table; empty: none."""
    number = row.get(column)
    return "" if number is None else transaction_id(number)


def _text(place: Place) -> str:
    topic, queue, offset = place
    return f"{topic}/{queue}/{offset}"


def _plain(life: Life) -> dict[str, Any]:
    _, queue, offset = life.place or (life.topic, None, None)
    return {
        "id": life.id,
        "topic": life.topic,
        "queue": queue,
        "offset": offset,
        "state": life.state,
        "due_at": life.due_at,
        "stored_at": life.stored_at,
        "born_at": life.born_at,
        "key": life.key,
        "application_id": life.application_id,
        "transaction": life.sent_in or None,
        "kept": life.kept,
        "groups": [
            {
                "group": group,
                "now": life.now.get(group),
                **{name: life.told(group).get(name) for name in _FIELDS},
                "settled_by": _transaction(life.told(group), "settled_by") or None,
                "failures": [dict(one) for one in life.told(group).get("failures") or ()],
            }
            for group in sorted({*life.traced, *life.now} - {""})
        ],
    }
