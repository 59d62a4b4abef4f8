"""CHECKED bodies: round trips, what is cut short, what is newer than this version."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.fact.checked import Checked, What, pack_checked, unpack_checked

u32 = st.integers(0, 2**32 - 1)
ONE = Checked(9, 3, 4, 1_700_000_000_000_000, What.ASKED)


@given(
    st.builds(
        Checked, st.integers(0, 2**64 - 1), u32, u32, st.integers(0), st.sampled_from(What)
    ).filter(lambda one: one.next_us < 2**63),
    st.integers(0, 7),
)
def test_round_trip_with_padding(one: Checked, padding: int) -> None:
    assert unpack_checked(pack_checked(one) + bytes(padding)) == one


def test_bodies_that_are_cut_short() -> None:
    body = pack_checked(ONE)
    for size in range(len(body)):
        with pytest.raises(struct.error):
            unpack_checked(body[:size])


def test_what_is_not_known_is_refused() -> None:
    for at in (25, 26, 28):
        body = bytearray(pack_checked(ONE))
        body[at] += 1
        with pytest.raises(UnknownRecordKind):
            unpack_checked(bytes(body))
    body = bytearray(pack_checked(ONE))
    body[24] = 9
    with pytest.raises(ValueError, match="9"):
        unpack_checked(bytes(body))
