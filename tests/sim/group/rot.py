"""Bytes below the commit mark that a disk damages, and mends from another copy; donors that lie.

It all happens in one moment of the heap, so that the oracle sees a group whose copies are equal. An
image of a power cut in the middle of the patch is mended on its own, as a next start does it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from ternmq.cluster.replication.mending import BadDonor, Mending
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.pieces import PieceRead
from ternmq.journal.log.scan import scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.mending.patch import Patch
from ternmq.journal.mending.scrub import DamagedRange, Place, ScrubRead, beginning
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import CRC, HEADER_BYTES, KIND_AT, Kind, length_of
from tests.sim.disk import ImageDisk
from tests.sim.group.copying import SEGMENT
from tests.sim.group.machine import Machine
from tests.sim.group.world import World
from tests.sim.tape import Violation

BEHIND: Final = 2500
"""Bytes below the commit mark that are not damaged: more than two records have."""
LIES: Final = 3
"""How many donors that lie are asked before one that does not."""


class Extent(NamedTuple):
    """Which bytes of a machine's journal may be damaged, and mended."""

    first: Position
    safe: Position
    epoch: Epoch


class Rot:
    """Damages the journals of a group's machines, and mends them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heap = world.heap
        self._chance = world.heap.chance

    def harm(self, name: str) -> str:
        """Damage some bytes of a broker's journal, and mend them; return what was done.

        Raises:
            Violation: Other bytes are there afterwards than before.
        """
        machine, extent = self._world.machines[name], self.extent(name)
        donors = [one for other, one in self._world.machines.items() if other != name]
        donor = self._chance.choice(donors)
        there = self.extent(donor.name)
        if extent is None or there is None:
            return f"{name} or {donor.name} has no journal open"
        first = Position(max(extent.first, there.first))
        stop = Position(min(extent.safe, there.safe) - BEHIND)  # both have a good record behind
        if stop - first < SEGMENT:
            return f"{name} has nothing to damage"
        machine.feed()
        before = machine.in_file(extent.first, extent.safe, SEGMENT)
        if not self._damage(machine, first, stop):
            return f"{name} has nothing to damage"
        self._heap.reached("damaged bytes")
        self._mend(machine, machine.disk, extent, donor)
        machine.feed()
        self._equal(machine, extent, before)
        return f"{name} has damaged bytes, and mends them from {donor.name}"

    def extent(self, name: str) -> Extent | None:
        """Return what a broker knows to be committed and synced; None: it runs no journal now."""
        broker = self._world.brokers.get(name)
        if broker is None:
            return None
        journal = None if broker.reigning is None else vars(broker.reigning).get("journal")
        if journal is not None and journal.failure is None:  # the reign has begun
            safe = min(journal.committed, journal.durable)
            return Extent(journal.first, Position(safe), journal.epoch)
        copy = None if broker.replica is None else broker.replica.copy
        if copy is None or copy.failure is not None:
            return None
        safe = min(copy.committed, copy.durable)
        return Extent(copy.first, Position(safe), copy.last_epoch)

    # -- damage -----------------------------------------------------------------------------------

    def _damage(self, machine: Machine, first: Position, stop: Position) -> bool:
        """Change bytes on the medium and in the page cache, whose writes are all on the medium."""
        done, tails = False, dict[int, int]()
        for _ in range(self._chance.choice((1, 1, 2, 3))):
            at = self._chance.randrange(first, stop)
            base = at - at % SEGMENT
            most = min(base + SEGMENT, stop) - at
            count = min(self._chance.choice((1, 8, 200, 3000)), most)
            name = segment_name(base)
            inode = machine.disk.files.get(name)
            stored = None if inode is None else machine.medium.stored.get(inode.number)
            if inode is None or stored is None or stored.pending:
                continue
            held = bytearray(stored.durable)
            tail = tails.setdefault(base, 0) or self._tail(machine, Position(base))
            tails[base] = tail
            for byte in range(at - base, min(at - base + count, tail)):
                inode.data[byte] ^= 0xFF
                held[byte] ^= 0xFF
            stored.durable = bytes(held)
            done = True
        return done

    def _tail(self, machine: Machine, base: Position) -> int:
        """Return the byte of a segment at which the bytes begin that no checksum covers."""
        for record in scan(machine.disk, base, segment_size=SEGMENT):
            if record.position >= base + SEGMENT:
                break
            if record.kind == Kind.PAD:
                return record.position + HEADER_BYTES - base
        return SEGMENT

    # -- mending ----------------------------------------------------------------------------------

    def _mend(self, machine: Machine, disk: Disk, extent: Extent, donor: Machine) -> None:
        """Read the journal through, and mend what is damaged."""
        place = beginning(extent.first)
        rounds = 0
        while place.position < extent.safe:
            read = ScrubRead(disk, SEGMENT, place, extent.safe, SEGMENT)
            read.run()
            place = read.place
            if read.damage is None:
                continue
            rounds += 1
            if rounds > 1000:
                raise Violation(f"{machine.name} mends without an end")
            self._heap.reached("a damaged range")
            if disk is machine.disk:
                for _ in range(self._chance.randrange(LIES + 1)):
                    self._believes_no_lie(machine, extent, read.damage, donor)
            patch = self._patch(disk, extent, read.damage, donor, lies=False)
            if patch is None:
                raise Violation(f"{machine.name} cannot mend {read.damage} from {donor.name}")
            if disk is machine.disk:
                self._power_cut_in(machine, extent, patch, donor)
            patch.run()
            self._heap.reached("a damaged range mended")
            place = Place(*read.place)

    def _patch(
        self, disk: Disk, extent: Extent, damage: DamagedRange, donor: Machine, *, lies: bool
    ) -> Patch | None:
        """Return a patch from what a donor sends; None: it is refused, or the donor has no more."""
        there = self.extent(donor.name)
        assert there is not None
        try:
            mending = Mending(disk, SEGMENT, damage, newest=extent.epoch, limit=extent.safe)
            while True:
                if not there.first <= mending.next < there.safe:
                    return None  # after a lie: it asks for what is nowhere
                most = self._chance.choice((1, 300, 1 << 20))
                job = PieceRead(donor.disk, SEGMENT, mending.next, there.safe, most)
                job.run()
                data = self._lie(job.data) if lies else job.data
                patch = mending.take(data)
                if patch is not None:
                    return patch
        except BadDonor as error:
            if not lies:
                raise Violation(f"{donor.name} is refused as a donor: {error}") from error
            return None

    def _believes_no_lie(
        self, machine: Machine, extent: Extent, damage: DamagedRange, donor: Machine
    ) -> None:
        """Have a donor lie; what is written all the same must be right, which the oracle checks."""
        patch = self._patch(machine.disk, extent, damage, donor, lies=True)
        if patch is None:
            self._heap.reached("a donor's lie refused")
            return
        start, stop = patch.start, patch.stop
        whole = donor.in_file(start, stop, SEGMENT)
        written = b"".join(record.data for record in patch.records)
        for record in patch.records:
            at = record.position - start
            if whole[at : at + len(record.data)] != record.data:
                raise Violation(
                    f"{machine.name} takes a lie for {start} to {stop}: {written!r:.60}"
                )

    def _lie(self, data: bytes) -> bytes:
        """Return what another donor may send."""
        chance = self._chance
        kind = chance.randrange(5)
        changed = bytearray(data)
        if kind == 0:  # a damaged byte
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif kind == 1:  # the last record as another history has it: in the chain, but another one
            changed = _another_last(changed)
        elif kind == 2:
            changed = changed[: chance.randrange(len(data))]
        elif kind == 3:
            changed = bytearray(chance.randbytes(len(data)))
        else:
            changed = changed[8:] + changed[:8]
        return bytes(changed)

    def _power_cut_in(self, machine: Machine, extent: Extent, patch: Patch, donor: Machine) -> None:
        """Mend what a power cut in the middle of a patch could have left."""
        machine.feed()
        medium = machine.medium.clone()
        trial = medium.disk(machine.faults)
        again = Patch(trial, SEGMENT, patch.records)
        again.run()
        ops = trial.log[: self._chance.randrange(len(trial.log) + 1)]
        for op in ops:
            medium.feed(op)
        image = ImageDisk(medium.image(medium.draw(self._chance)))
        self._heap.reached("a power cut in a patch")
        self._mend(machine, image, extent, donor)

    def _equal(self, machine: Machine, extent: Extent, before: bytes) -> None:
        """Check that the journal is as it was, in the file and on the medium.

        Raises:
            Violation: It is not.
        """
        for read in (machine.in_file, machine.on_medium):
            after = read(extent.first, extent.safe, SEGMENT)
            if after != before:
                at = next(at for at, one in enumerate(before) if after[at : at + 1] != bytes([one]))
                raise Violation(f"{machine.name} was mended, and differs at {extent.first + at}")


def _another_last(data: bytearray) -> bytearray:
    """Return records of which the last one has another time, and its CRC fits."""
    at, last = 0, 0
    while at < len(data):
        last = at
        head = bytes(data[at : at + HEADER_BYTES])
        at += HEADER_BYTES if head[KIND_AT] == Kind.PAD else max(length_of(head), HEADER_BYTES)
    data[last + 32] ^= 1
    CRC.pack_into(data, last, crc32c(bytes(data[last + 4 :])))
    return data
