"""A job of the pipeline: what every job has, and what it receives.

    class StatsJob:
        name = "stats"
        tables = (STATS_MINUTE, STATS_HOUR, STATS_DAY)
        settings = (Setting("late_hours", 6, "Hours that are counted again when facts come late."),)
        keeps_journal = True

        def run(self, context: Context) -> Outcome:
            ...

A job does the work due at ``context.now_us`` and returns; it can be run again for the same time
with the same result, and twice at once. State from one run to the next is stored in its tables and
nowhere else (``Table.remembered``). It works with ``context.spark`` and without.

A job that reads the journal folds it up to a position, and its tables store that position. It calls
``begin`` for the position to continue at, and ``reached`` after every commit: below that position,
it does not need the journal any more. This is the hold ``spark.<job>`` at the broker, which keeps
the journal from being removed earlier, and shows how far behind the job is. The hold is a copy: the
position in the tables is the one that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ternmq.client.bulk import Bulk
from ternmq.model.errors import DataLoss, OptionError
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table
from ternmq.spark.broker.connecting import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Scalar = bool | int | float | str
_MOST: Final = {"days": 36_525, "hours": 36_525 * 24, "minutes": 36_525 * 24 * 60}
"""A hundred years, the longest time that can be set, by the unit at the end of a setting's name."""


@dataclass(slots=True, frozen=True)
class Setting:
    """A setting of a job: ``--set <job>.<name>=<value>``.

    Attributes:
        name: Words joined by ``_``, with the unit.
        default: The default; its type is the setting's type.
        meaning: A sentence.
        least: Least number; if the name ends in a unit of time, a hundred years is the most.
    """

    name: str
    default: Scalar
    meaning: str
    least: int = 0

    def parse(self, job: str, text: str) -> Scalar:
        """Return the value of a text.

        Raises:
            OptionError: It is not a valid value; names the setting.
        """
        kind = type(self.default)
        low = text.strip().lower()
        try:
            if kind is bool:
                return {"true": True, "false": False}[low]
            value: Scalar = kind(text.strip())
        except (KeyError, ValueError):
            wanted = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "")
            raise OptionError(f"setting {job}.{self.name}={text!r}: {wanted} is required") from None
        if not isinstance(value, str):
            most = _MOST.get(self.name.rpartition("_")[2])
            if not self.least <= value:  # also rejects NaN
                raise OptionError(
                    f"setting {job}.{self.name}={text!r}: at least {self.least} is required"
                )
            if most is not None and value > most:
                raise OptionError(
                    f"setting {job}.{self.name}={text!r}: at most {most}, a hundred years, is "
                    "allowed"
                )
        return value


@dataclass(slots=True, frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        rows: Rows written to tables.
        bytes: Bytes read, of records or of files.
        from_position: Position of the journal where it began; None: it does not read the journal.
        to_position: Position up to which its tables hold everything.
        findings: What an operator should look at: the audit's verdicts, gaps. One line each,
            without secrets or content of messages. Findings do not make the run a failure.
        seconds: Duration; set by the runner.
        behind_rows: Rows of topics that are not in its tables yet; None: not known.
    """

    rows: int = 0
    bytes: int = 0
    from_position: int | None = None
    to_position: int | None = None
    findings: Sequence[str] = ()
    seconds: float = 0.0
    behind_rows: int | None = None


class Stopped(Exception):
    """A stop was requested; raised by ``Context.check``, between commits."""


@dataclass(slots=True)
class Context:
    """What a job receives for one run.

    Attributes:
        job: Name of the job.
        tables: The folder of all tables.
        broker: The broker and the app; is sent to workers (``spark.broker.bulk_port.reach``).
        options: The same for ``spark.read.format("ternmq.journal").options(...)``, without a token.
        bulk: A client of the broker, for the driver; for this run and one thread.
        now_us: The time of the run, µs since 1970.
        spark: The session, if Spark is used. It starts at its first use, which takes seconds: use
            it only for work that is worth that.
        storage: Options of the Delta library for an object store.
        settings: All of ``Job.settings``, given or default.
        progress: Called with a line for people; rarely: once a commit is enough.
        stopping: Returns whether to stop; call ``check`` between commits instead.
        lenient: Missing data is recorded and skipped.
        clock_us: The real time, if ``now_us`` may be later; see ``removing_us``.
    """

    job: str
    tables: Folder
    broker: Broker
    bulk: Bulk
    now_us: int
    options: Mapping[str, str] = field(default_factory=dict)
    spark: SparkSession | None = None
    storage: Mapping[str, str] | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    progress: Callable[[str], None] = lambda _line: None
    stopping: Callable[[], bool] = lambda: False
    lenient: bool = False
    clock_us: int | None = None
    _told: int = -1

    @property
    def removing_us(self) -> int:
        """The time by which what is too old is removed: never later than the real time.

        A run for a later time judges windows early; what it removed would be missing in the next.
        """
        return self.now_us if self.clock_us is None else min(self.now_us, self.clock_us)

    def open(self, spec: TableSpec, *, create: bool = True) -> Table:
        """Open a table.

        Raises:
            TableError: As ``Table.open``.
        """
        return Table.open(self.tables, spec, create=create, storage=self.storage)

    def integer(self, name: str) -> int:
        """Return a setting that is a whole number."""
        value = self.settings[name]
        assert isinstance(value, int)
        return value

    def check(self) -> None:
        """Raise if a stop was requested. Call it after a commit, where nothing is half done.

        Raises:
            Stopped: A stop was requested.
        """
        if self.stopping():
            raise Stopped

    def hold_name(self) -> str:
        """Return the name of the job's hold, as ``ternmq group lag`` shows it."""
        return f"spark.{self.job}"

    def begin(self, known: int | None) -> int:
        """Return the position of the journal at which to read; the hold keeps it from there on.

        Args:
            known: Position up to which the tables hold everything; None: they are new, so reading
                begins at the journal's oldest position.

        Raises:
            DataLoss: The journal begins later, without ``lenient``; or it ends before ``known``.
        """
        bounds = self.bulk.holds()
        if known is not None and known > bounds.durable:
            raise DataLoss(
                f"the tables of {self.job} in {self.tables.uri} hold the journal up to {known}, "
                f"and this broker's ends at {bounds.durable}: this is another broker, or it has "
                "lost messages"
            )
        # The tables decide: if they are behind the hold, it goes back.
        oldest = self.bulk.hold(self.hold_name(), known or 0, NOTE, back=True).oldest
        if known is not None and known < oldest and not self.lenient:
            raise DataLoss(
                f"the journal begins at {oldest}, and {self.job} has read it up to {known}"
            )
        return max(known or 0, oldest)

    def reached(self, position: int) -> None:
        """Report that the tables hold everything below a position; call it after a commit."""
        if position > self._told:
            self.bulk.hold(self.hold_name(), position, NOTE)
            self._told = position


NOTE: Final = "the pipeline has read the journal up to here"


class Job(Protocol):
    """A job of the pipeline.

    Attributes:
        name: Its name in ``--jobs``.
        tables: The tables it writes. They are created or checked before anything runs.
        settings: Its settings.
        keeps_journal: Whether it reads the journal, and has a hold.
    """

    @property
    def name(self) -> str:
        """Its name in ``--jobs``."""

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables it writes."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Its settings."""

    @property
    def keeps_journal(self) -> bool:
        """Whether it reads the journal, and has a hold."""

    def run(self, context: Context) -> Outcome:
        """Do the work that is due now.

        Raises:
            Stopped: A stop was requested; raised after a commit.
            TernMQError: What went wrong, in one line that names option, table or topic.
        """


def told(job: Job, given: Mapping[str, str]) -> dict[str, Scalar]:
    """Return all settings of a job, with defaults for those not given.

    Raises:
        OptionError: A name is unknown or a value not valid; names the setting.
    """
    known = {one.name: one for one in job.settings}
    for name in given:
        if name not in known:
            raise OptionError(
                f"setting {job.name}.{name}: there is no such setting; {job.name} has: "
                + (", ".join(sorted(known)) or "none")
            )
    return {
        name: one.parse(job.name, given[name]) if name in given else one.default
        for name, one in known.items()
    }
