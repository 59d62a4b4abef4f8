"""A reader written from docs/format/batch.md alone: nothing of ternmq, only struct.

It reads one golden file. Where it and the page disagree, one of them is wrong.
"""

from __future__ import annotations

import ast
import re
import struct
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "format" / "batch.md"

WIDTHS = {0: 8, 2: 8, 4: 2, 8: 8, 9: 8, 10: 1, 11: 16, 13: 8}
TEXT = {1: "key", 3: "ordering_key", 7: "content_type", 12: "application_id"}


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def rounded(number: int) -> int:
    return (number + 7) // 8 * 8


def binary(data: bytes, start: int, entries: int) -> tuple[list[bytes], int]:
    offsets = struct.unpack_from(f"<{entries + 1}i", data, start)
    assert offsets[0] == 0
    assert list(offsets) == sorted(offsets)
    base = start + 4 * (entries + 1)
    values = [data[base + offsets[k] : base + offsets[k + 1]] for k in range(entries)]
    return values, base + offsets[-1]


def msgpack_strings(data: bytes) -> dict[str, str]:
    """Short maps of short strings: fixmap and fixstr of msgpack's specification."""
    if not data:
        return {}
    assert data[0] & 0xF0 == 0x80
    strings: list[str] = []
    at = 1
    while at < len(data):
        assert data[at] & 0xE0 == 0xA0
        size = data[at] & 0x1F
        strings.append(data[at + 1 : at + 1 + size].decode())
        at += 1 + size
    assert len(strings) == 2 * (data[0] & 0x0F)
    return dict(zip(strings[::2], strings[1::2], strict=True))


def read(data: bytes, topic: str) -> list[dict[str, object]]:
    magic, crc, length, version, compression, column_count, flags, count, producer, first, born = (
        struct.unpack_from("<IIIBBHIIQQq", data)
    )
    assert (magic, version, compression) == (0x31424D54, 1, 0)
    assert length == len(data)
    assert length % 8 == 0
    assert crc == crc32c(topic.encode() + data[8:])
    present = [column for column in range(16) if flags >> column & 1]
    assert len(present) == column_count
    starts = struct.unpack_from(f"<{column_count}I", data, 48)
    columns: dict[int, list[bytes]] = {}
    end = 48 + 4 * column_count
    for column, start in zip(present, starts, strict=True):
        assert start == rounded(end)
        assert not any(data[end:start])
        constant = column <= 10 and bool(flags >> 16 + column & 1)
        entries = 1 if constant else count
        if column == 5:
            entries, zero = struct.unpack_from("<II", data, start)
            assert zero == 0
            columns[column], end = binary(data, start + 8, entries)
        elif column in WIDTHS:
            width = WIDTHS[column]
            end = start + width * entries
            columns[column] = [data[at : at + width] for at in range(start, end, width)]
        else:
            columns[column], end = binary(data, start, entries)
        if constant:
            columns[column] *= count
    assert rounded(end) == length
    assert not any(data[end:])
    numbers = {
        column: [int.from_bytes(entry, "little") for entry in columns[column]]
        for column in WIDTHS
        if column in columns
    }
    rows: list[dict[str, object]] = []
    for r in range(count):
        row: dict[str, object] = {name: columns[c][r].decode() for c, name in TEXT.items()}
        row |= {
            "id": (producer, first + r),
            "born_us": born,
            "tag": columns[5][numbers[4][r]].decode(),
            "headers": msgpack_strings(columns[6][r]),
            "due_us": numbers[8][r],
            "expiry_us": numbers[9][r],
            "priority": numbers[10][r],
            "body": columns[14][r],
            "hashes": (numbers[0][r], numbers[2][r], numbers[11][r], numbers[13][r]),
        }
        rows.append(row)
    return rows


def test_the_full_golden_file_is_read_by_the_page_alone():
    rows = read((ROOT / "tests/golden/batch_v1_full.bin").read_bytes(), "orders")
    assert len(rows) == 5
    for number, row in enumerate(rows):
        hashes = row.pop("hashes")
        assert isinstance(hashes, tuple)
        assert [bool(value) for value in hashes] == [number != 2, True, number != 3, True]
        assert row == {
            "id": (0x0123_4567_89AB_CDEF, 1000 + number),
            "born_us": 1_700_000_000_000_001,
            "key": f"order-{number}" if number != 2 else "",
            "ordering_key": f"straße-{number % 2}",
            "tag": ("paid", "", "refunded")[number % 3],
            "headers": {"trace": f"t{number}", "ü": "é"} if number % 2 else {},
            "content_type": "application/json" if number else "",
            "due_us": 1_700_000_060_000_000 + number if number % 3 else 0,
            "expiry_us": 1_800_000_000_000_000 if number == 1 else 0,
            "priority": number * 50,
            "application_id": f"id-{number}" if number != 3 else "",
            "body": b"body %d" % number,
        }
    # The vector that the page gives for xxh3_128("id-1").
    low, high = re.findall(r"(?:low|high) (0x[0-9A-F]{16})", PAGE.read_text(encoding="utf-8"))
    first_hashes = read((ROOT / "tests/golden/batch_v1_full.bin").read_bytes(), "orders")[1][
        "hashes"
    ]
    assert isinstance(first_hashes, tuple)
    assert first_hashes[2] == int(high, 16) << 64 | int(low, 16)


def test_the_checksum_is_the_one_that_the_page_describes():
    assert crc32c(b"123456789") == 0xE3069283
    assert f"0x{crc32c(b'orders'):08X}" in PAGE.read_text(encoding="utf-8")


def test_the_example_of_the_page_is_the_golden_file():
    lines = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} {1,2}){16})", PAGE.read_text(), re.MULTILINE)
    data = bytes.fromhex("".join(lines).replace(" ", ""))
    assert data == (ROOT / "tests/golden/batch_v1_one.bin").read_bytes()


def test_the_page_and_the_module_show_the_same_ruler():
    source = (ROOT / "src/ternmq/record/batch/layout.py").read_text(encoding="utf-8")
    ruler = re.search(
        r"::\n\n(.*?)\n\n``binary``", ast.get_docstring(ast.parse(source)) or "", re.DOTALL
    )
    assert ruler is not None
    page = re.sub(
        r"see Compressed bodies",
        "see ``compress.py``",
        PAGE.read_text(encoding="utf-8"),
    )
    lines = [line.strip() for line in ruler.group(1).splitlines() if line.strip()]
    missing = [line for line in lines if line not in page]
    assert missing == []
