"""An application with Django, as a process: ``python -m tests.black_box.django_shop``.

Arguments: the URL of its database, that of the broker, the topic, and a folder. Nothing in its
transactions names the outbox. At the end of each, when the compensator has looked for rows, it says
so (``NAME.there`` in the folder), and waits until it may go on (``NAME.go``):

    undone      rolled back, with a row of the business and a message
    done        committed; a savepoint in it was rolled back

Then it sends a message outside of any transaction.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.integration.reliable.django_project import set_up

LEASE: Final = "SELECT max(until_ms) FROM ternmq_lease"


class UndoError(Exception):
    """Rolls a transaction back."""


def main(database: str, broker: str, topic: str, folder: str) -> None:
    """Work, and end."""
    set_up(database)
    from django.db import connection, transaction

    import ternmq.sync
    from ternmq.reliable import Outbox

    client = ternmq.sync.connect(broker)
    outbox = Outbox.django(client)
    outbox.start()
    pause = threading.Event()

    def wait(ready: Callable[[], bool]) -> None:
        while not ready():
            pause.wait(0.01)

    def asked(statement: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone() if cursor.description else None

    def stand(name: str) -> None:
        looks = outbox.stats().scans
        wait(lambda: outbox.stats().scans >= looks + 2)  # the compensator has looked for rows
        (Path(folder) / f"{name}.there").touch()
        wait((Path(folder) / f"{name}.go").exists)

    def renewed() -> None:
        """Have the compensator time for looks before it must write: SQLite has one writer."""
        before = asked(LEASE)
        wait(lambda: bool(asked(LEASE) != before))

    def order(body: bytes) -> None:
        asked("INSERT INTO orders VALUES (1)")
        assert client.send(topic, body).pending

    def undone(body: bytes, name: str = "") -> None:
        with suppress(UndoError), transaction.atomic():
            order(body)
            if name:
                stand(name)
            raise UndoError

    asked("CREATE TABLE orders (id INTEGER)")
    renewed()
    undone(b"never", "undone")
    renewed()
    with transaction.atomic():
        order(b"done")
        undone(b"of a savepoint that was rolled back")
        stand("done")
    outbox.flush(30)
    assert not client.send(topic, b"outside").pending
    outbox.close()
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
