"""JOURNAL_READ: pages of the journal, at once or when there are new records.

The thread that reads the disk makes the pages, never the loop. A parked read is checked when the
durable mark has moved.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ternmq.access import Authoriser
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.reader.page import MAX_BYTES, PageRead
from ternmq.journal.reader.starts import RecordStarts
from ternmq.model.errors import (
    CorruptJournal,
    DiskReadError,
    FileMissing,
    InvalidRequest,
    RefusedError,
)
from ternmq.server.commands.waits import Wait, Waiting, check_id, wait_us
from ternmq.server.desk.accounts import Places
from ternmq.server.desk.desk import Desk
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller
from ternmq.wire.session import Request

MAX_WAITING: Final = 1000


class JournalReads:
    """Handler of JOURNAL_READ. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: Desk, authoriser: Authoriser) -> None:
        self._desk = desk
        self._core = desk.core
        self._journal = desk.core.broker.journal
        self._authoriser = authoriser
        self._starts = RecordStarts(desk.core.disk, self._journal.segment_size)
        """Used by pages alone, which the thread that reads makes one at a time."""
        self.waiting: Waiting[int] = Waiting(
            desk.core, Places(MAX_WAITING), self._end, over=self._again
        )
        """Reads that wait, with the position from which they read."""
        self._seen = 0
        """The durable mark at the last check of the parked reads."""

    def read(self, caller: Caller, request: Request) -> None:
        """JOURNAL_READ: answer with the records from a position on, or wait for some."""
        self._authoriser.check(caller.app, Command.JOURNAL_READ)
        asked = bodies.unpack_journal_read(request.body)
        check_id(caller, request)
        journal, now = self._journal, self._core.now_us()
        until_us = request.until_us or now + wait_us(asked.wait_ms)
        if asked.position > journal.end:
            raise InvalidRequest(
                f"position {asked.position} is above {journal.end}, where the journal ends"
            )
        if asked.position < journal.first:
            self._answer(caller, request, asked.position, asked.position, b"", expired=True)
        elif asked.position < journal.committed:
            self._begin(caller, request, asked)
        elif until_us <= now:
            self._answer(caller, request, asked.position, asked.position, b"")
        else:
            self.waiting.take_place(caller)
            self.waiting.add(caller, request, until_us, asked.position)

    def _begin(self, caller: Caller, request: Request, asked: bodies.JournalRead) -> None:
        journal = self._journal
        self._starts.oldest = journal.first
        page = PageRead(
            self._core.disk,
            journal.segment_size,
            asked.position,
            journal.committed,
            asked.max_bytes or MAX_BYTES,
            with_bodies=not asked.without_bodies,
            starts=self._starts if asked.anywhere else None,
        )
        self._core.cold_reads.read(
            WouldBlock(page), partial(self._read, caller, request, page), caller
        )

    def _read(self, caller: Caller, request: Request, page: PageRead) -> None:
        """Answer with a page that was read from the disk."""
        if caller.closed:
            return
        if not page.begun:
            self._core.cold_reads.read(
                WouldBlock(page), partial(self._read, caller, request, page), caller
            )
            return
        if not caller.roomy:
            caller.put_back(request)
            return
        error = page.error
        if page.position < self._journal.first:  # retention was quicker
            self._answer(caller, request, page.position, page.position, b"", expired=True)
        elif error is None:
            self._answer(caller, request, page.position, page.next, page.records)
        elif isinstance(error, DiskReadError | CorruptJournal):
            caller.refuse(request, self._core.unreadable(error))
        elif isinstance(error, FileMissing):
            caller.refuse(request, self._core.unreadable(CorruptJournal(str(error.args[0]))))
        else:
            assert isinstance(error, RefusedError)
            caller.refuse(request, error)

    def _answer(
        self,
        caller: Caller,
        request: Request,
        position: int,
        next_: int,
        records: bytes,
        *,
        expired: bool = False,
    ) -> None:
        journal = self._journal
        head = bodies.records_head(
            position, next_, journal.first, journal.committed, expired=expired
        )
        caller.answer(request, head + records)

    # -- waiting ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Run the parked reads again for which there are records now."""
        committed = self._journal.committed
        if not self.waiting.of or committed == self._seen:
            return
        self._seen = committed
        for wait in self.waiting.all():
            if wait.what < committed and not wait.over:
                self._again(wait)

    def _again(self, wait: Wait[int]) -> None:
        """Run a read again that waits; it may wait again."""
        self.waiting.remove(wait)
        self._run(wait.caller, wait.again)

    def _end(self, wait: Wait[int]) -> None:
        """Answer a read at once."""
        self._run(wait.caller, wait.request.until(1))

    def _run(self, caller: Caller, request: Request) -> None:
        if caller.roomy:
            self._desk.commands.run(caller, request)
        else:
            caller.put_back(request)
