"""The process that is killed: ``python -m tests.fault.worker FOLDER HISTORY [options]``.

Ends with 0 after a clean stop, 70 when the journal failed, 71 when the folder could not be opened.
One byte is written to standard output for every answer, and a newline once the broker is open.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from typing import Final

from ternmq.broker.start import Options
from ternmq.journal.disk.faulty import Call, Fault, FaultyDisk, Kind
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.retention import DEFAULT_WATERMARK, RetentionSpec
from ternmq.model.errors import JournalError, JournalFailed
from ternmq.model.specs import Limits
from ternmq.model.types import SECOND_US
from tests.fault import history
from tests.fault.scenarios import SCENARIOS
from tests.fault.shell import Shell

EXIT_FAILED: Final = 70
EXIT_NOT_OPENED: Final = 71


class Killer(FaultyDisk):
    """A disk at whose planned call the process dies: before it, or with half of a write done."""

    def count(self, call: Call) -> Kind | None:
        """Count a call; die at the planned one."""
        kind = super().count(call)
        if kind == "eio":
            die()
        return kind


def die() -> None:
    """End here and now."""
    os.kill(os.getpid(), signal.SIGKILL)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("history")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="traffic")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", type=int, default=20, help="of broker time")
    parser.add_argument("--messages", type=int, default=400)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--segment", type=int, default=256 << 10)
    parser.add_argument("--state", type=int, default=128 << 10, help="bytes between STATE sets")
    parser.add_argument("--reserve", type=int, default=None)
    parser.add_argument("--journal", type=int, default=0, help="most bytes of the journal")
    parser.add_argument("--watermark", type=float, default=DEFAULT_WATERMARK, help="of the disk")
    parser.add_argument("--remember", type=int, default=600, help="seconds of deduplication")
    parser.add_argument("--place", type=int, default=0, help="of scenario tail: where syncs end")
    parser.add_argument("--tail", type=int, default=24 << 10, help="... bytes written behind it")
    parser.add_argument("--kill", default="", help="CALL:NUMBER[:short]")
    return parser.parse_args()


def options_of(given: argparse.Namespace) -> Options:
    """Return the core's options."""
    return Options(
        segment_bytes=given.segment,
        reserve_bytes=given.reserve,
        state_bytes=given.state,
        chunk_bytes=2048,
        retention=RetentionSpec(max_bytes=given.journal, watermark=given.watermark),
        look_every_us=SECOND_US // 5,
        limits=Limits(
            dedup_window_us=given.remember * SECOND_US,
            send_timeout_us=max(SECOND_US // 10, given.remember * SECOND_US // 4),
            session_grace_us=3 * SECOND_US,
        ),
    )


def disk_of(given: argparse.Namespace) -> Disk:
    """Return the folder, with the planned death in it."""
    disk: Disk = RealDisk(given.folder)
    if given.kill:
        call, number, kind = (given.kill + ":eio").split(":")[:3]
        disk = Killer(disk, [Fault(call, int(number), kind)])
    return disk


def main() -> int:
    """Run until the work is done, the journal fails, or somebody kills this process."""
    given = arguments()
    past = history.read(given.history)
    record = history.History(given.history, sys.stdout.fileno())
    try:
        shell = Shell(disk_of(given), options_of(given), given.seed, given.speed)
    except JournalError as error:
        if given.kill:
            die()
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return EXIT_NOT_OPENED
    if shell.report.cut is not None:
        first, last = shell.report.cut
        print(f"cut {first} to {last}: {shell.report.fault or 'blank'}", file=sys.stderr)
    os.write(sys.stdout.fileno(), b"\n")
    try:
        work = SCENARIOS[given.scenario](shell, record, past, given)
        while not work.done:
            shell.turn(work)
        shell.close()
    except JournalFailed as error:
        if given.kill:  # half of a write is there
            die()
        record.write("failed", error=f"{error}: {error.__cause__}")
        return EXIT_FAILED
    record.write("closed", syncs=shell.syncs, answered=getattr(work, "answered", 0))
    return 0


if __name__ == "__main__":
    code = main()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(code)  # the sync thread may sit in a call that never returns
