"""``ternmq pipeline compact`` and ``erase``: changes to existing tables."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.pipeline.parts import folder_of, installed, required_tables
from ternmq.cli.reach import archived
from ternmq.cli.reach.connection import confirm, connection_options, yes_option
from ternmq.cli.reach.parameters import NAME, OFFSET, POSITIVE_DURATION
from ternmq.cli.terminal import output
from ternmq.client.forms import values
from ternmq.model.words import counted, verb

_SHOWN: Final = 20


@click.command(cls=Command)
@required_tables
@click.option(
    "--topic",
    type=NAME,
    metavar="TOPIC",
    help="Only this topic; files that also contain other topics are not joined.",
)
@click.option(
    "--keep-days",
    type=OFFSET,
    metavar="N",
    help="Also remove messages that are older than this number of days.",
)
@click.option(
    "--clean-after",
    type=POSITIVE_DURATION,
    default="1d",
    metavar="DURATION",
    help="Delete files that have been unused for this time. Default: 1d.",
)
@output.json_option
@connection_options
def compact(
    tables: str | None,
    topic: str | None,
    keep_days: int | None,
    clean_after: timedelta,
    as_json: bool,
    **connection: object,
) -> None:
    """Join small files of the archive into large ones, and delete unused files."""
    del connection
    with installed():
        from ternmq.pipeline.archive.compaction import compact as joined
        from ternmq.pipeline.archive.expiring import expire_topic
        from ternmq.pipeline.archive.schema import ARCHIVE
        from ternmq.pipeline.tables.cleaning import clean
        from ternmq.pipeline.tables.retention import expire
        from ternmq.pipeline.tables.table import Table
    table = Table.open(folder_of(tables), ARCHIVE, create=False)
    now_us = time.time_ns() // 1000
    if keep_days is None:
        gone = []
    elif topic is None:
        gone = expire(table, now_us, keep_days)
    else:
        gone = expire_topic(table, now_us, keep_days, topic)
    done = joined(table, now_us, topic=topic)
    cleaned = clean(table, now_us, older_than_us=clean_after // timedelta(microseconds=1))
    if as_json:
        output.document(
            {
                "joined": done.before, "made": done.after, "rows": done.rows, "left": done.left,
                "too_old": len(gone), "removed": cleaned.files, "removed_bytes": cleaned.bytes,
            }
        )  # fmt: skip
        return
    output.note(
        f"joined {counted(done.before, 'file')} into {done.after}, with {counted(done.rows, 'row')}"
    )
    if done.left:
        were = verb(done.left, "was", "were")
        groups = counted(done.left, "group")
        output.note(f"{groups} of files {were} changed by another process in the meantime")
    if gone and keep_days is not None:
        files, were = counted(len(gone), "file"), verb(len(gone), "was", "were")
        output.note(
            f"{files} {were} older than {counted(keep_days, 'day')}, and removed from the table"
        )
    were = verb(cleaned.files, "was", "were")
    output.note(f"{counted(cleaned.files, 'file')} {were} removed, {output.size(cleaned.bytes)}")


@click.command(cls=Command)
@required_tables
@click.option(
    "-k",
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="Erase the messages with this key. May be repeated.",
)
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    help="Erase the message with this id: from its receipt, or the sender's own. May be repeated.",
)
@click.option("--topic", type=NAME, metavar="TOPIC", help="Only messages of this topic.")
@click.option(
    "--name",
    type=NAME,
    metavar="NAME",
    help="Name of the request, recorded in `erased`. Give it again to continue an interrupted "
    "request. Default: generated.",
)
@click.option(
    "--reason", default="", metavar="TEXT", help="Reason for the request, recorded in `erased`."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be erased.")
@yes_option
@output.json_option
@connection_options
def erase(
    tables: str | None,
    keys: Sequence[str],
    ids: Sequence[str],
    topic: str | None,
    name: str | None,
    reason: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **connection: object,
) -> None:
    """Erase messages from the archive, by key or id. No file contains them afterwards.

    The table `erased` records that they existed. Messages that are not archived yet are not erased:
    the command prints how far each queue was archived. Run it again when later messages have been
    archived.
    """
    del connection
    with installed():
        from ternmq.pipeline.archive.commit import Archive
        from ternmq.pipeline.archive.erase import Request, find
        from ternmq.pipeline.archive.erase import erase as erased_of
        from ternmq.pipeline.archive.rewrite import topics_in
        from ternmq.pipeline.archive.schema import ERASED
        from ternmq.pipeline.tables.table import Table
    if not keys and not ids:
        raise click.UsageError("give --key or --id", click.get_current_context())
    folder = folder_of(tables)
    archive = Archive(folder, create=False)
    name = name or f"erase-{secrets.token_hex(4)}"
    own = [one for one in ids if not archived.is_printed(one)]
    request = Request(name, tuple(keys), tuple(ids), tuple(own), topic, reason)
    found = find(archive, request)
    topics = topics_in(archive.table.folder, archive.table.files())
    if topic is not None and topic not in topics:
        output.note(
            f"the archive has no message of a topic {topic}; it has: "
            + (", ".join(topics[:_SHOWN]) + (" ..." if len(topics) > _SHOWN else "") or "none")
        )
    if dry_run:
        _tell_found(found.to_pylist(), as_json=as_json)
        return
    confirm(
        f"erase {counted(len(found), 'message')} from {folder.uri}? this cannot be undone", yes=yes
    )
    output.note(f"request {name}: if it is interrupted, run it again with --name {name}")
    done = erased_of(archive, Table.open(folder, ERASED), request, time.time_ns() // 1000)
    stands = [
        {"topic": place.topic, "queue": place.queue, "stands": at}
        for place, at in sorted(done.stands.items())
    ]
    if as_json:
        output.document(
            {
                "request": name, "messages": done.messages, "noted": done.noted,
                "files": done.files, "removed": done.removed, "stands": stands,
            }
        )  # fmt: skip
        return
    output.note(
        f"erased {counted(done.messages, 'message')}; files rewritten: {done.files}, "
        f"removed: {done.removed}"
    )
    for one in stands[:_SHOWN]:
        output.note(
            f"the archive has {one['topic']}/{one['queue']} up to {one['stands']}: later messages "
            "are not erased"
        )
    if len(stands) > _SHOWN:
        output.note(f"... and {len(stands) - _SHOWN} more queues (--json shows all)")


def _tell_found(found: list[dict[str, Any]], *, as_json: bool) -> None:
    rows = [
        {
            "topic": one["topic"], "queue": one["queue"], "offset": one["offset"],
            "id": one["message_id"], "stored_at": values.of_us(one["stored_us"]),
        }
        for one in found
    ]  # fmt: skip
    if as_json:
        output.document({"messages": len(rows), "found": rows})
        return
    output.table(
        ("topic", "queue", "offset", "id", "stored at"),
        [
            (one["topic"], one["queue"], one["offset"], one["id"], values.iso(one["stored_at"]))
            for one in rows[:_SHOWN]
        ],
    )
    more = f"; these are {_SHOWN} of them (--json shows all)" if len(rows) > _SHOWN else ""
    output.note(f"{counted(len(rows), 'message')} would be erased; nothing was changed{more}")
