"""Small files beside the journal: there whole, and durable, or as they were before.

Entry points: ``write`` for bytes, ``writing`` for what comes in pieces, ``copy``, ``locked``,
``make_folder``, ``sync``.
Used for tokens, contexts, exports, reports and the folders that they and tables are in. The journal
has its own way to the disk (``journal/disk/real.py``), since the core imports nothing but the layer
below it.

How it goes: a temporary file in the same folder, with its final mode from the beginning; the bytes;
fsync of the file; rename; fsync of the folder. Each step alone is not enough. A rename without the
first sync may survive a power cut while the bytes do not (ext4 and XFS leave an empty file), and
without the second the name may not.

Whoever is killed on the way leaves a file ``.NAME.XXXXXXXX.new`` behind; ``leftovers`` finds them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

PRIVATE: Final = 0o600
"""Mode of what only its owner may read."""
SHARED: Final = 0o666
"""Mode of what others may read; less what the umask takes."""
_PIECE: Final = 1 << 20


@contextmanager
def writing(path: Path, mode: int) -> Iterator[BinaryIO]:
    """Yield a file to write to; at the end of the block it is at ``path``, whole and durable.

    After an error in the block, or of the disk, ``path`` is as it was. The folder must be there.
    Where ``path`` is a pipe or a device there is nothing to keep: it is written to as it is.

    Args:
        path: The file; one that is there is replaced, where a symbolic link leads to also.
        mode: Its mode, from the beginning.

    Raises:
        OSError: It cannot be written; ``filename`` is ``path``.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() or target.is_dir()):
        with path.open("wb") as device:
            yield device
        return
    new = target.with_name(f".{target.name}.{os.urandom(4).hex()}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise _about(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            try:
                file.flush()
                os.fsync(file.fileno())
                new.replace(target)
            except OSError as error:
                raise _about(path, error) from error
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync(target.parent)


def write(path: Path, data: bytes, mode: int) -> None:
    """Write a file, whole and durable when this returns. Arguments and errors as ``writing``."""
    with writing(path, mode) as file:
        try:
            file.write(data)
        except OSError as error:
            raise _about(path, error) from error


def leftovers(path: Path) -> list[Path]:
    """Return the temporary files of writers of ``path`` that were killed, or that write now."""
    return sorted(path.parent.glob(f".{path.name}.????????.new"))


def copy(source: Path, target: Path, most: int, mode: int = SHARED) -> int:
    """Copy the first ``most`` bytes of a file to a new one; durable but for the name at return.

    Args:
        source: The file.
        target: The new one.
        most: How many bytes.
        mode: Of the new one, less what the umask takes.

    Returns:
        Number of bytes copied: fewer, if the source has fewer.

    Raises:
        OSError: It cannot be copied, or the target exists.
    """
    size = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as new, source.open("rb") as file:
        while size < most and (piece := file.read(min(_PIECE, most - size))):
            size += new.write(piece)
        new.flush()
        os.fsync(new.fileno())
    return size


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Lock a file or a folder, for as long as the block or this process lasts.

    Args:
        path: It must be there.
        shared: Others may have the same lock at the same time.

    Raises:
        BlockingIOError: Another process has locked it.
        OSError: It cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it that are missing; durable when this returns.

    Args:
        path: The folder; nothing happens if it is there.
        mode: Of each that is made, less what the umask takes.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent, mode)
    path.mkdir(mode, exist_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file's bytes, or a folder's entries, on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _about(path: Path, error: OSError) -> OSError:
    """Return the error with the name that the caller knows, not the temporary one."""
    return OSError(error.errno, error.strerror, str(path))
