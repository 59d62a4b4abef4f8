"""What holds of a broker's scheduled rows at any time: each pending row is to come due."""

from __future__ import annotations

from typing import Final

from ternmq.broker.broker import Broker
from ternmq.broker.clock.timers import FULL_RETRY_US, Timer
from ternmq.broker.schedule.page import PAGE_BITS, SLOT_MASK, Page
from ternmq.broker.schedule.pending import Schedule
from ternmq.broker.schedule.topics import ENTRY_BITS, ENTRY_MASK
from ternmq.broker.upkeep.fulfilling import READ_AGAIN_US
from tests.sim.tape import Violation

_LATE_US: Final = max(FULL_RETRY_US, READ_AGAIN_US)


def check_schedule(broker: Broker, now_us: int) -> None:
    """Check that every pending row is counted, pins its segment, and has its place in the order.

    Due times of prepared rows are kept as long as their transaction is undecided, and no longer.

    Raises:
        Violation: one has not.
    """
    undecided = broker.views.undecided
    if not undecided.times.rows.keys() <= undecided.by_number.keys():
        raise Violation(f"due times are kept of {sorted(undecided.times.rows)}: some are decided")
    schedule = broker.views.schedule
    if not schedule.pages.by_number and not schedule.topics:
        return
    rows: dict[int, int] = {}
    segments: dict[int, int] = {}
    first_us: dict[int, int] = {}
    near = {number: set(one._near) for number, one in schedule.topics.items()}
    for number, page in schedule.pages.by_number.items():
        if page.left != sum([due_us != 0 for due_us in page.due]) or not page.left:
            raise Violation(f"page {number} of scheduled rows counts {page.left}")
        for slot, due_us in enumerate(page.due):
            if not due_us:
                continue
            segment = page.position[slot] // broker.journal.segment_size
            segments[segment] = segments.get(segment, 0) + 1
            of = page.topic[slot]
            if of in schedule.pages.gone:
                continue
            if page.position[slot] < page.lowest:
                raise Violation(f"a row of page {number} is stored below {page.lowest}")
            entry = number << PAGE_BITS | slot
            if of not in schedule.topics:
                raise Violation(f"entry {entry} is pending for topic {of}, which is not there")
            rows[of] = rows.get(of, 0) + 1
            key = due_us << ENTRY_BITS | entry
            _check_place(schedule, page, key, near[of])
            if due_us < schedule.horizon_us:
                first_us[of] = min(due_us, first_us.get(of, due_us))
    if segments != schedule.pages.by_segment:
        raise Violation(f"rows pin {schedule.pages.by_segment}, should be {segments}")
    if {number: one.rows for number, one in schedule.topics.items() if one.rows} != rows:
        raise Violation(f"the rows of topics are not counted as {rows}")
    _check_timers(broker, first_us, now_us)


def _check_place(schedule: Schedule, page: Page, key: int, near: set[int]) -> None:
    """A row is in the heap of its topic if it is due before the horizon; else its page says so."""
    due_us, entry = key >> ENTRY_BITS, key & ENTRY_MASK
    if key <= schedule.topics[page.topic[entry & SLOT_MASK]].cursor:
        raise Violation(f"entry {entry} is pending below its topic's cursor")
    if due_us < schedule.horizon_us:
        if key not in near:
            raise Violation(f"entry {entry} is due before the horizon, and not in order")
    elif due_us < page.earliest_us and not (due_us < schedule._loading_us and key in near):
        raise Violation(f"entry {entry} is before what its page says is its first")


def _check_timers(broker: Broker, first_us: dict[int, int], now_us: int) -> None:
    """A timer is set for each topic's first row, unless it waits for a read, and for the load."""
    schedule = broker.views.schedule
    timers = {
        (when_us, owner.topic)
        for when_us, _, kind, owner in broker.timers._heap
        if kind is Timer.FULFIL
    }
    for number, due_us in first_us.items():
        topic = schedule.topics[number]
        if topic in broker.fulfilling._waiting:
            continue
        if (topic.armed_us, number) not in timers or topic.armed_us > max(
            due_us, now_us + _LATE_US
        ):
            raise Violation(f"no timer is set for a row of topic {number} due at {due_us}")
    loads = [when_us for when_us, _, kind, _ in broker.timers._heap if kind is Timer.LOAD]
    if len(loads) != 1 or loads[0] > max(schedule.horizon_us, now_us):
        raise Violation(f"the horizon is {schedule.horizon_us}, it is moved at {loads}")
