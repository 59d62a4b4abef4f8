"""Passes over the table: rows are read, sent, and deleted once they are stored at the broker.

The rows in hand are answered and deleted before others are read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ternmq.reliable.database.lease import Lease, steady_s
from ternmq.reliable.database.prepare import verify
from ternmq.reliable.outbox.backlog import NOTE_S, Answered, Backlog, Plan
from ternmq.reliable.outbox.rows import Ref, Row
from ternmq.reliable.outbox.sending import Sending, count
from ternmq.reliable.outbox.steps import Step
from ternmq.reliable.outbox.table import PAGE_ROWS

log: Final = logging.getLogger("ternmq.reliable")

PAGE_S: Final = 5.0
"""A page that is older is not sent any more: this process may have been frozen."""


class OwnRows:
    """Sends the rows of this process once their transactions have ended. Not thread-safe."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._backlog = Backlog(sending.settings.attempts)

    def send(self, refs: Sequence[Ref]) -> list[Ref]:
        """Send rows; return those that cannot be read yet, or were rolled back.

        What is not stored is left to the compensator. Raises ``Database.errors``.
        """
        sending = self._sending
        with sending.database.reading() as work:
            rows = sending.table.own(work, refs)
        for part in sending.parts(rows):
            self._send(part)
        if len(rows) == len(refs):
            return []
        found = {row.ref for row in rows}
        return [ref for ref in refs if ref not in found]

    def _send(self, rows: list[Row]) -> None:
        sending = self._sending
        rows = sending.whole(rows)
        if not rows:
            return
        ids = [row.id for row in rows]
        sending.steps.tell(Step.SEND, ids)
        outcomes = sending.send(rows, _nothing, 1.0)
        sending.steps.tell(Step.RESPONSE, ids)
        now = steady_s()
        changes = [
            self._backlog.answered(row, outcome, now)
            for row, outcome in zip(rows, outcomes, strict=True)
        ]
        self._backlog.take_over(())  # a row is tried here once
        count(sending.stats, outcomes, changes, resent=False)
        sending.note(changes)


class Compensator:
    """Sends what no other process sends, and what has an order. Not thread-safe.

    Args:
        sending: Sends.
        lease: Without it, nothing is sent.
    """

    def __init__(self, sending: Sending, lease: Lease) -> None:
        self._sending = sending
        self._lease = lease
        self._backlog = Backlog(sending.settings.attempts)
        self._answered = Answered()
        self._renew_s = lease.seconds * 0.3
        self._renew_at = self._patient_until = 0.0
        self._epoch = -1

    def lead(self) -> bool:
        """Take or renew the lease; return whether it is held. Raises ``Database.errors``."""
        sending, lease = self._sending, self._lease
        self._renew_at = steady_s() + self._renew_s
        try:
            # No transaction: a process that is frozen in it would hold the row as well.
            with sending.database.reading() as work:
                held = lease.take(work)
        except sending.database.errors:
            sending.stats.leader = False
            raise
        if held and lease.epoch != self._epoch:
            self._take_over()
        sending.stats.leader, sending.stats.epoch = held, lease.epoch
        return held

    def _take_over(self) -> None:
        """Begin with what the table says: other compensators may have blocked or held rows.

        Raises:
            DatabaseNotPrepared: The tables belong to another version of TernMQ.
        """
        table = self._sending.table
        verify(self._sending.database, table.schema)
        self._write_down()
        with self._sending.database.writing() as work:
            keys = table.blocked_keys(work)
            table.release(work)
        self._backlog.take_over(keys)
        self._epoch = self._lease.epoch

    def give_back(self) -> None:
        """Let others lead at once. Raises ``Database.errors``."""
        self._write_down()
        if self._lease.held:
            with self._sending.database.writing() as work:
                self._lease.give_back(work)
        self._sending.stats.leader = False

    def scan(self) -> bool:
        """Send one page; return whether there may be more. Raises ``Database.errors``."""
        sending, backlog = self._sending, self._backlog
        self._write_down()  # what could not be written at the end of the last page
        sending.steps.tell(Step.SCAN)
        began = steady_s()
        for topic in backlog.to_release(began):
            with sending.database.writing() as work:
                sending.table.release(work, topic)
        with sending.database.reading() as work:
            rows = sending.table.page(
                work,
                resend_after_ms=round(sending.settings.resend_after * 1000),
                lease=self._lease,
            )
        sending.stats.scans += 1
        sending.stats.scan_s = steady_s() - began
        sending.stats.page_rows = len(rows)
        if not rows:
            return False
        plan = backlog.plan(rows, began)
        if plan.hold:
            with sending.database.writing() as work:
                # One that took over does not know of rows that are held behind its back.
                if not self._lease.is_mine(work):
                    return False
                sending.table.hold(work, plan.hold)
        if plan.doubtful:
            self._look_again(sorted(set(plan.doubtful)))
        sent = self._send_all(plan, began)
        self._write_down()
        return (sent or bool(plan.hold)) and len(rows) == PAGE_ROWS

    def _look_again(self, doubtful: list[int]) -> None:
        """Release the rows of keys whose blocking row an operator discarded, or has sent again."""
        sending = self._sending
        with sending.database.writing() as work:
            for begin in range(0, len(doubtful), PAGE_ROWS):
                some = doubtful[begin : begin + PAGE_ROWS]
                found = sending.table.blocking(work, some)
                for topic, key in self._backlog.still_blocking(some, found):
                    sending.table.release(work, topic, key)

    def _send_all(self, plan: Plan, began: float) -> bool:
        """Send the rows of a page; return whether any is stored, and the page was not too old."""
        sent = False
        for wave in plan.waves:
            for part in self._sending.parts(wave):
                if not self._may_send(began):
                    return False
                sent = self._send(part) or sent
                if self._answered.is_due(steady_s()):
                    self._write_down()
        return sent

    def _write_down(self) -> None:
        """Delete the rows that are stored, and note the others. Raises ``Database.errors``."""
        answered = self._answered
        if not answered.changes:
            return
        try:
            self._sending.note(answered.changes, self._lease)
        except BaseException:
            answered.not_written()
            raise
        answered.written()

    def _may_send(self, began: float) -> bool:
        return (
            self._lease.held and steady_s() - began < PAGE_S and not self._sending.ending.is_set()
        )

    def _send(self, rows: list[Row]) -> bool:
        """Send rows of a wave; return whether any is stored."""
        sending, backlog = self._sending, self._backlog
        now = steady_s()
        rows = sending.whole([row for row in rows if not backlog.is_waiting(row, now)])
        if not rows:
            return False
        ids = [row.id for row in rows]
        sending.steps.tell(Step.RESEND, ids)
        outcomes = sending.send(rows, self._meanwhile, NOTE_S)
        sending.steps.tell(Step.RESPONSE, ids)
        now = steady_s()
        changes = [
            backlog.answered(row, outcome, now) for row, outcome in zip(rows, outcomes, strict=True)
        ]
        for row in rows:
            row.body = None  # the rows of a page stay in memory until its end
        self._answered.add(changes, now)
        return count(sending.stats, outcomes, changes, resent=True) > 0

    def _meanwhile(self) -> None:
        """Renew the lease, and delete rows that are stored, while others are not answered yet."""
        now = steady_s()
        if now < self._patient_until:
            return
        try:
            if self._answered.is_due(now):
                self._write_down()
            if now >= self._renew_at:
                self.lead()
        except self._sending.database.errors as error:
            self._patient_until = now + self._renew_s
            reason = self._sending.database.reason(error)
            log.warning("the compensator could not write while it waits for answers: %s", reason)


def _nothing() -> None:
    """Do nothing while answers are awaited."""
