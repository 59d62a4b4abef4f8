"""The rows of a batch, as a header filter asks about them.

A row whose headers are no map of texts, which no client of ours sends, has no headers: it must not
keep a group from the rows after it.

Messages without a priority have priority 0, as those that were sent with 0: batches store both
alike.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from ternmq.model.filter_tree import Property, What
from ternmq.record.batch.batch import Batch
from ternmq.record.batch.layout import CONTENT_TYPE, HEADERS, KEY, PRIORITY, TAG_CODES
from ternmq.record.batch.pick import texts_of, values_of

_COLUMNS: Final = {
    Property.TAG: TAG_CODES,
    Property.KEY: KEY,
    Property.PRIORITY: PRIORITY,
    Property.CONTENT_TYPE: CONTENT_TYPE,
}
_decode: Final = msgspec.msgpack.Decoder(dict[str, str]).decode


def constant(batch: Batch, asked: Collection[What]) -> bool:
    """Return whether all rows of a batch have the same values of all that is asked."""
    for what in asked:
        column = HEADERS if isinstance(what, str) else _COLUMNS[what]
        if batch.has(column) and not batch.is_constant(column):
            return False
    return True


class BatchRows:
    """Rows ``[start, stop)`` of a batch, as ``filter_tree.Rows``."""

    __slots__ = (
        "_batch", "_columns", "_dictionary", "_headers", "_start", "_stop", "header_bytes",
    )  # fmt: skip

    def __init__(self, batch: Batch, start: int, stop: int) -> None:
        self._batch = batch
        self._dictionary: list[str | None] | None = None
        self.move(start, stop)

    def move(self, start: int, stop: int) -> None:
        """Be other rows of the batch."""
        self._start, self._stop = start, stop
        self._headers: list[dict[str, str]] | None = None
        self._columns: dict[What, Sequence[str | int | None]] = {}
        self.header_bytes = 0
        """Bytes of the headers that were read."""

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._stop - self._start

    def values(self, what: What) -> Sequence[str | int | None]:
        """Return the value of each row; None: it has none."""
        found = self._columns.get(what)
        if found is None:
            found = self._columns[what] = self._read(what)
        return found

    def _read(self, what: What) -> Sequence[str | int | None]:
        if isinstance(what, str):
            return [headers.get(what) for headers in self._all_headers()]
        batch, start, stop = self._batch, self._start, self._stop
        if what is Property.PRIORITY:
            return batch.priorities()[start:stop]
        if what is Property.TAG:
            return self._tags()
        return [text or None for text in texts_of(batch, _COLUMNS[what], start, stop)]

    def _tags(self) -> Sequence[str | None]:
        if self._dictionary is None:
            self._dictionary = [None, *self._batch.tag_dictionary()[1:]]
        if not self._batch.has(TAG_CODES):
            return [None] * self.count
        codes = self._batch.tags()[0][self._start : self._stop]
        return list(map(self._dictionary.__getitem__, codes))

    def _all_headers(self) -> list[dict[str, str]]:
        if self._headers is None:
            packed = values_of(self._batch, HEADERS, self._start, self._stop)
            if self._batch.is_constant(HEADERS):
                packed = packed[:1]
            self.header_bytes = sum(map(len, packed))
            try:
                found = [_decode(one) if one else {} for one in packed]
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                found = list(map(_decoded, packed))
            self._headers = found if len(found) == self.count else found * self.count
        return self._headers


def _decoded(packed: bytes) -> dict[str, str]:
    """Return the headers of a row; none if they are damaged."""
    try:
        return _decode(packed) if packed else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
