"""One runner at a time for a folder of tables: two would be correct, but do all work twice.

On this machine a file in the folder is locked; the lock ends with the process, however that ends.
In an object store there is no lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ternmq import files
from ternmq.model.errors import TableError
from ternmq.pipeline.tables.folder import Folder

RUNNER: Final = "runner"


@contextmanager
def only_one(
    tables: Folder, name: str = RUNNER, what: str = "`ternmq pipeline run`"
) -> Iterator[None]:
    """Hold a lock on a folder of tables.

    Args:
        tables: The folder.
        name: Name of the lock.
        what: What works on the folder, for the error.

    Raises:
        TableError: Another process holds the lock, or the folder cannot be written to.
    """
    if not tables.local:
        yield
        return
    root = Path(tables.uri)
    try:
        files.make_folder(root)
        descriptor = os.open(root / f"_{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise TableError(f"{root} cannot hold tables: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(descriptor, 32).decode("ascii", "replace").strip()
            raise TableError(
                f"another {what} works on {root}" + (f" (process {who})" if who else "")
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
