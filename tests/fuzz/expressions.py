"""Header filters, and the headers that they are asked about."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from ternmq.broker.catalog.filter import filter_of
from ternmq.model.errors import InvalidFilter
from ternmq.model.filter_tree import FALSE, TRUE, UNKNOWN, OneRow, passes
from ternmq.model.header_filter import MAX_CHARACTERS, parse, same_header_filter
from ternmq.model.specs import SubscriptionSpec
from ternmq.record.batch.batch import Batch, Row, encode
from tests.fuzz.engine import Input, Target
from tests.sim import filters

INVARIANT: Final = (
    "Whatever text is stated as a header filter: nothing but InvalidFilter comes out, which names a"
    " column of it; what is read says the same whenever it is read, of one row as of many, and as"
    " the second evaluator; whatever headers it is asked about, it answers for every row."
)
_ROWS: Final = [
    Row(b"", headers=filters.made_headers(random.Random(at)), tag="eu", key="k") for at in range(5)
]
_TRUTHS: Final = {FALSE: False, UNKNOWN: None, TRUE: True}


def _one(row: Row) -> OneRow:
    return OneRow(row.headers, row.tag, row.key, row.priority, row.content_type)


def _judged(text: str, batch: Batch) -> list[bool]:
    wanted = filter_of(SubscriptionSpec(filter=text))
    if wanted is None:
        return [True] * batch.count
    judged = wanted.judge(batch).judge(0, batch.count)
    assert judged.stop == batch.count
    return [judged.passed(row) for row in range(batch.count)]


def _batch(rows: list[Row]) -> Batch:
    return Batch(encode(rows, topic_seed=1, producer_id=1, first_sequence=0, born_us=0))


_BATCH: Final = _batch(_ROWS)


def expression(data: bytes) -> None:
    """Read a filter, and ask it about some rows."""
    text = data.decode(errors="replace")
    try:
        tree = parse(text)
    except InvalidFilter as error:
        if "column" not in str(error) or len(str(error)) > 2 * MAX_CHARACTERS:
            raise AssertionError(error) from error
        raise
    assert same_header_filter(text, f" {text}"[:MAX_CHARACTERS]) or len(text) == MAX_CHARACTERS
    expected = [passes(tree, _one(row)) for row in _ROWS]
    assert _judged(text, _BATCH) == expected
    if tree is not None:
        second = filters.read(text)
        for row in _ROWS:
            assert _TRUTHS[tree.column(_one(row))[0]] is filters.truth(second, row)


def value(data: bytes) -> None:
    """Ask filters of every kind about any value."""
    text = data.decode(errors="replace")
    row = Row(b"", headers={"a": text}, tag=text.split()[0] if text.split() else "", key=text)
    chance = random.Random(len(data))
    for _ in range(2):
        stated = filters.made(chance)
        found = filters.truth(filters.read(stated), row)
        tree = parse(stated)
        assert tree is not None
        assert _TRUTHS[tree.column(_one(row))[0]] is found, stated
        assert _judged(stated, _batch([row, row])) == [bool(found)] * 2


PARTS: Final[dict[str, Callable[[bytes], object]]] = {"expression": expression, "value": value}


def _sown() -> Iterator[Input]:
    for at in range(24):
        yield Input("expression", filters.made(random.Random(at)).encode())
    for text in ("1", "-0.5e3", "it's", "TRUE", "9" * 70, "9007199254740993", "é"):
        yield Input("value", text.encode())


_ALLOWED: Final[dict[str, tuple[Any, ...]]] = {"expression": (InvalidFilter,), "value": ()}
TARGET: Final = Target(
    name="expressions",
    invariant=INVARIANT,
    parts=PARTS,
    allowed=_ALLOWED,
    modules=("ternmq.model", "ternmq.broker.catalog"),
    sown=_sown,
)
