"""The audit: is every message that was sent stored, handed out, settled and archived, and once?

Two steps, both functions of Arrow tables: ``fold`` adds runs that were gathered from the journal
(``audit_runs.gather``) to those that are known, ``judge`` says of every ten minutes how they stand
at a given time. The same runs and the same time give the same rows. ``audit_job`` reads the journal
and keeps the tables; ``docs/operate/audit.md`` says what a verdict means and what it cannot show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit_judge import judge_stored
from ternmq.pipeline.audit_policy import Judged, Policy, Verdict, rows_of
from ternmq.pipeline.audit_runs import KEPT, OF_GROUPS, decided, ints, merged, placed
from ternmq.pipeline.audit_schemas import AUDIT, FINDINGS
from ternmq.pipeline.audit_tiers import judge_archive, judge_groups


@dataclass(slots=True)
class Archived:
    """What the archive has, as far as it is compared.

    Attributes:
        runs: Its rows, as runs of the kind ``archived``.
        stands: Up to where it has each queue: (number of the topic, queue) -> offset.
        excused: Runs that were erased on request, or that ``archive_gaps`` tells of.
    """

    runs: pa.Table = field(default_factory=KEPT.empty_table)
    stands: Mapping[tuple[int, int], int] = field(default_factory=dict)
    excused: pa.Table = field(default_factory=KEPT.empty_table)


@dataclass(slots=True, frozen=True)
class Judgement:
    """Rows of the tables ``audit`` and ``audit_findings``."""

    rows: pa.Table
    findings: pa.Table


def fold(known: pa.Table, new: pa.Table) -> pa.Table:
    """Return known runs and new ones together.

    Args:
        known: Of all ten minutes that the new ones may be about; what they say of rows that are
            neither there nor new is left out.
        new: As ``gather`` returns them.
    """
    of_groups = pc.and_(pc.is_in(new["kind"], pa.array(OF_GROUPS)), pc.is_null(new["bucket"]))
    rows = decided(pa.concat_tables([known, new.filter(pc.invert(of_groups))]))
    return merged(pa.concat_tables([rows, placed(new.filter(of_groups), rows)]))


def buckets_of(runs: pa.Table) -> list[int]:
    """Return the ten minutes that runs are about, in order."""
    found = np.unique(ints(runs["bucket"]))
    return [one for one in found.tolist() if one >= 0]


def judge(
    runs: pa.Table,
    policy: Policy,
    groups: Iterable[tuple[int, str]] = (),
    archived: Archived | None = None,
) -> Judgement:
    """Say how all ten minutes stand that runs are about.

    Args:
        runs: All that is known of them.
        policy: How is judged, and the time.
        groups: Those that there are: number of the topic, name of the group.
        archived: What the archive has; None: there is none.
    """
    groups = list(groups)
    rows, findings = [AUDIT.schema.empty_table()], [FINDINGS.schema.empty_table()]
    for bucket in buckets_of(runs):
        mine = _of(runs, bucket)
        found = Judged()
        found.add(judge_stored(bucket, mine, policy))
        found.add(judge_groups(bucket, mine, groups, policy))
        if archived is not None:
            there = _of(archived.runs, bucket)
            found.add(judge_archive(bucket, mine, there, archived.stands, archived.excused, policy))
        final = all(row["verdict"] is not Verdict.OPEN for row in found.rows)
        for row in found.rows:
            row["final"] = final
        rows.append(rows_of(AUDIT, found.rows, bucket))
        findings.append(rows_of(FINDINGS, found.findings, bucket))
    return Judgement(pa.concat_tables(rows), pa.concat_tables(findings))


def _of(runs: pa.Table, bucket: int) -> pa.Table:
    return runs.filter(pc.equal(runs["bucket"].cast(pa.int64()), bucket))
