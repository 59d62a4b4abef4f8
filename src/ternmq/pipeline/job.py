"""A job of the pipeline: what every one of them has, and what it is given.

    class StatsJob:
        name = "stats"
        tables = (STATS_MINUTE, STATS_HOUR, STATS_DAY)
        settings = (Setting("late_hours", 6, "Hours that are counted again when facts come late."),)
        keeps_journal = True

        def run(self, context: Context) -> Outcome:
            ...

A job does what is to be done at ``context.now_us`` and returns; it can be run again for the same
time with the same result, and by two at once. What it keeps of one run for the next stands in its
tables, nowhere else (``Table.remembered``). It works with ``context.spark`` and without.

A job that reads the journal folds it up to a position, and its tables remember that. It asks
``begin`` where to go on, and says ``reached`` behind every commit: below, nothing of the journal is
needed for it any more. That is the hold ``spark.<job>`` at the broker, which keeps the journal
from being cleaned up before, and shows how far behind the job is. The hold is a copy: what counts
is what the tables remember.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ternmq.client.bulk import Bulk
from ternmq.model.errors import DataLoss, OptionError
from ternmq.pipeline.files import TableSpec
from ternmq.pipeline.folder import Folder
from ternmq.pipeline.table import Table
from ternmq.spark.connecting import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Scalar = bool | int | float | str
_MOST: Final = {"days": 36_525, "hours": 36_525 * 24, "minutes": 36_525 * 24 * 60}
"""A hundred years: no time that is set is longer. By the unit that a setting's name ends in."""


@dataclass(slots=True, frozen=True)
class Setting:
    """What a job can be told: ``--set <job>.<name>=<value>``.

    Attributes:
        name: In words parted by ``_``, with its unit.
        default: Says its type as well.
        meaning: A sentence.
        least: A number is this or more; and where the name ends in a time, a hundred years or less.
    """

    name: str
    default: Scalar
    meaning: str
    least: int = 0

    def parse(self, job: str, text: str) -> Scalar:
        """Return what a text says.

        Raises:
            OptionError: Naming the setting.
        """
        kind = type(self.default)
        low = text.strip().lower()
        try:
            if kind is bool:
                return {"true": True, "false": False}[low]
            value: Scalar = kind(text.strip())
        except (KeyError, ValueError):
            wanted = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "")
            raise OptionError(f"setting {job}.{self.name}={text!r}: {wanted} is wanted") from None
        if not isinstance(value, str):
            most = _MOST.get(self.name.rpartition("_")[2])
            if not self.least <= value:  # NaN is not
                raise OptionError(f"setting {job}.{self.name}={text!r}: {self.least} is the least")
            if most is not None and value > most:
                raise OptionError(
                    f"setting {job}.{self.name}={text!r}: {most} is the most, a hundred years"
                )
        return value


@dataclass(slots=True, frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        rows: Written to tables.
        bytes: Read: of records, or of files.
        from_position: Of the journal, where it began; None: it does not read the journal.
        to_position: Up to where its tables hold everything.
        findings: What somebody should look at: audit's verdicts, gaps. One line each, no secrets
            and nothing of what messages say. They are told, and do not make the run a failure.
        seconds: Set by who runs it.
        behind_rows: Of topics, not yet in its tables; None: it does not know.
    """

    rows: int = 0
    bytes: int = 0
    from_position: int | None = None
    to_position: int | None = None
    findings: Sequence[str] = ()
    seconds: float = 0.0
    behind_rows: int | None = None


class Stopped(Exception):
    """The pipeline was told to end; raised by ``Context.check``, between commits."""


@dataclass(slots=True)
class Context:
    """What a job is given for one run.

    Attributes:
        job: Name of the job.
        tables: The folder of all tables.
        broker: Which broker, as whom; travels to workers (``ternmq.spark.bulk_port.reach``).
        options: The same for ``spark.read.format("ternmq.journal").options(...)``, without a token.
        bulk: A client of it, for the driver: lent for the run, one thread.
        now_us: The time of the run, µs since 1970.
        spark: The session, if there is one. It begins, which takes seconds, with its first use:
            use it for what is worth that.
        storage: What the library of the tables' log wants to know of an object store.
        settings: All of ``Job.settings``, as told or by default.
        progress: Called with a line for people; seldom: once a commit is enough.
        stopping: Whether to end; ask ``check`` between commits.
        lenient: What is missing is noted, and passed over.
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
    _told: int = -1

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
        """Go on, or end here: call it where nothing is half done, behind a commit.

        Raises:
            Stopped: The pipeline was told to end.
        """
        if self.stopping():
            raise Stopped

    def hold_name(self) -> str:
        """Return how the hold of the job is called, in ``ternmq group lag`` too."""
        return f"spark.{self.job}"

    def begin(self, known: int | None) -> int:
        """Return from which position of the journal on to read; it is kept from there on.

        Args:
            known: Up to where the tables hold everything; None: they are new, so from the oldest
                position that the journal has.

        Raises:
            DataLoss: The journal does not reach back so far, and that is not allowed.
        """
        bounds = self.bulk.holds()
        if known is not None and known > bounds.durable:
            raise DataLoss(
                f"the tables of {self.job} in {self.tables.uri} hold the journal up to {known}, "
                f"and this broker's ends at {bounds.durable}: this is another broker, or it has "
                "lost messages"
            )
        # The tables are what counts: if they are behind the hold, it goes back.
        oldest = self.bulk.hold(self.hold_name(), known or 0, NOTE, back=True).oldest
        if known is not None and known < oldest and not self.lenient:
            raise DataLoss(
                f"the journal begins at {oldest}, and {self.job} has read it up to {known}"
            )
        return max(known or 0, oldest)

    def reached(self, position: int) -> None:
        """Tell the broker that the tables hold everything below a position: behind a commit."""
        if position > self._told:
            self.bulk.hold(self.hold_name(), position, NOTE)
            self._told = position


NOTE: Final = "the pipeline has read the journal up to here"


class Job(Protocol):
    """See the module.

    Attributes:
        name: As ``--jobs`` names it.
        tables: What it writes. They are made, or found to be ours, before anything runs.
        settings: What it can be told.
        keeps_journal: It reads the journal, and has a hold.
    """

    @property
    def name(self) -> str:
        """See the class."""

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """See the class."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """See the class."""

    @property
    def keeps_journal(self) -> bool:
        """See the class."""

    def run(self, context: Context) -> Outcome:
        """Do what is to be done now.

        Raises:
            Stopped: As told, behind a commit.
            TernMQError: What went wrong, in one line that names option, table or topic.
        """


def told(job: Job, given: Mapping[str, str]) -> dict[str, Scalar]:
    """Return all settings of a job: those given, and the others by default.

    Raises:
        OptionError: Naming the setting.
    """
    known = {one.name: one for one in job.settings}
    for name in given:
        if name not in known:
            raise OptionError(
                f"setting {job.name}.{name}: there is none; of {job.name} there are: "
                + (", ".join(sorted(known)) or "none")
            )
    return {
        name: one.parse(job.name, given[name]) if name in given else one.default
        for name, one in known.items()
    }
