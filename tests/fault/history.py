"""The history of a worker: one JSON object a line, in the order in which things became known.

    begin    a reign: epoch, position below which hand-outs may repeat, session, what was cut
    try      a send is about to be decided
    sent     ... was answered: queue, first offset (null: durability fast), duplicate or not
    refused  ... was refused: nothing of it is stored
    out      rows were handed to a consumer
    settle   a settle is about to be decided
    settled  ... was answered: the rows that it was valid for
    expired  ... was refused as a whole
    failed   the journal has failed, nothing is answered any more
    closed   a clean stop

The file lies on another file system than the broker's. It is written by one ``write`` a line and
not synced: it must survive the process, not the machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class History:
    """Appends to a history.

    Args:
        path: Of the file; made if it is not there.
        answers: Descriptor that gets one byte for every answer, for whoever waits for them.
    """

    def __init__(self, path: str, answers: int | None = None) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._answers = answers

    def write(self, op: str, **fields: object) -> None:
        """Append a line."""
        os.write(self._fd, json.dumps({"op": op, **fields}).encode() + b"\n")
        if self._answers is not None and op in ("sent", "settled"):
            os.write(self._answers, b".")


def read(path: str | Path) -> list[Line]:
    """Return the lines of a history; a last line that was cut short was never finished."""
    return list(_lines(Path(path)))


def _lines(path: Path) -> Iterator[Line]:
    if not path.exists():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)
