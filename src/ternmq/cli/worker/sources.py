"""Finds Python files that change while a program runs."""

from __future__ import annotations

import os
from pathlib import Path

Sources = dict[str, tuple[int, int]]
"""Path below the folder -> time of change in ns, size."""


def look(folder: Path) -> Sources:
    """Return the Python files below a folder, except in environments and hidden folders."""
    found: Sources = {}
    skip = len(str(folder)) + 1
    for place, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [one for one in folders if not one.startswith((".", "__pycache__"))]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(place, name)  # noqa: PTH118 - thousands of them, every second
                try:
                    status = os.stat(path)  # noqa: PTH116
                except OSError:  # renamed meanwhile, or not readable
                    continue
                found[path[skip:]] = (status.st_mtime_ns, status.st_size)
    return found


def changed(before: Sources, after: Sources) -> list[str]:
    """Return the paths that were added, removed or changed."""
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )
