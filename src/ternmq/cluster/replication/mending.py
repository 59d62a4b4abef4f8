"""What a donor's bytes must fulfil before they take the place of damaged ones.

They are whole records, one after the other, as in the stream (``incoming``). They must lead from
the last good record before the damage to the first good one behind it::

    this journal   | good | ######## damaged ######## | good |
    donor                 | record | record | record  |
                   ^ the chain begins with its CRC      ^ its ``prev_crc`` is the last one's CRC

Both ends are of this journal, and both are below the commit mark. So whatever the donor is (another
journal, an older or a longer one, one that is damaged as well, or rubbish), nothing of it is
written unless it fits in between.
"""

from __future__ import annotations

from typing import Final

from ternmq.cluster.replication.incoming import BadStream, Incoming
from ternmq.journal.disk.port import Disk
from ternmq.journal.mending.patch import Patch, SoundRecord
from ternmq.journal.mending.scrub import DamagedRange, joint
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import HEADER_BYTES, Kind, header_of

MOST_BYTES: Final = 64 << 20
"""Largest range that is mended, with room for it in memory: sectors are lost by the kilobyte, and
who has lost more copies the journal anew."""
_PAD: Final = int(Kind.PAD)


class BadDonor(Exception):
    """The donor's bytes do not take the place of the damaged ones; nothing of them was written.

    Its text says what is wrong, for people. It reaches no client.
    """


class Mending:
    """Collects the records for a damaged range from one donor. Blocks: it reads the own journal.

    Args:
        disk: The data root of the damaged journal.
        segment_size: Bytes of every segment file.
        damage: The range. Its stop is a guess; the donor's records decide where it ends.
        newest: Largest epoch of the damaged journal.
        limit: Position below which the record behind the range must begin: the commit mark, or the
            durable mark if that is smaller.

    Raises:
        BadDonor: What comes before the range is not known.

    Attributes:
        next: Position from which on the donor's records are needed.
    """

    def __init__(
        self,
        disk: Disk,
        segment_size: int,
        damage: DamagedRange,
        *,
        newest: Epoch,
        limit: Position,
    ) -> None:
        place = damage.place
        if place.prev_crc is None and place.position % segment_size:
            raise BadDonor("what comes before it is damaged as well")
        self.next = place.position
        self._disk = disk
        self._size = segment_size
        self._newest = newest
        self._limit = limit
        self._bytes = 0
        self._records: list[SoundRecord] = []
        self._incoming = Incoming(
            segment_size=segment_size,
            end=place.position,
            last_crc=place.prev_crc,
            last_epoch=Epoch(place.epoch),
            followed=newest,
        )

    def take(self, records: bytes) -> Patch | None:
        """Take the donor's records from ``next`` on.

        Returns:
            The patch, once they lead to a good record; None: more are needed.

        Raises:
            BadDonor: They do not lead there.
        """
        at = 0
        while at < len(records):
            at += self._take_one(records, at)
            if self._links():
                return Patch(self._disk, self._size, self._records)
        if not records:
            raise BadDonor("it returned nothing")
        return None

    def _take_one(self, records: bytes, at: int) -> int:
        """Take the record at an index; return how many bytes it has there."""
        head = records[at : at + HEADER_BYTES]
        if len(head) < HEADER_BYTES:
            raise BadDonor(f"{len(head)} bytes at position {self.next} are no record")
        header = header_of(head)
        size = HEADER_BYTES if header.kind == _PAD else max(header.length, HEADER_BYTES)
        data = records[at : at + size]
        begin = self.next
        try:
            self._incoming.take(begin, self._newest, data)
        except BadStream as error:
            raise BadDonor(str(error)) from error
        self.next = self._incoming.end
        self._records.append(SoundRecord(begin, self.next, data))
        self._bytes += size
        if self.next >= self._limit:
            raise BadDonor("no good record follows below the commit mark")
        if self._bytes > MOST_BYTES:
            raise BadDonor(f"the damaged range has more than {MOST_BYTES >> 20} MiB")
        return size

    def _links(self) -> bool:
        """Return whether the own record at ``next`` is good, and follows the donor's last one."""
        behind = joint(self._disk, self._size, self.next)
        if behind is None:
            return False
        return (
            behind.prev_crc == self._incoming.last_crc and behind.epoch >= self._incoming.last_epoch
        )
