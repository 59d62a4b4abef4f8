"""How commands connect to a broker: which one, with which app, and how they disconnect.

An address on the command line wins over a named context, that over the environment, that over the
context in use. With a context, its own app and token are used unless flags give them; otherwise
they come from flags or the environment. So a context's token is never sent to another broker.

The client library and asyncio are imported where a connection is made: ``ternmq --help`` needs this
module's options, but neither of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from ternmq.cli.reach import contexts
from ternmq.cli.reach.parameters import POSITIVE_DURATION
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed, Interrupted, Terminated
from ternmq.cli.terminal.problems import near, not_found
from ternmq.client.connection.connecting import APP, TOKEN, URL, options_of
from ternmq.model.errors import TernMQError, UnknownGroup, UnknownTopic
from ternmq.model.printing import printable
from ternmq.model.words import lasting, verb

if TYPE_CHECKING:
    import asyncio

    from ternmq.client.admin.admin import Admin
    from ternmq.client.admin.admin_client import AdminClient
    from ternmq.client.client import Client
    from ternmq.client.connection.options import Options

CONTEXT: Final = "TERNMQ_CONTEXT"
_NAMES: Final = ("url", "app", "token", "context", "timeout", "from_")
_PROCESSING_S: Final = 600.0


@dataclass(slots=True, frozen=True, kw_only=True)
class Where:
    """A broker, an app, and the archive's folder; None: from the environment, or the default."""

    url: str | None = None
    app: str | None = None
    token: str | None = None
    source: str = "default"
    tables: str = ""

    def __repr__(self) -> str:
        return f"Where({self.source})"


def connection_options(function: Any) -> Any:
    """Add the connection options."""
    for option in reversed(
        (
            click.option("--url", metavar="URL",
                help=f"Broker address: ternmq://HOST:PORT, of several brokers: "
                f"ternmq://HOST:PORT,HOST:PORT; or ${URL}.",
            ),
            click.option("--app", metavar="NAME", help=f"App to connect as; or ${APP}."),
            click.option(
                "--token", metavar="TOKEN",
                help=f"Token of the app. ${TOKEN} or a context hides it from the process list.",
            ),
            click.option("--context", metavar="NAME",
                help=f"Context that names the broker; or ${CONTEXT}.",
            ),
            click.option(
                "--timeout", type=POSITIVE_DURATION, metavar="DURATION",
                help="Timeout of each request. Default: 10s.",
            ),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def resolve(url: str | None, app: str | None, token: str | None, context: str | None) -> Where:
    """Return the broker to use.

    Raises:
        Failed: The named context does not exist.
        click.UsageError: Both an address and a context are given.
    """
    environ = os.environ
    if url is not None:
        if context is not None:
            raise click.UsageError("--url and --context both name a broker: leave one of them out")
        return Where(url=url, app=app, token=token, source="--url")
    named = context or environ.get(CONTEXT) or None
    if named is None and environ.get(URL):
        return Where(app=app, token=token, source=URL)
    kept = contexts.read()
    name = named if named is not None else kept.current
    if not name:
        return Where(app=app, token=token)
    found = kept.contexts.get(name)
    if found is None:
        raise contexts.unknown(name, kept)
    if app is None and token is None:
        # From the context, even if it has no app: the environment's token is for another broker.
        app, token = found.app, found.token
        of_context = {APP: app, TOKEN: token}
        unread = [one for one in of_context if environ.get(one) not in {None, "", of_context[one]}]
        if unread:
            as_whom = f"connecting as its app {app}" if app else "connecting without an app"
            told = (
                f"{' and '.join(unread)} {verb(len(unread), 'is', 'are')} not read, because "
                f"context {name} names the broker; {as_whom}"
            )
            click.echo(printable(told), err=True)
    return Where(url=found.url, app=app, token=token, source=f"context {name}", tables=found.tables)


def where(context: click.Context) -> Where:
    """Return the broker for a command, from its options and those before its name."""
    values = given_options(context)
    return resolve(*[values.get(name) for name in ("url", "app", "token", "context")])


def given_options(context: click.Context) -> dict[str, Any]:
    """Return the connection options that were given, before or after a command's name."""
    values: dict[str, Any] = {}
    at: click.Context | None = context
    while at is not None:
        for name in _NAMES:
            if at.params.get(name) is not None:
                values.setdefault(name, at.params[name])
        at = at.parent
    return values


class Administers(Protocol):
    """Any client with ``admin``."""

    @property
    def admin(self) -> Admin:
        """Topics, groups, apps, and the status of the broker."""
        ...


class Connects(Administers, Protocol):
    """Any client, before it is connected."""

    async def connect(self) -> object:
        """Connect."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


C = TypeVar("C", bound=Connects)


def asks_broker(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a command of a coroutine function whose first argument is a connected ``Client``."""
    return _command(function, run)


def reads_broker(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Do the same for a command that only reads; the option ``--from`` says who is asked."""
    option = click.option(
        "--from",
        "from_",
        type=click.Choice(["primary", "replica"]),
        default="primary",
        help="Broker that is asked. A replica may be behind; a note says how far. "
        "Default: primary.",
    )
    made: Callable[..., None] = option(_command(function, run_reading))
    return made


def administers(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Do the same with an ``AdminClient``, which imports less and so starts faster."""
    return _command(function, run_admin)


def _command(
    function: Callable[..., Coroutine[Any, Any, None]],
    run_with: Callable[[Callable[[Any], Awaitable[None]], Where, float], None],
) -> Callable[..., None]:
    @functools.wraps(function)
    def command(**arguments: Any) -> None:
        context = click.get_current_context()
        timeout = timeout_of(context)
        for name in _NAMES:
            arguments.pop(name, None)
        run_with(lambda client: function(client, **arguments), where(context), timeout)

    made: Callable[..., None] = connection_options(command)
    return made


def timeout_of(context: click.Context) -> float:
    """Return the timeout of requests in seconds, from a command's options and those before it."""
    at: click.Context | None = context
    while at is not None:
        given = at.params.get("timeout")
        if isinstance(given, timedelta):
            return given.total_seconds()
        at = at.parent
    return 10.0


def run(work: Callable[[Client], Awaitable[None]], place: Where, timeout: float = 10.0) -> None:
    """Connect, work, disconnect; end early at SIGTERM or when the output's reader is gone.

    Raises:
        TernMQError: The connection or the work failed.
        Terminated, Interrupted, BrokenPipeError: It was ended from outside.
    """
    from ternmq.client.client import Client

    _run(Client, work, place, timeout)


def run_reading(
    work: Callable[[Client], Awaitable[None]], place: Where, timeout: float = 10.0
) -> None:
    """Do the same, with the broker that the option ``--from`` names. Errors as ``run``."""
    if click.get_current_context().params["from_"] == "primary":
        run(work, place, timeout)
        return
    from ternmq.client.client import Client
    from ternmq.client.connection.replica import ReplicaSession

    async def noted(client: Client) -> None:
        try:
            await work(client)
        finally:
            output.note(_standing(client.behind()))

    _run(lambda options: Client(options, session=ReplicaSession(options)), noted, place, timeout)


def _standing(behind: timedelta | None) -> str:
    if behind is None:
        return "no replica answers: this was read from the primary"
    return f"read from a replica, {lasting(behind // timedelta(microseconds=1))} behind"


def run_admin(
    work: Callable[[AdminClient], Awaitable[None]], place: Where, timeout: float = 10.0
) -> None:
    """Do the same with an ``AdminClient``. Errors as ``run``."""
    from ternmq.client.admin.admin_client import AdminClient

    _run(AdminClient, work, place, timeout)


def _run(
    kind: Callable[[Options], C], work: Callable[[C], Awaitable[None]], place: Where, timeout: float
) -> None:
    import asyncio

    be_quiet()
    options = options_of(place.url, place.app, place.token, timeout, _PROCESSING_S)
    # A broker that accepts the connection and does not answer must not outlast the timeout.
    connect_timeout = min(options.connect_timeout, timeout)
    options = dataclasses.replace(options, connect_timeout=connect_timeout)

    async def session() -> None:
        async with contextlib.AsyncExitStack() as stack:
            client = kind(options)
            stack.push_async_callback(client.close)
            await client.connect()
            try:
                await work(client)
            except (UnknownTopic, UnknownGroup) as error:
                raise await _suggested(client, error) from error

    try:
        asyncio.run(until_told(session()))
    except KeyboardInterrupt:
        raise Interrupted from None


async def until_told(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it ends, SIGTERM arrives, or the output's reader is gone.

    Raises:
        Terminated, BrokenPipeError: It was ended that way.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    told: list[BaseException] = []

    def end(why: BaseException) -> None:
        if not told:
            told.append(why)
            task.cancel()

    def told_to(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(end, Terminated())

    # Not add_signal_handler: that loses a signal which arrives while the loop's pipe is full.
    before = signal.signal(signal.SIGTERM, told_to)
    watched = _watch_reader(loop, lambda: end(BrokenPipeError()))
    try:
        await work
    except asyncio.CancelledError:
        if told:
            raise told[0] from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        if watched is not None:
            loop.remove_reader(watched)


def _watch_reader(loop: asyncio.AbstractEventLoop, gone: Callable[[], None]) -> int | None:
    """If standard output is a pipe, call ``gone`` when its reader is gone.

    The writing end of a pipe is never readable: it wakes a reader only when the other end was
    closed.
    """

    def closed() -> None:
        loop.remove_reader(descriptor)
        gone()

    try:
        descriptor = sys.stdout.fileno()
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return None
        loop.add_reader(descriptor, closed)
    except (OSError, ValueError, NotImplementedError):
        return None
    return descriptor


def be_quiet() -> None:
    """Silence the library's log: the command prints errors itself, once."""
    log = logging.getLogger("ternmq")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
        log.propagate = False


class _ConnectionTold(logging.Handler):
    """Prints the library's log lines about its connection: lost, and restored."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.addFilter(lambda record: record.module == "session")

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        click.echo(printable(record.getMessage()), err=True)


@contextlib.contextmanager
def connection_told() -> Iterator[None]:
    """Print when the connection is lost and restored; for commands that run on."""
    log, handler = logging.getLogger("ternmq"), _ConnectionTold()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


async def _suggested(client: Administers, error: TernMQError) -> TernMQError | Failed:
    """Return the error with a suggestion of a similar existing name."""
    params = click.get_current_context().params
    topic, group = params.get("topic"), params.get("group")
    if isinstance(error, UnknownTopic):  # it may be another argument, such as where messages go
        said = str(error.args[0]) if error.args else ""
        named = (one for one in params.values() if isinstance(one, str))
        topic = next((one for one in named if f"topic {one!r}" in said), topic)
    if not isinstance(topic, str):
        return error
    try:
        names = [one.spec.name for one in await client.admin.topics()]
        if topic not in names:
            like = near(topic, names)
            text = f"there is no topic {topic!r}, or this app has no right on it"
            return UnknownTopic(text) if not like else not_found(text + like)
        if isinstance(group, str) and isinstance(error, UnknownGroup):
            groups = [one.group for one in await client.admin.groups(topic)]
            if group in groups:
                return error
            text = f"group {group!r} does not consume topic {topic!r}"
            like = near(group, groups)
            return UnknownGroup(text) if not like else not_found(text + like)
    except TernMQError:
        pass
    return error


def names_of(context: click.Context, what: str, timeout: float) -> list[str]:
    """Return names of topics or groups for a shell's completion."""
    found: list[str] = []

    async def ask(client: AdminClient) -> None:
        if what == "topics":
            found.extend([one.spec.name for one in await client.admin.topics()])
        else:
            topic = context.params.get("topic")
            found.extend(sorted({one.group for one in await client.admin.groups(topic)}))

    run_admin(ask, where(context), timeout)
    return found


def confirm(question: str, *, yes: bool, option: str = "--yes") -> None:
    """Return only if the user agrees: by an option, or at the terminal.

    Args:
        question: What the terminal asks.
        yes: Whether the option was given.
        option: The command's option that agrees.

    Raises:
        Failed: The user did not agree; nothing was changed.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        click.echo(question, err=True)  # names what was not done
        raise Failed(f"nothing was changed: add {option} to do it", ExitCode.FAILED)
    with _usual_signals():
        try:
            agreed = click.confirm(question, err=True)
        except click.Abort:
            click.echo(err=True)  # after what was typed
            raise Failed("nothing was changed", ExitCode.INTERRUPTED) from None
    if not agreed:
        raise Failed("nothing was changed", ExitCode.FAILED)


@contextlib.contextmanager
def _usual_signals() -> Iterator[None]:
    """Let signals end a prompt: the event loop, which handles them, is blocked meanwhile."""

    def end(number: int, frame: object) -> None:
        del number, frame
        raise Terminated

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    before_term = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, before_term)


def yes_option(function: Any) -> Any:
    """Add ``--yes``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)
