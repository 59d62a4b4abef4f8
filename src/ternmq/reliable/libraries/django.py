"""Django: its connections and ``transaction.atomic``. The only module that knows it.

Each thread has a connection of its own for each alias, which code finds without being given it. So
a function of the application needs no argument to work in a transaction that was opened here, and
what it sends finds the transaction by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
)
from functools import partial
from typing import Final, NoReturn, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    connection,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper

from ternmq.model.errors import (
    InvalidHandler,
    InvalidRequest,
    NotThisDatabase,
    OutsideTransaction,
)
from ternmq.reliable.database.dialect import dialect_of
from ternmq.reliable.database.port import Result, Values, Work
from ternmq.reliable.libraries.attached import ApplicationDatabase, Attached
from ternmq.reliable.libraries.driver import BEGUN, pyformat
from ternmq.reliable.libraries.forks import still
from ternmq.reliable.libraries.opening import Opened, Transactions, Wanted
from ternmq.reliable.libraries.refusals import is_away, is_denied, is_unprepared, reason
from ternmq.reliable.libraries.standing import NotCommitted, check_driver, check_mark, mark

T = TypeVar("T")

_BEGIN: Final = {
    "postgresql": ("BEGIN ISOLATION LEVEL READ COMMITTED",),
    "mysql": ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"),
    "sqlite": ("BEGIN IMMEDIATE",),
}


class Run:
    """Runs statements on a connection of Django."""

    __slots__ = ("_connection",)

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def run(self, statement: str, values: Values) -> Result:
        """Run a statement; raises ``django.db.Error``."""
        with self._connection.cursor() as cursor:
            cursor.execute(*pyformat(statement, values))
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else ()
            return Result(rows, cursor.rowcount, getattr(cursor, "lastrowid", None) or 0)


class DjangoDatabase:
    """A database of Django's settings. Each thread has a connection of its own, as ever in Django.

    Args:
        using: Its alias.

    Raises:
        InvalidRequest: There is no such alias, the database is of another kind, or Django is not
            configured.
        OutsideTransaction: Its connections are not in autocommit.
    """

    errors: tuple[type[Exception], ...] = (Error,)
    making = "run `manage.py migrate`, with ternmq.reliable.django in INSTALLED_APPS"

    def __init__(self, using: str = "default") -> None:
        try:
            if using not in connections:
                raise InvalidRequest(f"DATABASES of Django's settings has no {using!r}")
            one = connections[using]
        except ImproperlyConfigured as error:
            said = " ".join(str(error).split())
            raise InvalidRequest(f"Django's settings cannot be used: {said}") from error
        if not one.settings_dict["AUTOCOMMIT"]:
            raise OutsideTransaction(
                f"AUTOCOMMIT of database {using!r} is False, so that no statement would be "
                "committed: leave it on, and use transaction.atomic()"
            )
        self.using = using
        self.dialect = dialect_of(one.vendor)
        self.name = _shown(one)
        is_in_memory: Callable[[], bool] = getattr(one, "is_in_memory_db", lambda: False)
        self.alone = is_in_memory()

    @contextmanager
    def reading(self) -> Iterator[Work]:
        """Return a connection in autocommit; see ``Database.reading``."""
        with self._undisturbed():
            yield Run(self._own())

    def _undisturbed(self) -> AbstractContextManager[None]:
        """Return a block that no fork interrupts, where that matters."""
        return still.work() if self.dialect.name == "sqlite" else nullcontext()

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[Work]:
        """Return a transaction; see ``Database.writing``."""
        with self._undisturbed():
            yield from self._written(self._own(), durable=durable)

    def _written(self, connection: BaseDatabaseWrapper, *, durable: bool) -> Iterator[Work]:
        with connection.cursor() as cursor:
            for statement in _BEGIN[self.dialect.name]:
                cursor.execute(statement)
            try:
                if self.dialect.name == "postgresql":
                    cursor.execute(BEGUN[durable])
                yield Run(connection)
            except BaseException:
                if connection.is_usable():
                    cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def _own(self) -> BaseDatabaseWrapper:
        """Return this thread's connection; one that broke, or is too old, is opened again.

        Raises:
            OutsideTransaction: It is in the application's transaction.
        """
        connection = connections[self.using]
        if connection.in_atomic_block:
            raise OutsideTransaction(
                "this thread is inside transaction.atomic(), and this needs a connection of its "
                "own: call it outside"
            )
        if _is_open(connection):
            raise OutsideTransaction(
                "this thread commits by hand (set_autocommit(False)), and this needs a connection "
                "in autocommit: call it after set_autocommit(True)"
            )
        connection.close_if_unusable_or_obsolete()
        connection.ensure_connection()
        return connection

    def close(self) -> None:
        """Do nothing: each thread has a connection of its own; see ``close_here``."""

    def close_here(self) -> None:
        """Close the calling thread's connection, unless a transaction is open."""
        connection = connections[self.using]
        if not connection.in_atomic_block:
            connection.close()

    def close_old(self) -> None:
        """Close the calling thread's connections that broke or are too old, as after a request."""
        _close_old()

    def leave(self) -> None:
        """Do nothing: in a child, Django's connections are as the application left them."""

    def transactions(self) -> Transactions:
        """Return what opens transactions for functions of the application."""
        return DjangoTransactions(self.using)

    def is_same(self, other: ApplicationDatabase) -> bool:
        """Return whether another object has the same alias: an alias is what has connections."""
        return isinstance(other, DjangoDatabase) and other.using == self.using

    def is_away(self, error: Exception) -> bool:
        """Return whether an error says that the database cannot be reached."""
        return is_away(error)

    def is_unprepared(self, error: Exception) -> bool:
        """Return whether an error says that a table or column is missing."""
        return is_unprepared(error)

    def is_denied(self, error: Exception) -> bool:
        """Return whether an error says that the account may not do something."""
        return is_denied(error)

    def reason(self, error: Exception) -> str:
        """Return what the database said, as one line: no statement, no values."""
        return reason(error)

    def knows(self, within: object) -> bool:
        """Return whether a value is a connection of Django."""
        return within is connection or isinstance(within, BaseDatabaseWrapper)

    def attach(self, within: object) -> Attached | None:
        """Return the transaction of ``connections[...]``; None: it is something else.

        Raises:
            NotThisDatabase: It has another alias.
            OutsideTransaction: It is outside ``transaction.atomic``, and in autocommit.
        """
        if within is connection:  # a proxy
            within = connections[DEFAULT_DB_ALIAS]
        if not isinstance(within, BaseDatabaseWrapper):
            return None
        if within.alias != self.using:
            raise NotThisDatabase(f"connection {within.alias!r} is not {self.using!r}")
        if not _is_open(within):
            raise OutsideTransaction("no transaction.atomic() is open: nothing was written")
        return self._attached(within)

    def ambient(self) -> Attached | None:
        """Return the transaction of this thread; None: each of its statements is one."""
        connection = connections[self.using]
        return self._attached(connection) if _is_open(connection) else None

    def _attached(self, connection: BaseDatabaseWrapper) -> Attached:
        told: Callable[[Callable[[], None]], None] | None = partial(_at_commit, self.using)
        if not (connection.in_atomic_block and connection.commit_on_exit):
            told = None  # the application commits by hand, which Django tells nobody
        return Attached(self.dialect, is_unprepared, Run(connection), at_end=told)


class DjangoTransactions:
    """Opens transactions by ``transaction.atomic``; see ``Transactions``.

    Args:
        using: Alias of the database.
    """

    def __init__(self, using: str) -> None:
        self._using = using

    def check(self, name: str, wanted: Sequence[Wanted], *, awaited: bool) -> None:
        """Check that a function can work in these transactions; see ``Transactions``."""
        if awaited:
            self._refuse(name)
        if wanted:
            raise InvalidHandler(
                f"handler {name}: its parameter {wanted[0].name!r} receives a transaction of "
                "SQLAlchemy or of a driver, and its database is Django's, whose models find the "
                "transaction by themselves: leave the parameter out"
            )

    @contextmanager
    def opened(
        self, wanted: Sequence[Wanted], enter: Callable[[Work], T], wait_s: float
    ) -> Iterator[Opened[T]]:
        """Open a transaction for a function that blocks; see ``Transactions``.

        The block is durable, as Django calls it: no other one may be around it, but that of a
        ``TestCase``. Otherwise it would be committed later than the message is acked, or never.
        """
        del wanted
        _close_old()  # there is no request, whose begin and end do that
        try:
            yield from self._opened(enter, wait_s)
        finally:
            _close_old()

    def _opened(self, enter: Callable[[Work], T], wait_s: float) -> Iterator[Opened[T]]:
        connection = connections[self._using]
        self._check_autocommit(connection)
        run, dialect = Run(connection), dialect_of(connection.vendor)
        with ExitStack() as block:
            with _waiting(connection, wait_s):  # SQLite may be told to take the lock at BEGIN
                _begin(block, connection)
                opened = Opened(enter(run))
                mark(run, dialect)
            yield opened
            if opened.undo:
                transaction.set_rollback(True, using=self._using)
                return
            _check_standing(connection)
            check_mark(run, dialect)
            if opened.before_commit is not None:
                opened.before_commit(run)

    def _check_autocommit(self, connection: BaseDatabaseWrapper) -> None:
        """Check that the end of a block commits.

        Raises:
            OutsideTransaction: It would not.
        """
        if not connection.in_atomic_block and not connection.get_autocommit():
            raise OutsideTransaction(
                f"connection {self._using!r} is not in autocommit (AUTOCOMMIT of DATABASES, or "
                "set_autocommit), so transaction.atomic() would not commit"
            )

    def opened_awaited(
        self, wanted: Sequence[Wanted], enter: Callable[[Work], T], wait_s: float
    ) -> AbstractAsyncContextManager[Opened[T]]:
        """Raise InvalidHandler; ``check`` has done so before."""
        del wanted, enter, wait_s
        self._refuse("of this inbox")

    def _refuse(self, name: str) -> NoReturn:
        raise InvalidHandler(
            f"handler {name} is an `async def`, and a transaction of Django belongs to a thread: "
            "make it a `def`, which runs in a thread"
        )

    def close(self) -> None:
        """Do nothing: the connections are Django's."""

    async def close_awaited(self) -> None:
        """Do nothing: the connections are Django's."""

    def leave(self) -> None:
        """Do nothing: in a child, Django's connections are as the application left them."""


def _shown(connection: BaseDatabaseWrapper) -> str:
    """Return a database for texts: a URL without user and password."""
    settings = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{settings['NAME']}"
    port = settings.get("PORT")
    place = f"{settings.get('HOST') or 'localhost'}{f':{port}' if port else ''}"
    return f"{connection.vendor}://{place}/{settings['NAME']}"


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a connection is in a transaction, or the next statement begins one."""
    by_hand = connection.connection is not None and not connection.autocommit
    return connection.in_atomic_block or by_hand


def _close_old() -> None:
    """Close this thread's connections that broke or are too old, unless a transaction is open.

    As ``django.db.close_old_connections``, which closes also those that a ``TestCase`` works with.
    """
    for one in connections.all(initialized_only=True):
        if not one.in_atomic_block:
            one.close_if_unusable_or_obsolete()


def _begin(block: ExitStack, connection: BaseDatabaseWrapper) -> None:
    """Begin the outermost block of a transaction, which ends with ``block``.

    Raises:
        InvalidHandler: There is a block around it already.
    """
    was_inside = connection.in_atomic_block
    try:
        block.enter_context(transaction.atomic(using=connection.alias, durable=True))
    except RuntimeError as error:
        if not was_inside:
            raise
        raise InvalidHandler(
            "this is called inside another transaction.atomic(), whose end would decide about the "
            "effect, later than the message is acked: leave the outer block out"
        ) from error


@contextmanager
def _waiting(connection: BaseDatabaseWrapper, wait_s: float) -> Iterator[None]:
    """Have statements of a block wait so long for SQLite's lock; elsewhere, ``enter`` does that."""
    if connection.vendor != "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        [[before]] = cursor.fetchall()
        cursor.execute(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {before}")


def _check_standing(connection: BaseDatabaseWrapper) -> None:
    """Check that the end of the block will commit what the function did.

    Raises:
        NotCommitted: It will not.
    """
    if connection.needs_rollback:
        raise NotCommitted(
            "the function has marked its transaction for a rollback (set_rollback, or an error "
            "inside an atomic block without savepoint); to roll it back, raise an exception"
        )
    check_driver(connection.connection)


def _at_commit(using: str, call: Callable[[], None]) -> None:
    def committed() -> None:  # ``robust`` names the function in its log
        call()

    transaction.on_commit(committed, using=using, robust=True)
