"""See docs/guide/database.md."""

from django.db.backends.sqlite3 import base


class DatabaseWrapper(base.DatabaseWrapper):  # type: ignore[misc]  # Django has no types
    """Begins its transactions with the lock for writing."""

    def _start_transaction_under_autocommit(self) -> None:
        self.cursor().execute("BEGIN IMMEDIATE")
