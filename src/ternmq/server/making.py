"""What a new journal takes of the disk, said before and while its files are made.

A journal's files are filled with zeros and synced before anything is stored in them: hundreds of
megabytes on an empty folder, seconds on a slow disk, and nobody is answered meanwhile. A reserve
that cannot be is refused before.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from ternmq.broker.start import Options, segment_bytes_of
from ternmq.journal.disk import Disk
from ternmq.journal.real_disk import RealDisk
from ternmq.journal.segment import FOLDER
from ternmq.journal.space import default_reserve_bytes
from ternmq.model.errors import SettingsError
from ternmq.settings.fields import FIELDS

log = logging.getLogger("ternmq.server")

_MIB: Final = 1 << 20
_BAR: Final = 30


def check_folder(data: str) -> None:
    """Refuse a data folder that is a file, or lies in one; nothing is made.

    Raises:
        SettingsError: What is a file.
    """
    for path in (Path(data), *Path(data).parents):
        if path.is_dir():
            return
        if path.exists():
            raise SettingsError(f"data = {data!r} cannot be a folder: {path} is a file")


def check_reserve(disk: Disk, options: Options) -> None:
    """Refuse a reserve that was set and for which the disk has no room; nothing is made.

    A new journal's has to fit into what is free, and has to leave room for messages below the
    watermark, unless other files alone are above that. Of a journal that is there, files are the
    reserve already, or were; only what is larger than the disk is refused then, for the broker has
    to start on a disk that others have filled.

    Raises:
        SettingsError: One line with both numbers, and what to do.
    """
    reserve = options.reserve_bytes
    if reserve is None:
        return
    total = disk.total_bytes()
    if disk.names(FOLDER):
        if reserve > total:
            raise _refused(reserve, f"the disk has {total // _MIB} MiB in all")
        return
    size, free = segment_bytes_of(disk, options), disk.free_bytes()
    watermark = options.retention.watermark
    needed = _files(reserve, size) * size
    takes = f"its files and the first one take {needed // _MIB} MiB, and the disk has"
    if needed > free:
        raise _refused(reserve, f"{takes} {free // _MIB} MiB free")
    left = int(watermark * total) - (total - free)
    if 0 <= left < needed:
        raise _refused(
            reserve,
            f"{takes} {left // _MIB} MiB up to retention_watermark = {watermark}, above which"
            " messages are removed before their time or sends refused",
        )


def _refused(reserve: int, why: str) -> SettingsError:
    key = "reserve"
    return SettingsError(
        f"{key} = {FIELDS[key].write(reserve)} is too much for this disk: {why}; set {key} to less,"
        " or to 0 for one by the size of the disk"
    )


def warn_of_reserve(lacks: int) -> None:
    """Say in the log that an old journal's reserve is not whole, and cannot be.

    Args:
        lacks: Bytes that the disk would need to have free in addition; 0: nothing is said.
    """
    if lacks:
        log.warning(
            "the reserve is not whole, and the disk has %d MiB too few free for it: free disk space"
            " or set reserve to less; until then sends may be refused",
            -(-lacks // _MIB),
        )


def _files(reserve: int, size: int) -> int:
    """Return how many files a new journal with its reserve is."""
    return 1 + max(1, -(-reserve // size))


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
    files = _files(reserve, size)
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
