"""The audit: is every sent message stored, delivered, settled and archived, and only once?

Two steps, both functions of Arrow tables: ``fold`` merges runs gathered from the journal
(``runs.gather``) into the known ones, ``judge`` judges every window of ten minutes at a given
time. The same runs and the same time give the same rows. ``job`` reads the journal and keeps
the tables; ``docs/operate/audit.md`` explains the verdicts and what they cannot show.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit.due import judge_due
from ternmq.pipeline.audit.groups import watched
from ternmq.pipeline.audit.judge import judge_stored
from ternmq.pipeline.audit.kept import KEPT, OF_GROUPS
from ternmq.pipeline.audit.policy import OWED, Judged, Policy, Verdict, rows_of
from ternmq.pipeline.audit.runs import merged, placed
from ternmq.pipeline.audit.schema import AUDIT, FINDINGS
from ternmq.pipeline.audit.tiers import judge_archive, judge_groups
from ternmq.pipeline.audit.transactions import decided
from ternmq.pipeline.tables.numbers import ints


@dataclass(slots=True)
class Archived:
    """The part of the archive that is compared.

    Attributes:
        runs: Its rows, as runs of the kind ``archived``.
        stands: End of its rows of each queue: (number of the topic, queue) -> offset.
        excused: Runs that were erased on request or are listed in ``archive_gaps``.
    """

    runs: pa.Table = field(default_factory=KEPT.empty_table)
    stands: Mapping[tuple[int, int], int] = field(default_factory=dict)
    excused: pa.Table = field(default_factory=KEPT.empty_table)


@dataclass(slots=True, frozen=True)
class Judgement:
    """Rows of the tables ``audit`` and ``audit_findings``."""

    rows: pa.Table
    findings: pa.Table


def fold(known: pa.Table, new: pa.Table, groups: Iterable[tuple[int, str]] = ()) -> pa.Table:
    """Merge known runs and new ones.

    Args:
        known: Known runs of all windows that the new ones may belong to. Facts of groups about
            rows that are neither known nor new are left out.
        new: As ``gather`` returns them.
        groups: The existing groups: number of the topic, name of the group.
    """
    new = pa.concat_tables([new, watched(new, groups)])
    of_groups = pc.and_(pc.is_in(new["kind"], pa.array(OF_GROUPS)), pc.is_null(new["bucket"]))
    rows = decided(pa.concat_tables([known, new.filter(pc.invert(of_groups))]))
    return merged(pa.concat_tables([rows, placed(new.filter(of_groups), rows)]))


def buckets_of(runs: pa.Table) -> list[int]:
    """Return the windows of the runs, in order."""
    found = np.unique(ints(runs["bucket"]))
    return [one for one in found.tolist() if one >= 0]


def judge(
    runs: pa.Table,
    policy: Policy,
    groups: Iterable[tuple[int, str]] = (),
    archived: Archived | None = None,
    topics: Container[int] | None = None,
) -> Judgement:
    """Judge all windows that the runs belong to.

    Args:
        runs: All known runs of these windows.
        policy: The rules, and the time.
        groups: The existing groups: number of the topic, name of the group.
        archived: Content of the archive; None: there is no archive.
        topics: Numbers of the existing topics; None: all exist.
    """
    groups = list(groups)
    rows, findings = [AUDIT.schema.empty_table()], [FINDINGS.schema.empty_table()]
    for bucket in buckets_of(runs):
        mine = _of(runs, bucket)
        found = Judged()
        found.add(judge_stored(bucket, mine, policy))
        found.add(judge_due(bucket, mine, topics, policy))
        found.add(judge_groups(bucket, mine, groups, policy))
        if archived is not None:
            there = _of(archived.runs, bucket)
            found.add(judge_archive(bucket, mine, there, archived.stands, archived.excused, policy))
        final = not any(row["verdict"] is Verdict.OPEN or row.get(OWED) for row in found.rows)
        for row in found.rows:
            row["final"] = final
        rows.append(rows_of(AUDIT, found.rows, bucket))
        findings.append(rows_of(FINDINGS, found.findings, bucket))
    return Judgement(pa.concat_tables(rows), pa.concat_tables(findings))


def _of(runs: pa.Table, bucket: int) -> pa.Table:
    return runs.filter(pc.equal(runs["bucket"].cast(pa.int64()), bucket))
