"""NUMBERS: every field there and back, and what no broker writes is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.fact import numbers
from ternmq.record.fact.numbers import Numbers
from ternmq.wire.control.numbers import MAX_NUMBERS

FACTS = st.builds(
    Numbers,
    topic=st.integers(0, 2**32 - 1),
    first=st.integers(1, numbers.END - numbers.MOST),
    count=st.integers(1, numbers.MOST),
    reserve=st.none() | st.integers(0, numbers.RESERVES - 1),
)


@given(FACTS, st.integers(0, 7))
def test_there_and_back(fact: Numbers, padding: int) -> None:
    body = numbers.pack(fact)
    assert numbers.unpack(body + bytes(padding)) == fact
    assert numbers.pack(numbers.unpack(body)) == body


@given(FACTS, st.integers(0, 23))
def test_a_body_that_is_cut_is_refused(fact: Numbers, length: int) -> None:
    with pytest.raises(struct.error):
        numbers.unpack(numbers.pack(fact)[:length])


@pytest.mark.parametrize("at", [20, 21, 22, 23])
def test_another_version_is_refused(at: int) -> None:
    body = bytearray(numbers.pack(Numbers(1, 1, 1)))
    body[at] ^= 2
    with pytest.raises(UnknownRecordKind):
        numbers.unpack(bytes(body))


@pytest.mark.parametrize(
    "fact",
    [
        Numbers(1, 1, 0),
        Numbers(1, 1, numbers.MOST + 1),
        Numbers(1, 0, 1),
        Numbers(1, numbers.END, 1),
        Numbers(1, numbers.END - 1, 2),
        Numbers(1, 1, 1, numbers.RESERVES),
    ],
)
def test_numbers_that_nobody_gives_are_refused(fact: Numbers) -> None:
    with pytest.raises(ValueError, match="NUMBERS of"):
        numbers.unpack(numbers.pack(fact))


def test_the_last_numbers_are_given_and_reserves_fill_63_bits() -> None:
    last = Numbers(1, numbers.END - 1, 1, numbers.RESERVES - 1)
    assert numbers.unpack(numbers.pack(last)).stop == numbers.END == numbers.first_of_reserve(0)
    assert numbers.first_of_reserve(numbers.RESERVES) == 2**63


def test_a_request_may_ask_for_what_a_record_has() -> None:
    assert MAX_NUMBERS == numbers.MOST
