"""``ternmq demo``: sends flights through a broker that is killed on the way."""

from __future__ import annotations

from pathlib import Path

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.parameters import Real
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed

_FAULTS = ("loss", "duplicate", "order", "early")


@click.command(cls=Command)
@click.option("--all", "whole_year", is_flag=True, help="Send the whole year. Default: January.")
@click.option(
    "--speed",
    type=Real(min=0),
    default=1.0,
    show_default=True,
    metavar="DAYS",
    help="Days of 2013 to send per second; 0: as fast as possible.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Empty folder to write to. It is kept.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary folder, and print its path.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--sabotage",
    type=click.Choice(_FAULTS),
    help="Inject a fault: the check must find it, and the demo fails.",
)
@click.option(
    "--seed",
    type=int,
    default=2013,
    show_default=True,
    help="Random seed: selects the messages that fail, and when processes are killed.",
)
@click.option(
    "--tables/--no-tables",
    default=None,
    help="Make tables of the messages with Spark at the end. Default: if Spark is installed.",
)
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    default="ternmq-demo.html",
    show_default=True,
    metavar="FILE",
    help="File for the HTML page about the tables.",
)
@click.option(
    "--days", type=click.IntRange(1, 31), hidden=True, help="Number of days of January to send."
)
def demo(
    *,
    whole_year: bool,
    speed: float,
    data: Path | None,
    keep: bool,
    as_json: bool,
    sabotage: str | None,
    seed: int,
    tables: bool | None,
    page: Path,
    days: int | None,
) -> None:
    """Send a month of flights through a broker that is killed.

    The flights left New York in January 2013 or, with --all, in the whole year. Several consumer
    processes record what they receive. During the run, one of them, a producer and the broker are
    killed. At the end, a separate program compares the records with the flights, and with the
    tables that Spark made.
    """
    from ternmq.demo.flights import DataMissing
    from ternmq.demo.plan import Run, Sabotage
    from ternmq.demo.processes import ProcessFailed
    from ternmq.demo.start import start
    from ternmq.demo.tables import MISSING, can_make

    can = can_make()
    if tables and not can:
        raise Failed(MISSING)
    if tables is None and not can:
        output.note(MISSING)
    run = Run(
        month=None if whole_year else 1,
        days=days,
        seed=seed,
        speed=speed,
        sabotage=None if sabotage is None else Sabotage(sabotage),
        tables=can if tables is None else tables,
    )
    try:
        status = start(run, data=data, keep=keep, as_json=as_json, page=page)
    except DataMissing as error:
        raise Failed(f'{error}: pip install "ternmq[demo]"') from error
    except ProcessFailed as error:
        raise Failed(str(error)) from error
    click.get_current_context().exit(status)
