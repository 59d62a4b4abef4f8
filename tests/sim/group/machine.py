"""A machine: a disk that loses what was not synced, clocks, and the life of a process on it.

A crash takes the process at any operation of the disk: ``blocking`` runs what blocks, and a crash
that was planned for it lets only a part of its operations reach the disk. After a kill the page
cache lives on, after a power cut only what ``Medium`` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ternmq.journal.log.segment import FOLDER
from tests.sim.disk import Faults, Op, SimDisk
from tests.sim.group.heap import Future, Heap, Task
from tests.sim.medium import Medium

T = TypeVar("T")
START_US = 1_700_000_000_000_000
DAY_US = 86_400_000_000


class Died(Exception):
    """The process is over, in the middle of what it did."""


class Life:
    """The life of a process.

    Attributes:
        incarnation: Its number.
        over: It is dead: none of its events happens any more.
        told: The largest epoch that it read of or followed, for the oracle.
    """

    def __init__(self, machine: Machine, incarnation: int) -> None:
        self.machine = machine
        self.incarnation = incarnation
        self.over = False
        self.told = 0
        self._tasks: list[Task] = []

    def after(self, delay_us: int, what: Callable[[], None]) -> None:
        """Let something happen by this machine's clock, late if the process is stopped then."""
        self.machine.heap.after(delay_us, lambda: self._happen(what))

    def _happen(self, what: Callable[[], None]) -> None:
        machine = self.machine
        if self.over:
            return
        late_us = machine.stopped_until_us - machine.heap.time_us
        if late_us > 0:
            machine.heap.after(late_us, lambda: self._happen(what))
            return
        with suppress(Died):
            what()
        if not self.over:
            machine.feed()

    def sleep(self, delay_us: int) -> Future[None]:
        """Return what is there after a while."""
        future: Future[None] = Future()
        self.after(delay_us, lambda: future.set(None))
        return future

    def spawn(self, work: Coroutine[Any, Any, None]) -> Task:
        """Run a coroutine for as long as the process lives."""
        self._tasks = [one for one in self._tasks if not one.over]
        task = Task(work, lambda step: self.after(0, step))
        self._tasks.append(task)
        if self.over:
            task.cancel()
        return task

    def end(self) -> None:
        """End the process: nothing of it happens any more."""
        self.over = True
        tasks, self._tasks = self._tasks, []
        for one in tasks:
            one.cancel()

    async def until(self, *futures: Future[Any], timeout_us: int | None = None) -> None:
        """Wait for the first of some futures, or for a time."""
        first: Future[None] = Future()
        for one in futures:
            one.then(lambda: first.set(None))
        if timeout_us is not None:
            self.after(timeout_us, lambda: first.set(None))
        await first


class Machine:
    """See the module.

    Attributes:
        disk: As a process sees it.
        medium: What is really there.
        life: The process that runs; None: none.
        stopped_until_us: The process does nothing before (SIGSTOP, a machine that swaps).
        dies_in: What the process dies in, if it comes to it: a name of ``blocking``.
        on_death: Called when it has died so.
    """

    def __init__(self, name: str, heap: Heap) -> None:
        chance = heap.chance
        self.name = name
        self.heap = heap
        self.faults = Faults()
        self.medium = Medium()
        self.disk: SimDisk = self.medium.disk(self.faults)
        self.life: Life | None = None
        self.stopped_until_us = 0
        self.dies_in = ""
        self.dies_by_power = False
        self.on_death: Callable[[], None] = lambda: None
        self.looks = 0.05
        """Share of the calls of ``blocking`` that ``on_look`` is shown."""
        self.on_look: Callable[[str, Medium, list[Op]], None] = lambda name, medium, ops: None
        """Shown what blocked: its name, the medium before, the operations."""
        self._lives = 0
        self._rate = 1_000_000 + chance.randint(-200, 200)
        self._booted_us = 0
        self._boot_us = chance.randrange(DAY_US)
        self._wall_off_us = chance.choice((0, -3 * 3600, 5 * 3600, 60)) * 1_000_000

    # -- clocks -----------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return the time of a clock that nobody sets; it begins anew with the machine."""
        return self._boot_us + (self.heap.time_us - self._booted_us) * self._rate // 1_000_000

    def wall_us(self) -> int:
        """Return the time of the wall clock, which is hours off."""
        return START_US + self.heap.time_us + self._wall_off_us

    # -- the disk ---------------------------------------------------------------------------------

    def feed(self) -> None:
        """Tell the medium what was done."""
        disk = self.disk
        if disk.log:
            for op in disk.log:
                self.medium.feed(op)
            disk.begin += len(disk.log)
            disk.log.clear()

    def blocking(self, name: str, call: Callable[[], T]) -> T:
        """Run what blocks; die in it if that was planned.

        Raises:
            Died: The process is over, and a part of the operations was done.
        """
        self.feed()
        if self.dies_in == name and self.life is not None:
            return self._dies(name, call)
        if self.heap.chance.random() >= self.looks:
            return call()
        before = self.medium.clone()
        result = call()
        if self.disk.log:
            self.on_look(name, before, list(self.disk.log))
        return result

    def _dies(self, name: str, call: Callable[[], T]) -> T:
        result = call()
        log = self.disk.log
        if not log:
            return result
        self.dies_in = ""
        del log[self.heap.chance.randrange(len(log)) :]
        self.heap.reached(f"died in: {name}")
        self.crash(power=self.dies_by_power)
        self.on_death()
        raise Died

    def write_back(self) -> None:
        """The kernel writes back what nobody synced."""
        self.disk.write_back(FOLDER)
        self.feed()

    def in_file(self, start: int, stop: int, size: int) -> bytes:
        """Return the journal's bytes as a process reads them; shorter if they are not there."""
        parts: list[bytes] = []
        at = start
        while at < stop:
            base = at - at % size
            inode = self.disk.files.get(f"journal/{base:020d}.seg")
            end = min(base + size, stop)
            part = b"" if inode is None else bytes(inode.data[at - base : end - base])
            parts.append(part)
            if len(part) < end - at:
                break
            at = end
        return b"".join(parts)

    def on_medium(self, start: int, stop: int, size: int) -> bytes:
        """Return the journal's bytes that no power cut takes; shorter if they are not there."""
        self.feed()
        parts: list[bytes] = []
        at = start
        while at < stop:
            base = at - at % size
            number = self.medium.durable_names.get(f"journal/{base:020d}.seg")
            end = min(base + size, stop)
            part = (
                b""
                if number is None
                else self.medium.stored[number].durable[at - base : end - base]
            )
            parts.append(part)
            if len(part) < end - at:
                break
            at = end
        return b"".join(parts)

    # -- life and death ---------------------------------------------------------------------------

    def boot(self) -> Life:
        """Begin a process."""
        self._lives += 1
        self.stopped_until_us = 0
        life = self.life = Life(self, self.heap.chance.getrandbits(62) | 1)
        return life

    def crash(self, *, power: bool) -> None:
        """End the process, and if the power is gone, what the disk had not made durable."""
        life, self.life = self.life, None
        if life is not None:
            life.end()
        self.feed()
        medium = self.medium
        if power:
            pending = bool(medium.slots() or medium.name_ops)
            self.medium = medium = Medium(medium.image(medium.draw(self.heap.chance)))
            self._booted_us = self.heap.time_us
            self._boot_us = 5_000_000
            if pending:
                self.heap.reached("power cut with writes pending")
        self.faults.plan(self.heap.chance, on=False)
        self.disk = medium.disk(self.faults)
