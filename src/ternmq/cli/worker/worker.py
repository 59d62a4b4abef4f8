"""``ternmq worker module:client``: runs the handlers of an application."""

from __future__ import annotations

import asyncio
import logging
import os
import pkgutil
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import dropwhile, takewhile
from pathlib import Path, PurePath
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

import ternmq
from ternmq.cli.commands import Command
from ternmq.cli.reach.connection import connection_options
from ternmq.cli.reach.parameters import DURATION, HTTP, Whole
from ternmq.cli.terminal.exits import ExitCode, Failed, Interrupted
from ternmq.cli.terminal.problems import code_of, one_line, text_of
from ternmq.cli.worker import logs
from ternmq.cli.worker.place import told
from ternmq.cli.worker.processes import is_supervised, supervise
from ternmq.cli.worker.reports import Beat, Report, writer
from ternmq.client.client import Client
from ternmq.client.connection.connecting import options_of
from ternmq.client.handler.lifespans import broken_of
from ternmq.client.process import exiting
from ternmq.model.errors import TernMQError, UnknownTopic
from ternmq.model.printing import printable_lines
from ternmq.model.version import __version__
from ternmq.sync.client import Client as BlockingClient

if TYPE_CHECKING:
    from ternmq.model.units import Address

log: Final = logging.getLogger("ternmq")

P = ParamSpec("P")
T = TypeVar("T")

_IMPORTING: Final = (
    __file__, pkgutil.__file__, "importlib/__init__.py",
    "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>",
)  # fmt: skip
"""Files of the frames that belong to importing."""
_LIBRARY: Final = f"{Path(ternmq.__file__).parent}{os.sep}"
"""Folder of this library's frames."""
_CANCEL_TIMEOUT: Final = 0.5


def find(target: str) -> Client | BlockingClient:
    """Import the client named ``package.module:name``, with the current folder on the path.

    Raises:
        click.UsageError: There is no such module or name, or it is not a client.
    """
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise click.UsageError(f"{target!r} is not MODULE:CLIENT, such as shop.consumers:client")
    if module.endswith(".py"):
        path = PurePath(module.removesuffix(".py"))
        if path.is_absolute() or ".." in path.parts:
            raise click.UsageError(
                f"{target!r} names a file; run this in its folder, and name the module: "
                f"{path.name}:{name}"
            )
        right = ".".join(path.parts)
        raise click.UsageError(f"{target!r} names a file; name the module: {right}:{name}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = pkgutil.resolve_name(target)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if f"{module}.".startswith(f"{missing}."):
            raise click.UsageError(
                f"there is no module {missing!r} here: run the command in its folder"
            ) from error
        raise click.UsageError(
            f"module {module!r} imports {missing!r}, which was not found{_place(error)}; is it "
            "installed?"
        ) from error
    except (AttributeError, ValueError) as error:
        if _own_frames(error):
            raise _broken(module, error) from error
        unnamed = isinstance(error, AttributeError)
        raise click.UsageError(
            f"module {module!r} has no {name!r}" if unnamed else f"{target!r} is not MODULE:CLIENT"
        ) from error
    except TernMQError as error:
        # Show the application's line that caused it, unless the address from outside did.
        own = takewhile(lambda one: not one.filename.startswith(_LIBRARY), _own_frames(error))
        for frame in [] if _of_environment(error) else list(own)[-1:]:
            click.echo(
                f"importing {module!r} failed in {frame.filename}, line {frame.lineno}:", err=True
            )
        raise
    except SystemExit as error:
        raise click.UsageError(
            f"module {module!r} ends the process when it is imported{_place(error)}: put such code "
            'below if __name__ == "__main__":'
        ) from error
    except Exception as error:  # the application's code can raise anything
        raise _broken(module, error) from error
    if not isinstance(found, Client | BlockingClient):
        raise click.UsageError(
            f"{target!r} is of type {type(found).__name__}, not a client: name a variable of the "
            "module that is one, such as client = ternmq.connect(...)"
        )
    return found


def _of_environment(error: TernMQError) -> bool:
    """Whether ``connect()`` without arguments raises this error: for an option or a variable."""
    try:
        options_of(None, None, None, 1.0, 1.0)
    except TernMQError as same:
        return str(same) == str(error)
    return False


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the application's frames of an error raised while importing it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = dropwhile(lambda one: one.filename.endswith(_IMPORTING), frames)
    return [one for one in own if not one.filename.startswith("<frozen ")]


def _place(error: BaseException) -> str:
    """Return the last of the application's lines of an error, in brackets; "" if there is none."""
    at = _own_frames(error)[-1:]
    return f" ({at[0].filename}, line {at[0].lineno})" if at else ""


def _broken(module: str, error: Exception) -> Failed:
    """Print an import error with the application's own frames; return how the command ends.

    Errors that a repetition cannot cure (syntax, a name missing in another module) have the status
    of a missing module: supervisors that restart workers stop at that status.
    """
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list(_own_frames(error))
    lines = shown.format(chain=False) if shown.stack else shown.format_exception_only()
    click.echo("".join(lines), err=True, nl=False)
    return Failed(
        f"module {module!r} cannot be imported: {type(error).__name__}, see above",
        _code_of_own(error),
    )


def _code_of_own(error: Exception) -> ExitCode:
    """Return the exit status for an error of the application's code."""
    return ExitCode.USAGE if isinstance(error, SyntaxError | ImportError) else ExitCode.FAILED


def _print_from(
    begin: TracebackType | None, error: Exception, inner: BaseException | None = None
) -> None:
    """Print an error with its traceback from a frame on, and with what the code caught before.

    Args:
        begin: The first frame that is shown.
        error: The error.
        inner: An error that is printed elsewhere: it is not repeated as the context.
    """
    shown = traceback.TracebackException(type(error), error, begin)
    if inner is not None and error.__context__ is inner and error.__cause__ is None:
        shown.__context__ = None
    click.echo(printable_lines("".join(shown.format())), err=True, nl=False)


@click.command(cls=Command)
@click.argument("target", metavar="MODULE:CLIENT")
@click.option(
    "--drain-timeout",
    type=DURATION,
    metavar="DURATION",
    help="How long running handlers may take to finish after SIGTERM. Default: the drain "
    "timeout of the client (30s).",
)
@click.option(
    "--processes",
    type=Whole(1, 512),
    default=1,
    metavar="N",
    help="Number of processes; a process that dies is started again. Default: 1.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="Restart when a .py file below the current folder changes; for development.",
)
@click.option(
    "--http",
    type=HTTP,
    metavar="HOST:PORT",
    help="Serve /livez, /readyz and /metrics of all processes at this address; `:8080`: on every "
    "interface; `off`: nowhere. Default: off.",
)
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Also log INFO messages of libraries; -vv: also DEBUG messages.",
)
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
@connection_options
def worker(
    target: str,
    drain_timeout: timedelta | None,
    processes: int,
    reload: bool,
    http: Address | None,
    verbose: int,
    quiet: bool,
    **connection: object,
) -> int:
    """Run the handlers that are declared on a client, until SIGTERM.

    The address comes from the code, from --url, or from a context named by --context or
    TERNMQ_CONTEXT; if none of these names one, from TERNMQ_URL. If the code and the command line or
    context name different addresses, apps or tokens, the worker does not start (exit status 2). The
    context in use is ignored.

    On SIGTERM, Ctrl-C or SIGHUP (the terminal was closed), the worker stops pulling, returns
    messages that were not started, and waits for running handlers. After the drain timeout, it logs
    the handlers that still run, and ends. A second SIGTERM or Ctrl-C ends it at once. With
    --processes or --reload, a process that has not ended 3 s after the second signal is killed.
    Without these options, a handler in C code that keeps the GIL delays both signals until it
    returns; SIGKILL ends such a worker.
    """  # fmt: skip
    del connection
    check = told(click.get_current_context())
    supervised = is_supervised()
    logs.set_up(
        verbose,
        package=target.partition(":")[0].partition(".")[0],
        quiet=quiet,
        numbered=supervised and (processes > 1 or reload),
    )
    if not supervised and (processes > 1 or reload):
        return supervise(processes, reload=reload, http=http)
    if supervised or http is None:
        return _work(target, check, drain_timeout, writer())
    from ternmq.cli.worker.board import Board
    from ternmq.cli.worker.health import HealthPort, beside

    board = Board(1)
    with beside(http, HealthPort(board)):
        board.started(1, os.getpid())
        return _work(
            target, check, drain_timeout, lambda one: board.reported(1, one, time.monotonic())
        )


def _work(
    target: str,
    check: Callable[[Client | BlockingClient], None],
    drain_timeout: timedelta | None,
    sink: Callable[[Report], None] | None,
) -> int:
    """Find the client and run its handlers; return the exit status. ``sink``: gets reports."""
    client = find(target)
    check(client)
    log.info("ternmq %s, worker %s, process %d", __version__, target, os.getpid())
    code = ExitCode.DONE
    try:
        _run(client, None if drain_timeout is None else drain_timeout.total_seconds(), sink)
    except Interrupted:
        exiting.end_after_others(ExitCode.INTERRUPTED)
        raise
    except BrokenPipeError as error:
        if broken_of(error) is None:
            raise
        code = _shown(error, target)
    except Exception as error:  # noqa: BLE001 - a lifespan can raise anything
        code = _shown(error, target)
    exiting.end_after_others(code)
    return code


def _run(
    client: Client | BlockingClient,
    drain_timeout: float | None,
    sink: Callable[[Report], None] | None,
) -> None:
    """Run a client's handlers; end even if some of them do not."""
    threads = _Threads()
    if isinstance(client, BlockingClient):
        _run_blocking(client, threads, drain_timeout, sink)
        return
    runner = asyncio.Runner()
    runner.get_loop().set_default_executor(threads)
    beat = None if sink is None else Beat(client.serving, sink)
    if beat is not None:
        beat.begin(runner.get_loop())
    try:
        runner.run(client.run(signals=True, drain_timeout=drain_timeout))
    except KeyboardInterrupt:
        _leave(runner, threads, ExitCode.INTERRUPTED)
        raise Interrupted from None
    except SystemExit as error:
        _tell_exit(error)
        _leave(runner, threads, ExitCode.FAILED)
        raise
    except Exception as error:
        _leave(runner, threads, error)
        raise
    if beat is not None:
        beat.report()
    _leave(runner, threads, ExitCode.DONE)


def _run_blocking(
    client: BlockingClient,
    threads: _Threads,
    drain_timeout: float | None,
    sink: Callable[[Report], None] | None,
) -> None:
    thread, engine = client.reach()
    loop = thread.loop
    loop.call_soon_threadsafe(loop.set_default_executor, threads)
    beat = None if sink is None else Beat(engine.serving, sink)
    if beat is not None:
        beat.begin(loop)
    try:
        client.run(signals=True, drain_timeout=drain_timeout)  # at its end, its loop has ended too
    except KeyboardInterrupt:
        _end_without(threads.unfinished, ExitCode.INTERRUPTED)
        raise Interrupted from None
    except SystemExit as error:
        _tell_exit(error)
        _end_without(threads.unfinished, ExitCode.FAILED)
        raise
    except Exception as error:
        _end_without(threads.unfinished, error)
        raise
    if beat is not None:
        beat.report()
    _end_without(threads.unfinished, ExitCode.DONE)


def _tell_exit(error: SystemExit) -> None:
    """Log a sys.exit() that ends the worker; in a handler it only fails the handler's message."""
    broken = broken_of(error)
    if broken is None:
        log.error("a task called sys.exit(): the worker ends", exc_info=error)
    else:
        log.error("lifespan %s called sys.exit(%r): the worker ends", broken.name, error.code)


def _leave(runner: asyncio.Runner, threads: _Threads, end: ExitCode | Exception) -> None:
    """Close the loop; if something in it does not end, end the process all the same.

    Closing the loop waits for coroutines that ignore their cancellation, and for threads of
    ``asyncio.to_thread``.
    """
    _end_without(runner.run(_cancel_rest()) or threads.unfinished, end)
    runner.close()


def _end_without(unfinished: object, end: ExitCode | Exception) -> None:
    """End the process at once if something is unfinished: its usual end waits for threads."""
    if not unfinished:
        return
    log.warning("ended at once: something that a handler started is still running")
    code = _shown(end) if isinstance(end, Exception) else end
    logging.shutdown()
    exiting.end_at_once(code)


def _shown(error: Exception, target: str = "MODULE:CLIENT") -> ExitCode:
    """Print an error that ends the worker; return the exit status."""
    broken = broken_of(error)
    if broken is not None:
        if isinstance(broken.inner, TernMQError):  # by it the worker ended
            logs.tell_end(text_of(broken.inner))
        if not isinstance(error, TernMQError):
            _print_from(broken.traceback, error, broken.inner)
            kind, text = type(error).__name__, one_line(str(error))
            logs.tell_end(f"lifespan {broken.name} failed: {kind}" + (f": {text}" if text else ""))
            return _code_of_own(error)
        at = traceback.extract_tb(broken.traceback, 1)
        where = f" in {at[0].filename}, line {at[0].lineno}" if at else ""
        logs.tell_end(f"lifespan {broken.name} failed{where}:")
    if isinstance(error, TernMQError):
        if isinstance(error, UnknownTopic):
            error.hint = (
                "if the program declares it (ternmq.Topic), "
                f"`ternmq apply {quote(target)}` creates it; "
                "else `ternmq topic create` does; `ternmq topic list` shows the existing topics"
            )
        logs.tell_end(text_of(error))
        return code_of(error)
    sys.excepthook(type(error), error, error.__traceback__)
    return ExitCode.FAILED


async def _cancel_rest() -> bool:
    """Cancel the remaining tasks of the loop; return whether some of them do not end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    _, pending = await asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT) if tasks else (set(), set())
    return bool(pending)


class _Threads(ThreadPoolExecutor):
    """The threads of ``asyncio.to_thread``, with their unfinished calls."""

    def __init__(self) -> None:
        super().__init__()
        self.unfinished: set[Future[Any]] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in a thread."""
        future = super().submit(fn, *args, **kwargs)
        self.unfinished.add(future)
        future.add_done_callback(self.unfinished.discard)
        return future
