"""Bending inputs by seeded chance, running them, keeping those that reach new lines.

An input is the name of a part (a decoder, a session) and bytes. What a part lets out that its
target does not allow is a finding; so is memory above the bound. Everything follows from the seed,
save when the seconds end.
"""

from __future__ import annotations

import hashlib
import random
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

CORPUS: Final = Path(__file__).parent / "corpus"
MEMORY_BYTES: Final = 4 << 20
"""What one input may take at its peak, besides ``MEMORY_FACTOR`` times its own length."""
MEMORY_FACTOR: Final = 64
MAX_BYTES: Final = 1 << 16
_MEASURED: Final = 64
"""One input of so many is run under tracemalloc."""
_TRACED: Final = 8
"""One input of so many is looked at for new lines."""


class Input(NamedTuple):
    """What is tried."""

    part: str
    data: bytes

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return hashlib.sha256(self.data).hexdigest()[:12]


@dataclass(frozen=True)
class Target:
    """Something to fuzz.

    Attributes:
        name: Of its folder in the corpus.
        invariant: One sentence: what must hold for every input.
        parts: Runs bytes; raises only what it lets out by design, or AssertionError.
        allowed: Exceptions that each part may let out.
        modules: Prefixes of the modules whose lines count.
        sown: Sound inputs to begin with.
        mend: Makes a bent input pass the outer checks (lengths, checksums), so that the inner ones
            are reached; used every other time.
    """

    name: str
    invariant: str
    parts: Mapping[str, Callable[[bytes], object]]
    allowed: Mapping[str, tuple[type[Exception], ...]]
    modules: tuple[str, ...]
    sown: Callable[[], Iterator[Input]]
    mend: Callable[[str, bytes], bytes] = lambda _part, data: data


class FindingError(Exception):
    """An input that breaks the invariant."""

    def __init__(self, tried: Input, why: str) -> None:
        text = tried.data[:100].hex() + ("..." if len(tried.data) > 100 else "")
        super().__init__(f"{tried.part}: {why}\n{len(tried.data)} bytes: {text}")
        self.tried = tried


@dataclass
class Report:
    """What a run did."""

    runs: int = 0
    lines: int = 0
    kept: list[Input] = field(default_factory=list)


def judge(target: Target, tried: Input, *, measured: bool = False) -> None:
    """Run one input.

    Raises:
        FindingError: The invariant does not hold.
    """
    run = target.parts[tried.part]
    if measured:
        tracemalloc.start()
    try:
        run(tried.data)
    except target.allowed[tried.part]:
        pass
    except Exception as error:
        raise FindingError(tried, f"{type(error).__name__}: {error}") from error
    finally:
        peak = 0
        if measured:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    bound = MEMORY_BYTES + MEMORY_FACTOR * len(tried.data)
    if peak > bound:
        raise FindingError(tried, f"{peak} bytes of memory, at most {bound} are right")


def fuzz(target: Target, seconds: float, seed: int) -> Report:
    """Try bent inputs for so many seconds.

    Raises:
        FindingError: The first that breaks the invariant; the seed finds it again.
    """
    chance = random.Random(seed)
    pool: dict[str, list[bytes]] = {}
    for one in [*target.sown(), *corpus(target)]:
        if one.part in target.parts:
            pool.setdefault(one.part, []).append(one.data)
    lines = Lines(target.modules)
    report = Report()
    for part, some in pool.items():
        for data in some:
            with lines:
                judge(target, Input(part, data))
    parts = sorted(pool)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(50):
            part = chance.choice(parts)
            data = bent(chance.choice(pool[part]), pool[part], chance)
            if chance.random() < 0.5:
                data = target.mend(part, data)
            tried = Input(part, data[:MAX_BYTES])
            report.runs += 1
            if report.runs % _MEASURED == 0:
                judge(target, tried, measured=True)
            elif report.runs % _TRACED == 0:
                before = len(lines.seen)
                with lines:
                    judge(target, tried)
                if len(lines.seen) > before:
                    pool[part].append(tried.data)
                    report.kept.append(tried)
            else:
                judge(target, tried)
    report.lines = len(lines.seen)
    return report


def corpus(target: Target) -> Iterator[Input]:
    """Yield the inputs that are kept in files."""
    for path in sorted((CORPUS / target.name).glob("*/*")):
        yield Input(path.parent.name, path.read_bytes())


def keep(target: Target, inputs: list[Input]) -> int:
    """Write inputs to the corpus; return how many were new."""
    new = 0
    for one in inputs:
        path = CORPUS / target.name / one.part / one.name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(one.data)
            new += 1
    return new


# ---------------------------------------------------------------------------------------- bending

_SMALL: Final = (0, 1, 2, 7, 8, 15, 16, 127, 128, 255)
_LARGE: Final = (
    2**15, 2**16 - 1, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
_NUMBERS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}


def bent(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Return bytes with some things wrong in them."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        _BENDS[chance.randrange(len(_BENDS))](changed, others, chance)
    return bytes(changed)


def _place(data: bytearray, size: int, chance: random.Random) -> int:
    """Return where something of that size could stand: mostly where fields do."""
    last = len(data) - size
    if last <= 0:
        return 0
    at = chance.randint(0, last)
    return at - at % size if chance.random() < 0.7 else at


def _flip(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _byte(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xC1, 0xFF))


def _number(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    size = chance.choice((1, 2, 4, 8))
    at = _place(data, size, chance)
    number = chance.choice(_SMALL + _LARGE) & (1 << 8 * size) - 1
    data[at : at + size] = struct.pack("<" + _NUMBERS[size], number)


def _nudge(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    size = chance.choice((1, 2, 4, 8))
    at = _place(data, size, chance)
    number = int.from_bytes(data[at : at + size], "little") + chance.choice((-8, -1, 1, 8))
    data[at : at + size] = struct.pack("<" + _NUMBERS[size], number & (1 << 8 * size) - 1)


def _cut(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    del data[chance.randint(0, len(data)) :]


def _remove(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    del data[at : at + chance.choice((1, 4, 8, 16, 100))]


def _insert(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    data[at:at] = chance.randbytes(chance.choice((1, 4, 8, 16, 100)))


def _repeat(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    some = data[at : at + chance.choice((1, 8, 16, 48, 200))]
    data[at:at] = some * chance.choice((1, 2, 3, 20))


def _splice(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    other = chance.choice(others)
    data[chance.randint(0, len(data)) :] = other[chance.randint(0, len(other)) :]


def _deep(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    data[at:at] = chance.choice((b"\x91", b"\x81\xa1x", b"\x92\xc0")) * chance.choice((3, 50, 5000))


_BENDS: Final = (
    _flip, _byte, _byte, _number, _number, _nudge, _nudge, _cut, _remove, _insert, _repeat, _splice,
    _deep,
)  # fmt: skip


# ------------------------------------------------------------------------------------------ lines


class Lines:
    """Collects the lines of some modules that run within ``with``."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self.seen: set[tuple[str, int]] = set()
        self._modules = modules
        self._wanted: dict[str, bool] = {}

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        file = frame.f_code.co_filename
        wanted = self._wanted.get(file)
        if wanted is None:
            name = str(frame.f_globals.get("__name__", ""))
            wanted = self._wanted[file] = name.startswith(self._modules)
        return self._line if wanted else None

    def _line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            self.seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line
