"""The log of a worker: short lines for a terminal, complete ones for a file or another program."""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
import time
from typing import Final

import click

from ternmq.cli.terminal.output import folded_at
from ternmq.cli.terminal.problems import PROGRAM
from ternmq.model.printing import printable, printable_lines

_COLORS: Final = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}

_WIDE: Final = 10_000
"""Columns of an output without a width."""


class WorkerFormatter(logging.Formatter):
    """Time, level, logger, message; control characters in the message are escaped.

    In a terminal, a long line is folded between words, indented to its text.
    """

    def __init__(self, *, terminal: bool, numbered: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self._process = f" [{os.getpid()}]" if numbered else ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the traceback after it."""
        text = printable(record.getMessage())
        who = "" if self._terminal and record.name == "ternmq" else f" {record.name}:"
        head = f"{self._time(record)}{self._process} {record.levelname:<8}{who}"
        line = f"{head} {text}"
        if self._terminal:
            line = folded_at(line, len(head) + 1, _columns())
        if self._terminal and record.levelno in _COLORS:
            line = click.style(line, fg=_COLORS[record.levelno])
        if record.exc_info:
            line += "\n" + printable_lines(self.formatException(record.exc_info))
        return line

    def _time(self, record: logging.LogRecord) -> str:
        local = time.localtime(record.created)
        if self._terminal:
            return time.strftime("%H:%M:%S", local)
        zone = time.strftime("%z", local)
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}.{int(record.msecs):03d}{zone}"


def _columns() -> int:
    """Return the present width of standard error's terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return _WIDE


class FromTheApplication(logging.Filter):
    """Passes warnings, records of TernMQ, and records from the application's own code.

    Own code is outside of Python's library and of installed packages, except the application's own
    package. The names of loggers do not help: they are chosen freely.
    """

    def __init__(self, package: str) -> None:
        super().__init__()
        self._own = ("ternmq", package)
        paths = sysconfig.get_paths()
        names = ("stdlib", "platstdlib", "purelib", "platlib")
        self._libraries = tuple({paths[name] + os.sep for name in names})

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        return (
            record.levelno >= logging.WARNING
            or record.name.partition(".")[0] in self._own
            or not record.pathname.startswith(self._libraries)
        )


def set_up(verbose: int, *, package: str, quiet: bool, numbered: bool) -> None:
    """Log to standard error, unless the application has configured logging.

    Args:
        verbose: 1: also INFO of libraries; 2: everything.
        package: The application's package, the first part of the name of its module.
        quiet: Warnings only.
        numbered: There are several processes: each line shows its process id.
    """
    terminal = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(WorkerFormatter(terminal=terminal, numbered=numbered))
    level = logging.DEBUG if verbose > 1 else logging.INFO
    if quiet and not verbose:
        level = logging.WARNING
    elif not verbose:
        handler.addFilter(FromTheApplication(package))
    logging.basicConfig(level=level, handlers=[handler])
    if not quiet:
        logging.getLogger("ternmq").setLevel(min(level, logging.INFO))


def tell_end(text: str) -> None:
    """Log why a worker ends; print it if the application configured another log."""
    ours = [
        one for one in logging.getLogger().handlers if isinstance(one.formatter, WorkerFormatter)
    ]
    if ours and logging.getLogger("ternmq").isEnabledFor(logging.ERROR):
        logging.getLogger("ternmq").error("%s", text)
    else:
        click.echo(f"{PROGRAM}: {text}", err=True)
