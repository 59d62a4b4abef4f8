"""``ternmq``: the command line's root, and how its commands end."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import click

from ternmq.cli.commands import Root
from ternmq.cli.reach.connection import connection_options
from ternmq.cli.terminal.exits import ExitCode, Failed, Interrupted, Terminated
from ternmq.cli.terminal.problems import PROGRAM, code_of, one_line, text_of, text_of_usage
from ternmq.model.errors import TernMQError
from ternmq.model.version import __version__


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 failed, 2 wrong usage, 3 no broker answers, 4 not found, 5 not "
    "allowed, 6 connection lost before the answer, 7 refused for now (try again), 8 a check found "
    "a fault. An error is one line on standard error.",
)
@click.version_option(__version__, prog_name=PROGRAM)
@connection_options
def ternmq(**connection: object) -> None:
    """A message broker in one Python package.

    `ternmq dev` starts a broker to try it out. Options that select a broker can be given before or
    after the command.
    """


def main() -> None:
    """Run the command line; the entry point of the script ``ternmq``."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status. Errors are one line on standard error."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Closed by the parent process. A connection must not get its descriptor.
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        return _flushed(code)
    except BrokenPipeError:
        _forget(sys.stdout)
        return ExitCode.PIPE_CLOSED


def _flushed(code: int) -> int:
    """Flush the output; return the exit status, which an error here can change."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _forget(sys.stdout)
        if code == ExitCode.DONE:  # otherwise an error was printed already
            return _told(one_line(f"standard output: {error.strerror or error}"), ExitCode.FAILED)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    streams = sys.stdout, sys.stderr
    try:
        found = ternmq.main(arguments, PROGRAM, standalone_mode=False)
        return found if isinstance(found, int) else ExitCode.DONE
    except SystemExit:
        if sys.stdout is streams[0]:
            raise
        # click ends with 1 when the reader of the output is gone, and replaces both streams.
        sys.stdout, sys.stderr = streams
        raise BrokenPipeError from None
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message(), err=True)
        return ExitCode.USAGE
    except click.ClickException as error:
        return _told(text_of_usage(error), ExitCode.USAGE)
    except Failed as error:
        return _told(one_line(str(error)), error.code)
    except TernMQError as error:
        return _told(text_of(error), code_of(error))
    except click.Abort:
        return ExitCode.INTERRUPTED
    except Interrupted:
        if sys.stderr.isatty():
            click.echo(err=True)  # after the ^C that the terminal shows
        return ExitCode.INTERRUPTED
    except Terminated:
        return ExitCode.TERMINATED
    except BrokenPipeError:
        raise
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _told(one_line(f"{name}{error.strerror or error}"), ExitCode.FAILED)


def _told(text: str, code: ExitCode) -> ExitCode:
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"{PROGRAM}: {text}", err=True)
    return code


def _forget(stream: TextIO) -> None:
    """Discard buffered output, so that the end of the process does not fail on it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
