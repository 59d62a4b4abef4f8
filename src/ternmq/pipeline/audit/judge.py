"""The audit of a window: what producers sent against what is stored.

A producer's sequences run without a gap. For each topic it reports how many messages it sent, the
first and last sequence, which it gave up, and when the window is complete. So missing messages are
known by number and by name, without the broker's help. Only topics whose counts or sums differ are
examined further.

Everything is a function of runs (module ``runs``) and of ``Policy``; the same runs give the same
rows at any later time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ternmq.pipeline.audit.missing import Missing
from ternmq.pipeline.audit.policy import (
    Judged,
    Policy,
    Row,
    Verdict,
    worst,
)
from ternmq.pipeline.audit.spans import totals
from ternmq.pipeline.audit.stored import Stored


def judge_stored(bucket_us: int, runs: pa.Table, policy: Policy) -> Judged:
    """Compare what producers sent with what the broker stored.

    Args:
        bucket_us: Beginning of the window.
        runs: All known runs of the window.
        policy: The rules.
    """
    return _judged(Stored(bucket_us, runs, policy))


def _judged(stored: Stored) -> Judged:
    found = Judged()
    if not stored.count:
        return found
    stored.measure()
    early = stored.policy.open(stored.bucket_us)
    whole = stored.policy.whole(stored.bucket_us)
    topics = len(stored.topics)
    of = stored.topics.index
    lost = np.zeros(topics, np.int64)
    unsure = np.zeros(topics, np.bool_)
    unverified = np.zeros(topics, np.int64)
    if not early:
        if whole:
            missing = Missing(stored, stored.unequal())
            lost, unsure = missing.lost, missing.unsure
            found.findings += missing.findings
        found.findings += stored.doubled()
        found.findings += stored.late_ones()
        unverified = stored.unverified(found, whole=whole)
    amount = {
        "producers": totals(of, np.ones(stored.count, np.int64), topics),
        "unverified": unverified,
        "sent": totals(of, stored.sent, topics),
        "stored": totals(of, stored.rows, topics),
        "left_out": totals(of, np.maximum(stored.left, stored.told_left), topics),
        "given_up": totals(of, stored.gave, topics),
        "lost": lost,
        "doubled": totals(of, stored.extra, topics),
        "late": totals(of, stored.late, topics),
        "stored_sum": stored.stored_sum,
        "sent_sum": stored.sent_sum,
    }
    undecided = totals(of[stored.prepared.key], stored.prepared.spans.lengths, topics)
    counted = totals(of, stored.told.astype(np.int64), topics)
    for at in range(topics):
        row: Row = {name: int(values[at]) for name, values in amount.items()}
        if not counted[at]:
            row["sent"] = row["given_up"] = None
        if not stored.dense[at]:
            row["sent_sum"] = None
        if early:
            row["stored_sum"] = None
        verdict = worst(
            (early or undecided[at], Verdict.OPEN),
            (row["lost"], Verdict.LOST),
            (row["doubled"], Verdict.DOUBLED),
            (not whole or unsure[at] or row["unverified"], Verdict.UNVERIFIED),
            (row["late"], Verdict.LATE),
        )
        found.rows.append({"tier": "stored", **stored.topics.of(at), **row, "verdict": verdict})
    for one in found.findings:
        one["tier"] = "stored"
    return found
