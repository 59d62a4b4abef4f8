"""Records that are read together: against the same records read one by one."""

from __future__ import annotations

import random
import struct

import pytest
from google_crc32c import value as crc32c

from ternmq.model.errors import ProtocolError, UnknownRecordKind
from ternmq.record.batch.batch import Row, encode
from ternmq.record.batch.encode import encode_bodies
from ternmq.record.fact import facts, messages
from ternmq.record.fact.facts import Cause, Outcome
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, VERSION, Kind
from ternmq.record.fact.schedule import (
    NO_QUEUE,
    CancelCause,
    Cancelled,
    CancelledRow,
    pack_cancelled,
)
from ternmq.record.page.frames import Frames
from ternmq.spark.journal import columns as journal_columns
from ternmq.spark.journal import events as journal_events
from ternmq.spark.journal.events import COLUMNS, Events
from ternmq.spark.journal.names import Client, Names

pa = pytest.importorskip("pyarrow")


def record(kind, position, body, *, epoch=3):
    body += bytes(-len(body) & 7)
    head = HEADER.pack(
        0, MAGIC, HEADER_BYTES + len(body), VERSION, kind, 0, position, 0, 10 * position, epoch, 0
    )
    return crc32c(head[4:] + body).to_bytes(4, "little") + head[4:] + body


def page(bodies):
    """Return a page of records, of (kind, body) each."""
    made, position = [], 48
    for kind, body in bodies:
        made.append(record(kind, position, body))
        position += len(made[-1])
    return b"".join(made)


def names():
    return Names({1: "orders", 2: "bills"}, {5: "billing"}, {7: Client("shop", "abc")})


def told(data, columns=tuple(COLUMNS)):
    events = Events(names())
    frames = Frames(data)
    frames.check()
    events.add(frames)
    table = events.table(list(columns))
    table.validate(full=True)
    return table.to_pylist()


def both(monkeypatch, data):
    """Return the rows of a page, which are the same either way."""
    together = told(data)
    with monkeypatch.context() as patch:
        patch.setattr(journal_events, "FAST", {})
        assert told(data) == together
    return together


def some_runs(chance, most=4):
    return [
        (start, start + chance.randint(1, 40), chance.randint(1, 9), chance.randint(1, 9))
        for start in (chance.randrange(1 << 40) for _ in range(chance.randint(0, most)))
    ]


def a_pull(chance):
    spans = [
        [(start, start + 3) for start in (chance.randrange(1000) for _ in range(count))]
        for count in (chance.choice((0, 0, 2)), chance.choice((0, 0, 1)))
    ]
    leased = some_runs(chance)
    keyed = sum(b - a for a, b, *_ in leased) + sum(b - a for a, b in spans[1])
    hashes = [chance.randrange(1 << 64) for _ in range(keyed)] if chance.random() < 0.3 else ()
    return facts.Pulled(
        chance.choice((5, 6)), chance.choice((1, 2, 3)), chance.randrange(4), chance.choice((0, 7)),
        chance.randrange(1 << 64), chance.randrange(1 << 50), chance.randrange(1 << 50), leased,
        spans[0], spans[1], hashes,
    )  # fmt: skip


def a_settle(chance):
    runs, outcome = some_runs(chance), chance.choice(list(Outcome))
    previous = [chance.choice((0, 96)) for _ in runs] if facts.failing(outcome) else ()
    return facts.Settled(
        chance.choice((5, 6)), chance.choice((1, 2, 3)), chance.randrange(4), chance.choice((0, 7)),
        chance.randrange(1 << 64), 3, chance.randrange(9), outcome, chance.choice(list(Cause)),
        chance.randrange(1 << 50), runs, previous,
        chance.choice((b"", b"", b"x", "später".encode(), b"\xff broken")),
    )  # fmt: skip


def an_extension(chance):
    return facts.Extended(5, 1, 0, 7, chance.randrange(1 << 64), 3, chance.randrange(1 << 50))


def a_batch(chance):
    rows = chance.randint(1, 30)
    batch = encode_bodies(
        [b"x" * chance.randint(0, 50)] * rows, topic_seed=1, producer_id=chance.randrange(1 << 64),
        first_sequence=chance.randrange(1 << 60), born_us=chance.randrange(1 << 50),
    )  # fmt: skip
    runs: tuple[tuple[int, int], ...] = ()
    if chance.random() < 0.3:
        cuts = sorted(chance.sample(range(rows + 1), min(rows + 1, 4)))
        runs = tuple(zip(cuts[::2], cuts[1::2], strict=False))
    count = sum(b - a for a, b in runs) if runs else rows
    return messages.pack(1, 0, chance.randrange(1 << 50), count, batch, runs)


def due_rows(chance, rows):
    """Return rows with due times that are the same, or not, before and after they are stored."""
    times = [chance.choice((5, 1 << 50)) for _ in range(rows)]
    names = chance.choice(((), (), ("a", "", "ä")))
    tags = chance.choice(((), ("t",)))
    return encode(
        [
            Row(
                body=b"x", due_us=times[0] if chance.random() < 0.8 else time,
                application_id=chance.choice(names) and f"{chance.choice(names)}{number}"
                if names else "", tag=chance.choice(tags) if tags else "",
            )
            for number, time in enumerate(times)
        ],
        topic_seed=1, producer_id=chance.randrange(1 << 64),
        first_sequence=chance.randrange(1 << 60), born_us=chance.randrange(1 << 50),
    )  # fmt: skip


def some_rows_count(chance, rows):
    """Return the runs of rows that count, and their number."""
    if rows > 1 and chance.random() < 0.3:
        cuts = sorted(chance.sample(range(rows + 1), min(rows + 1, 4)))
        runs = tuple(zip(cuts[::2], cuts[1::2], strict=False))
        return runs, sum(b - a for a, b in runs)
    return (), rows


def a_schedule(chance):
    rows = chance.choice((1, 1, 2, 9))
    batch, entry = due_rows(chance, rows), chance.randrange(1 << 50)
    queue = chance.choice((0, NO_QUEUE))
    if chance.random() < 0.2:
        origin = messages.Origin(chance.randrange(1 << 40), chance.randrange(1 << 30))
        return messages.pack_copy(1, queue, entry, rows, batch, origin)
    runs, count = some_rows_count(chance, rows)
    return messages.pack(1, queue, entry, count, batch, runs)


def a_fulfilment(chance):
    rows = chance.choice((1, 1, 2, 9))
    numbers = [chance.randrange(1 << 50) for _ in range(4)]
    fulfils = messages.Fulfilment(*numbers[:3])
    return messages.pack_fulfilled(1, 0, numbers[3], rows, due_rows(chance, rows), fulfils)


def a_cancel(chance):
    rows = [
        CancelledRow(chance.choice((1, 2)), chance.choice((70, 80)), chance.randrange(4))
        for _ in range(chance.choice((1, 3, 9)))
    ]
    return pack_cancelled(Cancelled(chance.choice(list(CancelCause)), rows))


def a_body(chance, kind):
    many = chance.choice((0, 1, 1, 1, 2, 3, 20))
    if kind is Kind.MESSAGES:
        return chance.choice((a_batch, a_batch, a_fulfilment))(chance)
    if kind is Kind.SCHEDULED:
        return a_schedule(chance)
    if kind is Kind.CANCELLED:
        return a_cancel(chance)
    if kind is Kind.PULLED:
        return facts.pack_pulled([a_pull(chance) for _ in range(many)])
    if kind is Kind.EXTENDED:
        return facts.pack_extended([an_extension(chance) for _ in range(many)])
    if kind is Kind.CURSOR:
        return facts.pack_cursor(facts.CursorMoved(5, 1, 0, facts.Move.SKIP, 9, 1))
    return facts.pack_settled([a_settle(chance) for _ in range(many)])


KINDS = (
    Kind.MESSAGES, Kind.PULLED, Kind.SETTLED, Kind.ENDED, Kind.EXTENDED, Kind.SCHEDULED,
    Kind.CANCELLED, Kind.CURSOR,
)  # fmt: skip


@pytest.mark.row("R5")
@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_page_has(monkeypatch, seed):
    chance = random.Random(seed)
    wanted = [chance.choice(KINDS) for _ in range(chance.choice((1, 10, 200)))]
    found = both(monkeypatch, page([(kind, a_body(chance, kind)) for kind in wanted]))
    assert [(row["position"], row["part"]) for row in found] == sorted(
        {(row["position"], row["part"]) for row in found}
    )


def test_several_pages_make_one_table(monkeypatch):
    chance = random.Random(0)
    bodies = [(kind, a_body(chance, kind)) for kind in KINDS * 5]
    whole = page(bodies)
    frames = Frames(whole)
    cut = int(frames.at[13])
    events = Events(names())
    for part in (whole[:cut], whole[cut:]):
        events.add(Frames(part))
    assert len(events) == len(told(whole))
    assert events.table(list(COLUMNS)).to_pylist() == told(whole)
    assert len(events) == events.table(["kind"]).num_rows == 0
    assert events.table(list(COLUMNS)).num_rows == 0


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_what_no_record_says_is_an_error_either_way(monkeypatch, kind):
    """The record before and behind are sound; it is cut, or speaks of more than it has."""
    chance = random.Random(int(kind))
    sound = a_body(chance, kind)
    while len(sound) < 120:
        sound = a_body(chance, kind)
    for broken in (sound[:80], b"", (9).to_bytes(8, "little") + bytes(48)):
        data = page([(kind, sound), (kind, broken), (kind, sound)])
        seen = []
        for fast in (journal_columns.FAST, {}):
            monkeypatch.setattr(journal_events, "FAST", fast)
            try:
                seen.append(told(data))
            except (ValueError, struct.error, UnknownRecordKind) as error:
                seen.append(type(error))
        assert seen[0] == seen[1]


def test_unknown_words_of_an_outcome_are_an_error():
    body = bytearray(facts.pack_settled([a_settle(random.Random(3))]))
    body[8 + 42] = 200
    with pytest.raises(ValueError, match="200"):
        told(page([(Kind.SETTLED, bytes(body))]))


def test_a_page_that_is_damaged_is_refused():
    chance = random.Random(1)
    whole = page([(kind, a_body(chance, kind)) for kind in KINDS])
    for at in range(0, len(whole), 7):
        bad = bytearray(whole)
        bad[at] ^= 0x10
        with pytest.raises(ProtocolError):
            told(bytes(bad))
    for end in (1, 8, 47, len(whole) - 8):
        with pytest.raises(ProtocolError):
            told(whole[:end])


def test_records_below_a_position():
    chance = random.Random(1)
    frames = Frames(page([(kind, a_body(chance, kind)) for kind in KINDS]))
    positions = frames.positions().tolist()
    for number, position in enumerate(positions):
        assert frames.below(position).positions().tolist() == positions[:number]
    assert frames.below(positions[-1] + 1) is frames
