"""Pages of a journal as a broker gives them out: sends, pulls of 32, settles, some failures."""

from __future__ import annotations

import random

from google_crc32c import value as crc32c

from ternmq.journal.reader.page import SMALL_BYTES, reframed, without_bodies
from ternmq.record.batch.encode import encode_bodies
from ternmq.record.fact import facts, messages
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, VERSION, Kind

PULL_ROWS = 32
FAILING = 0.02
GROUPS = 2


def _record(kind: Kind, position: int, time_us: int, body: bytes) -> bytes:
    body += bytes(-len(body) & 7)
    data = HEADER.pack(
        0, MAGIC, HEADER_BYTES + len(body), VERSION, kind, 0, position, 0, time_us, 1, 0
    )
    crc: int = crc32c(data[4:] + body)
    return crc.to_bytes(4, "little") + data[4:] + body


def _send(chance: random.Random, queue: int, first: int, rows: int) -> bytes:
    batch = encode_bodies(
        [b"x" * 100] * rows, topic_seed=1, producer_id=chance.randrange(1, 1 << 64),
        first_sequence=first, born_us=1,
    )  # fmt: skip
    return messages.pack(1, queue, first, rows, batch, ())


def _settled(chance: random.Random, pull: facts.Pulled) -> list[facts.Settled]:
    start, stop, attempt, deliveries = pull.leased[0]
    told = (pull.group, pull.topic, pull.queue, pull.session, pull.lease, 1, 1)
    if chance.random() >= FAILING:
        runs = [(start, stop, attempt, deliveries)]
        return [facts.Settled(*told, facts.Outcome.DONE, facts.Cause.CONSUMER, 0, runs)]
    done = facts.Settled(
        *told, facts.Outcome.DONE, facts.Cause.CONSUMER, 0, [(start, stop - 1, 1, 1)]
    )
    failed = facts.Settled(
        *told, facts.Outcome.RETRY, facts.Cause.CONSUMER, 5, [(stop - 1, stop, 1, 1)], [0],
        b"TimeoutError: the bank did not answer",
    )  # fmt: skip
    return [done, failed] if stop - start > 1 else [failed]


def pages(events: int, seed: int = 1, page_bytes: int = 1 << 20) -> list[bytes]:
    """Return pages with about so many facts."""
    chance = random.Random(seed)
    made: list[bytes] = []
    page: list[bytes] = []
    position, size, count, lease = 48, 0, 0, 0
    ends = [0, 0, 0, 0]
    cursors = {(group, queue): 0 for group in range(GROUPS) for queue in range(4)}

    def put(kind: Kind, body: bytes) -> None:
        nonlocal position, size, page
        record = _record(kind, position, 1_700_000_000_000_000 + position, body)
        position += len(record)
        if kind is Kind.MESSAGES and len(record) > SMALL_BYTES:
            record = reframed(record, without_bodies(record[HEADER_BYTES:]))
        page.append(record)
        size += len(record)
        if size >= page_bytes:
            made.append(b"".join(page))
            page, size = [], 0

    while count < events:
        queue, rows = chance.randrange(4), chance.randrange(1, 501)
        put(Kind.MESSAGES, _send(chance, queue, ends[queue], rows))
        ends[queue] += rows
        count += 1
        for group in range(GROUPS):
            while (start := cursors[group, queue]) < ends[queue]:
                stop = min(ends[queue], start + PULL_ROWS)
                cursors[group, queue] = stop
                lease += 1
                pull = facts.Pulled(
                    group, 1, queue, chance.randrange(1, 20), lease, 1 << 50, stop,
                    [(start, stop, 1, 1)],
                )  # fmt: skip
                put(Kind.PULLED, facts.pack_pulled([pull]))
                settled = _settled(chance, pull)
                put(Kind.SETTLED, facts.pack_settled(settled))
                count += 1 + len(settled)
    if page:
        made.append(b"".join(page))
    return made
