"""Reads a table's log directly, for what the library returns only one by one, or not at all.

For planning and cleaning up. Commits depend on the library's answer (``Table.remembered``) instead.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.compute as pc
import pyarrow.parquet as pq

from ternmq.pipeline.tables.folder import Folder

_LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(rf"{_LOG}/(\d{{20}})\.json")
_CHECKPOINT: Final = re.compile(rf"{_LOG}/(\d{{20}})\.checkpoint\.parquet")


def remembered(folder: Folder) -> dict[str, int] | None:
    """Return the number that the last commit of each app stored.

    None: the log has a form that this function does not know.
    """
    commits: dict[int, str] = {}
    checkpoints: dict[int, str] = {}
    for one in folder.list(_LOG):
        if match := _COMMIT.fullmatch(one.path):
            commits[int(match[1])] = one.path
        elif match := _CHECKPOINT.fullmatch(one.path):
            checkpoints[int(match[1])] = one.path
    found: dict[str, int] = {}
    begin = 0
    if checkpoints:
        newest = max(checkpoints)
        with folder.open(checkpoints[newest]) as source:
            table = pq.read_table(source, columns=["txn"])
        for row in table.filter(pc.is_valid(table["txn"])).column("txn").to_pylist():
            found[row["appId"]] = row["version"]
        begin = newest + 1
    behind = sorted(version for version in commits if version >= begin)
    if behind != list(range(begin, begin + len(behind))):
        return None
    for version in behind:
        for action in _actions(folder, commits[version]):
            if "txn" in action:
                found[action["txn"]["appId"]] = action["txn"]["version"]
    return found


def removed_since(folder: Folder, time_us: int) -> set[str]:
    """Return the paths of files that commits removed from the table at or after a time."""
    found: set[str] = set()
    for one in folder.list(_LOG):
        if _COMMIT.fullmatch(one.path) and one.changed_us >= time_us:
            for action in _actions(folder, one.path):
                if "remove" in action:
                    found.add(unquote(action["remove"]["path"]))
    return found


def _actions(folder: Folder, path: str) -> list[dict[str, Any]]:
    with folder.open(path) as source:
        return [json.loads(line) for line in source.read().splitlines()]
