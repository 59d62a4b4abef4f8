"""Facts of many records at once, as columns; for the records that make up most of a journal.

``FAST`` has a function for each frequent kind of record. It takes the records of a page and returns
blocks of rows, and the records that it leaves to ``facts``, which decodes any record, one
by one, and raises if it is damaged. The layouts of the bodies are in ``record/fact/messages`` and
``record/fact/facts``; a number at byte ``b`` is ``u4[b >> 2]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ternmq.record.batch.layout import APPLICATION_ID, CONSTANT, DUE_US
from ternmq.record.batch.layout import HEADER_BYTES as BATCH_BYTES
from ternmq.record.fact import facts
from ternmq.record.fact.header import HEADER_BYTES, Kind
from ternmq.record.fact.messages import EXTRA_BYTES, FULFILS, PREFIX_BYTES
from ternmq.record.fact.schedule import NO_QUEUE
from ternmq.record.page.frames import I64, Frames

_MOST_FACTS: Final = 16
"""Records with more facts are decoded one by one: each pass reads the n-th facts of all records."""
_OUTCOMES: Final = tuple(one.name.lower() for one in facts.Outcome)
_CAUSES: Final = tuple(one.name.lower() for one in facts.Cause)
_FAILING: Final = np.array([facts.failing(one) for one in facts.Outcome], np.bool_)
_RETRY: Final = int(facts.Outcome.RETRY)

assert [int(one) for one in facts.Outcome] == list(range(len(_OUTCOMES)))
assert [int(one) for one in facts.Cause] == list(range(len(_CAUSES)))


class Numbers(NamedTuple):
    """A column of numbers."""

    values: npt.NDArray[Any]
    there: npt.NDArray[np.bool_] | None = None
    """Mask of the rows with a value; None: all have one."""


class Texts(NamedTuple):
    """A column of texts with few distinct values."""

    known: Sequence[str | None]
    codes: npt.NDArray[Any]
    """Index in ``known`` for each row."""


class Block(NamedTuple):
    """Rows that fill the same columns."""

    kind: str
    record: I64
    """Index of the record in the page, for each row."""
    part: I64
    """Number of the row within that record."""
    columns: dict[str, Numbers | Texts]


@dataclass
class Decoded:
    """The result of decoding records."""

    blocks: list[Block] = field(default_factory=list)
    left: list[I64] = field(default_factory=list)
    """Indexes of records that must be decoded one by one."""

    def whole(self) -> Decoded:
        """Return this without the rows of records that were left after some facts were read."""
        left = self.records_left()
        if not len(left) or not self.blocks:
            return self
        blocks = []
        for block in self.blocks:
            keep = ~np.isin(block.record, left)
            columns = {
                name: Numbers(one.values[keep], None if one.there is None else one.there[keep])
                if isinstance(one, Numbers)
                else Texts(one.known, one.codes[keep])
                for name, one in block.columns.items()
            }
            blocks.append(Block(block.kind, block.record[keep], block.part[keep], columns))
        return Decoded(blocks, self.left)

    def records_left(self) -> I64:
        """Return the indexes of the records that must be decoded one by one."""
        return np.concatenate(self.left) if self.left else np.zeros(0, np.int64)


@dataclass(slots=True)
class _Batches:
    """Records with a batch of which every row counts; needs only the heads of the batches.

    Attributes:
        which: The records.
        at: Where their bodies begin.
        batch: Where their batches begin.
        rows: Their numbers of rows.
        extra: Where the bytes behind their batches begin, in records with flags.
        flags: Their flags.
        found: What was found; it has the records that are left.
    """

    which: I64
    at: I64
    batch: I64
    rows: I64
    extra: I64
    flags: I64
    found: Decoded

    def columns(self, page: Frames) -> dict[str, Numbers | Texts]:
        """Return the columns that are the same for messages and scheduled rows."""
        long = self.batch >> 3
        return {
            "topic_number": Numbers(page.u4[self.at >> 2]),
            "rows": Numbers(self.rows),
            "bytes": Numbers(page.u4[(self.batch >> 2) + 2]),
            "producer_id": Numbers(page.i8[long + 3]),
            "sequence": Numbers(page.i8[long + 4]),
            "born_time": Numbers(page.i8[long + 5]),
        }

    def add(self, kind: str, columns: dict[str, Numbers | Texts]) -> Decoded:
        """Return what was found, with a row for each record."""
        part = np.zeros(len(self.which), np.int64)
        self.found.blocks.append(Block(kind, self.which, part, columns))
        return self.found

    def keep(self, keep: npt.NDArray[np.bool_]) -> None:
        """Leave the other records to be decoded one by one."""
        if keep.all():
            return
        self.found.left.append(self.which[~keep])
        self.which, self.at, self.batch = self.which[keep], self.at[keep], self.batch[keep]
        self.rows, self.extra, self.flags = self.rows[keep], self.extra[keep], self.flags[keep]


def _batches(page: Frames, which: I64, flags: int) -> _Batches:
    """Return the records whose rows all count, and that have no other flags than these."""
    found = Decoded()
    at = page.at[which] + HEADER_BYTES
    whole = page.end[which] - at >= PREFIX_BYTES + HEADER_BYTES
    if not whole.all():
        found.left.append(which[~whole])
        which, at = which[whole], at[whole]
    batch = at + PREFIX_BYTES
    length = page.u4[(at >> 2) + 6].astype(np.int64)
    told = page.u2[(at >> 1) + 11].astype(np.int64)
    rows = page.u4[(at >> 2) + 4].astype(np.int64)
    some = _Batches(which, at, batch, rows, batch + length + (-length & 7), told, found)
    plain = (page.u2[(at >> 1) + 10] == 0) & (page.u4[(batch >> 2) + 5] == rows) & (rows > 0)
    plain &= told & ~flags == 0
    if told.any():
        plain &= (told == 0) | (some.extra + EXTRA_BYTES <= page.end[which])
    some.keep(plain)
    return some


def _stored(page: Frames, which: I64) -> Decoded:
    """Read batches whose rows all became messages."""
    some = _batches(page, which, FULFILS)
    start = page.i8[(some.at >> 3) + 1]
    columns: dict[str, Numbers | Texts] = {
        **some.columns(page),
        "queue": Numbers(page.u4[(some.at >> 2) + 1]),
        "start": Numbers(start),
        "stop": Numbers(start + some.rows),
    }
    if some.flags.any():
        fulfils = some.flags > 0
        extra = np.where(fulfils, some.extra, 0) >> 3
        for number, name in enumerate(("refers_to", "entry", "due")):
            columns[name] = Numbers(page.i8[extra + number], fulfils)
    return some.add("stored", columns)


def _scheduled(page: Frames, which: I64) -> Decoded:
    """Read batches that are scheduled for one due time, and have no application ids."""
    some = _batches(page, which, 0)
    flags = page.u4[(some.batch >> 2) + 4].astype(np.int64)
    one = (some.rows == 1) | (flags >> (CONSTANT + DUE_US) & 1 == 1)
    some.keep(one & (flags >> DUE_US & 1 == 1) & (flags >> APPLICATION_ID & 1 == 0))
    some.keep(_due_at(page, some) + 8 <= page.end[some.which])
    stored_us = page.i8[(page.at[some.which] >> 3) + 4]
    queue = page.u4[(some.at >> 2) + 1]
    columns: dict[str, Numbers | Texts] = {
        **some.columns(page),
        "queue": Numbers(queue, queue != NO_QUEUE),
        "entry": Numbers(page.i8[(some.at >> 3) + 1]),
        "due": Numbers(np.maximum(page.i8[_due_at(page, some) >> 3], stored_us)),
    }
    return some.add("scheduled", columns)


def _due_at(page: Frames, some: _Batches) -> I64:
    """Return where the column of due times begins in each batch; behind the page if it is cut."""
    flags = page.u4[(some.batch >> 2) + 4].astype(np.int64)
    place = some.batch + BATCH_BYTES
    for column in range(DUE_US):
        place = place + 4 * (flags >> column & 1)
    there = place + 4 <= page.end[some.which]
    start = page.u4[np.where(there, place, 0) >> 2].astype(np.int64)
    return np.where(there, some.batch + start, len(page.records))


class _Facts:
    """Walks through the facts of records: at each step, the next fact of every record.

    Attributes:
        which: The records that still have a fact.
        at: Where the fact begins.
        end: Where the record ends.
        part: Number of rows of the facts before.
    """

    def __init__(self, page: Frames, which: I64) -> None:
        self.page = page
        self.found = Decoded()
        body = page.at[which] + HEADER_BYTES
        count = _counts(page, which)
        few = (count >= 0) & (count <= _MOST_FACTS)
        if not few.all():
            self.found.left.append(which[~few])
        keep = few & (count > 0)
        self.which, self.at = which[keep], body[keep] + facts.COUNT.size
        self.end, self._left = page.end[which][keep], count[keep]
        self.part = np.zeros(len(self.which), np.int64)

    def _keep(self, keep: npt.NDArray[np.bool_]) -> None:
        self.which, self.at, self.end = self.which[keep], self.at[keep], self.end[keep]
        self._left, self.part = self._left[keep], self.part[keep]

    def fitting(self, sizes: I64 | int) -> npt.NDArray[np.bool_] | None:
        """Leave out records shorter than a fact of these sizes; return a mask of the others."""
        fits: npt.NDArray[np.bool_] = self.at + sizes <= self.end
        return None if fits.all() else self.leaving(~fits)

    def leaving(self, bad: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Leave records to be decoded one by one; return a mask of the others."""
        self.found.left.append(self.which[bad])
        self._keep(~bad)
        return ~bad

    def step(self, sizes: I64, rows: I64) -> None:
        """Move to the next fact; drop records that have no more."""
        self.at = self.at + sizes
        self.part = self.part + rows
        self._left = self._left - 1
        self._keep(self._left > 0)


def _counts(page: Frames, which: I64) -> I64:
    """Return the number of facts of each record; -1: the record is too short to hold it."""
    body = page.at[which] + HEADER_BYTES
    short = page.end[which] - body < facts.COUNT.size
    return np.where(short, -1, page.u4[np.where(short, 0, body) >> 2].astype(np.int64))


def _spread(counts: I64) -> tuple[I64, I64]:
    """Expand facts into their runs: return for each run its fact, and its number in the fact."""
    total = int(counts.sum())
    fact = np.arange(len(counts), dtype=np.int64).repeat(counts)
    if total == len(counts) and (counts == 1).all():
        return fact, np.zeros(total, np.int64)
    return fact, np.arange(total, dtype=np.int64) - (np.cumsum(counts) - counts)[fact]


def _pulled(page: Frames, which: I64) -> Decoded:
    walk = _Facts(page, which)
    u2, u4, i8 = page.u2, page.u4, page.i8
    while len(walk.which):
        walk.fitting(facts.PULLED_HEAD.size)
        at = walk.at
        leased, skipped, parked = (u2[(at >> 1) + n].astype(np.int64) for n in (20, 21, 22))
        keyed = u2[(at >> 1) + 23] & facts.FLAG_KEYED
        sizes = facts.PULLED_HEAD.size + 16 * (leased + skipped + parked)
        kept = walk.fitting(sizes)
        if kept is not None:
            leased, skipped, parked, keyed, sizes, at = (
                one[kept] for one in (leased, skipped, parked, keyed, sizes, at)
            )
        word, long = at >> 2, at >> 3
        of_fact: dict[str, npt.NDArray[Any]] = {
            "group_number": u4[word], "topic_number": u4[word + 1], "queue": u4[word + 2],
            "session": u4[word + 3], "lease": i8[long + 2], "cursor": i8[long + 4],
            "lease_epoch": u4[(page.at[walk.which] >> 2) + 10],
        }  # fmt: skip
        until = i8[long + 3]
        fact, number = _spread(leased)
        run = at[fact] + facts.PULLED_HEAD.size + 16 * number
        start, rows = i8[run >> 3], u4[(run >> 2) + 2].astype(np.int64)
        columns: dict[str, Numbers | Texts] = {
            **_columns(of_fact, fact),
            "start": Numbers(start), "stop": Numbers(start + rows), "rows": Numbers(rows),
            "attempt": Numbers(u2[(run >> 1) + 6]), "deliveries": Numbers(u2[(run >> 1) + 7]),
            "until": Numbers(until[fact]),
        }  # fmt: skip
        held = np.bincount(fact, weights=rows, minlength=len(at)).astype(np.int64)
        blocks = [Block("pulled", walk.which[fact], walk.part[fact] + number, columns)]
        before = leased
        for kind, counts in (("skipped", skipped), ("parked", parked)):
            if counts.any():
                fact, number = _spread(counts)
                span = at[fact] + facts.PULLED_HEAD.size + 16 * (before[fact] + number)
                start, stop = i8[span >> 3], i8[(span >> 3) + 1]
                columns = {
                    **_columns(of_fact, fact),
                    "start": Numbers(start), "stop": Numbers(stop), "rows": Numbers(stop - start),
                }  # fmt: skip
                part = walk.part[fact] + before[fact] + number
                blocks.append(Block(kind, walk.which[fact], part, columns))
                if kind == "parked":
                    more = np.bincount(fact, weights=stop - start, minlength=len(at))
                    held = held + more.astype(np.int64)
            before = before + counts
        walk.found.blocks += blocks
        sizes = sizes + np.where(keyed, 8 * held, 0)
        kept = walk.fitting(sizes)
        if kept is not None:
            sizes, before = sizes[kept], before[kept]
        walk.step(sizes, before)
    return walk.found.whole()


def _settled(event: str) -> Callable[[Frames, I64], Decoded]:
    def read(page: Frames, which: I64) -> Decoded:
        walk = _Facts(page, which)
        while len(walk.which):
            _settle(walk, event)
        return walk.found.whole()

    return read


def _settle(walk: _Facts, event: str) -> None:
    """Read one fact of each record, and move to the next."""
    page = walk.page
    u1, u2, u4, i8 = page.u1, page.u2, page.u4, page.i8
    walk.fitting(facts.SETTLED_HEAD.size)
    strange = (u1[walk.at + 42] >= len(_OUTCOMES)) | (u1[walk.at + 43] >= len(_CAUSES))
    if strange.any():
        walk.leaving(strange)
    sizes = _settled_size(page, walk.at)
    kept = walk.fitting(sizes)
    sizes = sizes if kept is None else sizes[kept]
    at = walk.at
    word, long = at >> 2, at >> 3
    counts, outcome = u2[(at >> 1) + 20].astype(np.int64), u1[at + 42]
    failing = _FAILING[outcome]
    fact, number = _spread(counts)
    bad = failing[fact]
    run: I64 = at[fact] + facts.SETTLED_HEAD.size + _width(bad) * number
    start, rows = i8[run >> 3], u4[(run >> 2) + 2].astype(np.int64)
    of_fact = {
        "group_number": u4[word], "topic_number": u4[word + 1], "queue": u4[word + 2],
        "session": u4[word + 3], "lease": i8[long + 2], "lease_epoch": u4[word + 6],
        "round": u4[word + 7],
    }  # fmt: skip
    columns: dict[str, Numbers | Texts] = {
        **_columns(of_fact, fact),
        "start": Numbers(start), "stop": Numbers(start + rows), "rows": Numbers(rows),
        "attempt": Numbers(u2[(run >> 1) + 6]), "deliveries": Numbers(u2[(run >> 1) + 7]),
        "outcome": Texts(_OUTCOMES, outcome[fact]), "cause": Texts(_CAUSES, u1[at + 43][fact]),
    }  # fmt: skip
    if failing.any():
        before = i8[np.where(bad, (run >> 3) + 2, 0)]
        columns["refers_to"] = Numbers(before, bad & (before != 0))
        columns["due"] = Numbers(i8[long + 4][fact], (outcome == _RETRY)[fact])
    lengths = u4[word + 11].astype(np.int64)
    if lengths.any():
        reasons = _reasons(page, at + sizes - lengths - (-lengths & 7), lengths)
        columns["reason"] = Texts(reasons.known, reasons.codes[fact])
    part = walk.part[fact] + number
    walk.found.blocks.append(Block(event, walk.which[fact], part, columns))
    walk.step(sizes, counts)


def _width(failing: npt.NDArray[np.bool_]) -> I64:
    """Return the length of a run of a settled fact."""
    return np.where(failing, facts.FAILED_RUN.size, facts.LEASED_RUN.size).astype(np.int64)


def _settled_size(page: Frames, at: I64) -> I64:
    """Return the length of each fact, including its reason and padding."""
    counts = page.u2[(at >> 1) + 20].astype(np.int64)
    reason = page.u4[(at >> 2) + 11].astype(np.int64)
    width = _width(_FAILING[page.u1[at + 42]])
    size: I64 = facts.SETTLED_HEAD.size + width * counts + reason + (-reason & 7)
    return size


def _columns(of_fact: dict[str, npt.NDArray[Any]], fact: I64) -> dict[str, Numbers | Texts]:
    return {name: Numbers(values[fact]) for name, values in of_fact.items()}


def _reasons(page: Frames, at: I64, lengths: I64) -> Texts:
    """Return the reason of each fact; equal texts are stored once."""
    numbers: dict[bytes, int] = {b"": 0}
    codes = np.zeros(len(at), np.int64)
    said = np.flatnonzero(lengths)
    for fact, begin, length in zip(
        said.tolist(), at[said].tolist(), lengths[said].tolist(), strict=True
    ):
        text = page.records[begin : begin + length]
        codes[fact] = numbers.setdefault(text, len(numbers))
    return Texts([one.decode(errors="replace") or None for one in numbers], codes)


def _extended(page: Frames, which: I64) -> Decoded:
    found = Decoded()
    body = page.at[which] + HEADER_BYTES
    counts = _counts(page, which)
    fits = body + facts.COUNT.size + facts.EXTENDED.size * counts <= page.end[which]
    fits &= counts >= 0
    if not fits.all():
        found.left.append(which[~fits])
        which, body, counts = which[fits], body[fits], counts[fits]
    record, part = _spread(counts)
    at = body[record] + facts.COUNT.size + facts.EXTENDED.size * part
    word, long = at >> 2, at >> 3
    columns: dict[str, Numbers | Texts] = {
        "group_number": Numbers(page.u4[word]), "topic_number": Numbers(page.u4[word + 1]),
        "queue": Numbers(page.u4[word + 2]), "session": Numbers(page.u4[word + 3]),
        "lease": Numbers(page.i8[long + 2]), "lease_epoch": Numbers(page.u4[word + 6]),
        "until": Numbers(page.i8[long + 4]),
    }  # fmt: skip
    found.blocks.append(Block("extended", which[record], part, columns))
    return found


FAST: Final[dict[int, Callable[[Frames, I64], Decoded]]] = {
    Kind.MESSAGES: _stored,
    Kind.SCHEDULED: _scheduled,
    Kind.PULLED: _pulled,
    Kind.EXTENDED: _extended,
    Kind.SETTLED: _settled("settled"),
    Kind.ENDED: _settled("ended"),
}
