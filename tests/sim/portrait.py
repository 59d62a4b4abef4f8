"""The views as one comparable value: everything that is not volatile, in canonical order.

Two brokers whose portraits are equal answer alike. Left out: connections, timers, scan positions,
parked pulls, and whatever retention changes (the oldest offset kept).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ternmq.broker.dedup.dedup import Dedup
from ternmq.broker.group.keyorder import KeyOrder
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import merge
from ternmq.broker.ledger.views import Views
from ternmq.broker.schedule.pending import Schedule

Portrait = dict[object, object]
TOLD_ROWS: Final = 40
"""Scheduled rows of a page that a portrait names; of more it has a hash."""


def portrait(views: Views, now_us: int = 0) -> Portrait:
    """Return the portrait, by object; as of ``now_us``, or of the last record if that is later."""
    catalog = views.catalog
    sessions = views.sessions
    now_us = max(now_us, views.last_time_us)
    found: Portrait = {
        "next": (
            catalog.next_topic,
            catalog.next_group,
            sessions.next_number,
            views.writers.next_number,
            views.undecided.next_number,
            views.schedule.next_entry,
            views.numbers.next_reserve,
        ),
        "numbers": (sorted(views.numbers.sequences.items()), views.numbers.begin),
        "scheduled": schedule_portrait(views.schedule),
        "due": {
            number: (one.rows, one.cursor, sorted(one.hours.items()))
            for number, one in sorted(views.schedule.topics.items())
            if one.rows or one.cursor
        },
        "apps": dict(catalog.apps),
        "holds": dict(views.holds),
        "alarms": list(views.alarms.open.values()),
        "writers": {
            one.number: (
                one.name,
                one.app,
                one.last_us,
                one.forgotten,
                list(one.decisions.values()),
            )
            for one in views.writers.by_number.values()
            if one.last_us >= now_us - views.limits.writer_idle_us  # others are forgotten in time
        },
        "undecided": {
            one.number: (
                one.writer,
                one.batch_id,
                one.opened_us,
                list(one.batches()),
                one.rows,
                one.bytes,
                {at: times.due_us for at, times in views.undecided.times.of(one.number).items()},
                views.undecided.times.rows[one.number],
            )
            for one in views.undecided.by_number.values()
        },
        "checked": {
            one.number: (
                one.name,
                one.group,
                one.query_id,
                one.app,
                one.session,
                one.opened_us,
                one.since_us,
                one.attempt,
                one.next_us,
                one.parked,
                one.asked,
                one.count,
                sorted(one.batches.items()),
                sorted(one.settles.items()),
                sorted([(at, tuple(moves)) for at, moves in one.moves.items()]),
                one.rows,
                one.due_rows,
                one.bytes,
                one.settle_runs,
                one.settle_bytes,
                one.settled_rows,
            )
            for one in views.checked.by_number.values()
        },
        "checked sums": (
            views.checked.batches,
            views.checked.bytes,
            sorted(views.checked.parked),
            dict(sorted(views.checked.of_group.items())),
            sorted(views.checked._by_segment),
        ),
        "producer groups": dict(sorted(views.producer_groups.by_name.items())),
        "sessions": sorted([one.info for one in sessions.by_number.values()], key=_session),
    }
    for number, topic in catalog.topics.items():
        found["topic", number] = (
            topic.spec,
            [(queue.next, queue.end) for queue in topic.queues],
            sorted([(one.group, one.name, repr(one.spec)) for one in topic.subscriptions.values()]),
        )
    for key, progress in views.progress.items():
        found[key] = held_portrait(progress)
    found["dedup"] = dedup_portrait(views.dedup, now_us, views.limits.producer_idle_us)
    return found


def _session(info: object) -> int:
    return info.session  # type: ignore[attr-defined, no-any-return]


def schedule_portrait(schedule: Schedule) -> object:
    """Return the pending scheduled rows; those of deleted topics, which wait to be freed, not."""
    gone = np.array(sorted(schedule.pages.gone), dtype=np.uint32)
    found: list[tuple[int, object]] = []
    for number in schedule.pages.numbers():
        page = schedule.pages.by_number[number]
        topics = np.frombuffer(page.topic, dtype=np.uint32)
        due = np.frombuffer(page.due, dtype=np.int64)
        pending = due != 0
        if len(gone):
            pending &= ~np.isin(topics, gone)
        slots = np.flatnonzero(pending)
        columns: list[npt.NDArray[Any]] = [slots, due[slots], topics[slots]]
        columns += [
            np.frombuffer(column, dtype=column.typecode)[slots]
            for column in (page.position, page.row, page.queue)
        ]
        if not len(slots):
            continue
        if len(slots) <= TOLD_ROWS:
            found.append((number, list(zip(*[one.tolist() for one in columns], strict=True))))
        else:
            told = blake2b(b"".join([one.tobytes() for one in columns]), digest_size=16)
            found.append((number, (len(slots), told.hexdigest())))
    return schedule.rows, found


def held_portrait(progress: Progress) -> object:
    """Return one group queue."""
    return (
        progress.cursor,
        progress.round,
        progress.given,
        progress.ahead.starts[:],
        progress.ahead.stops[:],
        sorted(
            [
                (lease.id, lease.session, lease.until_us, merge(lease.runs))
                for lease in progress.leases.values()
                if lease.runs
            ]
        ),
        merge(progress.ready.runs),
        [
            (key, progress.failures.waiting[key].encode())
            for key in sorted(progress.failures.waiting)
            if len(progress.failures.waiting[key])
        ],
        [
            (key, progress.failures.dead[key].encode())
            for key in sorted(progress.failures.dead)
            if len(progress.failures.dead[key])
        ],
        dict(progress.failures.history),
        dict(progress.order.lines.hash_of) if isinstance(progress.order, KeyOrder) else None,
        (progress.leased_rows, progress.failures.waiting_rows, progress.failures.dead_rows),
    )


def dedup_portrait(dedup: Dedup, now_us: int, idle_us: int) -> object:
    """Return what deduplication remembers and would still answer."""
    producers = []
    for number in sorted(dedup.producers):
        producer = dedup.producers[number]
        if producer.last_us < now_us - idle_us:
            continue
        producer.trim(dedup.horizon)
        producers.append(
            (
                number,
                producer.next,
                producer.forgotten,
                producer.last_us,
                producer.firsts.tobytes(),
                producer.metas.tobytes(),
                producer.positions.tobytes(),
            )
        )
    ids = [
        (topic, sorted([(one, entry) for one, entry in known.items() if entry[0] >= dedup.horizon]))
        for topic, known in sorted(dedup.ids.items())
    ]
    return producers, [one for one in ids if one[1]], dedup.horizon, len(dedup)


def aged(known: Portrait, now_us: int, idle_us: int) -> Portrait:
    """Return the portrait as of a later time: producers that are idle by then are forgotten."""
    producers, ids, horizon, total = known["dedup"]  # type: ignore[misc]
    left = [one for one in producers if one[3] >= now_us - idle_us]  # type: ignore[has-type]
    if len(left) == len(producers):  # type: ignore[has-type]
        return known
    return {**known, "dedup": (left, ids, horizon, total)}  # type: ignore[has-type]


def difference(ours: Portrait, theirs: Portrait) -> str | None:
    """Return the first difference, None if there is none."""
    if ours == theirs:
        return None
    for key in sorted({*ours, *theirs}, key=str):
        if ours.get(key) != theirs.get(key):
            return f"{key}: {_parts(ours.get(key), theirs.get(key))}"
    return "equal by parts"


def _parts(ours: object, theirs: object) -> str:
    """Say where two values differ, briefly."""
    path = ""
    while (
        isinstance(ours, tuple | list) and isinstance(theirs, tuple | list)
        and len(ours) == len(theirs)
    ):  # fmt: skip
        at = next((at for at, one in enumerate(ours) if one != theirs[at]), None)
        if at is None:
            break
        path += f"[{at}]"
        ours, theirs = ours[at], theirs[at]
    return f"{path} {str(ours)[:300]} is not {str(theirs)[:300]}"
