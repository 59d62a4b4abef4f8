"""``ternmq backup``: a copy of the journal of a running broker.

The journal only grows at its end, and files before the last one never change. So the bytes up to a
position that the broker reports as durable are a complete journal: everything that was answered
before is in it. The broker may remove old files meanwhile; then the copy is begun again.

The copy is made under the name ``TARGET.unfinished``, synced, checked, and renamed to ``TARGET``:
what has this name is complete and durable.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import click

from ternmq import files
from ternmq.cli.broker.journal import busy, inspected
from ternmq.cli.commands import Command
from ternmq.cli.reach.connection import connection_options, run_admin, timeout_of, where
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import not_found
from ternmq.record.fact.header import HEADER_BYTES, MAGIC, header_of

if TYPE_CHECKING:
    from ternmq.client.admin.admin_client import AdminClient
    from ternmq.wire.control import Status

_TRIES: Final = 10
"""Copies that are begun, if the broker removes files faster than they are copied."""
_PIECE: Final = 1 << 20
_UMASK: Final = 0o027
"""As the broker's files: only its user reads and writes messages, and its group reads them."""


def _free(context: click.Context, option: click.Parameter, target: Path) -> Path:
    """Check the target before anything is asked or copied."""
    if target.exists():
        raise click.BadParameter(
            f"{target} exists already: each backup needs a folder of its own", context, option
        )
    if not target.parent.is_dir():
        raise click.BadParameter(
            f"there is no folder {target.parent} to create the backup in; is its disk mounted?",
            context,
            option,
        )
    return target


@click.command(cls=Command)
@click.argument(
    "data", metavar="DATA", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.argument("target", metavar="TARGET", type=click.Path(path_type=Path), callback=_free)
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Read the whole copy, and check that it is sound, before it gets its final name. Default: "
    "--verify.",
)
@output.json_option
@connection_options
def backup(data: Path, target: Path, verify: bool, as_json: bool, **_connection: object) -> None:
    """Copy the journal of a running broker.

    DATA is the data folder of the broker at --url, on this machine. TARGET is a new folder outside
    DATA; its parent must exist. To restore the backup, copy the folder `journal` in TARGET into an
    empty data folder, and start a broker on that folder. The app needs no right. The user who runs
    the command must be able to read DATA.

    The copy contains every send and ack that was answered before the backup began. `positions`
    shows the first position of the copy and its end, as `ternmq journal verify` does.

    Until the copy is complete, its name is TARGET.unfinished. If a backup was killed, the next
    backup to TARGET removes this folder.
    """
    journal = data / "journal"
    if not _segments(journal):
        raise not_found(f"there is no journal in {data}: name the data folder of the broker")
    if target.resolve().is_relative_to(data.resolve()):
        raise click.UsageError(
            f"{target} is inside {data}: a backup there is lost together with the data, and "
            "takes the space of its disk"
        )
    asked = _Broker(click.get_current_context())
    with _umask(), _unfinished(target) as copy:
        for _ in range(_TRIES):
            oldest = _segments(journal)[0]
            status = asked.status()
            _check_same(data, status, asked)
            try:
                with busy("copying the journal"):
                    size = _copy(journal, copy / "journal", oldest, status.journal_durable)
                break
            except FileNotFoundError:
                shutil.rmtree(copy / "journal")
        else:
            raise Failed(f"no backup was made: files of {data} are removed faster than copied")
        if verify and inspected(copy).damage:
            raise Failed(
                "no backup was made: the copy is damaged; `ternmq journal verify "
                f"{quote(str(data))}` shows whether the journal is damaged, too; --no-verify makes "
                "a backup without this check",
                ExitCode.UNSOUND,
            )
        files.sync(copy)
        copy.rename(target)
        files.sync(target.parent)
    _tell(target, size, status, verified=verify, as_json=as_json)


class _Broker:
    """The broker that the options of a command select."""

    def __init__(self, context: click.Context) -> None:
        self._place, self._timeout = where(context), timeout_of(context)
        self.address = ""

    def status(self) -> Status:
        """Ask for its status, over a connection of its own: copying may take long."""
        found: list[Status] = []

        async def work(client: AdminClient) -> None:
            self.address = client.options.url
            found.append(await client.admin.status())

        run_admin(work, self._place, self._timeout)
        return found[0]


def _tell(target: Path, size: int, status: Status, *, verified: bool, as_json: bool) -> None:
    first = int(_segments(target / "journal")[0].stem)
    if as_json:
        output.document(
            {
                "backup": str(target),
                "bytes": size,
                "first": first,
                "valid_end": status.journal_durable,
                "epoch": status.epoch,
                "verified": verified,
            }
        )
        return
    verify = f"`ternmq journal verify {quote(str(target))}`"
    state = "sound" if verified else f"not checked; {verify} checks it"
    output.details(
        [
            ("backup", str(target)),
            ("size", output.size(size)),
            ("positions", f"{first} to {status.journal_durable}"),
            ("epoch", status.epoch),
            ("state", state),
        ]
    )


def _segments(journal: Path) -> list[Path]:
    """Return the files of a journal, oldest first."""
    return sorted(journal.glob("*.seg"))


def _check_same(data: Path, status: Status, asked: _Broker) -> None:
    """Check that the broker that was asked writes this journal.

    A record of its epoch ends at its durable position in this journal. If bytes follow there, the
    end of the broker's journal has moved on, too.

    Raises:
        Failed: It does not.
    """
    position = status.journal_durable
    if not position:
        raise Failed(
            f"no backup was made: the broker at {asked.address} is too old for this command"
        )
    before = [one for one in _segments(data / "journal") if int(one.stem) < position]
    fits = bool(before) and _epoch_at(before[-1], position) == status.epoch
    if fits:
        with before[-1].open("rb") as file:
            file.seek(position - int(before[-1].stem))
            more = any(file.read(_PIECE))
        fits = not more or asked.status().journal_end > position
    if not fits:
        raise Failed(
            f"no backup was made: the broker at {asked.address} is not the broker of {data}; "
            "--url or TERNMQ_URL selects the broker",
            ExitCode.USAGE,
        )


def _epoch_at(segment: Path, stop: int) -> int | None:
    """Return the epoch of the record that ends at a position; None if no record ends there."""
    base = at = int(segment.stem)
    epoch = None
    with segment.open("rb") as file:
        while at < stop:
            file.seek(at - base)
            head = file.read(HEADER_BYTES)
            if len(head) < HEADER_BYTES:
                return None
            header = header_of(head)
            if header.magic != MAGIC or header.position != at or header.length < HEADER_BYTES:
                return None  # the journal ends here
            at, epoch = at + header.length, header.epoch
    return epoch if at == stop else None


def _copy(journal: Path, target: Path, oldest: Path, stop: int) -> int:
    """Copy a journal up to a position, durably; return the number of bytes.

    Args:
        journal: The journal.
        target: The folder to create.
        oldest: Its oldest file before the broker reported the position.
        stop: The position.

    Raises:
        FileNotFoundError: The broker removed an old file before it was copied. What is to be kept
            of it was written again, and perhaps behind the position.
    """
    target.mkdir()
    # Behind the position are spares, which contain nothing.
    segments = [one for one in _segments(journal) if int(one.stem) < stop]
    if oldest not in segments:
        raise FileNotFoundError(oldest)
    size = sum([files.copy(one, target / one.name, stop - int(one.stem)) for one in segments])
    files.sync(target)
    return size


@contextmanager
def _unfinished(target: Path) -> Iterator[Path]:
    """Yield a new folder for the copy; it is removed after an error.

    Raises:
        Failed: Another process makes a backup to the same target.
    """
    copy = target.with_name(f"{target.name}.unfinished")
    if copy.exists():
        with _locked(copy):
            shutil.rmtree(copy)
    copy.mkdir()
    with _locked(copy):
        try:
            yield copy
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)
            raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, for as long as the block or this process lasts."""
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked(folder))
        except BlockingIOError:
            raise Failed(f"no backup was made: another process writes to {folder}") from None
        yield


@contextmanager
def _umask() -> Iterator[None]:
    before = os.umask(_UMASK)
    try:
        yield
    finally:
        os.umask(before)
