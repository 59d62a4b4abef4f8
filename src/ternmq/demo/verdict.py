"""What the judge says: counts of each group, and what is wrong."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ternmq.demo.plan import Run

MOST_FINDINGS = 20
"""So many findings are told one by one; all are counted."""


class Fault(StrEnum):
    """What can be wrong."""

    LOSS = "loss"
    """A group never worked on a message that is its own."""
    DUPLICATE = "duplicate"
    """It worked on a message again, and nothing explains it."""
    ORDER = "order"
    """It worked on messages of an aircraft in another order, or on two at one time."""
    DEAD_LETTER = "dead letter"
    """A message is among the dead letters that should not be, or the other way round."""
    DAMAGED = "damaged"
    """A body is not the one that was sent."""
    STRANGER = "stranger"
    """It got what is not its own: filtered out, of another topic, or never sent."""
    TORN = "torn file"
    """A process that was not killed left a file that is not whole."""
    TABLE = "table"
    """A table says something else than the flights file."""


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong."""

    fault: Fault
    group: str
    event: str
    detail: str


class GroupVerdict(msgspec.Struct):
    """A group, by what its processes wrote.

    Attributes:
        name: The group.
        owed: Messages that are its own, by the flights file.
        delivered: How often a message was worked on, or failed on.
        redelivered: Of these, what the broker said to have handed out before.
        retried: Of the redelivered: because it had failed.
        repeated: Messages worked on again because a kill took the ack: explained duplicates.
        acked: Messages of which an ack was answered.
        unanswered: Messages that were worked on, and of no ack an answer was written down: a kill
            took it. They came again, or the ack had counted.
        dead: Dead letters.
        order_violations, losses, duplicates: How much is wrong; ``duplicates``: unexplained ones.
        other_faults: How much else is wrong.
        per_second: Deliveries in a second, from the first to the last.
        p50_ms, p99_ms, worst_ms: From send to handler, first deliveries.
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


class TablesVerdict(msgspec.Struct):
    """What the tables hold.

    Attributes:
        wanted, archived: Messages of the flights file; rows of the archive.
        again_wanted, again: Messages of one carrier's day; rows that were sent again.
        traced: Rows of the trace that say done or dead: one for each message and group.
        failures: Failures that they tell of.
        audited: Rows of the audit; all of them say ``ok``, or a finding tells.
        counted: Messages stored, by the counts of the minutes.
        faults: How much is wrong.
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
    """All of it.

    Attributes:
        run: What was asked for.
        flights, messages: How many there are in the flights file.
        without_aircraft: Messages without tail number.
        sent, stored: By the producer's receipts.
        stored_before: Of the stored: what a resend found stored already.
        per_second: Messages stored in a second.
        kills: What was killed.
        groups: The groups.
        findings: What is wrong; the first of each kind and group.
        finding_count: How much is wrong in all.
        tables: What the tables hold; None: none were made.
        planted: The event about which a fault was planted; "": none was.
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
    tables: TablesVerdict | None = None

    @property
    def ok(self) -> bool:
        """Nothing is wrong, and nothing was to be."""
        return self.finding_count == 0 and self.run.sabotage is None

    @property
    def faults(self) -> list[Fault]:
        """What kinds of things are wrong."""
        found = {finding.fault for finding in self.findings}
        return [fault for fault in Fault if fault in found]
