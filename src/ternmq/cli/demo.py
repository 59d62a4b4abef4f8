"""``ternmq demo``: sends flights through a broker that is killed on the way."""

from __future__ import annotations

from pathlib import Path

import click

from ternmq.cli import output
from ternmq.cli.commands import Command
from ternmq.cli.exits import Failed

_FAULTS = ("loss", "duplicate", "order")


@click.command(cls=Command)
@click.option("--all", "whole_year", is_flag=True, help="The whole year; else January.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="DAYS",
    help="Days of 2013 that pass in a second; 0: as fast as it goes.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="An empty folder to write to, which is kept.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary folder, and say where it is.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.option(
    "--sabotage",
    type=click.Choice(_FAULTS),
    help="Plant a fault: the check must find it, and the demo fails.",
)
@click.option(
    "--seed",
    type=int,
    default=2013,
    show_default=True,
    help="Chooses which messages fail, and when processes are killed.",
)
@click.option(
    "--tables/--no-tables",
    default=None,
    help="Make tables of it with Spark in the end; default: if Spark is installed.",
)
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    default="ternmq-demo.html",
    show_default=True,
    metavar="FILE",
    help="Where the page about the tables goes.",
)
@click.option("--days", type=click.IntRange(1, 31), hidden=True, help="Only these of January.")
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

    They left New York in January 2013, or, with --all, in that year. Several consumer processes
    write down what they get; one of them is killed, the broker as well. In the end a program of its
    own compares what they wrote with the flights, and with the tables that Spark made.
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
