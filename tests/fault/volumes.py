"""Small file systems on loop images in temporary folders: cut, frozen, filled, failing.

Nothing but such images is ever touched. ``Volume`` takes everything back when it is left, also
after a failure in the middle: thaws, unmounts, frees the loop device.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import pytest

from tests.fault.processes import DEADLINE, wait_until

SHUTDOWN: Final = 0x8004587D
"""``EXT4_IOC_SHUTDOWN`` and XFS' ``XFS_IOC_GOINGDOWN``: the same number."""
NO_LOG_FLUSH: Final = struct.pack("I", 2)

FORMATS: Final = {
    "ext4": (64 << 20, ["mkfs.ext4", "-qF", "-J", "size=4"]),
    "xfs": (320 << 20, ["mkfs.xfs", "-qf"]),
}
# Blocks of a page, so that a write to a missing page fails as a whole: the loop driver calls a
# write that came back short a success.
_PAGES: Final = ["-b", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]
FORMATS["ext4-sparse"] = (64 << 20, [*FORMATS["ext4"][1], *_PAGES])
# Every block of the image is there: only those that are punched out can be missing later.
FORMATS["ext4-whole"] = FORMATS["ext4-sparse"]


def call(*words: str | Path) -> str:
    """Run a program; return what it prints."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.stderr or done.stdout}")
    return done.stdout


class Running(Protocol):
    """A process that writes to a volume: a worker, a broker."""

    def stop(self) -> None:
        """Let every thread of it come to rest, none in a system call."""
        ...

    def kill(self) -> None:
        """SIGKILL it; reap it."""
        ...


class Mounted:
    """A mount point in use; leaving it unmounts, whatever happened."""

    def __init__(self, point: Path) -> None:
        self.point = point

    @property
    def mounted(self) -> bool:
        """Whether something is mounted there; the folder itself may not answer any more."""
        words = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        return str(self.point) in words

    def fill(self) -> Path:
        """Take all of the space that is left; return the file that has it."""
        ballast = self.point / "ballast"
        stat = os.statvfs(self.point)
        piece, size = stat.f_bavail * stat.f_frsize, 0
        fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
        try:
            while piece >= stat.f_frsize:
                try:
                    os.posix_fallocate(fd, size, piece)
                    size += piece
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2
        finally:
            os.close(fd)
        return ballast

    def unmount(self) -> None:
        """Unmount once nobody uses it any more (a killed process lets go a moment later)."""
        last = ""

        def gone() -> bool:
            nonlocal last
            if not self.mounted:
                return True
            done = subprocess.run(
                ["umount", str(self.point)], capture_output=True, text=True, check=False
            )
            last = done.stderr
            return done.returncode == 0

        try:
            wait_until(gone, "unmounted", 20)
        except pytest.fail.Exception as error:
            raise AssertionError(last) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.mounted:
            with contextlib.suppress(Exception):
                self.unmount()
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.point)], capture_output=True, check=False)


class Memory(Mounted):
    """A tmpfs of a fixed size.

    Args:
        point: Where it is mounted; the folder is made.
        size: In bytes.
    """

    def __init__(self, point: Path, size: int) -> None:
        super().__init__(point)
        self._size = size

    def __enter__(self) -> Self:
        self.point.mkdir(parents=True)
        call("mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", self.point)
        return self


class Volume(Mounted):
    """A file system on a loop image.

    Args:
        folder: Temporary; gets the image and the mount point.
        kind: Of ``FORMATS``.
        size: Bytes of the image; None: as the format wants.
    """

    def __init__(self, folder: Path, kind: str, size: int | None = None) -> None:
        super().__init__(folder / "mount")
        self.image = folder / "image"
        self._usual, self._format = FORMATS[kind]
        self._size = size or self._usual
        self._whole = kind.endswith("-whole")
        self._frozen = False

    def __enter__(self) -> Self:
        self.point.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(self._size)
        call(*self._format, self.image)
        if self._whole:
            call("fallocate", "-l", str(self._size), self.image)
        self.mount()
        return self

    def mount(self) -> None:
        """Mount the image; its own log is replayed."""
        call("mount", "-o", "loop,nodiscard", self.image, self.point)

    def again(self) -> None:
        """Unmount and mount: what is read now comes from the image."""
        self.unmount()
        self.mount()

    def cut(self, worker: Running) -> None:
        """Cut the power under a worker: what was not synced is gone when this returns.

        The worker is stopped first. Cutting under a running one lets a sync in flight return
        success although its commit was dropped: false alarms.
        """
        worker.stop()
        self.shut_down()
        worker.kill()
        self.again()

    def shut_down(self) -> None:
        """End all traffic to the image at once, without flushing the file system's log."""
        fd = os.open(self.point, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(fd)

    def freeze(self) -> None:
        """Let every write wait."""
        call("fsfreeze", "-f", self.point)
        self._frozen = True

    def thaw(self) -> None:
        """Let them go on."""
        if self._frozen:
            call("fsfreeze", "-u", self.point)
            self._frozen = False

    def punch(self, path: Path) -> None:
        """Take the image's space of a file's blocks away; they read as zeros.

        Where the image's own file system is full, a later write to them fails with EIO.
        """
        block = os.statvfs(self.point).f_bsize
        for line in call("filefrag", "-v", "-e", path).splitlines():
            parts = [part.strip() for part in line.replace("..", ":").split(":")]
            if parts[0].isdigit():
                first, count = int(parts[3]), int(parts[5])
                call(
                    "fallocate", "-p", "-o", str(first * block), "-l", str(count * block),
                    self.image,
                )  # fmt: skip

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(Exception):
            self.thaw()
        super().__exit__(kind, error, trace)
