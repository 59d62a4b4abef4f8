"""The verdict of the judge: counts of each group, and faults."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ternmq.demo.plan import Run

MOST_FINDINGS = 20
"""Most findings listed of a kind and group; all are counted."""


class Fault(StrEnum):
    """Kinds of faults."""

    LOSS = "loss"
    """A group never handled one of its messages."""
    DUPLICATE = "duplicate"
    """It handled a message again without a cause."""
    ORDER = "order"
    """It handled messages of an aircraft in another order, or two at a time."""
    EARLY = "early"
    """A reminder was delivered before it was due."""
    CANCELLED = "cancelled"
    """A reminder was delivered although its cancel was answered."""
    HALF = "half"
    """Of a booking, one message came without the other, or one that was not paid came."""
    DEAD_LETTER = "dead letter"
    """A message is a dead letter and should not be, or the other way round."""
    DAMAGED = "damaged"
    """A body differs from the one that was sent."""
    STRANGER = "stranger"
    """It received a message that is not its own: filtered out, of another topic, or never sent."""
    TORN = "torn file"
    """The file of a process that was not killed is incomplete."""
    TABLE = "table"
    """A table differs from the flights file."""


class Finding(msgspec.Struct, frozen=True):
    """A fault that was found."""

    fault: Fault
    group: str
    event: str
    detail: str


class GroupVerdict(msgspec.Struct):
    """The verdict on a group, from the records of its processes.

    Attributes:
        name: The group.
        owed: Messages of the group, by the flights file.
        delivered: Number of times a message was handled or failed.
        redelivered: How many of these the broker marked as delivered before.
        retried: How many of the redelivered had failed before.
        repeated: Messages handled again because a kill lost the ack: explained duplicates.
        acked: Messages with an answered ack.
        unanswered: Messages that were handled without a record of an answered ack: lost in a kill.
            They came again, or the ack had counted.
        dead: Dead letters.
        order_violations, losses, duplicates: Numbers of faults; ``duplicates``: unexplained ones.
        other_faults: Number of other faults.
        per_second: Deliveries per second, from the first to the last.
        p50_ms, p99_ms, worst_ms: From send to handler, first deliveries; of reminders: from their
            due time.
    """

    name: str
    owed: int = 0
    delivered: int = 0
    redelivered: int = 0
    retried: int = 0
    repeated: int = 0
    acked: int = 0
    unanswered: int = 0
    dead: int = 0
    order_violations: int = 0
    losses: int = 0
    duplicates: int = 0
    other_faults: int = 0
    per_second: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    worst_ms: float = 0.0


class RemindersVerdict(msgspec.Struct):
    """What became of the reminders, by the producer's records.

    Attributes:
        scheduled: Reminders that were sent.
        cancelled: How many of these were cancelled.
        too_late: Cancels that were refused, because the reminder was delivered before.
    """

    scheduled: int = 0
    cancelled: int = 0
    too_late: int = 0


class BookingsVerdict(msgspec.Struct):
    """What became of the bookings, by the records of the cashiers.

    Attributes:
        paid: Bookings that were paid.
        finished: How many of these a checker finished, because the cashier had been killed.
        again: How many were paid in a second transaction, because the first one was rolled back.
        refused: Bookings whose card was refused; none of their messages was delivered.
    """

    paid: int = 0
    finished: int = 0
    again: int = 0
    refused: int = 0


class TablesVerdict(msgspec.Struct):
    """The verdict on the tables.

    Attributes:
        wanted, archived: Messages of the flights file; rows of the archive.
        again_wanted, again: Messages of one carrier's day; rows that were sent again.
        traced: Rows of the trace in state done or dead: one for each message and group.
        failures: Failures in the trace.
        audited: Rows of the audit; each one that is not ``ok`` is a finding.
        counted: Messages stored, by the statistics of the minutes.
        faults: Number of faults.
    """

    wanted: int = 0
    archived: int = 0
    again_wanted: int = 0
    again: int = 0
    traced: int = 0
    failures: int = 0
    audited: int = 0
    counted: int = 0
    faults: int = 0


class Verdict(msgspec.Struct):
    """The verdict on a run.

    Attributes:
        run: The options of the run.
        flights, messages: Their numbers in the flights file.
        without_aircraft: Messages without tail number.
        sent, stored: By the producer's receipts.
        stored_before: How many of the stored a resend found stored already.
        per_second: Messages stored per second.
        kills: The processes that were killed.
        groups: The groups.
        findings: Faults; the first ones of each kind and group.
        finding_count: Number of all faults.
        tables: The verdict on the tables; None: none were made.
        reminders: The numbers of reminders.
        bookings: The numbers of bookings.
        planted: The event with a planted fault; "": none was planted.
    """

    run: Run
    flights: int = 0
    messages: int = 0
    without_aircraft: int = 0
    sent: int = 0
    stored: int = 0
    stored_before: int = 0
    per_second: float = 0.0
    kills: list[str] = msgspec.field(default_factory=list)
    groups: list[GroupVerdict] = msgspec.field(default_factory=list)
    findings: list[Finding] = msgspec.field(default_factory=list)
    finding_count: int = 0
    planted: str = ""
    reminders: RemindersVerdict = msgspec.field(default_factory=RemindersVerdict)
    bookings: BookingsVerdict = msgspec.field(default_factory=BookingsVerdict)
    tables: TablesVerdict | None = None

    @property
    def ok(self) -> bool:
        """No fault was found, and none was planted."""
        return self.finding_count == 0 and self.run.sabotage is None

    @property
    def faults(self) -> list[Fault]:
        """The kinds of faults found."""
        found = {finding.fault for finding in self.findings}
        return [fault for fault in Fault if fault in found]
