"""The file IDENTITY in the data folder of a broker in a cluster: whose copy of which journal it is.

    {"format": 1, "group": "main", "journal": "9f86d081884c7d65", "broker": "b1", "whole": true}

It is written before the first record of the group's journal. Only ``whole`` changes. A folder
is used by the broker that it names alone, so that a folder that was copied, or mounted at another
machine, is not taken for the one that holds what was answered.

Changing this format: raise ``FORMAT``, keep reading the one before, and add a file in
``tests/golden``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ternmq import files
from ternmq.journal.disk.port import Disk
from ternmq.model.errors import FileMissing, SettingsError

NAME: Final = "IDENTITY"
FORMAT: Final = 1
_NEW: Final = f"{NAME}.new"
_MAX_BYTES: Final = 4096

_Name = Annotated[str, Meta(min_length=1, max_length=127)]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a data folder is.

    Attributes:
        format: Version of the format.
        group: The broker group.
        journal: Number of the group's journal, as 16 hexadecimal digits.
        broker: The broker whose folder it is.
        whole: It has had everything that was committed, once, and has lost nothing of it since as
            far as this broker has seen. Else a broker whose disk is what
            counts (``follower = "synced"``) must not stand, although the record may still name it:
            the folder with which it became a member is gone.
    """

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    group: _Name
    journal: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    broker: _Name
    whole: bool = True

    @classmethod
    def of(cls, group: str, journal: int, broker: str, *, whole: bool = True) -> Identity:
        """Return the identity of a broker's folder."""
        return cls(group=group, journal=f"{journal:016x}", broker=broker, whole=whole)

    @property
    def journal_number(self) -> int:
        """Number of the group's journal."""
        return int(self.journal, 16)


def read(folder: Path) -> Identity | None:
    """Return the identity of a folder; None if it has none.

    Raises:
        SettingsError: The file is damaged, or of a newer version.
        OSError: It cannot be read.
    """
    path = folder / NAME
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    return _decoded(data, str(path))


def read_on(disk: Disk) -> Identity | None:
    """Return the identity that a disk has; None if it has none.

    Raises:
        SettingsError: As ``read``.
        DiskError: It cannot be read.
    """
    try:
        file = disk.open(NAME)
    except FileMissing:
        return None
    try:
        return _decoded(file.pread(_MAX_BYTES, 0), NAME)
    finally:
        file.close()


def _decoded(data: bytes, path: str) -> Identity:
    try:
        return msgspec.json.decode(data, type=Identity)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path} is damaged, or a newer version of TernMQ wrote it ({error}): if this folder "
            "is a copy that can be made again, remove the folder; the broker copies it anew"
        ) from error


def write(folder: Path, identity: Identity) -> None:
    """Give a folder its identity, durably.

    Raises:
        OSError: The file cannot be written.
    """
    files.write(folder / NAME, _encoded(identity), files.SHARED)


def write_on(disk: Disk, identity: Identity) -> None:
    """Give a disk its identity, durably.

    Raises:
        DiskError: The file cannot be written.
    """
    data = _encoded(identity)
    disk.allocate(_NEW, len(data))
    file = disk.open(_NEW)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(_NEW, NAME)
    disk.sync_folder("")


def _encoded(identity: Identity) -> bytes:
    return msgspec.json.encode(identity) + b"\n"
