r"""Make a copy of a broker's journal while the broker works.

    python backup.py /var/lib/ternmq /backup/2026-01-31

The journal only grows at its end, and files before the last one never change. So a copy of the
bytes up to a position that the broker names as durable is a whole journal: everything that was
answered before is in it. To restore, start a broker on the copy:

    ternmq serve --data /backup/2026-01-31

Each backup is a folder of its own, which must not be there yet. From cron, each day (there, a ``%``
has a backslash before it):

    15 3 * * *  /opt/ternmq/bin/python /opt/ternmq/backup.py /var/lib/ternmq "/backup/$(date +\%F)"

TERNMQ_URL, TERNMQ_APP and TERNMQ_TOKEN say which broker; the app needs no right. It must be the
broker of that folder: another's positions mean nothing there.
"""

import os
import shutil
import struct
import sys
from pathlib import Path

import ternmq
import ternmq.sync

HEAD = struct.Struct("<4xII4xQ16xI4x")
"""Of a record in the journal: magic, length, position, epoch (docs/format/journal.md)."""
MAGIC = 0x31524D54


def epoch_at(segment: Path, stop: int) -> int | None:
    """Return the epoch of the record that ends at a position; None if no record ends there."""
    base = at = int(segment.stem)
    epoch = None
    with segment.open("rb") as file:
        while at < stop:
            file.seek(at - base)
            head = file.read(HEAD.size)
            if len(head) < HEAD.size:
                return None
            magic, length, position, epoch = HEAD.unpack(head)
            if magic != MAGIC or position != at or length < HEAD.size:
                return None  # the journal ends here
            at += length
    return epoch if at == stop else None


def check_same(client: ternmq.sync.Client, journal: Path, position: int) -> None:
    """See that a position is of the broker that writes this journal.

    A record of the broker's epoch ends at its durable position. Behind it is nothing but what came
    since, and then the broker's end is further on.
    """
    before = [one for one in segments(journal) if int(one.stem) < position]
    status = client.admin.status()
    fits = bool(before) and epoch_at(before[-1], position) == status.epoch
    if fits:
        with before[-1].open("rb") as file:
            file.seek(position - int(before[-1].stem))
            more = any(file.read(1 << 20))
        fits = not more or client.admin.status().journal_end > position
    if not fits:
        sys.exit(
            f"no backup was made: {client.options.address} is not the broker of {journal.parent}; "
            "TERNMQ_URL says which is asked"
        )


def durable_position(journal: Path) -> int:
    """Ask the broker up to where its journal is on the disk."""
    with ternmq.sync.connect() as client:
        position = client.admin.status().journal_durable
        check_same(client, journal, position)
        return position


def segments(journal: Path) -> list[Path]:
    """Return the journal's files, oldest first."""
    return sorted(journal.glob("*.seg"))


def copy(segment: Path, target: Path, stop: int) -> int:
    """Copy a file of the journal up to a position; return how many bytes that are."""
    left = stop - int(segment.stem)  # it is named by the position of its first byte
    copied = 0
    with segment.open("rb") as source, target.open("xb") as copy:
        while copied < left and (piece := source.read(min(1 << 20, left - copied))):
            copied += copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    return copied


def sync(folder: Path) -> None:
    """Have the names in a folder on the disk: a file that is synced may lack its name otherwise."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def backup(data: Path, target: Path) -> int:
    """Copy the whole journal; it is on the disk when this returns.

    Raises:
        FileNotFoundError: The broker removed an old file meanwhile, and what had to be kept of it
            is further on: begin again.
    """
    journal = data / "journal"
    oldest = segments(journal)[0]
    stop = durable_position(journal)
    (target / "journal").mkdir(parents=True)
    copied = sum(
        copy(segment, target / "journal" / segment.name, stop)
        for segment in segments(journal)
        if int(segment.stem) < stop  # behind it are spares: nothing is in them
    )
    if not (target / "journal" / oldest.name).exists():
        raise FileNotFoundError(oldest)
    sync(target / "journal")
    sync(target)
    return copied


def check(data: Path, target: Path) -> None:
    """Say in one line why there can be no backup, before anything is copied."""
    if target.exists():
        sys.exit(f"{target} is there already: each backup needs a folder of its own")
    if not target.parent.is_dir():
        sys.exit(f"there is no folder {target.parent} to make the backup in; is its disk mounted?")
    if not segments(data / "journal"):
        sys.exit(f"there is no journal in {data}: name the data folder of the broker")


def main(data: Path, target: Path) -> None:
    check(data, target)
    os.umask(0o027)  # as the broker: nobody reads messages but its user and its group
    unfinished = target.with_name(target.name + ".unfinished")
    for _ in range(10):
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            copied = backup(data, unfinished)
        except FileNotFoundError:
            continue
        unfinished.rename(target)
        sync(target.parent)
        print(f"{copied} bytes are in {target}")
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    sys.exit("files are removed more quickly than they can be copied")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: backup.py DATA TARGET")
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except (ternmq.TernMQError, OSError) as error:
        sys.exit(f"no backup was made: {error}")
