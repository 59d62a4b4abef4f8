"""``ternmq pipeline report``: the report of a day, as one page."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ternmq import files
from ternmq.cli.commands import Command
from ternmq.cli.pipeline.parts import folder_of, installed, required_tables
from ternmq.cli.reach.connection import connection_options
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed


@click.command(cls=Command)
@required_tables
@click.option(
    "--day",
    default="today",
    show_default=True,
    metavar="DAY",
    help="Day to report, in UTC: today, yesterday, or a date such as 2026-11-21.",
)
@click.option(
    "--output",
    "-o",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to write. Default: ternmq-DAY.html in the current folder.",
)
@connection_options
def report(tables: str | None, day: str, file: Path | None, **connection: object) -> None:
    """Write a report of one day, as a self-contained HTML page with plots."""
    del connection
    with installed():
        from ternmq.pipeline.report.data import day_of, gather
        from ternmq.pipeline.report.page import page
        from ternmq.pipeline.report.seconds import in_seconds
    now_us = time.time_ns() // 1000
    try:
        day = day_of(day, now_us)
    except ValueError:
        raise click.BadParameter(
            f"{day!r} is not a day: use a date such as 2026-11-21, today or yesterday",
            param_hint="--day",
        ) from None
    folder = folder_of(tables)
    found = gather(folder, day)
    in_seconds(folder, found)
    made = page(found, now_us)
    file = file or Path(f"ternmq-{day}.html")
    try:
        files.write(file, made.encode(), files.SHARED)
    except OSError as error:
        raise Failed(f"{file} cannot be written: {error.strerror}", ExitCode.FAILED) from None
    output.note(f"{file}: {output.size(len(made.encode()))}")
