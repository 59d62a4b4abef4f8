"""The threads of an outbox in one process: one sends its own rows, one is the compensator."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from ternmq.model.errors import TernMQError
from ternmq.reliable.database.lease import RENEW_S, Lease, steady_s
from ternmq.reliable.database.port import Database
from ternmq.reliable.database.trouble import Trouble
from ternmq.reliable.outbox.relay import Compensator, OwnRows
from ternmq.reliable.outbox.rows import Ref
from ternmq.reliable.outbox.sending import Sending, Settings
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Steps
from ternmq.reliable.outbox.table import PAGE_ROWS, Table
from ternmq.sync.client import Client

log: Final = logging.getLogger("ternmq.reliable")

AGAIN_S: Final = (0.01, 0.05, 0.25)
"""When rows are looked for again that could not be read: a hook may tell of a commit too early."""
_SCAN_SHARE: Final = 20
"""A look for rows is followed by a pause of so many times its length."""
_MOST_OPEN: Final = 50_000
"""Most rows that are kept in memory by number and id."""
_CLEAN_S: Final = 60.0


class Open:
    """Rows that this process wrote, not known to be stored. Callable from any thread.

    Attributes:
        beyond: Largest number of a row that was forgotten because there were too many; 0: none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refs: dict[Ref, None] = {}
        self.beyond = 0

    def add(self, refs: Sequence[Ref]) -> None:
        """Note rows that were written; beyond ``_MOST_OPEN``, the oldest ones are forgotten."""
        with self._lock:
            self._refs.update(dict.fromkeys(refs))
            while len(self._refs) > _MOST_OPEN:
                oldest = next(iter(self._refs))
                del self._refs[oldest]
                self.beyond = max(self.beyond, oldest.seq)

    def remove(self, refs: Sequence[Ref]) -> None:
        """Note rows that are stored, or were rolled back."""
        with self._lock:
            for ref in refs:
                self._refs.pop(ref, None)

    def some(self, count: int = PAGE_ROWS) -> list[Ref]:
        """Return some of them, the oldest first."""
        with self._lock:
            return [ref for _, ref in zip(range(count), self._refs, strict=False)]

    def __len__(self) -> int:
        return len(self._refs)


class Threads:
    """The two threads; they do not keep the process alive.

    Args:
        database: Where the rows are; closed at the end.
        table: Their table.
        client: A client of this object's own; closed at the end.
        settings: Those of the outbox.
        steps: Are told.
        stats: Count.
    """

    def __init__(
        self,
        database: Database,
        table: Table,
        client: Client,
        settings: Settings,
        steps: Steps,
        stats: OutboxStats,
    ) -> None:
        self.open = Open()
        self.stats = stats
        self._database = database
        self._table = table
        self._client = client
        self._settings = settings
        self._ended = threading.Event()
        self._woken = threading.Condition()
        self._ready: list[Ref] = []
        self._again: list[tuple[float, int, int, list[Ref]]] = []
        """Heap: when to look again, a number of its own, how often it was looked, rows."""
        self._numbers = itertools.count()
        self._scan = threading.Event()
        self.lease = Lease(database.dialect, "compensator", table.schema)
        self._sendings = [
            Sending(database, table, client, settings, steps, stats, self.open.remove)
            for _ in range(2)
        ]
        self._compensator = Compensator(self._sendings[1], self.lease)
        self._own = OwnRows(self._sendings[0])
        targets: list[tuple[str, Callable[[], None]]] = [("ternmq-outbox", self._send_own)]
        if settings.compensate:
            targets.append(("ternmq-compensator", self._compensate))
        self._threads = [
            threading.Thread(target=self._run, args=(target,), name=name, daemon=True)
            for name, target in targets
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, target: Callable[[], None]) -> None:
        try:
            target()
        finally:
            self._database.close_here()

    # -- from the application's threads -----------------------------------------------------------

    def ended(self, refs: Sequence[Ref]) -> None:
        """Send rows of this process: their transaction has ended. Callable from any thread."""
        with self._woken:
            if len(self._ready) > _MOST_OPEN:  # the broker is away: the compensator sends them
                self.stats.unseen += len(refs)
                return
            self._ready += refs
            self._woken.notify()

    def look(self) -> None:
        """Have the compensator look for rows now, if it leads. Callable from any thread."""
        self._scan.set()

    def left(self) -> int:
        """Return how many rows of this process are committed and not stored, at least."""
        refs, beyond = self.open.some(), self.open.beyond
        with self._database.reading() as work:
            rows = self._table.unsent(work, refs)
            found = set(rows)
            self.open.remove([ref for ref in refs if ref not in found])
            if beyond and not self._table.is_unsent_up_to(work, beyond):
                self.open.beyond = 0 if self.open.beyond == beyond else self.open.beyond
        return max(len(self.open), self.open.beyond > 0)

    def close(self, timeout: float) -> None:
        """Send what waits, for a while; give the lease back; end the threads."""
        until = steady_s() + timeout
        self._ended.set()
        self._scan.set()
        with self._woken:
            self._woken.notify()
        own, *others = self._threads
        own.join(max(0.0, until - steady_s()))
        for thread in others:  # it ends when its page is answered and deleted
            thread.join(max(0.0, until - steady_s()))
        for sending in self._sendings:
            sending.ending.set()
        try:
            self._client.close(0)
        except TernMQError as error:
            log.debug("the client of the outbox: %s", error)  # the rows are still there
        for thread in (own, *others):
            thread.join(1.0 + max(0.0, until - steady_s()))
            if thread.is_alive():
                log.warning("thread %s of the outbox did not end: the database does not answer",
                            thread.name)  # fmt: skip
        self._database.close()

    # -- the thread that sends own rows -----------------------------------------------------------

    def _send_own(self) -> None:
        trouble = Trouble(self._database, "the outbox")
        while True:
            refs, tries = self._next()
            if not refs:
                return
            try:
                missing = self._own.send(refs)
            except Exception as error:  # noqa: BLE001 - logged; the thread must not end
                pause = trouble.at(error)
                # The compensator has them, too: here they are tried as often as those unread.
                missing = list(refs)
                if self._ended.wait(pause):
                    return
            else:
                trouble.over()
            if missing:
                self._look_again(missing, tries)

    def _next(self) -> tuple[list[Ref], int]:
        """Wait for rows; return some, and how often they were looked for; none: the end."""
        with self._woken:
            while True:
                now = steady_s()
                if self._ready:
                    refs, self._ready = self._ready[:PAGE_ROWS], self._ready[PAGE_ROWS:]
                    return refs, 0
                if self._again and (self._again[0][0] <= now or self._ended.is_set()):
                    _, _, tries, refs = heapq.heappop(self._again)
                    return refs, tries
                if self._ended.is_set():
                    return [], 0
                self._woken.wait(self._again[0][0] - now if self._again else None)

    def _look_again(self, refs: list[Ref], tries: int) -> None:
        if tries == len(AGAIN_S) or self._ended.is_set():
            self.stats.unseen += len(refs)
            return
        with self._woken:
            when = steady_s() + AGAIN_S[tries]
            heapq.heappush(self._again, (when, next(self._numbers), tries + 1, refs))

    # -- the compensator --------------------------------------------------------------------------

    def _compensate(self) -> None:
        trouble = Trouble(self._database, "the outbox")
        compensator, settings = self._compensator, self._settings
        lead_at = clean_at = 0.0
        leads = False
        while not self._ended.is_set():
            pause = RENEW_S
            try:
                if steady_s() >= lead_at or (leads and not self.lease.held):
                    leads = compensator.lead()
                    lead_at = steady_s() + RENEW_S
                if leads:
                    if steady_s() >= clean_at:
                        self._clean()
                        clean_at = steady_s() + _CLEAN_S
                    self._scan.clear()
                    more = compensator.scan()
                    longest = max(settings.poll, _SCAN_SHARE * self.stats.scan_s)
                    pause = 0.0 if more else min(longest, RENEW_S)
                else:
                    self._scan.clear()
                    pause = max(0.0, lead_at - steady_s())
                trouble.over()
            except Exception as error:  # noqa: BLE001 - logged; the thread must not end
                self.lease.forget()
                leads, lead_at = False, 0.0
                self._ended.wait(trouble.at(error))
                continue
            if pause:
                self._scan.wait(pause)
        try:
            compensator.give_back()
        except self._database.errors as error:
            log.debug("the lease was not given back: %s", error)  # it ends by itself

    def _clean(self) -> None:
        """Delete rows that were kept long enough."""
        if self._settings.keep_sent is None:
            return
        keep_ms = round(self._settings.keep_sent * 1000)
        while not self._ended.is_set() and self.lease.held:
            with self._database.writing() as work:
                if self._table.clean(work, keep_ms) == 0:
                    return
