"""What figures are worth nothing without: the machine, the versions, and the raw disk."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Final

from core_kit import Settings, folder

_PACKAGES: Final = (
    "ternmq", "numpy", "msgspec", "google-crc32c", "xxhash", "lz4", "zstandard", "uvloop",
)  # fmt: skip
_SYNCS: Final = 400
_WRITE_BYTES: Final = 256 << 20
_PACE_LOOPS: Final = 500_000
_PACE_TRIES: Final = 8


def machine() -> dict[str, object]:
    """Return the processor, its cores, the memory, the kernel."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else model,
        "cores": os.cpu_count() or 0,
        "memory_mib": _memory_kib("MemTotal") // 1024,
        "kernel": platform.release(),
        "system": platform.system(),
    }


def versions() -> dict[str, str]:
    """Return the interpreter's version and those of the packages that the core stands on."""
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def load_average() -> float:
    """Return the load of the last minute."""
    return round(os.getloadavg()[0], 2)


def pace_ms() -> float:
    """Return the least CPU time of a plain loop in some tries.

    On a shared machine it can be twice the shortest, for seconds at a time: a neighbour uses the
    other half of the core, or the clock goes down. CPU time does not tell that. Some tries, since
    after a wait the first ones are slow by themselves.
    """
    least = math.inf
    for _ in range(_PACE_TRIES):
        begin = time.thread_time_ns()
        total = 0
        for number in range(_PACE_LOOPS):
            total += number
        least = min(least, (time.thread_time_ns() - begin) / 1e6)
    return least


def resident_bytes() -> int:
    """Return the memory of this process that is really there."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def raw_disk(settings: Settings) -> dict[str, float]:
    """Return what the folder's disk does by itself: synced writes of 1 KiB, and a large write.

    The file is written beforehand, as a journal's segment is, so that a sync carries no metadata.
    """
    syncs = settings.scaled(_SYNCS, 20)
    size = settings.scaled(_WRITE_BYTES, 4 << 20)
    block = os.urandom(1 << 20)
    with folder(settings) as path:
        fd = os.open(path / "raw", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            begin = time.perf_counter()
            for at in range(0, size, len(block)):
                os.pwrite(fd, block, at)
            os.fdatasync(fd)
            seconds = time.perf_counter() - begin
            taken: list[float] = []
            for at in range(syncs):
                begin = time.perf_counter()
                os.pwrite(fd, block[:1024], at * 1024)
                os.fdatasync(fd)
                taken.append((time.perf_counter() - begin) * 1e6)
        finally:
            os.close(fd)
    return {
        "synced_1_kib_p50_us": round(statistics.median(taken), 1),
        "synced_1_kib_p99_us": round(percentile(taken, 0.99), 1),
        "written_mb_s": round(size / seconds / 1e6, 1),
    }


def percentile(values: list[float], share: float) -> float:
    """Return the value below which ``share`` of the values lie (the nearest of them)."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def drop_caches() -> bool:
    """Let the system forget what it holds of files; return whether it did (root only)."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True


def _memory_kib(name: str) -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0
