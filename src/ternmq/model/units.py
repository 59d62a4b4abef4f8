"""Text forms of values: durations ``10m``, sizes ``64MiB``, addresses ``HOST:PORT``.

``read(write(x)) == x`` holds for each form. A number without a unit is refused if a unit is needed,
since half the readers of ``timeout = 10`` would guess wrong.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from ternmq.model.types import DAY_US, HOUR_US, MINUTE_US, SECOND_US

DURATIONS: Final = {
    "d": DAY_US,
    "h": HOUR_US,
    "m": MINUTE_US,
    "s": SECOND_US,
    "ms": 1000,
    "us": 1,
}
SIZES: Final = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_SIZES_READ: Final = {**SIZES, "TiB": 1 << 40}
_PARTS: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)")
_PORTS: Final = 65_535
_PORT_DIGITS: Final = 20
"""More digits are not read: Python reads at most 4,300, and leading zeros are rare."""
TRUTHS: Final = {
    "true": True, "on": True, "yes": True, "1": True,
    "false": False, "off": False, "no": False, "0": False,
}  # fmt: skip
"""Words that ``read_bool`` accepts, in lower case."""


@dataclass(slots=True, frozen=True)
class Address:
    """An address to listen at; port 0 takes a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_everywhere(self) -> bool:
        """Whether it is every interface of this machine."""
        return not self.host or any(one.is_unspecified for one in self._numbers())

    def overlaps(self, other: Address) -> bool:
        """Return whether it is known, without asking a DNS, that one cannot listen at both."""
        if self.port != other.port or not self.port:
            return False
        return (
            any(
                one == two
                or (one.version == two.version and (one.is_unspecified or two.is_unspecified))
                for one in self._numbers()
                for two in other._numbers()
            )
            or self.host.lower() == other.host.lower()
        )

    def _numbers(self) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        """Return the IP addresses; none for a name that only a DNS knows."""
        if self.host.lower() == "localhost":
            return [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
        try:
            return [ipaddress.ip_address(self.host)]
        except ValueError:
            return []

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_duration(text: str) -> int:
    """Return the µs of ``90s``, ``10m``, ``1h30m``, ``250ms``, ``1.5s``; or raise ValueError."""
    return _sum(text, DURATIONS, "a duration such as 10m, 90s, 1h30m or 250ms")


def read_size(text: str) -> int:
    """Return the bytes of ``64MiB``, ``4KiB``, ``512B``; or raise ValueError."""
    return _sum(text, _SIZES_READ, "a size such as 64MiB, 4KiB or 512B")


def _sum(text: str, units: dict[str, int], what: str) -> int:
    total = Decimal(0)
    text = text.strip()
    if text == "0":
        return 0
    at = 0
    for part in _PARTS.finditer(text):
        if part.start() != at or part[2] not in units:
            break
        at = part.end()
        total += Decimal(part[1]) * units[part[2]]
    if not text or at != len(text):
        raise ValueError(f"is not {what}")
    if total != total.to_integral_value():
        raise ValueError(f"is not a whole number of {list(units)[-1]}")
    return int(total)


def write_duration(us: int) -> str:
    """Return the shortest way to write a duration."""
    return _parts(us, DURATIONS, "0")


def write_size(size: int) -> str:
    """Return a size in its largest whole unit."""
    for unit, worth in SIZES.items():
        if size and size % worth == 0:
            return f"{size // worth}{unit}"
    return "0"


def _parts(value: int, units: dict[str, int], nothing: str) -> str:
    for unit, worth in units.items():
        if value and value % worth == 0:
            return f"{value // worth}{unit}"
    return nothing


def read_address(text: str) -> Address:
    """Return ``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT`` (every interface); or raise ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("needs brackets round an IPv6 address: [::1]:7117")
    if not colon or not port.isascii() or not port.isdigit():
        raise ValueError("is not HOST:PORT")
    if len(port) > _PORT_DIGITS or int(port) > _PORTS:
        raise ValueError(f"has port {port:.20}: a port is 0 to {_PORTS}")
    if any(not sign.isprintable() or sign.isspace() for sign in host):
        raise ValueError("is not HOST:PORT")
    return Address(host or "0.0.0.0", int(port))  # noqa: S104  # checked by the rules


def read_bool(text: str) -> bool:
    """Return the value of ``true``, ``on``, ``yes``, ``1`` and their opposites; or ValueError."""
    found = TRUTHS.get(text.strip().lower())
    if found is None:
        raise ValueError("is not true or false")
    return found
