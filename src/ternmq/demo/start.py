"""A run from the command line: the folder, signals, output, the exit status."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from ternmq.demo.conductor import Conductor
from ternmq.demo.flights import SOURCE, find_files
from ternmq.demo.judge.verdict import Verdict
from ternmq.demo.plan import EVERYBODY, Run
from ternmq.demo.processes import Processes, ProcessFailed
from ternmq.demo.report import NOTE, about_tables, lines_of, summary_of, table_of
from ternmq.demo.screen import Screen, write

PAGE_NAME: Final = "ternmq-demo.html"
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""The run could not be finished."""
EXIT_UNSOUND: Final = 8
"""The run was finished, and the judge found faults."""
_ENDED_BY: Final = 128
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The run was ended by a signal."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"ended by {number.name}")
        self.number = number


def start(
    run: Run, *, data: Path | None, keep: bool, as_json: bool, page: Path = Path(PAGE_NAME)
) -> int:
    """Run the demo; return its exit status.

    Args:
        run: The options of the run.
        data: Folder to write to, which is kept. None: a temporary folder.
        keep: Keep the temporary folder.
        as_json: Print only the verdict, as JSON, on standard output.
        page: Path of the report, if tables are made.

    Raises:
        DataMissing: The package of flights is not installed.
    """
    find_files()
    console = Console(stderr=as_json)
    _introduce(console, run)
    begun = time.monotonic()
    screen = Screen(console)
    with _folder(data, keep=keep) as folder:
        try:
            verdict = asyncio.run(
                _conduct(run, folder, screen, page.absolute(), remove=data is None and not keep)
            )
        except Interrupted as error:
            screen.close()
            write(console, f"{error}; everything is stopped")
            return _ENDED_BY + error.number
        except ProcessFailed as error:
            screen.close()
            write(console, f"FAILED: {error}", "bold red")
            return EXIT_FAILED
        finally:
            screen.close()
            if data is not None or keep:
                write(console, f"the files of this run are in {folder}")
        _tell(console, verdict, time.monotonic() - begun)
    if as_json:
        Console(soft_wrap=True).out(msgspec.json.encode(verdict).decode(), highlight=False)
    return EXIT_OK if verdict.ok else EXIT_UNSOUND


@contextmanager
def _folder(data: Path | None, *, keep: bool) -> Iterator[Path]:
    """Yield the folder to write to; a temporary one is removed at the end, unless kept."""
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        if any(data.iterdir()):
            raise ProcessFailed(
                f"{data} is not empty: name an empty folder, or one that does not exist"
            )
        yield data.absolute()
        return
    folder = Path(tempfile.mkdtemp(prefix="ternmq-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _conduct(run: Run, folder: Path, screen: Screen, page: Path, *, remove: bool) -> Verdict:
    """Run it; all processes have ended when this returns, for whatever reason."""
    loop = asyncio.get_running_loop()
    this = asyncio.current_task()
    assert this is not None
    caught: list[signal.Signals] = []

    def interrupt(number: signal.Signals) -> None:
        caught.append(number)
        if len(caught) == 1:  # a second signal does not interrupt the cleanup
            this.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt, number)
    try:
        async with Processes(folder, remove=remove) as processes:
            return await Conductor(run, processes, screen).conduct(page)
    except asyncio.CancelledError:
        if caught:
            raise Interrupted(caught[0]) from None
        raise
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _introduce(console: Console, run: Run) -> None:
    what = "the year 2013" if run.month is None else "January 2013"
    if run.days is not None:
        what = f"the first days of January 2013, {run.days} in all"
    write(console, f"TernMQ demo: the flights that left New York in {what}", "bold")
    write(console, SOURCE, "dim")
    for group in EVERYBODY:
        write(console, f"  {group.name:<8} {group.about}")
    speed = f"{run.speed:g} days of 2013 in a second" if run.speed else "as fast as it goes"
    write(console, f"  {speed}; meanwhile board-1, cashier-1 and the broker are killed")
    if run.tables:
        write(
            console,
            "  at the end, Spark makes tables of the messages: archive, trace, audit, counts",
        )
    if run.sabotage is not None:
        write(console, f"  sabotage: the producer injects one fault: {run.sabotage}", "yellow")


def _tell(console: Console, verdict: Verdict, seconds: float) -> None:
    console.print()
    for line in summary_of(verdict):
        write(console, line)
    console.print(table_of(verdict))
    write(console, NOTE, "dim")
    if verdict.tables is not None:
        for line in about_tables(verdict.tables):
            write(console, line)
    write(console, f"{seconds:.0f} s in all, on {os.cpu_count()} processors")
    for line in lines_of(verdict):
        write(console, line, "bold green" if verdict.ok else "bold red")
