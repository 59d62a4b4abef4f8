"""The views as one comparable value: everything that is not volatile, in canonical order.

Two brokers whose portraits are equal answer alike. Left out: connections, timers, scan positions,
parked pulls, and whatever retention changes (the oldest offset kept).
"""

from __future__ import annotations

from ternmq.broker.dedup.dedup import Dedup
from ternmq.broker.group.keyorder import KeyOrder
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import merge
from ternmq.broker.ledger.views import Views

Portrait = dict[object, object]


def portrait(views: Views, now_us: int = 0) -> Portrait:
    """Return the portrait, by object; as of ``now_us``, or of the last record if that is later."""
    catalog = views.catalog
    sessions = views.sessions
    found: Portrait = {
        "next": (
            catalog.next_topic,
            catalog.next_group,
            sessions.next_number,
            views.writers.next_number,
            views.undecided.next_number,
        ),
        "apps": dict(catalog.apps),
        "holds": dict(views.holds),
        "writers": {
            one.number: (
                one.name,
                one.app,
                one.last_us,
                one.forgotten,
                list(one.decisions.values()),
            )
            for one in views.writers.by_number.values()
        },
        "undecided": {
            one.number: (
                one.writer,
                one.batch_id,
                one.opened_us,
                list(one.batches()),
                one.rows,
                one.bytes,
            )
            for one in views.undecided.by_number.values()
        },
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
    found["dedup"] = dedup_portrait(
        views.dedup, max(now_us, views.last_time_us), views.limits.producer_idle_us
    )
    return found


def _session(info: object) -> int:
    return info.session  # type: ignore[attr-defined, no-any-return]


def held_portrait(progress: Progress) -> object:
    """Return one group queue."""
    return (
        progress.cursor,
        progress.round,
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
