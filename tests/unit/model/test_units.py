"""How values are written: what is read, what is written is read back, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.types import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from ternmq.model.units import (
    Address,
    read_address,
    read_bool,
    read_duration,
    read_size,
    write_duration,
    write_size,
)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("0", 0), ("250ms", 250_000), ("7us", 7), ("90s", 90 * SECOND_US), ("10m", 10 * MINUTE_US),
        ("1h30m", HOUR_US + 30 * MINUTE_US), ("7d", 7 * DAY_US), ("1.5s", 1_500_000),
        ("0.1s", 100_000), (" 5s ", 5 * SECOND_US), ("0s", 0),
    ],
)  # fmt: skip
def test_durations(text: str, us: int) -> None:
    assert read_duration(text) == us


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("512B", 512), ("4KiB", 4096), ("64MiB", 64 << 20), ("1.5GiB", 3 << 29),
        ("1TiB", 1 << 40),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "10",
        "-1s",
        "s",
        "1x",
        "1s 2s",
        "1,5s",
        "1e3s",
        "10M",
        "1 s",
        "١s",
        "0.0000001s",
        "1s;",
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        read_duration(text)


@pytest.mark.parametrize("text", ["", "64", "64M", "64MB", "64mib", "-1B", "0.5B", "nan", "1GiB x"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        read_size(text)


@given(st.integers(0, 2**60))
def test_what_is_written_is_read_back(value: int) -> None:
    assert read_duration(write_duration(value)) == value
    assert read_size(write_size(value)) == value


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("127.0.0.1:7117", Address("127.0.0.1", 7117), True),
        ("127.9.9.9:0", Address("127.9.9.9", 0), True),
        ("localhost:1", Address("localhost", 1), True),
        ("[::1]:7117", Address("::1", 7117), True),
        ("[::]:7117", Address("::", 7117), False),
        (":7117", Address("0.0.0.0", 7117), False),
        ("0.0.0.0:7117", Address("0.0.0.0", 7117), False),
        ("broker.example:65535", Address("broker.example", 65535), False),
        ("localhost.example:1", Address("localhost.example", 1), False),
        ("127.0.0.1.example:1", Address("127.0.0.1.example", 1), False),
        ("[::ffff:10.0.0.1]:1", Address("::ffff:10.0.0.1", 1), False),
    ],
)
def test_addresses(text: str, address: Address, loopback: bool) -> None:
    assert read_address(text) == address
    assert address.is_loopback is loopback
    assert read_address(str(address)) == address


@pytest.mark.parametrize(
    ("one", "other", "overlaps"),
    [
        ("127.0.0.1:7117", "127.0.0.1:7117", True),
        ("127.0.0.1:7117", "127.0.0.1:7118", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),  # each takes another one
        ("127.0.0.1:1", "127.0.0.2:1", False),
        (":1", "127.0.0.1:1", True),
        (":1", "[::1]:1", False),
        ("[::]:1", "[::1]:1", True),
        ("[::]:1", "127.0.0.1:1", False),  # a listener takes one family at an address
        ("localhost:1", "127.0.0.1:1", True),
        ("LocalHost:1", "[::1]:1", True),
        ("localhost:1", ":1", True),
        ("localhost:1", "127.0.0.2:1", False),
        ("[::1]:1", "[0:0:0:0:0:0:0:1]:1", True),
        ("broker.example:1", "Broker.example:1", True),
        ("broker.example:1", "other.example:1", False),
    ],
)
def test_addresses_that_are_one(one: str, other: str, overlaps: bool) -> None:
    assert read_address(one).overlaps(read_address(other)) is overlaps
    assert read_address(other).overlaps(read_address(one)) is overlaps


@pytest.mark.parametrize(
    "text",
    ["", "7117", "host", "host:", "host:65536", "host:-1", "::1:7117", "a b:1", "a\n:1", "h:١"],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|brackets|has port 65536: a port is"):
        read_address(text)


def test_truths() -> None:
    assert all(read_bool(text) for text in ("true", "on", "YES", "1"))
    assert not any(read_bool(text) for text in ("false", "off", "No", "0"))
    for text in ("", "2", "maybe"):
        with pytest.raises(ValueError, match="true or false"):
            read_bool(text)
