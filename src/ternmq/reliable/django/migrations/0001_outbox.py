"""The tables of the outbox, version 1.

The tables change with their versions, each in a migration of its own; this one makes what the
library makes at present, and later ones find nothing to do in a new database.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from ternmq.reliable.database.dialect import dialect_of
from ternmq.reliable.database.tables import TABLES, migration


def make(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Make the tables, unless `ternmq outbox prepare` has made them."""
    del apps
    dialect = dialect_of(editor.connection.vendor)
    there = editor.connection.introspection.table_names()
    if dialect.table("schema") not in there:
        for statement in migration(dialect):
            editor.execute(statement)


def drop(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Drop the tables, with what is in them."""
    del apps
    dialect = dialect_of(editor.connection.vendor)
    for table in TABLES:
        editor.execute(f"DROP TABLE IF EXISTS {dialect.table(table)}")


class Migration(migrations.Migration):  # type: ignore[misc]
    """Runs on every database that ``migrate`` is called for."""

    operations: ClassVar = [migrations.RunPython(make, drop)]
