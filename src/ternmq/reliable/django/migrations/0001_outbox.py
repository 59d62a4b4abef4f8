"""The tables of the package, at their present versions.

A change of the tables gets a migration of its own, which does the same: ``prepare`` makes what is
missing and upgrades what is old, and finds nothing to do where `ternmq outbox prepare` was run.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.database.tables import TABLES
from ternmq.reliable.libraries.django import DjangoDatabase


def make(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Make the tables, or upgrade them."""
    del apps
    prepare(DjangoDatabase(editor.connection.alias))


def drop(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Drop the tables, with what is in them."""
    del apps
    dialect = DjangoDatabase(editor.connection.alias).dialect
    for table in TABLES:
        editor.execute(f"DROP TABLE IF EXISTS {dialect.table(table)}")


class Migration(migrations.Migration):  # type: ignore[misc]
    """Runs on every database that ``migrate`` is called for.

    Not in a transaction: MySQL has none around such statements, and ``prepare`` has its own.
    """

    atomic = False
    operations: ClassVar = [migrations.RunPython(make, drop, atomic=False)]
