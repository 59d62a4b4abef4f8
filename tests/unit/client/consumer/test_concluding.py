"""What is logged of a failure whose lease is held, past its end, or lost; also in batches."""

from __future__ import annotations

import asyncio
import logging
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ternmq.client.consumer.concluding import Reject, Retry, conclude
from ternmq.client.consumer.deliveries import Deliveries, Leased, conclude_all
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.lease import Lease
from ternmq.model.errors import OutcomeUnknown
from ternmq.model.specs import RetryPolicy
from ternmq.record.fact.facts import Outcome

FAILURES = [ValueError("boom"), Retry("busy"), Reject("never")]


class Settler:
    """Collects what is settled; the policy has one attempt."""

    loop = None

    def __init__(self) -> None:
        self.policies = SimpleNamespace(of=lambda topic, group: RetryPolicy(attempts=1))

    def dirty(self, lease: Lease) -> None:
        lease.dirty = True


def lease_of(rows: int, *, past: bool = False) -> Lease:
    """Return a lease of rows 0 to ``rows``; with ``past`` its time is over."""
    began = time.monotonic() - (60 if past else 0)
    return Lease(
        cast("Any", Settler()), "t", "g", 0, 1, 1, [(0, rows)], 30_000_000, 0, began=began
    )  # fmt: skip


def chunk_of(rows: int) -> Any:
    return SimpleNamespace(offset=0, count=rows, queue=0, attempt=1, row=0)


def one_of(lease: Lease) -> Delivery:
    return Delivery("t", chunk_of(1), 0, lease, cast("Any", None))


def batch_of(*leases: Lease) -> Deliveries:
    parts = [Leased(lease, [chunk_of(lease.rows)]) for lease in leases]
    return Deliveries("t", parts, cast("Any", None))


def settled(lease: Lease) -> set[int]:
    """Return the outcomes that were recorded."""
    return {outcome for outcome, _, _ in lease.verdicts}


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_failure_whose_lease_is_lost_settles_nothing(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    lease = lease_of(1)
    lease.lost = True
    assert conclude(one_of(lease), error)
    (line,) = caplog.messages
    how = {Retry: "asked for a retry", Reject: "was rejected"}.get(type(error), "failed")
    start = f"<Delivery t/0/0 attempt 1> {how} after its lease had ended; nothing was settled"
    assert line.startswith(start)
    assert settled(lease) == set()
    assert (caplog.records[0].exc_info is not None) == isinstance(error, ValueError)


def test_a_failure_that_is_raised_on_is_told_without_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lease = lease_of(1)
    lease.lost = True
    assert not conclude(one_of(lease), ValueError("boom"), reraise=True)
    (record,) = caplog.records
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert "failed after its lease had ended; nothing was settled: ValueError" in caplog.text


def test_a_failure_after_an_ack_says_that_it_was_settled(caplog: pytest.LogCaptureFixture) -> None:
    lease = lease_of(1)
    delivery = one_of(lease)
    delivery.settle_soon(Outcome.DONE, "", None)
    assert conclude(delivery, ValueError("boom"))
    (line,) = caplog.messages
    assert line == "<Delivery t/0/0 attempt 1> failed after it was settled"


def test_a_failure_of_a_commit_does_not_say_that_the_message_was_settled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lease = lease_of(1)
    delivery = one_of(lease)
    delivery.settle_soon(Outcome.DONE, "", None)  # as an ack in a transaction does
    assert conclude(delivery, OutcomeUnknown("there was no answer to the commit"))
    (line,) = caplog.messages
    assert line == (
        "<Delivery t/0/0 attempt 1> failed and whether its transaction was committed is not known"
    )


def test_a_row_that_was_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    lease = lease_of(1)
    lease.lose_rows([(0, 1)], "an earlier one comes again")
    conclude(one_of(lease), ValueError("boom"))
    assert "failed after it was taken back (an earlier one comes again); nothing" in caplog.text
    assert "was processed" not in caplog.text


def test_a_cancelled_one_was_not_processed(caplog: pytest.LogCaptureFixture) -> None:
    lease = lease_of(1)
    lease.lost = True
    assert not conclude(one_of(lease), asyncio.CancelledError())
    assert caplog.messages == []


def test_one_that_ends_well_was_processed(caplog: pytest.LogCaptureFixture) -> None:
    lease = lease_of(1)
    lease.lost = True
    conclude(one_of(lease), None)
    assert "was processed after its lease had ended; it is delivered again, unless" in caplog.text


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_the_fate_is_not_certain_when_the_lease_is_past_its_end(
    error: Exception, past: bool, caplog: pytest.LogCaptureFixture
) -> None:
    lease = lease_of(1, past=past)
    conclude(one_of(lease), error)
    (line,) = caplog.messages
    assert "a dead letter now" in line
    assert ("a dead letter now, unless its lease has ended" in line) == past
    wanted = Outcome.DEAD if isinstance(error, Reject) else Outcome.RETRY
    assert settled(lease) == {wanted}, "the broker decides"


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_batch_of_which_nothing_is_held(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    lease = lease_of(3)
    lease.lost = True
    assert conclude_all(batch_of(lease), error)
    (line,) = caplog.messages
    assert "after their leases had ended; nothing was settled" in line
    assert not any(word in line for word in ("dead letter", "retried", "processed"))
    assert settled(lease) == set()


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_batch_of_which_some_are_held(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    lost, held = lease_of(2), lease_of(3)
    lost.lost = True
    conclude_all(batch_of(lost, held), error)
    (line,) = caplog.messages
    assert ", except 2 whose lease had ended" in line
    assert (settled(lost), len(settled(held)), held.left) == (set(), 1, 0)


def test_a_batch_whose_lease_is_past_its_end(caplog: pytest.LogCaptureFixture) -> None:
    conclude_all(batch_of(lease_of(2, past=True)), Reject("never"))
    (line,) = caplog.messages
    assert "are dead letters now, except those whose lease has ended: rejected: never" in line


def test_a_batch_that_was_settled_before_is_not_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lease = lease_of(2)
    lease.settle(0, 2, Outcome.DONE)
    conclude_all(batch_of(lease), ValueError("boom"))
    (line,) = caplog.messages
    assert line.endswith("failed after all of them were settled or lost")
