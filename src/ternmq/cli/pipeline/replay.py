"""``ternmq pipeline replay``: sends messages of the archive again."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.pipeline.parts import (
    broker_of,
    check_engine,
    engine_options,
    folder_of,
    installed,
    session,
)
from ternmq.cli.reach import archived
from ternmq.cli.reach.connection import confirm, connection_options, where, yes_option
from ternmq.cli.reach.connection import run as ask
from ternmq.cli.reach.parameters import NAME, check_one, read_when
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.client.admin.replay import Replayed
from ternmq.client.client import Client
from ternmq.client.forms import values
from ternmq.model.errors import Forbidden
from ternmq.model.words import counted, verb
from ternmq.wire.commands import Command as Request
from ternmq.wire.control import RightsQuestion

if TYPE_CHECKING:
    from ternmq.pipeline.replay.plan import Source
    from ternmq.pipeline.replay.replay import Replay, Sent
    from ternmq.pipeline.replay.select import Selection
    from ternmq.pipeline.tables.folder import Folder

TimeBounds = tuple[int | None, int | None]
_DAY: Final = timedelta(days=1)
_SET: Final = re.compile(r"\s*([a-z_]+)\s*(?:=|\s)\s*(.+)", re.DOTALL)


class _Time(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """``A..B``, where one may be empty; or a day. Converted to µs since 1970."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TimeBounds:
        """Return beginning and end."""
        if not isinstance(value, str):
            found: TimeBounds = value
            return found
        try:
            return _span(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


def _span(text: str) -> TimeBounds:
    """Return beginning and end; or raise ValueError."""
    low, dots, high = text.partition("..")
    if not dots:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text) is None:
            raise ValueError("is neither A..B nor a day")
        day = datetime.fromisoformat(text).replace(tzinfo=UTC)
        return _us(day), _us(day + _DAY)
    if not low and not high:
        raise ValueError("names no time")
    return _us(read_when(low)) if low else None, _us(read_when(high)) if high else None


class _Set(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """``key upper(key)``, ``key = upper(key)``."""

    name = "set"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return column and expression."""
        if not isinstance(value, str):
            made: tuple[str, str] = value
            return made
        match = _SET.fullmatch(value)
        if match is None:
            self.fail(f"{value!r} is not COLUMN EXPRESSION, such as 'key upper(key)'", param, ctx)
        return match[1], match[2]


def _us(time: datetime) -> int:
    return int(time.replace(microsecond=0).timestamp()) * 1_000_000 + time.microsecond


@click.command(cls=Command)
@click.option(
    "--tables",
    "--from",
    "tables",
    metavar="DIR",
    envvar=archived.TABLES,
    help=f"Folder of the tables; or ${archived.TABLES}. Default: from the context.",
)
@click.option(
    "--topic", type=NAME, required=True, metavar="TOPIC", help="Topic of the archived messages."
)
@click.option(
    "--time",
    "span",
    type=_Time(),
    default=(None, None),
    metavar="A..B",
    help="Messages stored at or after A and before B; A or B may be left out. Or one day, in "
    "UTC, such as 2026-11-21.",
)
@click.option(
    "-k",
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="Messages with this key. May be repeated.",
)
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    help="Message with this id: from its receipt, or the sender's own. May be repeated.",
)
@click.option(
    "--where",
    "condition",
    metavar="SQL",
    help="Messages that match this condition, in DuckDB's SQL: columns of the archive, and "
    "`text` (the body as text).",
)
@click.option(
    "--set",
    "sets",
    type=_Set(),
    multiple=True,
    metavar="'COLUMN SQL'",
    help="Replace body, key, ordering_key, tag, headers or content_type by an SQL expression, "
    "such as 'key upper(key)'. May be repeated.",
)
@click.option("--to-topic", type=NAME, metavar="TOPIC", help="Send the messages to this topic.")
@click.option(
    "--to-group",
    type=NAME,
    metavar="GROUP",
    help="Deliver the messages again to this group of --topic, if the broker still keeps them.",
)
@click.option(
    "--name",
    type=NAME,
    metavar="NAME",
    help="Name of the replay; each message is sent once per name. Default: derived from the "
    "request.",
)
@click.option(
    "--no-marks", is_flag=True, help="Do not add the headers x-replay (name) and x-source (place)."
)
@click.option(
    "--dry-run", is_flag=True, help="Only count the messages, and check that they can be sent."
)
@engine_options
@yes_option
@output.json_option
@connection_options
def replay(
    tables: str | None,
    topic: str,
    span: TimeBounds,
    keys: Sequence[str],
    ids: Sequence[str],
    condition: str | None,
    sets: Sequence[tuple[str, str]],
    to_topic: str | None,
    to_group: str | None,
    name: str | None,
    no_marks: bool,
    dry_run: bool,
    engine: str | None,
    master: str | None,
    confs: Sequence[tuple[str, str]],
    yes: bool,
    as_json: bool,
    **connection: object,
) -> None:
    """Send archived messages again, to a topic or to one group.

    The command shows the number of messages and asks for confirmation first. Messages for a topic
    are sent in the order of their queue, so the messages of a key stay in order. If a replay to a
    topic is killed and run again, no message is sent twice: the broker stores the progress. The
    broker does not remember a replay to a group: if it is run again, it delivers the messages
    again.
    """
    del connection
    context = click.get_current_context()
    check_one(to_topic is not None, to_group is not None, of="--to-topic and --to-group")
    if to_group is not None and (sets or name):
        raise click.UsageError(
            "a group gets the stored messages unchanged: leave out --set and --name", context
        )
    twice = sorted({one for one, _ in sets if [column for column, _ in sets].count(one) > 1})
    if twice:
        raise click.UsageError(f"--set {twice[0]} is given twice", context)
    if condition is not None and not condition.strip():
        raise click.UsageError("--where is empty: leave it out to choose every message", context)
    check_engine(engine, master, confs)
    if as_json and not (yes or dry_run):
        raise Failed("nothing was done: --json does not prompt: add --yes or --dry-run")
    with installed():
        from ternmq.pipeline.replay.plan import plan
        from ternmq.pipeline.replay.replay import Replay, request_of
        from ternmq.pipeline.replay.select import Selection
        from ternmq.pipeline.tables.lock import only_one
    folder = folder_of(tables)
    chosen = Selection(topic, *span, tuple(keys), tuple(ids), condition or "", dict(sets))
    sources = plan(folder, chosen)
    broker = broker_of(where(context))
    if to_group is not None:
        _to_group(folder, chosen, sources, to_group, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    assert to_topic is not None
    name = name or f"r{request_of(folder, chosen, to_topic):016x}"
    if not no_marks:
        chosen = Selection(topic, *span, tuple(keys), tuple(ids), condition or "", dict(sets), name)
    made = Replay(name, folder.uri, broker, to_topic, chosen)
    known = _known(made, sources)
    if not as_json:
        _show(sources, known)
    left = [one for one in sources if known[one] < one.stop]
    if dry_run:
        ask(lambda client: _check_right(client, to_topic), where(context))
        for one in left:
            made.check(one)
        if as_json:
            output.document({"name": name, "done": False, "queues": _plain(sources, known)})
        return
    rows = sum(one.rows for one in sources)
    if left:
        confirm(f"send {counted(rows, 'message')} to topic {to_topic}, as replay {name}?", yes=yes)
    with only_one(folder, f"replay-{name}", f"replay {name}"):
        sent = _send(made, left, engine, master, dict(confs), as_json=as_json)
    total = sum(one.rows for one in sent)
    if as_json:
        output.document(
            {"name": name, "done": True, "sent": total, "queues": _plain(sources, known)}
        )
        return
    output.note(f"sent {counted(total, 'message')} to topic {to_topic}, as replay {name}")


async def _check_right(client: Client, topic: str) -> None:
    """Check that the app may produce to a topic.

    Raises:
        Forbidden: It may not.
    """
    asked = RightsQuestion(command=Request.SEND, topic=topic)
    for refusal in await client.admin.refusals([asked]) or ():  # None: an older broker
        if refusal:
            raise Forbidden(refusal)


def _send(
    made: Replay,
    sources: Sequence[Source],
    engine: str | None,
    master: str | None,
    confs: Mapping[str, str],
    *,
    as_json: bool,
) -> list[Sent]:
    """Send queues: one after the other in this process, or on Spark's workers."""
    if engine != "spark" and master is None:
        done: list[Sent] = []
        for one in sources:
            with click.progressbar(
                length=one.rows,
                label=f"{one.topic}/{one.queue}",
                file=sys.stderr,
                hidden=as_json or not sys.stderr.isatty(),
            ) as bar:
                known = 0

                def between(sent: Sent) -> None:
                    nonlocal known
                    bar.update(sent.rows - known)
                    known = sent.rows

                done.append(made.send(one, between))
            if not as_json:
                output.note(f"{one.topic}/{one.queue}: {done[-1].rows:,} of {one.rows:,} sent")
        return done
    from ternmq.pipeline.replay.spark import send_all

    spark = session("spark", master, confs)
    try:
        return send_all(spark, made, sources)
    finally:
        spark.stop()


def _known(made: Replay, sources: Sequence[Source]) -> dict[Source, int]:
    """Return the offset up to which each queue was sent before.

    Raises:
        UnknownTopic: The target topic does not exist.
        TransactionConflict: The name belongs to another request.
    """
    from ternmq.pipeline.replay.replay import topic_facts
    from ternmq.spark.broker.bulk_port import BulkPort

    port = BulkPort(made.broker)
    try:
        topic_facts(port, made.to_topic)
        made.check_name(port)
        return {one: port.highest(one.writer(made.name)) or 0 for one in sources}
    finally:
        port.close()


def _show(sources: Sequence[Source], known: Mapping[Source, int]) -> None:
    output.table(
        ("topic", "queue", "messages", "first stored", "last stored", "sent before"),
        [
            (
                one.topic,
                one.queue,
                one.rows,
                values.iso(values.of_us(one.first_us)),
                values.iso(values.of_us(one.last_us)),
                _before(one, known.get(one, 0)),
            )
            for one in sources
        ],
        "no such message is in the archive",
    )
    output.note(counted(sum(one.rows for one in sources), "message"))


def _before(one: Source, known: int) -> str:
    if not known:
        return "none"
    return "all" if known >= one.stop else f"up to offset {known - 1}"


def _plain(sources: Sequence[Source], known: Mapping[Source, int]) -> list[dict[str, object]]:
    return [
        {
            "topic": one.topic,
            "queue": one.queue,
            "messages": one.rows,
            "first_stored_at": values.of_us(one.first_us),
            "last_stored_at": values.of_us(one.last_us),
            "sent_before": _before(one, known.get(one, 0)),
        }
        for one in sources
    ]


# -- to a group


def _to_group(
    folder: Folder,
    chosen: Selection,
    sources: Sequence[Source],
    group: str,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Deliver messages to a group again: those that the broker still has."""
    from ternmq.pipeline.replay.plan import places

    context = click.get_current_context()

    async def work(client: Client) -> None:
        info = await client.admin.topic(chosen.topic)
        offsets = places(folder, chosen, [s for s in sources if s.topic_number == info.number])
        other = sum(one.rows for one in sources if one.topic_number != info.number)
        found = await _replayed(client, chosen.topic, group, offsets, dry_run=True)
        found = Replayed(found.again, found.unread, found.expired + other, found.filtered)
        if not as_json:
            output.details(
                [
                    ("in the archive", sum(one.rows for one in sources)),
                    ("delivered again", found.again),
                    ("not read yet", found.unread),
                    ("not kept by the broker", found.expired),
                    ("not for this group", found.filtered),
                ]
            )
        if not dry_run and found.again:
            confirm(f"deliver {counted(found.again, 'message')} to {group} again?", yes=yes)
            done = await _replayed(client, chosen.topic, group, offsets, dry_run=False)
            found = Replayed(done.again, done.unread, done.expired + other, done.filtered)
        if as_json:
            output.document(
                {
                    "done": not dry_run,
                    "again": found.again,
                    "unread": found.unread,
                    "expired": found.expired,
                    "filtered": found.filtered,
                }
            )
        elif not dry_run:
            output.note(
                f"{counted(found.again, 'message')} of {chosen.topic} "
                f"{verb(found.again, 'is', 'are')} delivered to {group} again"
            )

    ask(work, where(context))


async def _replayed(
    client: Client, topic: str, group: str, offsets: Mapping[int, Sequence[int]], *, dry_run: bool
) -> Replayed:
    total = Replayed()
    for queue, some in sorted(offsets.items()):
        found = await client.replay(topic, group, offsets=some, queue=queue, dry_run=dry_run)
        total = Replayed(
            total.again + found.again,
            total.unread + found.unread,
            total.expired + found.expired,
            total.filtered + found.filtered,
        )
    return total
