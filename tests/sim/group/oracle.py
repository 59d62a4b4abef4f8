"""What must hold, asked by one who sees all machines at every step.

``truth`` is the journal up to the largest commit mark that any reign ever had: whatever is below it
was, or may have been, answered or shown. It never changes and is never lost:

* at each step of a commit mark: on the primary's medium, and in the file of every recorded member
  that lives (shrinks and joins included: the record is looked at as the coordinator has it);
* at each change of the record: in the file of every living member, and if it names another reign,
  on the medium of its primary;
* at the beginning of each reign: in front of its EPOCH;
* at the end: in all files, and nothing else is.

If an operator accepts a loss, the truth ends where the copy that leads parts from it: never below
the position that the record then has, and nothing else is ever lost. What reigns before answer from
then on is given up, too. Whatever another broker cuts below its commit mark is kept aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ternmq.broker.standby import Standby
from ternmq.broker.start import new_views
from ternmq.cluster.coordination.record import Leadership, leadership_key, unpack
from ternmq.journal.copy.copy import Copy
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.index import Index
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import parse
from ternmq.journal.recovery.ending import Ending, find_end
from ternmq.journal.recovery.recovery import FACTS, RecoveryReport, open_journal
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Epoch, Position
from tests.sim.disk import ImageDisk, Op
from tests.sim.group.broker import NAME
from tests.sim.group.copying import IDLE_US, LIMITS, RESERVE, SEGMENT
from tests.sim.medium import Medium
from tests.sim.portrait import difference, portrait
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.group.broker import Broker
    from tests.sim.group.leading import Reigning
    from tests.sim.group.machine import Machine
    from tests.sim.group.world import World

FORGETS_US: Final = 1_500_000
"""A second of records, after which a follower forgets, and what one slice applies at most."""
_KEY: Final = leadership_key(NAME)


class Oracle:
    """See the module.

    Attributes:
        truth: All bytes that were ever committed.
        record: The record as the coordinator has it.
        answers: How many messages were answered.
        images: How many crash images were opened.
    """

    def __init__(self, world: World) -> None:
        self.truth = bytearray()
        self.record: Leadership | None = None
        self.answers = 0
        self.images = 0
        self.lies = False
        """Streams are changed on their way: a follower may refuse them."""
        self._world = world
        self._epoch = 0
        self._writers: dict[int, tuple[str, int]] = {}
        self._numbers: set[int] = set()
        self._begun: dict[int, int] = {}
        world.store.register.watch(_KEY, self._changed)

    # -- the record -------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Look at a change as it happens, before its answer leaves."""
        found = self._world.store.register.read(_KEY)
        assert found is not None
        record, before = unpack(found.value, found.version), self.record
        self.record = record
        members = ",".join(one.broker for one in record.members)
        self._world.heap.tell("record", record.version, record.epoch, record.primary, members)
        if before is None:
            return
        if record.cut_epoch != before.cut_epoch:
            self._forced(record)
        if record.epoch != before.epoch:
            self._promoted(record, before)
        elif len(record.members) > len(before.members):
            self._world.heap.reached("a member joined")
        elif len(record.members) < len(before.members):
            self._world.heap.reached("a member was taken out")
        self._members_hold(record, 0, len(self.truth))

    def _promoted(self, record: Leadership, before: Leadership) -> None:
        heap = self._world.heap
        again = record.primary == before.primary
        heap.reached("a primary began again" if again else "a member was promoted")
        if record.epoch != before.epoch + 1:
            raise Violation(f"epoch {record.epoch} follows epoch {before.epoch}")
        machine = self._world.machines[record.primary]
        self._holds(machine, 0, len(self.truth), "leads now, and its disk lacks", durable=True)

    def _forced(self, record: Leadership) -> None:
        """Look at a reign that begins with a loss, and forget what it lacks."""
        heap, truth = self._world.heap, self.truth
        heap.reached("a broker leads with a loss")
        machine = self._world.machines[record.primary]
        start = self._first(machine)
        data = machine.on_medium(start, len(truth), SEGMENT)
        kept = start + next(
            (at for at, (mine, its) in enumerate(zip(data, truth[start:], strict=False))
             if mine != its),
            len(data),
        )  # fmt: skip
        kept -= kept % 8  # the next record may begin with the same byte
        assert record.cut_below is not None
        if kept < min(record.cut_below, len(truth)):
            raise Violation(
                f"{machine.name} leads with {kept}, and a loss was accepted from "
                f"{record.cut_below} on"
            )
        heap.tell("loss", machine.name, kept, len(truth))
        if kept < len(truth):
            heap.reached("what was answered is given up")
            del truth[kept:]

    def gave_up(self, broker: Broker, at: int, had: bytes) -> None:
        """Look at a cut below a commit mark: the bytes that were there from a position on."""
        heap, machine, record = self._world.heap, broker.machine, self.record
        heap.reached("a cut below the commit mark")
        if record is None or record.cut_below is None or at < record.cut_below:
            raise Violation(f"{broker.name} cuts at {at}, which nobody has accepted")
        if machine.disk.full:
            return
        for base in range(at - at % SEGMENT, at + len(had), SEGMENT):
            begin = max(at, base)
            wanted = had[begin - at : base + SEGMENT - at].rstrip(b"\0")
            kept = [
                bytes(inode.data).rstrip(b"\0")
                for name, inode in machine.disk.files.items()
                if name.startswith("repair/copy-") and name.endswith(f"{at:020d}-{base:020d}.bytes")
            ]
            if wanted and wanted not in kept:
                raise Violation(f"{broker.name} cuts at {at}, and keeps nothing of {begin}")

    def emptied(self, broker: Broker) -> None:
        """Look at a copy that was emptied, although it had what was committed."""
        self._world.heap.reached("a copy with what was given up is made anew")
        disk = broker.machine.disk
        if not disk.full and not any(name.startswith("repair/copy-") for name in disk.files):
            raise Violation(f"{broker.name} empties its copy, and keeps nothing of it")

    def _is_given_up(self, reigning: Reigning) -> bool:
        """Return whether a reign goes on beside one that began with a loss."""
        if self.record is None or reigning.epoch >= self.record.cut_epoch:
            return False
        self._world.heap.reached("a primary that was given up goes on")
        return True

    def _members_hold(self, record: Leadership, start: int, stop: int) -> None:
        for one in record.members:
            machine = self._world.machines[one.broker]
            life = machine.life
            if not one.incarnation and one.broker != record.primary:
                self._holds(machine, start, stop, "is a member, and its disk lacks", durable=True)
            elif life is not None and life.incarnation == one.incarnation:
                self._holds(machine, start, stop, "is a member, and its file lacks", durable=False)

    def _holds(self, machine: Machine, start: int, stop: int, what: str, *, durable: bool) -> None:
        if f"journal/{start - start % SEGMENT:020d}.seg" not in machine.disk.files:
            start = max(start, self._first(machine))
        read = machine.on_medium if durable else machine.in_file
        if start < stop and read(start, stop, SEGMENT) != self.truth[start:stop]:
            raise Violation(f"{machine.name} {what} bytes between {start} and {stop}")

    def _first(self, machine: Machine) -> int:
        """Return where a machine's journal begins; what was removed before was committed."""
        names = machine.disk.names("journal")
        first = min((int(name[:20]) for name in names if name.endswith(".seg")), default=0)
        if first > len(self.truth):
            raise Violation(f"{machine.name} begins at {first}, and {len(self.truth)} is committed")
        return first

    # -- a reign ----------------------------------------------------------------------------------

    def begins(
        self, broker: Broker, record: Leadership, journal: Journal, report: RecoveryReport
    ) -> None:
        """Look at a reign whose EPOCH was just written."""
        if journal.epoch != record.epoch:
            raise Violation(f"epoch {journal.epoch} was written for epoch {record.epoch}")
        writer = (broker.name, broker.life.incarnation)
        if self._writers.setdefault(journal.epoch, writer) != writer:
            raise Violation(f"two writers of epoch {journal.epoch}")
        self._begun[journal.epoch] = journal.end
        life = broker.life
        if self.record is not None and self.record.epoch == record.epoch:
            if report.epoch_position < len(self.truth):
                raise Violation(
                    f"{broker.name} begins epoch {record.epoch} at {report.epoch_position}, and "
                    f"{len(self.truth)} was committed"
                )
            self._holds(broker.machine, 0, len(self.truth), "begins and lacks", durable=True)
        life.told = max(life.told, journal.epoch)
        self._world.heap.tell("begins", broker.name, journal.epoch, report.epoch_position)

    def committed(self, reigning: Reigning, before: int, after: int) -> None:
        """Look at a step of the commit mark."""
        machine, truth = reigning.broker.machine, self.truth
        if self._is_given_up(reigning):
            return
        if after < self._begun[reigning.epoch]:
            raise Violation(f"{after} is committed before EPOCH {reigning.epoch}")
        start = max(before, reigning.journal.first)
        data = machine.on_medium(start, after, SEGMENT)
        if len(data) < after - start:
            raise Violation(f"{machine.name} commits {after}, and its disk lacks bytes of it")
        if data != machine.in_file(start, after, SEGMENT):
            raise Violation(f"{machine.name} commits {after}, and its disk has other bytes")
        known = min(len(truth), after)
        if start < known and data[: known - start] != truth[start:known]:
            raise Violation(f"{machine.name} commits other bytes below {known}")
        if start > len(truth):
            raise Violation(f"{machine.name} begins at {start}, {len(truth)} is committed")
        if after > len(truth):
            truth += data[len(truth) - start :]
        assert self.record is not None
        self._members_hold(self.record, start, after)
        if not before:
            self._world.heap.reached("the commit mark of a reign begins")

    def answered(self, reigning: Reigning, end: int, number: int) -> None:
        """Look at an ok that leaves."""
        if self._is_given_up(reigning):
            return
        if end > len(self.truth):
            raise Violation(f"an ok for {end}, and {len(self.truth)} is committed")
        if reigning.epoch < self._epoch:
            raise Violation(f"an ok of epoch {reigning.epoch} after one of epoch {self._epoch}")
        self._epoch = reigning.epoch
        if number in self._numbers:
            raise Violation(f"message {number} was answered twice")
        self._numbers.add(number)
        body = b"%010d" % number
        if body not in self.truth[max(0, end - 2000) : end]:
            raise Violation(f"message {number} was answered, and is not there")
        self.answers += 1
        heap = self._world.heap
        heap.tell("ok", reigning.epoch, end)

    def unanswered(self, count: int) -> None:
        """Note messages whose clients get no answer."""
        if count:
            self._world.heap.reached("messages without an answer", count)

    # -- a follower -------------------------------------------------------------------------------

    def follows(self, broker: Broker, epoch: int) -> None:
        """Look at a stream that begins."""
        life = broker.life
        if epoch < life.told:
            raise Violation(f"{broker.name} follows epoch {epoch}, and was told of {life.told}")
        life.told = epoch

    def opened(self, broker: Broker, copy: Copy) -> None:
        """Look at a copy that was opened."""
        self._world.heap.reached("a copy opened")
        self._world.heap.tell("opened", broker.name, copy.first, copy.end, copy.durable)

    def bad_stream(self, broker: Broker, error: Exception) -> None:
        """Look at a stream that was refused."""
        if not self.lies and "there was epoch" not in str(error):
            raise Violation(f"{broker.name} refuses a stream: {error}") from error

    def strange(self, error: Exception) -> None:
        """Look at an acknowledgement that was refused."""
        raise Violation(f"an acknowledgement is refused: {error}") from error

    # -- the views of a follower ------------------------------------------------------------------

    def applied(self, broker: Broker, standby: Standby, committed: int) -> None:
        """Compare a follower's views with a replay from nothing of what is applied."""
        if standby.applied > committed:
            raise Violation(f"{broker.name} applies {standby.applied}, and was told of {committed}")
        self._same_views(broker, standby, "follows")
        self._forgets(broker, standby)

    def _forgets(self, broker: Broker, standby: Standby) -> None:
        """What a running broker would have forgotten long ago is forgotten."""
        views = standby.views
        long_ago_us = views.last_time_us - IDLE_US - FORGETS_US
        producers = views.dedup.producers.values()
        if (kept := sum(one.last_us < long_ago_us for one in producers)) > 0:
            raise Violation(f"{broker.name} remembers {kept} producers that have long been idle")

    def taken_over(self, broker: Broker, standby: Standby, ending: Ending) -> None:
        """Compare the views with which a reign begins, and what they say of the journal's end."""
        found = find_end(broker.machine.disk)
        assert found is not None
        for what, here, there in (
            ("end", standby.applied, found.valid_end),
            ("end", ending.valid_end, found.valid_end),
            ("last record", ending.last, found.last),
            ("epoch", ending.epoch, found.epoch),
            ("time", ending.last_time_us, found.last_time_us),
            ("dirt", (), found.dirt),
        ):
            if here != there:
                raise Violation(f"{broker.name} takes over the {what} {here}, and it is {there}")
        self._same_views(broker, standby, "begins")

    def _same_views(self, broker: Broker, standby: Standby, what: str) -> None:
        self._world.heap.reached("views compared with a replay from nothing")
        views = new_views(LIMITS, Index(MemoryDisk(), segment_size=SEGMENT))
        views.loaded(Position(0))
        data, at = broker.machine.in_file(0, standby.applied, SEGMENT), 0
        while at < standby.applied:
            record = parse(data, at, at)
            if record is None:
                raise Violation(f"{broker.name} applies {standby.applied}, and {at} is no record")
            if record.kind in FACTS:
                views.apply(record)
            at = record.end
        views.finish(standby.applied)
        found = difference(portrait(views), portrait(standby.views))
        if found is not None:
            raise Violation(f"{broker.name} {what} with other views than a replay makes: {found}")

    # -- what a power cut leaves ------------------------------------------------------------------

    def image(self, machine: Machine, what: str, medium: Medium, ops: list[Op]) -> None:
        """Open what a power cut in the middle of some operations could have left."""
        chance = self._world.heap.chance
        for op in ops[: chance.randrange(len(ops) + 1)]:
            medium.feed(op)
        disk = ImageDisk(medium.image(medium.draw(chance)))
        self.images += 1
        record = self.record
        leads = record is not None and record.epoch > 0 and record.primary == machine.name
        try:
            if not leads:
                Copy.open(disk, reserve_bytes=RESERVE)
                return
            assert record is not None
            journal, _ = open_journal(
                disk,
                wall_us=1,
                segment_size=SEGMENT,
                reserve_bytes=RESERVE,
                min_epoch=Epoch(record.epoch + 1),
            )
        except CorruptJournal as error:
            where = f"{machine.name} in {what}"
            raise Violation(f"an image of {where} does not open: {error}") from error
        files, truth = disk.image(), self.truth
        for base in range(journal.first, len(truth), SEGMENT):
            wanted = truth[base : base + SEGMENT]
            if files.get(f"journal/{base:020d}.seg", b"")[: len(wanted)] != wanted:
                raise Violation(f"an image of {machine.name} in {what} lacks bytes of {base}")

    # -- the end ----------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """Look at all machines once nothing happens any more."""
        record = self.record
        assert record is not None
        if len(record.members) < len(self._world.machines):
            names = [one.broker for one in record.members]
            raise Violation(f"at rest, and only {names} are members")
        for machine in self._world.machines.values():
            self._holds(machine, 0, len(self.truth), "is at rest, and lacks", durable=False)
            found = self._world.brokers[machine.name]
            replica = found.replica
            if self._world.applies and replica is not None and replica.copy is not None:
                if replica.standby is None or replica.standby.applied < replica.bound:
                    raise Violation(f"at rest, and {machine.name} has not applied {replica.bound}")
                self.applied(found, replica.standby, replica.copy.committed)
            if (found.reigning is not None) != (machine.name == record.primary):
                raise Violation(f"at rest, and {machine.name} has another role than recorded")
