"""The wall clock of one process: moved while it runs, with its other clocks left alone.

A library of a few lines is loaded before the C library (LD_PRELOAD) and adds an offset, which a
file holds, to the wall clock. No clock of the machine is touched.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_s;

__attribute__((constructor)) static void begin(void)
{
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    if (file < 0)
        abort();
    offset_s = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (offset_s == MAP_FAILED)
        abort();
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = next(clock, at);
    if (!failed && offset_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *offset_s;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
"""
_OFFSET: Final = struct.Struct("=q")


class WallClock:
    """The wall clock of the processes that are started with it.

    Args:
        folder: Gets the file with the offset; made if missing.
        library: See ``library``.
        offset_s: How far it is ahead of the machine's, in seconds.
    """

    def __init__(self, folder: Path, library: Path, offset_s: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "offset"
        path.write_bytes(_OFFSET.pack(offset_s))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _OFFSET.size)
        self.before: Sequence[str] = ("env", f"LD_PRELOAD={library}", f"CLOCK_OFFSET={path}")
        """The words that go before the command of a process."""

    def set(self, offset_s: int) -> None:
        """Move the clock, at once, so far ahead of the machine's; below 0: behind it."""
        self._memory[:] = _OFFSET.pack(offset_s)


def library(folder: Path) -> Path:
    """Compile the library, or skip where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    made = folder / "clock.so"
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(made), "-ldl"],
        input=_SOURCE, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made
