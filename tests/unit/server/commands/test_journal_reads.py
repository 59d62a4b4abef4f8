"""JOURNAL_READ at any byte: what its search remembers goes with the segments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ternmq.journal.reader.starts import RecordStarts
from ternmq.model.types import Position
from ternmq.server.commands.journal_reads import JournalReads
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from ternmq.wire.session import Request
from tests.unit.journal.reader.test_starts import SEGMENT, filled


def test_what_retention_removed_is_forgotten():
    journal = filled([(20_000, 0)] * 12)
    core: Any = SimpleNamespace(
        broker=SimpleNamespace(journal=journal), disk=journal._disk, now_us=lambda: 1,
        cold_reads=SimpleNamespace(read=lambda work, then, caller: (work.job.run(), then())),
    )  # fmt: skip
    answers: list[bytes] = []
    caller: Any = SimpleNamespace(
        app="shop", closed=False, roomy=True, waiting={},
        answer=lambda request, body: answers.append(body),
    )  # fmt: skip
    allowed: Any = SimpleNamespace(check=lambda app, command: None)
    reads = JournalReads(SimpleNamespace(core=core), allowed)  # type: ignore[arg-type]

    def read(position):
        body = bodies.pack_journal_read(bodies.JournalRead(position, 100, 0, True, True))
        reads.read(caller, Request(Command.JOURNAL_READ, 1, body, False))
        return bodies.unpack_records(answers.pop())

    starts: RecordStarts = reads._starts
    for base in range(0, 3 * SEGMENT, SEGMENT):
        assert read(base + 90).position > base + 90
    assert list(starts._passed) == [0, SEGMENT, 2 * SEGMENT]
    journal.first = Position(2 * SEGMENT)
    assert read(90).expired
    assert read(3 * SEGMENT + 90).position > 3 * SEGMENT
    assert list(starts._passed) == [2 * SEGMENT, 3 * SEGMENT]
