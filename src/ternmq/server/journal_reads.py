"""JOURNAL_READ: pages of the journal, at once or when there are new records.

The thread that reads the disk makes the pages, never the loop. A parked read is checked when the
durable mark has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from ternmq.access import Authoriser
from ternmq.journal.cold import WouldBlock
from ternmq.journal.page import MAX_BYTES, PageRead
from ternmq.model.errors import (
    Busy,
    CorruptJournal,
    DiskReadError,
    FileMissing,
    InvalidRequest,
    RefusedError,
)
from ternmq.server.hub import Hub
from ternmq.server.ledgers import Places
from ternmq.server.peer import Peer
from ternmq.server.waits import Key, check_id, wait_us
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from ternmq.wire.session import Request

MAX_WAITING: Final = 1000


class _Waiting(NamedTuple):
    peer: Peer
    request: Request
    position: int
    until_us: int


class JournalReads:
    """Handler of JOURNAL_READ. Not thread-safe: call it from the broker's loop."""

    def __init__(self, hub: Hub, authoriser: Authoriser) -> None:
        self._hub = hub
        self._core = hub.core
        self._journal = hub.core.broker.journal
        self._authoriser = authoriser
        self._waiting: dict[Key, _Waiting] = {}
        self._ends: dict[Key, Callable[[], None]] = {}
        """Functions that cancel the timers of ``_waiting``."""
        self._places = Places(MAX_WAITING)
        self._seen = 0
        """The durable mark at the last check of the parked reads."""

    def read(self, peer: Peer, request: Request) -> None:
        """JOURNAL_READ: answer with the records from a position on, or wait for some."""
        self._authoriser.check(peer.app, Command.JOURNAL_READ)
        asked = bodies.unpack_journal_read(request.body)
        check_id(peer, request)
        journal, now = self._journal, self._core.now_us()
        until_us = request.until_us or now + wait_us(asked.wait_ms)
        if asked.position > journal.end:
            raise InvalidRequest(
                f"position {asked.position} is above {journal.end}, where the journal ends"
            )
        if asked.position < journal.first:
            self._answer(peer, request, asked.position, asked.position, b"", expired=True)
        elif asked.position < journal.durable:
            self._begin(peer, request, asked)
        elif until_us <= now:
            self._answer(peer, request, asked.position, asked.position, b"")
        else:
            self._park(peer, request, asked.position, until_us)

    def _begin(self, peer: Peer, request: Request, asked: bodies.JournalRead) -> None:
        journal = self._journal
        page = PageRead(
            self._core.disk,
            journal.segment_size,
            asked.position,
            journal.durable,
            asked.max_bytes or MAX_BYTES,
            with_bodies=not asked.without_bodies,
        )
        self._core.read_first(WouldBlock(page), partial(self._read, peer, request, page), peer)

    def _read(self, peer: Peer, request: Request, page: PageRead) -> None:
        """Answer with a page that was read from the disk."""
        if peer.closed:
            return
        if not peer.roomy:
            peer.put_back(request)
            return
        error = page.error
        if page.position < self._journal.first:  # retention was quicker
            self._answer(peer, request, page.position, page.position, b"", expired=True)
        elif error is None:
            self._answer(peer, request, page.position, page.next, page.records)
        elif isinstance(error, DiskReadError | CorruptJournal):
            peer.refuse(request, self._core.unreadable(error))
        elif isinstance(error, FileMissing):
            peer.refuse(request, self._core.unreadable(CorruptJournal(str(error.args[0]))))
        else:
            assert isinstance(error, RefusedError)
            peer.refuse(request, error)

    def _answer(
        self,
        peer: Peer,
        request: Request,
        position: int,
        next_: int,
        records: bytes,
        *,
        expired: bool = False,
    ) -> None:
        journal = self._journal
        head = bodies.records_head(position, next_, journal.first, journal.durable, expired=expired)
        peer.answer(request, head + records)

    # -- waiting ----------------------------------------------------------------------------------

    def _park(self, peer: Peer, request: Request, position: int, until_us: int) -> None:
        if not self._places.take(peer.app):
            raise Busy(
                f"{self._places.of(peer.app)} reads of the journal wait for this app,"
                f" {self._places.taken} for all; there are {MAX_WAITING} places"
            )
        key = (peer, request.id)
        self._waiting[key] = _Waiting(peer, request, position, until_us)
        peer.waiting.add(request.id)
        self._end_at(key, until_us)
        peer.park(request)

    def _unpark(self, key: Key) -> _Waiting:
        self._ends.pop(key)()
        waiting = self._waiting.pop(key)
        waiting.peer.waiting.discard(waiting.request.id)
        self._places.give(waiting.peer.app)
        waiting.peer.unpark(waiting.request)
        return waiting

    def _end_at(self, key: Key, until_us: int) -> None:
        core = self._core
        at = core.clocks.monotonic_us() + max(0, until_us - core.now_us())
        self._ends[key] = core.clocks.call_at(at, partial(self._time_over, key))

    def _time_over(self, key: Key) -> None:
        """End a read whose time is over; set the timer again if broker time is behind it."""
        until_us = self._waiting[key].until_us
        self._core.touch()
        if self._core.now_us() < until_us:
            self._end_at(key, until_us)
        else:
            self._again(key, until_us)

    def wake(self) -> None:
        """Run the parked reads again for which there are records now."""
        durable = self._journal.durable
        if not self._waiting or durable == self._seen:
            return
        self._seen = durable
        for key, waiting in list(self._waiting.items()):
            if waiting.position < durable:
                self._again(key, waiting.until_us)

    def _again(self, key: Key, until_us: int) -> None:
        waiting = self._unpark(key)
        peer, request = waiting.peer, waiting.request.until(max(1, until_us))
        if peer.roomy:
            self._hub.commands.run(peer, request)
        else:
            peer.put_back(request)

    def end(self, peer: Peer, id_: int) -> None:
        """Answer a parked read at once."""
        if (peer, id_) in self._waiting:
            self._again((peer, id_), 1)

    def end_all(self, peer: Peer) -> None:
        """Answer all parked reads of a connection at once."""
        for other, id_ in list(self._waiting):
            if other is peer:
                self.end(peer, id_)

    def withdraw(self, peer: Peer) -> list[Request]:
        """Take a connection's parked reads back, to run again later; they keep their deadlines."""
        found: list[Request] = []
        for key in [one for one in self._waiting if one[0] is peer]:
            waiting = self._unpark(key)
            found.append(waiting.request.until(waiting.until_us))
        return found
