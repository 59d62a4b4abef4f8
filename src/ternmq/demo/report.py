"""The final table, and the text about faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from rich import box
from rich.table import Table

from ternmq.demo.judge.verdict import GroupVerdict, TablesVerdict, Verdict

_ROWS: Final[tuple[tuple[str, Callable[[GroupVerdict], str]], ...]] = (
    ("expected", lambda group: f"{group.owed:,}"),
    ("delivered", lambda group: f"{group.delivered:,}"),
    ("redelivered", lambda group: f"{group.redelivered:,}"),
    ("  after a failure", lambda group: f"{group.retried:,}"),
    ("  repeated after a kill", lambda group: f"{group.repeated:,}"),
    ("acked", lambda group: f"{group.acked:,}"),
    ("ack lost in a kill", lambda group: f"{group.unanswered:,}"),
    ("dead-lettered", lambda group: f"{group.dead:,}"),
    ("order violations", lambda group: f"{group.order_violations:,}"),
    ("losses", lambda group: f"{group.losses:,}"),
    ("unexplained duplicates", lambda group: f"{group.duplicates:,}"),
    ("deliveries/s", lambda group: f"{group.per_second:,.0f}"),
    ("send to handler p50", lambda group: _time(group.p50_ms)),
    ("                p99", lambda group: _time(group.p99_ms)),
    ("                worst", lambda group: _time(group.worst_ms)),
)
_FAULTS: Final = {"order violations", "losses", "unexplained duplicates"}


def table_of(verdict: Verdict) -> Table:
    """Return the final table; it fits into 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("")
    for group in verdict.groups:
        table.add_column(group.name, justify="right")
    for name, value in _ROWS:
        cells = [value(group) for group in verdict.groups]
        bad = name in _FAULTS and any(cell != "0" for cell in cells)
        good = name in _FAULTS and not bad
        table.add_row(name, *cells, style="bold red" if bad else "green" if good else None)
    return table


def summary_of(verdict: Verdict) -> Iterator[str]:
    """Yield the lines above the table."""
    yield (
        f"sent {verdict.sent:,}, stored {verdict.stored:,} at {verdict.per_second:,.0f}/s"
        f" ({verdict.stored_before:,} were sent again, and were already stored)"
    )
    yield (
        f"{verdict.messages:,} messages about {verdict.flights:,} flights,"
        f" {verdict.without_aircraft:,} of them not ordered;"
        f" killed: {', '.join(verdict.kills) or 'nothing'}"
    )
    reminders = verdict.reminders
    yield (
        f"{reminders.scheduled:,} reminders were scheduled, {reminders.cancelled:,} of them were"
        f" cancelled ({reminders.too_late:,} cancels came too late)"
    )
    bookings = verdict.bookings
    yield (
        f"{bookings.paid:,} bookings were paid in transactions, {bookings.finished:,} of them by a"
        f" checker and {bookings.again:,} a second time, after the cashier was killed;"
        f" {bookings.refused:,} were refused"
    )


def about_tables(found: TablesVerdict) -> Iterator[str]:
    """Yield the lines below the table, about the tables that Spark made."""
    yield (
        f"archive {found.archived:,} of {found.wanted:,} messages; trace {found.traced:,} done or"
        f" dead, with {found.failures:,} failures; counted {found.counted:,}"
    )
    yield (
        f"audit: {found.audited:,} rows, "
        + ("all ok" if not found.faults else "see below")
        + f"; sent again {found.again:,} of {found.again_wanted:,}, in their order"
    )


NOTE: Final = (
    "Send to handler: the time from the producer's batch to the start of the handler, by the wall"
    " clock of this machine, at first deliveries; of reminders (gate), from the time at which they"
    " are due. It includes the time without a broker."
)


def lines_of(verdict: Verdict) -> Iterator[str]:
    """Yield the verdict in words: first the faults, then the result."""
    for finding in verdict.findings:
        about = f" {finding.event}" if finding.event else ""
        yield f"{finding.fault}: {finding.group}:{about} {finding.detail}"
    if verdict.finding_count > len(verdict.findings):
        yield f"... and {verdict.finding_count - len(verdict.findings):,} more"
    sabotage = verdict.run.sabotage
    found = ", ".join(verdict.faults) or "nothing"
    if sabotage is not None:
        yield f"sabotage: injected {sabotage} at {verdict.planted}; the check found: {found}"
    elif verdict.finding_count:
        yield f"FAILED: {found}"
    else:
        yield (
            "ok: no message lost, none out of order, none processed twice without a reason,"
            " no reminder early, no booking in half"
        )


def _time(milliseconds: float) -> str:
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.1f} ms"
