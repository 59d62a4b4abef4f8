"""``ternmq pipeline``: messages as tables; the jobs that update them, and their maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ternmq.cli.commands import Group
from ternmq.cli.pipeline.parts import broker_of, folder_of, installed, required_tables
from ternmq.cli.reach.connection import connection_options, where
from ternmq.cli.reach.parameters import given
from ternmq.cli.terminal import output
from ternmq.cli.terminal.problems import text_of
from ternmq.client.forms import values
from ternmq.model.errors import Forbidden, TernMQError

if TYPE_CHECKING:
    from ternmq.pipeline.tables.folder import Folder
    from ternmq.spark.broker.connecting import Broker


@click.group(cls=Group)
def pipeline() -> None:
    """Store messages as tables, and report, replay or erase them."""


@pipeline.command()
@required_tables
@output.json_option
@connection_options
def status(tables: str | None, as_json: bool, **connection: object) -> None:
    """Show what each table contains, and how far it is behind the broker."""
    del connection
    with installed():
        from ternmq.pipeline.running.jobs import all_tables
        from ternmq.pipeline.running.status import statuses
    folder = folder_of(tables)
    found = statuses(all_tables(), folder)
    lags = _lags(folder, broker_of(where(click.get_current_context())))
    if as_json:
        output.document(
            {
                "tables": [
                    given(
                        table=one.name, rows=one.rows, files=one.files, size_bytes=one.bytes,
                        commits=one.commits, first=one.first or None, last=one.last or None,
                        newest_stored_at=_time(one.stored_us), position=one.position,
                    )
                    for one in found
                ],
                "lag": lags,
            }
        )  # fmt: skip
        return
    output.table(
        ("table", "rows", "files", "size", "commits", "first", "last", "position", "newest"),
        [
            (one.name, one.rows, one.files, output.size(one.bytes), one.commits, one.first,
             one.last, one.position, values.iso(_time(one.stored_us)))
            for one in found
        ],
        f"no tables in {folder.uri}",
    )  # fmt: skip
    if lags:
        click.echo()
        output.table(
            ("job", "topic", "behind"),
            [
                (one["job"], one.get("topic"), f"{one['rows']} rows" if "rows" in one
                 else output.size(one["lag_bytes"]))
                for one in lags
            ],
        )  # fmt: skip


def _time(time_us: int | None) -> Any:
    return None if time_us is None else values.of_us(time_us)


def _lags(folder: Folder, broker: Broker) -> list[dict[str, Any]]:
    """Return how far behind the tables are; if the broker is away, print a note."""
    from ternmq.pipeline.running.status import behind
    from ternmq.spark.broker.bulk_port import reach

    try:
        with reach(broker) as bulk:
            found: list[dict[str, Any]] = [
                {"job": "spark.archive", "topic": topic, "rows": rows}
                for topic, rows in sorted(behind(folder, bulk.topics()).items())
            ]
            try:
                holds = bulk.holds().holds
            except Forbidden:
                holds = []
    except TernMQError as error:
        output.note(f"how far the tables are behind the broker is not known: {text_of(error)}")
        return []
    return found + [
        {"job": one.name, "position": one.position, "lag_bytes": one.lag_bytes}
        for one in holds
        if one.name.startswith("spark.")
    ]


# Commands in separate modules.
from ternmq.cli.pipeline.care import compact, erase  # noqa: E402
from ternmq.cli.pipeline.replay import replay  # noqa: E402
from ternmq.cli.pipeline.report import report  # noqa: E402
from ternmq.cli.pipeline.run import run  # noqa: E402

for _one in (run, report, replay, compact, erase):
    pipeline.add_command(_one)
