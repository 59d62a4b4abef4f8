"""The leadership record: round trips, bounds, fields of later versions, rubbish."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.cluster.coordination.record import (
    FORMAT,
    MAX_BYTES,
    MAX_MEMBERS,
    MAX_VERSION,
    MAX_WHY,
    BadRecord,
    Floor,
    Leadership,
    Member,
    Progress,
    Writer,
    Writes,
    leadership_key,
    pack,
    pack_progress,
    progress_key,
    unpack,
    unpack_progress,
)
from ternmq.model.errors import InvalidName
from ternmq.model.types import NO_POSITION, Epoch, Position

U64 = 2**64 - 1
U32 = 2**32 - 1

names = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,126}", fullmatch=True)
positions = st.integers(0, U64 - 1).map(Position)


@st.composite
def records(draw: st.DrawFn) -> Leadership:
    brokers = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    epoch = draw(st.integers(0, U32))
    floors = st.builds(Floor, st.integers(0, epoch).map(Epoch), positions, st.integers(0, U32))
    return Leadership(
        version=draw(st.integers(1, MAX_VERSION)),
        writer=Writer(draw(names), draw(st.integers(1, U64)), draw(st.integers(0, 2**63 - 1))),
        journal=draw(st.integers(1, U64)),
        epoch=Epoch(epoch),
        primary=draw(st.sampled_from(brokers)),
        members=tuple(Member(one, draw(st.integers(0, U64))) for one in brokers),
        writes=draw(st.sampled_from(Writes)),
        floor=draw(st.none() | floors),
        cut_below=draw(st.none() | positions),
        cut_epoch=Epoch(draw(st.integers(0, epoch))),
        cut_at_us=draw(st.integers(0, 2**63 - 1)),
        why=draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_WHY)),
        at_us=draw(st.integers(0, 2**63 - 1)),
    )


RECORD = Leadership(
    version=7,
    writer=Writer("berlin", 9, 3),
    journal=11,
    epoch=Epoch(4),
    primary="berlin",
    members=(Member("berlin", 9), Member("paris", 0)),
    floor=Floor(Epoch(3), Position(4096), 5),
    why="a test",
    at_us=1,
)
FIELDS: dict[str, Any] = msgspec.msgpack.decode(pack(RECORD))


def packed(**changes: object) -> bytes:
    """Return the record's bytes with other fields; ``...`` leaves one out."""
    fields = {**FIELDS, **changes}
    return msgspec.msgpack.encode({key: one for key, one in fields.items() if one is not ...})


@given(records())
def test_a_record_comes_back_as_it_was(record: Leadership) -> None:
    assert unpack(pack(record), record.version) == record


def test_the_bytes_of_a_record() -> None:
    assert FIELDS == {
        "format": 1,
        "version": 7,
        "writer": ["berlin", 9, 3],
        "journal": 11,
        "epoch": 4,
        "primary": "berlin",
        "members": [["berlin", 9], ["paris", 0]],
        "writes": "open",
        "floor": [3, 4096, 5],
        "cut_below": None,
        "cut_epoch": 0,
        "cut_at_us": 0,
        "why": "a test",
        "at_us": 1,
    }


def test_a_record_of_before_the_loss_was_dated_is_read() -> None:
    assert unpack(packed(cut_epoch=..., cut_at_us=...), 7) == RECORD


def test_fields_of_later_versions_are_kept_over_a_change() -> None:
    later = packed(zone={"of": ["eu", 1.5, b"\x00", None]}, again=-1)
    found = unpack(later, 7)
    assert sorted(found.kept) == ["again", "zone"]
    changed = msgspec.structs.replace(found, version=8, epoch=Epoch(5), primary="paris")
    fields = msgspec.msgpack.decode(pack(changed))
    assert fields == {
        **FIELDS,
        "version": 8,
        "epoch": 5,
        "primary": "paris",
        "zone": {"of": ["eu", 1.5, b"\x00", None]},
        "again": -1,
    }
    assert unpack(pack(changed), 8) == changed


@pytest.mark.parametrize(
    "changes",
    [
        {"format": FORMAT + 1},
        {"format": 0},
        {"format": ...},
        {"version": 0},
        {"version": 8},
        {"version": MAX_VERSION + 1},
        {"version": "7"},
        {"version": 7.0},
        {"version": True},
        {"writer": ["berlin", 9]},
        {"writer": ["berlin", 9, 3, 4]},
        {"writer": ["berlin", 0, 3]},
        {"writer": ["berlin", 9, -1]},
        {"writer": ["berlin", 9, 2**63]},
        {"writer": ["$berlin", 9, 3]},
        {"writer": {"broker": "berlin", "incarnation": 9, "counter": 3}},
        {"journal": 0},
        {"journal": -1},
        {"journal": ...},
        {"epoch": -1},
        {"epoch": U32 + 1},
        {"epoch": None},
        {"primary": ""},
        {"primary": "rome"},
        {"primary": "a b"},
        {"primary": b"berlin"},
        {"members": []},
        {"members": [["paris", 1]]},
        {"members": [["berlin", 1], ["berlin", 2]]},
        {"members": [["berlin", -1]]},
        {"members": [["berlin", 1], ["..", 2]]},
        {"members": [["berlin", 1], ["x" * 128, 2]]},
        {"members": [["berlin", 1], *[[f"b{n}", 1] for n in range(MAX_MEMBERS)]]},
        {"members": {"berlin": 1}},
        {"writes": "shut"},
        {"writes": True},
        {"floor": [5, 4096, 5]},
        {"floor": [3, NO_POSITION, 5]},
        {"floor": [3, 4096, U32 + 1]},
        {"floor": [3, 4096]},
        {"floor": ...},
        {"cut_below": -1},
        {"cut_below": NO_POSITION},
        {"cut_epoch": 5},
        {"cut_epoch": None},
        {"cut_at_us": -1},
        {"why": "x" * (MAX_WHY + 1)},
        {"why": None},
        {"at_us": -1},
        {"at_us": 2**63},
        {"later": "x" * MAX_BYTES},
    ],
)
def test_a_record_that_breaks_a_rule_is_bad(changes: dict[str, object]) -> None:
    with pytest.raises(BadRecord):
        unpack(packed(**changes), 7)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc0",
        b"\xff",
        b"{}",
        b"\x80",
        b"\x91" * 60_000,
        b"\x82\xa6format\x01\xa1x" + b"\x91" * 60_000,
        b"\x82\xa6format\x01\xa2\xff\xfe\x01",
        b"\x81\xc4\x06format\x01",
        pack(RECORD)[:-1],
        pack(RECORD) + b"\x00",
        b"\x00" * (MAX_BYTES + 1),
        b"leadership: berlin",
    ],
)
def test_other_bytes_are_bad(value: bytes) -> None:
    with pytest.raises(BadRecord):
        unpack(value, 7)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_record_or_bad(value: bytes) -> None:
    with pytest.raises(BadRecord):
        unpack(value, 7)


@given(st.data())
def test_a_record_with_other_bytes_is_a_record_or_bad(data: st.DataObject) -> None:
    value = bytearray(pack(RECORD))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(value) - 1))
        value[place] = data.draw(st.integers(0, 255))
    try:
        found = unpack(bytes(value), 7)
    except BadRecord:
        return
    assert unpack(pack(found), 7) == found


def test_a_newer_format_is_told() -> None:
    with pytest.raises(BadRecord, match="newer version of TernMQ"):
        unpack(msgspec.msgpack.encode({"format": 2, "shape": "another"}), 1)


def test_a_record_of_another_version_of_the_store_is_told() -> None:
    with pytest.raises(BadRecord, match=r"says that it is version 7.*has version 1"):
        unpack(pack(RECORD), 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"primary": "rome"},
        {"epoch": 1.5},
        {"version": 0},
        {"members": ()},
        {"why": "\ud800"},
        {"journal": 2**64},
        {"at_us": object()},
        {"kept": {"epoch": b"\x01"}},
        {"kept": {"new": b"\x91"}},
        {"kept": {"new": b"\x01\x01"}},
        {"kept": {"new": msgspec.msgpack.encode("x" * MAX_BYTES)}},
    ],
)
def test_what_could_not_be_read_is_not_packed(changes: dict[str, Any]) -> None:
    with pytest.raises(BadRecord):
        pack(msgspec.structs.replace(RECORD, **changes))


@given(st.integers(0, U32).map(Epoch), positions)
def test_progress_comes_back_as_it_was(epoch: Epoch, position: Position) -> None:
    progress = Progress(epoch, position)
    assert unpack_progress(pack_progress(progress)) == progress


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x91\x01",
        b"\x93\x01\x01\x01",
        b"\x92\xff\x01",
        b"\x92\x01\xa1x",
        b"\x92\x01\xcf" + b"\xff" * 8,
        b"\x00" * 65,
    ],
)
def test_other_bytes_are_no_progress(value: bytes) -> None:
    with pytest.raises(BadRecord):
        unpack_progress(value)


def test_no_impossible_progress_is_packed() -> None:
    for wrong in (Progress(Epoch(-1), Position(0)), Progress(Epoch(1), Position(2**64))):
        with pytest.raises(BadRecord):
            pack_progress(wrong)


def test_keys_have_names_of_broker_groups() -> None:
    assert leadership_key("g1") == "leadership/g1"
    assert progress_key("g1") == "progress/g1"
    for wrong in ("", "..", "a/b", "x" * 128, "ä"):
        with pytest.raises(InvalidName):
            leadership_key(wrong)
        with pytest.raises(InvalidName):
            progress_key(wrong)
