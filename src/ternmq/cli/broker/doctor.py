"""``ternmq doctor``: checks whether this machine suits a broker, and whether one answers."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import resource
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import click

from ternmq.cli.broker.broker import oldest_file
from ternmq.cli.broker.clock import gap_of
from ternmq.cli.commands import Command
from ternmq.cli.reach.connection import Where, connection_options, run, where
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.percentiles import percentile
from ternmq.cli.terminal.problems import text_of
from ternmq.client.client import Client
from ternmq.client.forms import values
from ternmq.model.errors import TernMQError
from ternmq.model.printing import printable
from ternmq.model.version import __version__
from ternmq.wire.control import Status

_SYNCS: Final = 200
_LONGEST_S: Final = 3.0
_WRITE: Final = 4096
_UNREAL_S: Final = 20e-6
"""No disk and no flash is this fast: a sync this short did not reach it."""
_SLOW_S: Final = 0.05
_FILES_LOW: Final = 4096
_FILES_TOO_LOW: Final = 256
_GIB: Final = 1 << 30
_MEMORY_SYSTEMS: Final = ("tmpfs", "ramfs")
_CLOCK_OFF_S: Final = 1.0
_YEAR_2025: Final = 1_735_689_600
_datasync: Final = getattr(os, "fdatasync", os.fsync)

State = Literal["ok", "warn", "fail"]


class Check(NamedTuple):
    """The result of a check, with what to do."""

    name: str
    state: State
    said: str


@click.command(cls=Command)
@click.option(
    "--data",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Folder on the disk to measure. Default: the current folder.",
)
@output.json_option
@connection_options
def doctor(data: Path, as_json: bool, **connection: object) -> None:
    """Check disk, clock, limits and Python of this machine, and whether a broker accepts sends.

    To measure the disk, the command writes a small file to the folder, syncs it up to 200
    times (for at most 3 s), and removes it. Sizes are those of `df`: free is Available, the total
    is Size, used is Use%. Use% is Used divided by the sum of Used and Available. This sum can be
    less than Size, because the file system may reserve blocks for root.
    """
    del connection
    place = where(click.get_current_context())
    found: list[Check] = []
    for check in _checks(data, place):
        found.append(check)
        if not as_json:
            _tell(check)
    if as_json:
        output.document([check._asdict() for check in found])
    failed = [check.name for check in found if check.state == "fail"]
    if failed:
        raise Failed(f"checks that failed: {', '.join(failed)}", ExitCode.UNSOUND)


def _tell(check: Check) -> None:
    colour = {"ok": "green", "warn": "yellow", "fail": "red"}[check.state]
    head = f"{check.state:<4}  {check.name:<12}  "
    text = output.folded(head + printable(check.said), len(head))
    mark = click.style(text[:4], fg=colour)
    plain = not output.is_terminal() or "NO_COLOR" in os.environ
    click.echo(mark + text[4:], color=not plain)


def _checks(data: Path, place: Where) -> Iterator[Check]:
    yield _python()
    yield _uvloop()
    yield _descriptors()
    yield _space(data)
    yield _sync(data)
    yield from _broker_and_clock(place)


def _python() -> Check:
    version = platform.python_version()
    said = f"{platform.python_implementation()} {version} on {sys.platform}, TernMQ {__version__}"
    return Check("python", "ok" if sys.platform == "linux" else "warn", said)


def _uvloop() -> Check:
    try:
        import uvloop
    except ImportError:
        said = "not installed; with it (`pip install uvloop`), the broker uses less CPU"
        return Check("uvloop", "warn", said)
    return Check("uvloop", "ok", str(getattr(uvloop, "__version__", "installed")))


def _descriptors() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "as many as the system has" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    said = f"{soft:,} open files (at most {most})"
    if soft != resource.RLIM_INFINITY and soft < _FILES_LOW:
        said += "; each connection is one: `ulimit -n 65536`, or LimitNOFILE= of the service"
        return Check("files", "fail" if soft < _FILES_TOO_LOW else "warn", said)
    return Check("files", "ok", said)


def _space(data: Path) -> Check:
    usage = shutil.disk_usage(data)
    used = usage.used / max(usage.used + usage.free, 1)
    said = f"{_filled(usage.free, usage.total, used)} at {data.resolve()}"
    wanted = min(_GIB, usage.total // 4)  # on a small disk, the segments of a broker are smaller
    if usage.free < wanted:
        state: State = "fail" if usage.free < wanted // 4 else "warn"
        said += f"; a broker needs {output.size(wanted)} to work without shortage"
        return Check("space", state, said)
    return Check("space", "ok", said)


def _filled(free: int, total: int, used: float) -> str:
    """Return how full a disk is, in the numbers of ``df``: Available, Size, Use%.

    Free and used are less than the size if blocks are reserved for root.
    """
    share = f", {math.ceil(used * 100)}% used" if used else ""  # an older broker does not say it
    return f"{output.size(free)} free of {output.size(total)}{share}"


def _sync(data: Path) -> Check:
    try:
        times = sync_times(data)
    except OSError as error:
        said = f"{data.resolve()} cannot be written: {error.strerror}; name another with --data"
        return Check("disk sync", "fail", said)
    middle, late = percentile(times, 50), percentile(times, 99)
    said = (f"p50 {output.span(middle)}, p99 {output.span(late)} "
            f"({len(times)} x 4 KiB, fdatasync)")  # fmt: skip
    kind = _file_system(data)
    if kind in _MEMORY_SYSTEMS:
        return Check(
            "disk sync", "warn", f"{said}; {kind} is memory: its data does not survive a power cut"
        )
    if middle < _UNREAL_S:
        return Check(
            "disk sync", "warn", f"{said}; too quick for a disk: check that syncs reach the disk"
        )
    if late > _SLOW_S:
        return Check("disk sync", "warn", f"{said}; every send waits for one: is the disk busy?")
    return Check("disk sync", "ok", said)


def sync_times(data: Path) -> list[float]:
    """Return how long each of some synced writes took, in seconds, sorted."""
    path = data / f".ternmq-doctor-{secrets.token_hex(4)}"
    block = secrets.token_bytes(_WRITE)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        # Overwrite space that was written before, as the journal does.
        os.write(descriptor, bytes(_SYNCS * _WRITE))
        os.fsync(descriptor)
        times: list[float] = []
        until = time.monotonic() + _LONGEST_S
        for at in range(_SYNCS):
            began = time.perf_counter()
            os.pwrite(descriptor, block, at * _WRITE)
            _datasync(descriptor)
            times.append(time.perf_counter() - began)
            if time.monotonic() > until:
                break
        return sorted(times)
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink()


def _file_system(data: Path) -> str:
    """Return the type of the file system of a folder; empty if unknown."""
    found, longest = "", -1
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    where_is = data.resolve()
    for line in mounts.splitlines():
        _, at, kind, *_ = line.split()
        if len(at) > longest and where_is.is_relative_to(at):
            found, longest = kind, len(at)
    return found


def _broker_and_clock(place: Where) -> Iterator[Check]:
    told: dict[str, float | str] = {}
    rest: list[Check] = []

    async def ask(client: Client) -> None:
        began = time.time()
        status = await client.admin.status()
        ended = time.time()
        told["off"] = status.clock.timestamp() - (began + ended) / 2
        told["within"] = (ended - began) / 2
        told["said"] = (
            f"{status.broker} {status.version} at {client.options.url}, "
            f"up {output.span(status.uptime_us / 1e6)}, answers in {output.span(ended - began)}"
        )
        rest.extend((_broker_clock(status), _sends(status)))

    why = ""
    try:
        run(ask, place, 5.0)
    except TernMQError as error:
        why = text_of(error)
    if time.time() < _YEAR_2025:
        yield Check(
            "clock", "fail", "it is wrong by years: set the clock, and synchronise it with NTP"
        )
    elif "off" in told:
        off, within = float(told["off"]), float(told["within"])
        said = f"differs from the broker's by {output.span(abs(off))} (±{output.span(within)})"
        far = abs(off) > _CLOCK_OFF_S + within
        yield Check(
            "clock",
            "warn" if far else "ok",
            said + ("; synchronise both clocks with NTP" if far else ""),
        )
    else:
        yield Check("clock", "ok", f"{values.iso(values.of_us(time.time_ns() // 1000))}")
    if why:
        # Without a configured broker, none needs to be there.
        yield Check("broker", "warn" if place.source == "default" else "fail", why)
    else:
        yield Check("broker", "ok", str(told["said"]))
    yield from rest


def _broker_clock(status: Status) -> Check:
    """Check whether broker time follows the clock of its machine."""
    if status.clock_followed:
        return Check("broker time", "ok", gap_of(status))
    remedy = "if the clock is right, run `ternmq clock accept`; if it is wrong, set it"
    return Check("broker time", "warn", f"{gap_of(status)}; {remedy}")


def _sends(status: Status) -> Check:
    """Check whether the broker has room for sends, on the disk where it runs."""
    filled = _filled(status.disk_free_bytes, status.disk_total_bytes, status.disk_used)
    disk = f"{filled} on the broker's disk"
    if not status.oldest_file.sends_refused:
        return Check("sends", "ok", f"accepted; {disk}")
    kept = f"oldest file of the journal: {oldest_file(status)}"
    said = f"refused, because there is no room; {disk}; {kept}"
    return Check("sends", "fail", said)
