"""Sets of numbers as spans ``[start, stop)``, many sets at once: what the audit compares.

Each span belongs to a space (a queue, a producer on a topic, ...). One sweep over the sorted ends
of all spans gives, for every piece between two ends, how many spans of each set cover it; union,
intersection, difference and duplicates follow from that. Nothing here loops over messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

_PIECE: Final = 1 << 20
"""Rows hashed at a time."""


class Spans(NamedTuple):
    """Spans, in any order."""

    space: Ints
    start: Ints
    stop: Ints

    def where(self, chosen: Bools | Ints) -> Spans:
        """Return some of them."""
        return Spans(self.space[chosen], self.start[chosen], self.stop[chosen])

    @property
    def lengths(self) -> Ints:
        """The count of numbers in each span."""
        return self.stop - self.start


class Pieces(NamedTuple):
    """The result of a sweep, in the order of space and start; pieces do not overlap.

    Attributes:
        spans: The pieces; each is covered by at least one span.
        depths: For each set, how many of its spans cover each piece.
        run: Index of the span of the first set that covers the piece, if one does and the set's
            spans do not overlap; meaningless otherwise.
    """

    spans: Spans
    depths: list[Ints]
    run: Ints


def spans(space: npt.ArrayLike, start: npt.ArrayLike, stop: npt.ArrayLike) -> Spans:
    """Return spans of anything that numpy converts to integers."""
    return Spans(*(np.asarray(one, np.int64) for one in (space, start, stop)))


def sweep(*sets: Spans) -> Pieces:
    """Return the pieces of all sets together. Cost: one sort."""
    filled = [(one.start < one.stop).nonzero()[0] for one in sets]
    kept = [one.where(chosen) for one, chosen in zip(sets, filled, strict=True)]
    space = np.concatenate([part for one in kept for part in (one.space, one.space)])
    at = np.concatenate([part for one in kept for part in (one.start, one.stop)])
    order = np.lexsort((at, space))
    space, at = space[order], at[order]
    here = (space[:-1] == space[1:]) & (at[:-1] < at[1:])
    depths: list[Ints] = []
    begin = 0
    for one in kept:
        step = np.zeros(len(order), np.int64)
        count = len(one.start)
        step[begin : begin + count] = 1
        step[begin + count : begin + 2 * count] = -1
        depths.append(np.cumsum(step[order]))
        begin += 2 * count
    opened = np.zeros(len(order), np.int64)
    opened[: len(kept[0].start)] = 1
    passed = np.cumsum(opened[order])
    covered = np.zeros(len(order), np.bool_)
    for depth in depths:
        covered |= depth > 0
    chosen = (here & covered[:-1]).nonzero()[0]
    first = filled[0][np.lexsort((kept[0].start, kept[0].space))]
    run = first[passed[chosen] - 1] if len(first) else np.full(len(chosen), -1, np.int64)
    return Pieces(
        Spans(space[chosen], at[chosen], at[chosen + 1]),
        [depth[chosen] for depth in depths],
        run,
    )


def joined(some: Spans) -> Spans:
    """Return the same numbers in the fewest spans, in order."""
    found = sweep(some).spans
    return Spans(*_merged(found, np.zeros(len(found.start), np.int64)))


def _merged(found: Spans, mark: Ints) -> tuple[Ints, Ints, Ints]:
    """Join pieces in order that touch, and have the same mark."""
    if not len(found.start):
        return found
    new = np.ones(len(found.start), np.bool_)
    new[1:] = (
        (found.space[1:] != found.space[:-1])
        | (found.start[1:] != found.stop[:-1])
        | (mark[1:] != mark[:-1])
    )
    begin = new.nonzero()[0]
    end = np.append(begin[1:], len(new)) - 1
    return found.space[begin], found.start[begin], found.stop[end]


def without(some: Spans, *others: Spans) -> Spans:
    """Return the numbers that are in the first set and in none of the others."""
    pieces = sweep(some, *others)
    chosen = pieces.depths[0] > 0
    for depth in pieces.depths[1:]:
        chosen &= depth == 0
    return joined(pieces.spans.where(chosen))


def within(some: Spans, other: Spans) -> Spans:
    """Return the numbers that are in both sets."""
    pieces = sweep(some, other)
    return joined(pieces.spans.where((pieces.depths[0] > 0) & (pieces.depths[1] > 0)))


def totals(index: Ints, amounts: Ints, count: int) -> Ints:
    """Return for each of ``count`` indexes the sum of its amounts, exact."""
    found = np.zeros(count, np.int64)
    np.add.at(found, index, amounts)
    return found


def factor(columns: Sequence[npt.NDArray[np.int64]]) -> tuple[Ints, Ints]:
    """Number the distinct rows of columns.

    Returns:
        The number of each row's value, and for each number a row that has it.
    """
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        mixed = code * max(1, len(values)) + inverse
        code = np.unique(mixed, return_inverse=True)[1].astype(np.int64)
    _, first = np.unique(code, return_index=True)
    return code, first.astype(np.int64)


def id_hash(producers: npt.ArrayLike, sequences: npt.ArrayLike) -> Words:
    """Return 64 mixed bits of each message id: splitmix64 of both halves."""
    mixed = _mix(np.asarray(producers).astype(np.uint64))
    return _mix(mixed + np.asarray(sequences).astype(np.uint64))


def _mix(words: Words) -> Words:
    words = words + np.uint64(0x9E37_79B9_7F4A_7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return words ^ (words >> np.uint64(31))


def id_sums(index: Ints, producers: Ints, firsts: Ints, lengths: Ints, count: int) -> Ints:
    """Return for each of ``count`` indexes the sum of the hashes of its ids, modulo 2^64.

    If two sets of messages have equal counts and sums, they are the same set, except with a
    probability of 2^-64; the order does not matter. The bits of the sum are stored as a signed
    number.

    Args:
        index: Index of each run.
        producers: Producer of each run.
        firsts: First sequence of each run.
        lengths: Number of ids of each run.
        count: Number of indexes.
    """
    found = np.zeros(count, np.uint64)
    parts = -(-lengths // _PIECE)  # runs of more rows than a piece are cut
    whole = np.repeat(np.arange(len(lengths)), parts)
    number = np.arange(len(whole)) - np.repeat(np.cumsum(parts) - parts, parts)
    firsts = firsts[whole] + number * _PIECE
    lengths = np.minimum(_PIECE, lengths[whole] - number * _PIECE)
    index, producers = index[whole], producers[whole]
    ends = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + _PIECE, side="right")))
        some = slice(begin, end)
        starts = ends[some] - lengths[some] - before
        run = np.repeat(np.arange(end - begin), lengths[some])
        sequences = firsts[some][run] + (np.arange(len(run)) - starts[run])
        sums = np.add.reduceat(id_hash(producers[some][run], sequences), starts)
        np.add.at(found, index[some], sums)
        begin = end
    return found.view(np.int64)
