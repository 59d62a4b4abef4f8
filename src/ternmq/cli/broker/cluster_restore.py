"""``ternmq cluster init`` and ``restore``: how a broker group begins, and begins again."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from ternmq.cli.broker.journal import busy
from ternmq.cli.commands import Command
from ternmq.cli.reach.connection import confirm, yes_option
from ternmq.cli.reach.coordinators import CLUSTER, Cluster, begins_cluster, changed, known
from ternmq.cli.reach.parameters import NAME
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.output import Cell
from ternmq.cli.terminal.problems import not_found
from ternmq.client.forms import values
from ternmq.cluster.coordination import checking
from ternmq.cluster.coordination.port import Refused
from ternmq.cluster.coordination.record import Leadership, Progress
from ternmq.model.errors import AlreadyRunning, CorruptJournal, FileMissing

if TYPE_CHECKING:
    from ternmq.server.node.restoring import Reach

_NAME: Final = "TERNMQ_NAME"
_TRIES: Final = 3
_TOKEN: Final = "TERNMQ_CLUSTER_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_BYTES: Final = 16
_FILE: Final = "sqlite:///"
_PASSWORD: Final = re.compile(r"([?&](?:password|passwd|sslpassword)=)[^&]*", re.IGNORECASE)


@click.command(cls=Command)
@click.argument("data", metavar="DATA", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--from",
    "source",
    metavar="BACKUP",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Backup, or data folder of a stopped broker, whose journal is copied into DATA. Default: "
    "the journal that is in DATA.",
)
@click.option(
    "--name",
    metavar="BROKER",
    type=NAME,
    required=True,
    envvar=_NAME,
    help=f"Name of the broker that will be started with DATA; or ${_NAME}.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only show how far the journal reaches, and what is known to be missing.",
)
@yes_option
@output.json_option
@begins_cluster
async def restore(
    cluster: Cluster,
    data: Path,
    source: Path | None,
    name: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Restore a broker group from a backup, or from a remaining copy of the journal.

    Run it on the machine of the broker that will be the primary, as the user of this broker. DATA
    is the data folder of this broker. No broker of the broker group may run. After the command,
    start this broker. Then start the other brokers with empty folders: no broker of the broker
    group starts with a folder from before the restore.

    The command reads the whole journal, and shows what is known to be missing in it. More may be
    missing: the primary reports only every 10 s to the coordinator how far the journal is
    committed. The settings of the broker group stay as they are.
    """
    from ternmq.server.node import restoring  # the journal's code: for this command only

    found = known(await cluster.group.read())
    await _check_nobody_runs(cluster)
    with _read(data, source, cluster.name, dry_run=dry_run):
        with busy("reading the journal"):
            reach = restoring.reach_of(source or data, None if found is None else found.floor)
        progress = known(await cluster.group.progress())
        missing = restoring.missing_bytes(found, progress, reach)
        seen = _Seen(cluster.name, found, progress, reach, missing)
        if not as_json:
            output.details(seen.lines())
        if dry_run:
            _tell(seen, None, name, data, as_json=as_json)
            return
        confirm(seen.question(), yes=yes)
        await _check_nobody_runs(cluster)
        journal = secrets.randbits(63) | 1
        record = restoring.restored(
            found, reach, name, journal, cluster.group.writer(), time.time_ns() // 1000
        )
        if source is not None:
            with busy("copying the journal"):
                restoring.copy_journal(source, data, reach)
        before = restoring.identify(data, cluster.name, journal, name)
        outcome = await cluster.group.change(record)
        if isinstance(outcome, Refused):
            restoring.put_back(data, before)
        changed(outcome)
        await _put_progress(cluster, Progress(record.epoch, reach.end), name, data)
        _tell(seen, record, name, data, as_json=as_json)


@contextlib.contextmanager
def _read(data: Path, source: Path | None, group: str, *, dry_run: bool) -> Iterator[None]:
    """Keep brokers away from both folders; turn what is wrong with them into a failure."""
    from ternmq.server.node import restoring

    if source is not None and not restoring.is_empty(data):
        raise Failed(
            f"{data} is not empty: name a new folder, or leave out --from to use the journal in it"
        )
    if source is None:
        restoring.check_whose(data, group)
    try:
        with contextlib.ExitStack() as stack:
            if source is not None:
                stack.enter_context(restoring.at_rest(source))
            elif not data.is_dir():
                raise not_found(f"there is no folder {data}: --from names a backup to copy into it")
            if not dry_run:
                stack.enter_context(restoring.owned(data))
            elif source is None:
                stack.enter_context(restoring.at_rest(data))
            yield
    except AlreadyRunning as error:
        raise Failed(
            f"{error.args[0]}: stop it first. `ternmq backup` copies the journal of a broker that "
            "runs"
        ) from error
    except FileMissing as error:
        raise not_found(str(error.args[0])) from error
    except CorruptJournal as error:
        where = quote(str(source or data))
        raise Failed(
            f"{error.args[0]}. `ternmq journal verify {where}` shows it all, and `ternmq journal "
            f"repair {where}` repairs it from another copy",
            ExitCode.UNSOUND,
        ) from error


async def _check_nobody_runs(cluster: Cluster) -> None:
    running = sorted(known(await cluster.group.present()))
    if running:
        run, were = ("runs", "was") if len(running) == 1 else ("run", "were")
        raise Failed(
            f"{', '.join(running)} of broker group {cluster.name} {run}, or {were} killed a moment "
            "ago: stop all brokers of the group, and make sure that nothing starts them again",
            ExitCode.LATER,
        )


async def _put_progress(cluster: Cluster, progress: Progress, name: str, data: Path) -> None:
    """Say how far the journal reaches; else the broker would not lead with it."""
    for _ in range(_TRIES):
        await cluster.group.put_progress(progress)
        if await cluster.group.progress() == progress:
            return
    raise Failed(
        "the coordinator does not answer, and the restore is not complete: run `ternmq cluster "
        f"restore {quote(str(data))} --name {name}` again",
        ExitCode.UNKNOWN,
    )


class _Seen:
    """What a look at the journal and the coordinator found."""

    def __init__(
        self,
        group: str,
        record: Leadership | None,
        progress: Progress | None,
        reach: Reach,
        missing: int | None,
    ) -> None:
        self.group = group
        self.record = record
        self.progress = progress
        self.reach = reach
        self.missing = missing

    def lines(self) -> list[tuple[str, Cell]]:
        """Return names and values, for people."""
        reach = self.reach
        until = "nothing"
        if reach.time_us:
            moment = values.of_us(reach.time_us)
            ago = output.span(max(0.0, time.time() - moment.timestamp()))
            until = f"until {values.iso(moment)} ({ago} ago)"
        return [
            ("journal", f"sound, {reach.records:,} records, epoch {reach.epoch}"),
            ("reaches", f"{until}, position {reach.end:,}"),
            ("broker group", self._group()),
            ("missing", self._missing()),
        ]

    def _group(self) -> str:
        if self.record is None:
            return f"{self.group}: the coordinator does not know it"
        if self.progress is None:
            return f"{self.group}: epoch {self.record.epoch}"
        return (
            f"{self.group}: epoch {self.record.epoch}, committed at least up to position "
            f"{self.progress.position:,}"
        )

    def _missing(self) -> str:
        if self.missing is None:
            return "not known"
        if not self.missing:
            return "nothing that the coordinator knows of"
        return f"at least {output.size(self.missing)} of the journal, with what was answered"

    def question(self) -> str:
        """Return what the terminal asks."""
        return (
            f"broker group {self.group} begins again with this journal. What is missing in it is "
            "lost, and the folders that its brokers had cannot be used any more. Go on?"
        )

    def document(self) -> dict[str, object]:
        """Return the form of the JSON output."""
        reach, record, progress = self.reach, self.record, self.progress
        return {
            "broker_group": self.group,
            "records": reach.records,
            "first": reach.first,
            "valid_end": reach.end,
            "journal_epoch": reach.epoch,
            "until": values.of_us(reach.time_us) if reach.time_us else None,
            "before": None
            if record is None
            else {"epoch": record.epoch, "primary": record.primary},
            "committed": None if progress is None else progress.position,
            "missing_bytes": self.missing,
        }  # fmt: skip


def _tell(seen: _Seen, record: Leadership | None, name: str, data: Path, *, as_json: bool) -> None:
    """Say what was done; ``record`` is the new one, None: nothing was changed."""
    if as_json:
        done: dict[str, Any] = {"done": record is not None}
        if record is not None:
            done |= {"primary": name, "epoch": record.epoch}
        output.document(seen.document() | done)
    elif record is None:
        output.note("nothing was changed: --dry-run")
    else:
        output.note(
            f"broker group {seen.group} begins again with epoch {record.epoch}: start {name} with "
            f"{data}, then the other brokers with empty folders"
        )


@click.command(cls=Command)
@output.json_option
@begins_cluster
async def init(cluster: Cluster, as_json: bool) -> None:
    """Prepare a coordinator: check that it works, and create its tables.

    Run it once, before you start the first broker, with a database account that may create tables.
    After that, the account of the brokers needs only the rights to select, insert, update and
    delete in these tables. For ZooKeeper, the command creates nodes below the path of the URL: run
    it with the account of the brokers. You can run the command again, also while brokers run.

    It also prints a new cluster token, if the broker group does not exist yet. The token is not
    stored in the coordinator: set the same token for all brokers of the cluster.
    """
    began = time.monotonic()
    try:
        await checking.check(cluster.coordinator)
    except checking.DoesNotAnswer as error:
        raise Failed(f"the coordinator cannot be used: {error}", ExitCode.NO_BROKER) from error
    except checking.Unfit as error:
        raise Failed(f"this is no coordinator: {error}", ExitCode.UNSOUND) from error
    seconds = time.monotonic() - began
    record = known(await cluster.group.read())
    token = secrets.token_hex(_TOKEN_BYTES) if record is None else None
    if as_json:
        output.document(
            {
                "broker_group": cluster.name,
                "seconds": round(seconds, 4),
                "primary": None if record is None else record.primary,
                "cluster_token": token,
            }
        )
        return
    group = f"{cluster.name}: none yet" if record is None else f"{cluster.name}: it exists already"
    output.details(
        [
            ("coordinator", f"it works: changed, read and announced in {output.span(seconds)}"),
            ("broker group", group),
        ]
    )
    if token is None:
        return
    output.line("")
    output.line("Set these for each broker of the group, beside its TERNMQ_NAME:")
    output.line("")
    output.line(f"    export {CLUSTER}={quote(_shown(cluster.url))}")
    output.line(f"    export {_TOKEN}={token}")


def _shown(url: str) -> str:
    """Return the URL for a broker's settings: without a password, and good in every folder."""
    if url.startswith(_FILE):
        path, question, options = url.removeprefix(_FILE).partition("?")
        url = f"{_FILE}{Path(path).absolute()}{question}{options}"
    parts = urlsplit(url)
    account, at, place = parts.netloc.rpartition("@")
    user, colon, _ = account.partition(":")
    if colon:
        url = parts._replace(netloc=f"{user}:PASSWORD{at}{place}").geturl()
    return _PASSWORD.sub(r"\1PASSWORD", url)
