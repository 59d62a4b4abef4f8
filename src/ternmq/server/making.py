"""What a new journal takes of the disk, said before and while its files are made.

A journal's files are filled with zeros and synced before anything is stored in them: hundreds of
megabytes on an empty folder, seconds on a slow disk, and nobody is answered meanwhile.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from ternmq.broker.start import Options, segment_bytes_of
from ternmq.journal.disk import Disk
from ternmq.journal.real_disk import RealDisk
from ternmq.journal.segment import FOLDER
from ternmq.journal.space import default_reserve_bytes

log = logging.getLogger("ternmq.server")

_MIB: Final = 1 << 20
_BAR: Final = 30


@contextmanager
def said(disk: Disk, options: Options, out: TextIO | None = None) -> Iterator[None]:
    """Say in the log, or on a terminal as a bar, how far a journal is that the block makes.

    Nothing is said of one that is there already.

    Args:
        disk: The data root.
        options: Of the broker.
        out: Where the bar goes if it is a terminal; None: standard error.
    """
    if disk.names(FOLDER):
        yield
        return
    size = segment_bytes_of(disk, options)
    reserve = options.reserve_bytes
    reserve = default_reserve_bytes(disk, size) if reserve is None else reserve
    files = 1 + max(1, -(-reserve // size))
    log.info(
        "a new journal: two files of %d MiB are made before it listens, %d in all; %d MiB of %d MiB"
        " that are free",
        size // _MIB, files, files * size // _MIB, disk.free_bytes() // _MIB,
    )  # fmt: skip
    began = time.monotonic()
    made = _Bar(sys.stderr if out is None else out)
    if isinstance(disk, RealDisk):
        disk.told = made
    try:
        yield
    finally:
        made.end()
        if isinstance(disk, RealDisk):
            disk.told = None
    log.info("made in %.1f s", time.monotonic() - began)


class _Bar:
    """A line for each file in the log; on a terminal a bar that grows."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty()
        self._shown = False

    def __call__(self, name: str, done: int, size: int) -> None:
        """See ``RealDisk.told``."""
        if not self._live:
            if done == size:
                log.info("made %s, %d MiB", name, size // _MIB)
            return
        bar = "#" * (_BAR * done // size)
        self._out.write(f"\r\x1b[K{name} [{bar:{_BAR}}] {done // _MIB} of {size // _MIB} MiB")
        self._out.flush()
        self._shown = True

    def end(self) -> None:
        """Take the bar away."""
        if self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()
