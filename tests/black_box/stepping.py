"""A program with a consumer of orderly sessions, for tests that kill it.

``python -m tests.black_box.stepping BROKER DATABASE FOLDER [OPTIONS]``, options as JSON. A step is
a row of the table ``done``. Step 2 of session ``a`` waits in its transaction while there is a file
``hold-do-a-2`` in the folder, and fails while there is ``fail-do-a-2``; its undoing likewise.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.reliable import SequenceStep, Steps
from ternmq.reliable.steps import course

INSERT = sa.text("INSERT INTO done (session, number, what) VALUES (:session, :number, :what)")


def main() -> None:
    url, database, place, *more = sys.argv[1:]
    folder, options = Path(place), json.loads(more[0]) if more else {}
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    course.FIRST_BACKOFF_MS = 50  # type: ignore[misc]  # a test does not wait for a second
    client = ternmq.sync.connect(url)
    engine = sa.create_engine(database)
    topic = ternmq.Topic("transfers", ordered=True)
    transfers = Steps(client, topic, group="bank", database=engine, **options)

    def note(step: SequenceStep, session: Session, what: str) -> None:
        values = {"session": step.session, "number": step.number, "what": what}
        session.execute(INSERT, values)
        name = f"{what}-{step.session}-{step.number}"
        if (folder / f"hold-{name}").exists():
            (folder / f"at-{name}").touch()
            while (folder / f"hold-{name}").exists():
                time.sleep(0.01)
        if (folder / f"fail-{name}").exists():
            raise ValueError(f"{name} fails")

    @transfers.step
    def do(step: SequenceStep, session: Session) -> None:
        note(step, session, "do")

    @transfers.undo
    def undo(step: SequenceStep, session: Session) -> None:
        note(step, session, "undo")

    client.run()


if __name__ == "__main__":
    main()
