"""What the front door refuses: damage of every kind, and lies with a right checksum."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc

import google_crc32c
import pytest

from ternmq.record.batch.batch import MAX_COUNT, Batch, BatchError, BatchFlag, Row, verify
from tests.unit.record.batch.test_batch import SAMPLES, SEED, pack

samples = pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES.keys())


def sealed(data: bytes) -> bytes:
    """Give changed bytes the right length and checksum: what a hostile producer would send."""
    data = data[:8] + struct.pack("<I", len(data)) + data[12:]
    return data[:4] + struct.pack("<I", google_crc32c.extend(SEED, data[8:])) + data[8:]


def changed(data: bytes, at: int, code: str, *values: int) -> bytes:
    new = struct.pack(f"<{code}", *values)
    return sealed(data[:at] + new + data[at + len(new) :])


def reason(data: bytes) -> str:
    with pytest.raises(BatchError) as caught:
        verify(data, SEED)
    assert "not a valid batch" in str(caught.value)
    return caught.value.reason


@samples
def test_whole_batches_pass(data):
    verify(data, SEED)


@samples
def test_every_truncation_is_refused(data):
    for length in range(0, len(data), max(1, len(data) // 4000)):
        with pytest.raises(BatchError):
            verify(data[:length], SEED)


@samples
def test_every_truncation_with_a_right_length_and_checksum_is_refused(data):
    for length in range(64, len(data), max(1, len(data) // 4000)):
        with pytest.raises(BatchError):
            verify(sealed(data[:length]), SEED)


@samples
def test_trailing_bytes_are_refused(data):
    for extra in (b"\0", bytes(8), bytes(64), data):
        with pytest.raises(BatchError):
            verify(data + extra, SEED)
        with pytest.raises(BatchError):
            verify(sealed(data + extra), SEED)


@samples
def test_every_flipped_bit_is_refused(data):
    for at in range(0, len(data), max(1, len(data) // 2000)):
        for bit in range(8):
            damaged = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            with pytest.raises(BatchError):
                verify(damaged, SEED)


@samples
def test_a_lie_with_a_right_checksum_is_refused_or_can_be_read(data):
    # The hostile form of the test above: the only two outcomes, whatever bit was changed.
    for at in range(8, min(len(data), 700)):
        for bit in range(8):
            lie = sealed(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            try:
                verify(lie, SEED)
            except BatchError:
                continue
            batch = Batch(lie)
            assert len(batch.ordering_hashes()) == batch.count
            with contextlib.suppress(BatchError):  # headers and blocks: not looked into before
                assert len(batch.rows()) == batch.count
                assert batch.row(batch.count - 1) == batch.rows()[-1]


HEAD = {
    "magic": (0, "I", 0x31424D55),
    "version": (12, "B", 2),
    "flags": (13, "B", 3),
    "count": (20, "I", 0),
    "sequence": (32, "Q", 2**64 - 1),
    "columns": (14, "H", 2),
}


@pytest.mark.parametrize(("expected", "change"), HEAD.items(), ids=HEAD.keys())
def test_each_field_of_the_header_is_checked(expected, change):
    at, code, value = change
    assert reason(changed(SAMPLES["bodies"], at, code, value)) == expected


def test_length_and_checksum_are_checked():
    data = SAMPLES["bodies"]
    assert reason(data[:8] + struct.pack("<I", len(data) + 8) + data[12:]) == "length"
    assert reason(data[:4] + bytes(4) + data[8:]) == "checksum"
    assert reason(data[:40]) == "short"
    assert reason(sealed(data + b"\0")) == "length"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (1 << 27, "flags"),
        (1 << 30, "flags"),
        (1 << 31, "flags"),
        (1 << 21, "flags"),
        (BatchFlag.CONSTANT_PRIORITY, "flags"),
        (BatchFlag.KEY, "flags"),
        (BatchFlag.KEY_HASH, "flags"),
        (BatchFlag.ORDERING_KEY, "flags"),
        (BatchFlag.TAG_CODES, "flags"),
        (BatchFlag.APPLICATION_ID | BatchFlag.BODY_HASH, "flags"),
        (BatchFlag.KEY | BatchFlag.KEY_HASH | BatchFlag.CONSTANT_KEY, "flags"),
        (BatchFlag.KEYED, "keyed"),
        (BatchFlag.BLOCK_TABLE, "columns"),
        (BatchFlag.BLOCK_TABLE | BatchFlag.SLICE, "flags"),
        (BatchFlag.BLOCK_TABLE | BatchFlag.DUE_US, "flags"),
    ],
)
def test_flags_that_make_no_sense_are_refused(flags, expected):
    data = SAMPLES["bodies"]
    assert reason(changed(data, 16, "I", BatchFlag.BODIES | flags)) == expected


def test_a_batch_without_bodies_is_refused():
    assert reason(changed(SAMPLES["bodies"], 16, "I", BatchFlag.HEADERS)) == "flags"


def test_compression_without_a_block_table_and_the_other_way_round_are_refused():
    for name in ("one", "one, with keys and tag", "bodies"):
        assert reason(changed(SAMPLES[name], 13, "B", 1)) == "flags"
    assert reason(changed(SAMPLES["lz4"], 13, "B", 0)) == "flags"


@pytest.mark.parametrize(
    "name", ["one", "one, with keys and tag", "full, few", "full, many", "due"]
)
def test_starts_are_what_the_layout_says(name):
    data = SAMPLES[name]
    (columns,) = struct.unpack_from("<H", data, 14)
    for number in range(columns):
        (start,) = struct.unpack_from("<I", data, 48 + 4 * number)
        for wrong in (0, start - 8, start + 8, start + 1, 2**32 - 8):
            assert reason(changed(data, 48 + 4 * number, "I", wrong)) == "columns"
    if columns % 2:
        assert reason(changed(data, 48 + 4 * columns, "I", 1)) == "padding"


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_offsets_ascend_from_zero_and_end_within_the_batch(count):
    data = pack([Row(b"12345678")] * count)
    assert reason(changed(data, 56, "i", 1)) == "offsets"
    assert reason(changed(data, 56, "i", -1)) == "offsets"
    assert reason(changed(data, 56 + 4 * count, "i", -8)) == "offsets"
    assert reason(changed(data, 56 + 4 * count, "i", 2**31 - 1)) == "offsets"
    # Shorter than the bytes that are there, though ascending.
    assert reason(changed(data, 56 + 4 * count, "i", 8 * count - 8)) in {"columns", "padding"}
    if count > 1:
        assert reason(changed(data, 60, "i", 8 * count + 1)) == "offsets"


@pytest.mark.parametrize("count", [1, 3, 20])
def test_padding_is_zero(count):
    data = pack([Row(b"123")] + [Row(b"")] * (count - 1))
    assert reason(changed(data, len(data) - 1, "B", 1)) == "padding"
    with_key = pack([Row(b"", "k")] + [Row(b"")] * (count - 1))
    start = Batch(with_key).start(14)
    assert reason(changed(with_key, start - 1, "B", 1)) == "padding"


@pytest.mark.parametrize("count", [1, 3, 20])
def test_texts_are_utf_8_each_by_itself(count):
    rows = [Row(b"", key="ß", application_id="id"), *[Row(b"", key="ü")] * (count - 1)]
    data = pack(rows)
    key = Batch(data).start(1)
    content = key + 4 * (count + 1)
    assert reason(changed(data, content, "BB", 0xC3, 0x28)) == "text"
    if count > 1:
        # As a whole it is UTF-8 still, but a character belongs to two rows.
        assert reason(changed(data, key + 4, "i", 1)) == "text"


@pytest.mark.parametrize("count", [1, 3, 20])
def test_a_keyed_batch_has_a_key_in_every_row(count):
    flags = BatchFlag.BODIES | BatchFlag.ORDERING_HASH | BatchFlag.ORDERING_KEY | BatchFlag.KEYED
    data = pack([Row(b"", ordering_key=f"{n:04}") for n in range(count)], keyed=True)
    verify(data, SEED)
    start = Batch(data).start(3)
    if count > 1:
        assert reason(changed(data, start + 4, "i", 0)) == "keyed"
    partly = pack([Row(b"", ordering_key=f"{n}" if n else "") for n in range(count + 1)])
    assert reason(changed(partly, 16, "I", flags)) == "keyed"


def test_a_keyed_batch_with_an_empty_constant_key_is_refused():
    data = pack([Row(b"", ordering_key="12345678")] * 2, keyed=True)
    start = Batch(data).start(3)
    cut = data[: start + 4] + bytes(4) + data[start + 16 :]
    cut = cut[:56] + struct.pack("<I", start + 8) + cut[60:]
    assert reason(sealed(cut)) == "keyed"


@pytest.mark.parametrize("count", [1, 3, 20])
def test_tags_are_in_the_dictionary(count):
    data = pack([Row(b"", tag="a"), *[Row(b"", tag="b")] * (count - 1)])
    batch = Batch(data)
    codes, dictionary = batch.start(4), batch.start(5)
    entries = 2 if count == 1 else 3
    assert reason(changed(data, codes, "H", entries)) == "tags"
    assert reason(changed(data, dictionary, "I", 0)) == "tags"
    assert reason(changed(data, dictionary, "I", 2**16 + 1)) == "tags"
    assert reason(changed(data, dictionary, "I", 2**16)) == "columns"
    assert reason(changed(data, dictionary + 4, "I", 1)) == "tags"
    assert reason(changed(data, dictionary + 12, "i", 1)) == "tags"  # entry 0 not empty
    if count > 1:
        text = dictionary + 8 + 4 * (entries + 1)
        assert reason(changed(data, text, "BB", 0x62, 0x62)) == "tags"  # both are "b"


def test_a_row_may_have_no_tag_though_there_is_a_dictionary():
    data = changed(SAMPLES["one, with keys and tag"], 0, "")
    codes = Batch(data).start(4)
    untagged = changed(data, codes, "H", 0)
    verify(untagged, SEED)
    assert Batch(untagged).row(0).tag == ""


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("column", [8, 9])
def test_times_are_not_negative(count, column):
    data = pack([Row(b"", due_us=n + 1, expiry_us=n + 1) for n in range(count)])
    start = Batch(data).start(column)
    assert reason(changed(data, start + 8 * (count - 1), "q", -1)) == "times"


def test_application_ids_have_at_most_128_bytes():
    data = pack([Row(b"", application_id="a" * 128), Row(b"", application_id="b" * 16)])
    verify(data, SEED)
    start = Batch(data).start(12)
    assert reason(changed(data, start + 4, "i", 129)) == "application_id"


@pytest.mark.parametrize("name", SAMPLES)
def test_lengths_in_the_data_take_no_memory(name):
    """Counts and sizes at their largest: refused without holding more than the bytes themselves."""
    data = SAMPLES[name]
    lies = [changed(data, 20, "I", MAX_COUNT)]
    first = 48 + 4 * (struct.unpack_from("<H", data, 14)[0] + 1 & ~1)
    lies += [
        changed(data, at, "I", value)
        for at in range(first, min(len(data), first + 600) - 4, 4)
        for value in (2**31 - 1, 2**32 - 1, 2**16)
    ]
    tracemalloc.start()
    try:
        for lie in lies:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with contextlib.suppress(BatchError):
                verify(lie, SEED)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 8 * len(data) + 64 * 1024
    finally:
        tracemalloc.stop()
