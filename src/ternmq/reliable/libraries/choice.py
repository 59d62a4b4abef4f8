"""Through which library a database of the application is used: by what the application gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ternmq.model.errors import InvalidRequest
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from ternmq.reliable.libraries.attached import ApplicationDatabase
from ternmq.reliable.libraries.extras import installed
from ternmq.reliable.libraries.opening import Transactions
from ternmq.reliable.libraries.transactions import AlchemyTransactions

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

    from ternmq.reliable.libraries.django import DjangoDatabase


def database_of(database: object, relay: Engine | None = None) -> ApplicationDatabase:
    """Return the database of an engine or a URL, or of ``django_database``.

    Raises:
        InvalidRequest: It is none, or it is in memory.
    """
    django = _django(database)
    if django is None:
        return AlchemyDatabase(database, relay)
    if relay is not None:
        raise InvalidRequest("relay= is for engines of SQLAlchemy: Django makes the connections")
    return django


def transactions_of(database: object) -> Transactions:
    """Return what opens transactions there, for functions of the application.

    Raises:
        InvalidRequest: It is no database.
    """
    django = _django(database)
    return AlchemyTransactions(database) if django is None else django.transactions()


def django_database(using: str) -> ApplicationDatabase:
    """Return a database of Django's settings.

    Args:
        using: Its alias.

    Raises:
        InvalidRequest: There is no such alias, or Django is not configured or not installed.
    """
    with installed("a database of Django"):
        from ternmq.reliable.libraries.django import DjangoDatabase
    return DjangoDatabase(using)


def _django(database: object) -> DjangoDatabase | None:
    """Return a database of Django; None: it is another one. Django is not imported here."""
    if hasattr(database, "using") and hasattr(database, "ambient"):
        return cast("DjangoDatabase", database)
    return None
