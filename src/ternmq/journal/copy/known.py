"""Which records a copy shows to another broker, so that both find out up to where they agree.

The first record of an epoch is where the records of another writer begin, so histories part before
one. Those are remembered; the first records of segments are read when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ternmq.journal.copy.files import Pieces
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.scan import record_at
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import HEADER_BYTES, Kind, header_of


class KnownRecords:
    """The first records of epochs. Called from one thread.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        epochs: First records of epochs, oldest first.
    """

    def __init__(self, disk: Disk, segment_size: int, epochs: Iterable[Checkpoint]) -> None:
        self._disk = disk
        self._size = segment_size
        self._epochs = list(epochs)

    def written(self, pieces: Pieces, epoch: Epoch) -> None:
        """Note the epochs that begin in pieces of the journal, after the epoch given."""
        self._epochs.extend(_begun(pieces, epoch))

    def removed_below(self, first: Position) -> None:
        """Forget the records of segments that were removed."""
        self._epochs = [one for one in self._epochs if one.position >= first]

    def newest(
        self, first: Position, last: Checkpoint, most: int, committed: Position
    ) -> list[Checkpoint]:
        """Return checkpoints, newest first; see ``Copy.checkpoints``."""
        known = {one.position: one for one in (*self._epochs, last)}
        bases = range(first, last.position + 1, self._size)
        positions = sorted({*known, *map(Position, bases)}, reverse=True)
        if len(positions) > most:
            shared = next((one for one in positions if one < committed), positions[-1])
            kept = [*positions[: most - 1], positions[-1]]
            positions = kept if shared in kept else [*kept[: most - 2], shared, kept[-1]]
        found = (known.get(position) or self._read(position) for position in positions)
        return [one for one in found if one is not None]

    def _read(self, position: Position) -> Checkpoint | None:
        record = record_at(self._disk, position, self._size)
        return None if record is None else Checkpoint(position, Epoch(record.epoch), record.crc)


def _begun(pieces: Pieces, epoch: Epoch) -> Iterator[Checkpoint]:
    """Yield the first record of each epoch in the pieces, after the one given."""
    for position, data in pieces:
        at = 0
        while at < len(data):
            header = header_of(data, at)
            if header.epoch != epoch:
                epoch = Epoch(header.epoch)
                yield Checkpoint(Position(position + at), epoch, header.crc)
            at += HEADER_BYTES if header.kind == Kind.PAD else header.length
