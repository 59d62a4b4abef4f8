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
"""How names of files begin that are still being written; what reads Parquet skips them."""


@dataclass(slots=True, frozen=True)
class Found:
    """A file that is there.

    Attributes:
        path: Relative to the folder.
        size: Bytes.
        changed_us: When it was written last, µs since 1970.
    """

    path: str
    size: int
    changed_us: int


class Folder:
    """See the module. Making one does no I/O; it may travel to another process.

    Args:
        uri: A path, ``file:///path``, or what ``pyarrow.fs.FileSystem.from_uri`` takes.
    """

    def __init__(self, uri: str) -> None:
        scheme = urlsplit(uri).scheme
        self.local = scheme in {"", "file"}
        if self.local:
            uri = str(Path(unquote(urlsplit(uri).path) if scheme else uri).absolute())
        self.uri = uri.rstrip("/")
        self._opened: tuple[fs.FileSystem, str] | None = None
        self._synced = ""
        """The newest commit of the log that this process has seen on the disk, by name."""

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
        """Return where a file is, as DuckDB and Spark take it."""
        return f"{self.uri}/{path}"

    def begin(self, path: str) -> BinaryIO:
        """Open a file for writing; it is there, under its name, when it was ``finish``-ed."""
        system, _ = self._system()
        if self.local:
            full = self._full(temporary(path))
            make_folder(Path(full).parent)
            return cast("BinaryIO", system.open_output_stream(full))
        return cast("BinaryIO", system.open_output_stream(self._full(path)))

    def finish(self, path: str, name: str | None = None, *, durable: bool = True) -> Found:
        """Give a closed file its final name; return what is there then.

        Args:
            path: As it was begun.
            name: Another name than that, if a rename is made anyway; an object keeps its own.
            durable: On this machine, have the bytes on the disk first.
        """
        system, _ = self._system()
        if self.local:
            begun = Path(self._full(temporary(path)))
            path = name or path
            full = Path(self._full(path))
            if durable:
                sync(begun)
            begun.replace(full)
            if durable:
                self._sync_up(full.parent)
        info = system.get_file_info(self._full(path))
        return Found(path, int(info.size), info.mtime_ns // 1000)

    def abandon(self, path: str) -> None:
        """Forget a file that was begun."""
        self.remove([temporary(path) if self.local else path])

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading at any place in it.

        Raises:
            TableError: It is not there.
        """
        system, _ = self._system()
        try:
            return cast("BinaryIO", system.open_input_file(self._full(path)))
        except FileNotFoundError:
            raise TableError(f"{self.uri_of(path)} belongs to a table and is not there") from None

    def size(self, path: str) -> int | None:
        """Return the size of a file; None if it is not there."""
        system, _ = self._system()
        info = system.get_file_info(self._full(path))
        return int(info.size) if info.type == fs.FileType.File else None

    def exists(self) -> bool:
        """Return whether anything is here."""
        system, root = self._system()
        if not self.local:
            return bool(system.get_file_info(fs.FileSelector(root, allow_not_found=True)))
        return Path(root).is_dir() and any(Path(root).iterdir())

    def names(self) -> set[str]:
        """Return the names of what stands in it, files and folders; none if it is not there."""
        system, root = self._system()
        found = system.get_file_info(fs.FileSelector(root, allow_not_found=True))
        return {info.base_name for info in found}

    def list(self, under: str = "") -> Iterator[Found]:
        """Yield the files in and below a folder of it, temporary ones included."""
        system, root = self._system()
        chosen = fs.FileSelector(self._full(under), allow_not_found=True, recursive=True)
        for info in system.get_file_info(chosen):
            if info.type == fs.FileType.File:
                path = info.path[len(root) :].lstrip("/")
                yield Found(path, int(info.size), info.mtime_ns // 1000)

    def remove(self, paths: Iterable[str]) -> int:
        """Remove files; one that is not there is no error. Return how many were there."""
        system, _ = self._system()
        count = 0
        for path in paths:
            with suppress(FileNotFoundError):
                system.delete_file(self._full(path))
                count += 1
        return count

    def sync_log(self) -> None:
        """Have what a commit wrote on the disk: nothing below may be lost once it was answered.

        The library that writes the log does not do it. In an object store there is nothing to do.
        """
        if not self.local:
            return
        log = Path(self._full("_delta_log"))
        # A commit counts only if all before it are there, and others commit, too. With it the
        # checkpoint that may have been made of it.
        new = sorted(one for one in log.glob("[0-9]*.*") if one.name > self._synced)
        for path in (*new, *log.glob("_last_checkpoint")):
            sync(path)
        self._sync_up(log)
        self._synced = max((one.name for one in new if one.suffix == ".json"), default=self._synced)
        sync(Path(self.uri).parent)

    def _sync_up(self, path: Path) -> None:
        """Have the entries of a folder, and of those above it, on the disk: any may be new."""
        root = Path(self.uri)
        sync(path)
        while path != root:
            path = path.parent
            sync(path)


def temporary(path: str) -> str:
    """Return the name that a file has while it is written."""
    head, name = posixpath.split(path)
    return posixpath.join(head, TEMPORARY + name)


def is_temporary(path: str) -> bool:
    """Return whether a file is still being written, or was given up."""
    return posixpath.basename(path).startswith(TEMPORARY)
