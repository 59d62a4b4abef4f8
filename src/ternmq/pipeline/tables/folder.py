"""The files of a table: written under a temporary name, made final, listed, removed.

A folder of this machine or a place in an object store (``s3://bucket/tables``). On this machine a
final name appears by a rename after the bytes are on the disk; in an object store an object appears
whole, under its final name at once.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from ternmq.files import make_folder, sync
from ternmq.model.errors import TableError

TEMPORARY: Final = ".tmp-"
"""Prefix of the names of files still being written; readers of Parquet skip these."""


@dataclass(slots=True, frozen=True)
class Found:
    """A file in the folder.

    Attributes:
        path: Path relative to the folder.
        size: Bytes.
        changed_us: When it was last written, µs since 1970.
    """

    path: str
    size: int
    changed_us: int


class Folder:
    """A folder or a place in an object store. Creating one does no I/O; it can be pickled.

    Args:
        uri: A path, ``file:///path``, or what ``pyarrow.fs.FileSystem.from_uri`` accepts.
    """

    def __init__(self, uri: str) -> None:
        scheme = urlsplit(uri).scheme
        self.local = scheme in {"", "file"}
        if self.local:
            uri = str(Path(unquote(urlsplit(uri).path) if scheme else uri).absolute())
        self.uri = uri.rstrip("/")
        self._opened: tuple[fs.FileSystem, str] | None = None
        self._synced = ""
        """Name of the newest commit of the log that this process has synced."""

    def __repr__(self) -> str:
        return f"Folder({self.uri!r})"

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        return Folder, (self.uri,)

    def _system(self) -> tuple[fs.FileSystem, str]:
        if self._opened is None:
            if self.local:
                self._opened = fs.LocalFileSystem(), self.uri
            else:
                self._opened = fs.FileSystem.from_uri(self.uri)
        return self._opened

    def _full(self, path: str) -> str:
        _, root = self._system()
        return posixpath.join(root, path) if path else str(root)

    def inside(self, name: str) -> Folder:
        """Return a folder of this one."""
        return Folder(f"{self.uri}/{name}")

    def uri_of(self, path: str) -> str:
        """Return the location of a file as DuckDB and Spark accept it."""
        return f"{self.uri}/{path}"

    def system(self) -> fs.FileSystem:
        """Return Arrow's file system that has the folder."""
        return self._system()[0]

    def begin(self, path: str) -> BinaryIO:
        """Open a file for writing; it appears under its name after ``finish``."""
        system, _ = self._system()
        if self.local:
            full = self._full(temporary(path))
            make_folder(Path(full).parent)
            return cast("BinaryIO", system.open_output_stream(full))
        return cast("BinaryIO", system.open_output_stream(self._full(path)))

    def finish(self, path: str, name: str | None = None, *, durable: bool = True) -> Found:
        """Give a closed file its final name; return its description.

        Args:
            path: The path given to ``begin``.
            name: A different final path; used where a rename is made, objects keep their own.
            durable: On this machine, sync the bytes to the disk first.

        Raises:
            TableError: Another process removed the file.
        """
        system, _ = self._system()
        if self.local:
            begun = Path(self._full(temporary(path)))
            path = name or path
            full = Path(self._full(path))
            try:
                if durable:
                    sync(begun)
                begun.replace(full)
            except FileNotFoundError:
                raise TableError(
                    f"{self.uri_of(path)} was removed while it was written, as an erasure does; "
                    "run the job again"
                ) from None
            if durable:
                self._sync_up(full.parent)
        info = system.get_file_info(self._full(path))
        return Found(path, int(info.size), info.mtime_ns // 1000)

    def abandon(self, path: str) -> None:
        """Remove a file that was begun."""
        self.remove([temporary(path) if self.local else path])

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading at any position.

        Raises:
            TableError: It does not exist.
        """
        system, _ = self._system()
        try:
            return cast("BinaryIO", system.open_input_file(self._full(path)))
        except FileNotFoundError:
            raise TableError(
                f"{self.uri_of(path)} belongs to a table, but does not exist"
            ) from None

    def size(self, path: str) -> int | None:
        """Return the size of a file; None if it does not exist."""
        system, _ = self._system()
        info = system.get_file_info(self._full(path))
        return int(info.size) if info.type == fs.FileType.File else None

    def exists(self) -> bool:
        """Return whether the folder contains anything."""
        system, root = self._system()
        if not self.local:
            return bool(system.get_file_info(fs.FileSelector(root, allow_not_found=True)))
        return Path(root).is_dir() and any(Path(root).iterdir())

    def names(self) -> set[str]:
        """Return the names of its files and folders; empty if it does not exist."""
        system, root = self._system()
        found = system.get_file_info(fs.FileSelector(root, allow_not_found=True))
        return {info.base_name for info in found}

    def list(self, under: str = "") -> Iterator[Found]:
        """Yield the files in and below one of its folders, including temporary ones."""
        system, root = self._system()
        chosen = fs.FileSelector(self._full(under), allow_not_found=True, recursive=True)
        for info in system.get_file_info(chosen):
            if info.type == fs.FileType.File:
                path = info.path[len(root) :].lstrip("/")
                yield Found(path, int(info.size), info.mtime_ns // 1000)

    def remove(self, paths: Iterable[str]) -> int:
        """Remove files; a missing one is no error. Return the number removed."""
        system, _ = self._system()
        count = 0
        for path in paths:
            with suppress(FileNotFoundError):
                system.delete_file(self._full(path))
                count += 1
        return count

    def sync_log(self) -> None:
        """Sync the log to the disk, so that no acknowledged commit can be lost.

        The library that writes the log does not sync it. In an object store there is nothing to do.
        """
        if not self.local:
            return
        log = Path(self._full("_delta_log"))
        # A commit counts only if all before it are there, and other processes commit too. Its
        # checkpoint, if one was made, is synced with it.
        new = sorted(one for one in log.glob("[0-9]*.*") if one.name > self._synced)
        for path in (*new, *log.glob("_last_checkpoint")):
            sync(path)
        self._sync_up(log)
        self._synced = max((one.name for one in new if one.suffix == ".json"), default=self._synced)
        sync(Path(self.uri).parent)

    def _sync_up(self, path: Path) -> None:
        """Sync the entries of a folder and of those above it: any of them may be new."""
        root = Path(self.uri)
        sync(path)
        while path != root:
            path = path.parent
            sync(path)


def temporary(path: str) -> str:
    """Return the name of a file while it is written."""
    head, name = posixpath.split(path)
    return posixpath.join(head, TEMPORARY + name)


def is_temporary(path: str) -> bool:
    """Return whether a file is still being written, or was abandoned."""
    return posixpath.basename(path).startswith(TEMPORARY)
