"""Does the faults of ``nemesis`` to a broker group, and undoes them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, assert_never

from tests.fault.group.brokers import Brokers, wait
from tests.fault.group.link import Link
from tests.fault.group.nemesis import LINKS, Fault, Kind, Role, Step
from tests.fault.group.test_coordinator import locked
from tests.fault.group.test_loss import Operator
from tests.fault.group.tools import passed
from tests.fault.processes import DEADLINE, patience, wait_until
from tests.fault.volumes import Volume

FLAP_S: Final = 3.0
_FROZEN_S: Final = 0.15
_THAWED_S: Final = 0.05
_SWITCHES: Final = 3
"""Tries of an operator."""
_EXIT_FAILED: Final = 1


class Hands:
    """Takes the steps of a plan.

    Args:
        brokers: The group.
        links: By the name of the broker that others reach through it.
        volumes: By the name of the broker whose data it has.
        meanwhile: Called again and again while a fault lasts.

    Attributes:
        fired: How often each fault was seen to happen.
        ended: How often a broker ended by itself, because of its disk.
    """

    def __init__(
        self,
        brokers: Brokers,
        links: Mapping[str, Link],
        volumes: Mapping[str, Volume],
        meanwhile: Callable[[], None],
    ) -> None:
        self.fired: Counter[str] = Counter()
        self.ended = 0
        self._brokers = brokers
        self._links = links
        self._volumes = volumes
        self._meanwhile = meanwhile

    def take(self, step: Step) -> None:
        """Have the faults of a step begin, last, and end."""
        kinds = {fault.kind for fault in step.faults}
        if kinds & {*LINKS, Kind.SWITCH}:  # where no follower is connected, nothing can be cut
            self.whole()
        self._mend()
        primary, other = self._brokers.primary, self._brokers.other
        names = {Role.PRIMARY: [primary], Role.REPLICA: [other], Role.BOTH: [primary, other]}
        undo: list[_Once] = []
        with contextlib.ExitStack() as stack:  # whatever happens, everything is undone
            for number, fault in enumerate(step.faults):
                if number:
                    self._pass(step.gap_s)
                one = _Once(self._context(fault, names[fault.role]))
                stack.enter_context(one)
                undo.append(one)
                self.fired[str(fault)] += 1
            self._pass(step.for_s)
            for one in undo:
                one.__exit__(None, None, None)
        if step.whole:
            self.whole()

    def whole(self) -> None:
        """Wait until there are two copies; start what ended because of its disk."""

        def met() -> bool:
            self._meanwhile()
            self._mend()
            return self._brokers.is_whole()

        wait(met, "there are two copies", DEADLINE * patience() / 3)

    def _pass(self, seconds: float) -> None:
        over = passed(seconds)

        def met() -> bool:
            self._meanwhile()
            return over()

        wait_until(met, "the time is over", seconds + DEADLINE)

    def _mend(self) -> None:
        brokers = self._brokers
        for name in list(brokers.running):
            one = brokers[name]
            if one.ended:
                assert one.process.returncode == _EXIT_FAILED, brokers.log(name)[-6000:]
                assert "disk" in one.log or "journal" in one.log, one.log
                self.ended += 1
                brokers.kill(name)
                brokers.start(name)

    def _context(
        self, fault: Fault, names: list[str]
    ) -> contextlib.AbstractContextManager[None, bool | None]:
        """Return what does a fault when it is entered, and undoes it when it is left."""
        match fault.kind:
            case Kind.KILL:
                return self._killed(names)
            case Kind.STOP:
                return self._stopped(names)
            case Kind.POWER:
                return self._without_power(names)
            case Kind.FULL | Kind.SLOW | Kind.FROZEN:
                return self._disk(fault.kind, self._volumes[names[0]])
            case Kind.CUT | Kind.THERE | Kind.BACK:
                return self._link(fault.kind, self._links[names[0]])
            case Kind.FLAP:
                return self._flapping(self._links[names[0]])
            case Kind.SWITCH:
                return self._switched(to=names[1])
            case Kind.AWAY:
                return locked(self._brokers.file)
            case _ as other:
                assert_never(other)

    # -- processes --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _killed(self, names: list[str]) -> Iterator[None]:
        gone = [self._brokers[name] for name in names]
        self._brokers.kill(*names)
        assert all(one.process.returncode == -signal.SIGKILL for one in gone)
        yield
        self._start(names)

    @contextlib.contextmanager
    def _stopped(self, names: list[str]) -> Iterator[None]:
        for name in names:
            self._brokers[name].stop()
        try:
            yield
        finally:
            for name in names:
                self._brokers[name].go_on()

    @contextlib.contextmanager
    def _without_power(self, names: list[str]) -> Iterator[None]:
        for name in names:
            self._brokers[name].stop()
        for name in names:
            self._volumes[name].shut_down()
        for name in names:
            self._brokers.kill(name)
            self._volumes[name].again()
        yield
        self._start(reversed(names))

    def _start(self, names: Iterator[str] | list[str]) -> None:
        for name in names:
            self._brokers.start(name)

    # -- disks ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _disk(self, kind: Kind, volume: Volume) -> Iterator[None]:
        if kind is Kind.FULL:
            ballast = volume.fill()
            assert not os.statvfs(volume.point).f_bavail
            try:
                yield
            finally:
                ballast.unlink()
        elif kind is Kind.FROZEN:
            volume.freeze()
            try:
                yield
            finally:
                volume.thaw()
        else:
            with _pulsing(volume):
                yield

    # -- network, coordinator, operator -----------------------------------------------------------

    @contextlib.contextmanager
    def _link(self, kind: Kind, link: Link) -> Iterator[None]:
        assert link.connections, "no follower is connected"
        if kind is Kind.CUT:
            link.cut()
        else:
            link.hold(there=kind is Kind.THERE, back=kind is Kind.BACK)
        try:
            yield
        finally:
            link.heal()

    @contextlib.contextmanager
    def _flapping(self, link: Link) -> Iterator[None]:
        before = link.cuts
        for number in range(3):
            if number:
                self._pass(FLAP_S)
            link.cut()
            link.heal()
        assert link.cuts > before, "no connection was cut"
        yield

    @contextlib.contextmanager
    def _switched(self, to: str) -> Iterator[None]:
        """Have a broker take over; one that cannot now is asked again."""
        operator, said = Operator(self._brokers), ""
        for _ in range(_SWITCHES):
            self.whole()
            done = operator.start("switch", "--to", to)
            said += "".join(done.communicate(timeout=DEADLINE))
            if self._brokers.primary == to:
                break
        else:
            raise AssertionError(f"inconclusive: {to} never took over: {said}")
        yield


class _Once(contextlib.AbstractContextManager[None]):
    """A context that is left once, however often."""

    def __init__(self, inner: contextlib.AbstractContextManager[None, bool | None]) -> None:
        self._inner = inner
        self._left = False

    def __enter__(self) -> None:
        self._inner.__enter__()

    def __exit__(self, *error: object) -> None:
        if not self._left:
            self._left = True
            self._inner.__exit__(None, None, None)


@contextlib.contextmanager
def _pulsing(volume: Volume) -> Iterator[None]:
    """Freeze and thaw a volume all the time."""
    over = threading.Event()
    errors: list[Exception] = []

    def run() -> None:
        try:
            while not over.is_set():
                volume.freeze()
                over.wait(_FROZEN_S)
                volume.thaw()
                over.wait(_THAWED_S)
        except (AssertionError, OSError) as error:
            errors.append(error)  # raised below

    thread = threading.Thread(target=run, name="pulsing")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        volume.thaw()
    if errors:
        raise errors[0]
