"""The list of jobs, in the order in which a round runs them.

A later job reads what an earlier one writes. Each is imported when it is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ternmq.model.errors import OptionError
from ternmq.pipeline.archive.schema import ARCHIVE, ERASED, GAPS
from ternmq.pipeline.job.job import Job
from ternmq.pipeline.tables.spec import TableSpec


def _archive() -> Job:
    from ternmq.pipeline.archive.job import Archiving

    return Archiving()


def _trace() -> Job:
    from ternmq.pipeline.trace.job import TraceJob

    return TraceJob()


def _stats() -> Job:
    from ternmq.pipeline.stats.job import StatsJob

    return StatsJob()


def _deadletters() -> Job:
    from ternmq.pipeline.deadletters.job import DeadLettersJob

    return DeadLettersJob()


def _audit() -> Job:
    from ternmq.pipeline.audit.job import AuditJob

    return AuditJob()


def _compaction() -> Job:
    from ternmq.pipeline.archive.compaction_job import Compacting

    return Compacting(all_tables())


_WRITING: Final[dict[str, Callable[[], Job]]] = {
    "archive": _archive,
    "trace": _trace,
    "stats": _stats,
    "audit": _audit,
    "deadletters": _deadletters,
}
_FACTORIES: Final[dict[str, Callable[[], Job]]] = {**_WRITING, "compaction": _compaction}


def names() -> tuple[str, ...]:
    """Return the names of all jobs, in order."""
    return tuple(_FACTORIES)


def chosen(wanted: Iterable[str]) -> list[Job]:
    """Return jobs by name, each once, in the order in which they run.

    Raises:
        OptionError: A name is unknown, or none is given.
    """
    asked = list(wanted)
    for name in asked:
        if name not in _FACTORIES:
            raise OptionError(f"there is no job {name!r}; there are: {', '.join(_FACTORIES)}")
    if not asked:
        raise OptionError(f"no job is named; there are: {', '.join(_FACTORIES)}")
    return [make() for name, make in _FACTORIES.items() if name in asked]


def all_tables() -> Sequence[TableSpec]:
    """Return every table of the pipeline."""
    found = {one.name: one for one in (ARCHIVE, GAPS, ERASED)}
    for make in _WRITING.values():
        found |= {one.name: one for one in make().tables}
    return list(found.values())
