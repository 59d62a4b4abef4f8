"""The disk space of a new journal: checked first, then logged while its files are made.

A journal's files are filled with zeros and synced before anything is stored in them: hundreds of
megabytes in an empty folder, seconds on a slow disk, and no request is answered meanwhile. A
reserve for which there is no room is refused before that.
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
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.segment import FOLDER
from ternmq.journal.log.space import default_reserve_bytes
from ternmq.model.errors import SettingsError
from ternmq.settings.fields import FIELDS

log = logging.getLogger("ternmq.server")

_MIB: Final = 1 << 20
_BAR: Final = 30


def check_folder(data: str) -> None:
    """Refuse a data folder that is a file or would be inside one; nothing is written.

    Raises:
        SettingsError: It names the file.
    """
    for path in (Path(data), *Path(data).parents):
        if path.is_dir():
            return
        if path.exists():
            raise SettingsError(f"data = {data!r} cannot be a folder: {path} is a file")


def check_reserve(disk: Disk, options: Options) -> None:
    """Refuse a configured reserve for which the disk has no room; nothing is written.

    The reserve of a new journal has to fit into the free space, and has to leave room for messages
    below the watermark, unless other files alone exceed that. An existing journal has, or had, its
    reserve as files already; so only a reserve larger than the whole disk is refused then, since
    the broker has to start on a disk that other programs have filled.

    Raises:
        SettingsError: One line with both numbers, and what to do.
    """
    reserve = options.reserve_bytes
    if reserve is None:
        return
    total = disk.total_bytes()
    if disk.names(FOLDER):
        if reserve > total:
            raise _refused(reserve, f"the broker can use {total // _MIB} MiB of it in all")
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
        " or to 0 to derive it from the size of the disk"
    )


def warn_of_reserve(lacks: int) -> None:
    """Log that an existing journal's reserve is incomplete, and the disk too full to complete it.

    Args:
        lacks: Bytes that the disk would need to have free in addition; 0: nothing is logged.
    """
    if lacks:
        log.warning(
            "the reserve is incomplete: the disk lacks %d MiB of free space for it. Free disk space"
            " or reduce the setting reserve; until then sends may be refused",
            -(-lacks // _MIB),
        )


def warn_of_watermark(disk: Disk, watermark: float) -> None:
    """Log that the disk is above the watermark already, whatever fills it.

    Args:
        disk: The disk of the journal.
        watermark: Fraction of the disk above which retention is under pressure.
    """
    free, total = disk.free_bytes(), disk.total_bytes()
    if total and (total - free) / total > watermark:
        log.warning(
            "the disk is %.0f %% full (%d MiB are free, as df counts), above retention_watermark"
            " = %g: messages are removed before their time, or sends are refused. Free disk space,"
            " or increase the setting",
            100 * (total - free) / total,
            free // _MIB,
            watermark,
        )


def _files(reserve: int, size: int) -> int:
    """Return the number of files of a new journal with its reserve."""
    return 1 + max(1, -(-reserve // size))


@contextmanager
def said(disk: Disk, options: Options, out: TextIO | None = None) -> Iterator[None]:
    """Log the progress of making a new journal in the block; on a terminal, show a bar.

    Nothing is logged if the journal exists already.

    Args:
        disk: The data root.
        options: Options of the broker.
        out: Stream for the bar, if it is a terminal; None: standard error.
    """
    if disk.names(FOLDER):
        yield
        return
    size = segment_bytes_of(disk, options)
    reserve = options.reserve_bytes
    reserve = default_reserve_bytes(disk, size) if reserve is None else reserve
    files = _files(reserve, size)
    log.info(
        "a new journal: the broker creates two files of %d MiB before it listens, and %d files in "
        "all: %d MiB of the %d MiB that are free",
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
    log.info("created in %.1f s", time.monotonic() - began)


class _Bar:
    """A log line for each file; on a terminal a bar that grows."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty()
        self._shown = False

    def __call__(self, name: str, done: int, size: int) -> None:
        """Show that ``done`` of ``size`` bytes of a file are made (``RealDisk.told``)."""
        if not self._live:
            if done == size:
                log.info("created %s, %d MiB", name, size // _MIB)
            return
        bar = "#" * (_BAR * done // size)
        self._out.write(f"\r\x1b[K{name} [{bar:{_BAR}}] {done // _MIB} of {size // _MIB} MiB")
        self._out.flush()
        self._shown = True

    def end(self) -> None:
        """Remove the bar."""
        if self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()
