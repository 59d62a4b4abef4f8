"""The windows in which a job can be cut: each row is written once, whichever it is.

``engine`` has the windows W1 to W8. The others are about what changes meanwhile: a checkpoint that
is lost (W9) or copied (W10), a queue that comes (W11), rows that go (W12), a broker that is another
one for a moment (W13), tasks that run twice (W14). With a Spark that is real, W4 to W9 and W12 are
in ``tests/spark`` (``test_exactly_once``, ``test_windows``); W12 at a broker that removes segments
in ``tests/integration/test_spark_retention.py``; W15, another release of Spark, in
``tests/spark/matrix.py``.
"""

from __future__ import annotations

import copy

import pytest

from ternmq.model.errors import ConnectionLost, DataLoss, OptionError
from ternmq.spark.broker.port import Transaction
from tests.unit.spark.fake_port import LOST, FakeBroker, Queue, TransactionConflict

pytest.importorskip("pyarrow")

from tests.unit.spark.engine import WINDOWS, Checkpoint, DiedError, Run

WRITER = {"writerId": "copy"}
ONCE = {**WRITER, "delivery": "exactly_once"}


@pytest.fixture(params=[1, 3])
def broker(request):
    made = FakeBroker(orders=request.param, out=request.param)
    fill(made, 0, 30)
    return made


def fill(broker, first, count):
    queues = len(broker.topics["orders"])
    for number in range(first, first + count):
        broker.put("orders", b"%d" % number, queue=number % queues)


def copied(broker):
    return sorted(int(body) for body in broker.bodies("out"))


def die(broker, window, work, **more):
    """Run it until it dies there, or fails there."""
    if window == "W6":
        broker.fail("commit_prepared.after", LOST)
    with pytest.raises((DiedError, ConnectionLost)):
        work(Run(broker, die_at=window, **more))
    assert not broker.failures.get("commit_prepared.after")


# -- W1 to W8


@pytest.mark.row("R4")
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("die_in", [1, 2])
def test_a_stream(broker, window, die_in):
    """Batch 0 only says where the query begins; 1 is the first with rows."""
    checkpoint = Checkpoint()
    if die_in == 2 and window == "W6":  # others are over when the answer is lost
        Run(broker, limit=30).stream(checkpoint)
        fill(broker, 30, 8)
    die(broker, window, lambda run: run.stream(checkpoint), die_in=die_in)
    fill(broker, 100, 5)
    Run(broker, limit=3).stream(checkpoint)
    wanted = sorted(int(body) for body in broker.bodies("orders"))
    assert copied(broker) == wanted
    assert broker.prepared == {}
    assert broker.open == 0


@pytest.mark.row("R4")
@pytest.mark.parametrize("window", WINDOWS)
def test_a_batch_job(broker, window):
    """It is run again under the same name; what is visible already has no second effect."""
    die(broker, window, lambda run: run.batch(), written=ONCE)
    visible = window in {"W6", "W7", "W8"}
    assert copied(broker) == (list(range(30)) if visible else [])
    Run(broker, written=ONCE).batch()
    assert copied(broker) == list(range(30))
    assert broker.prepared == {}
    assert broker.open == 0


@pytest.mark.parametrize("window", ["W6", "W7", "W8"])
def test_a_batch_job_over_other_rows_is_not_the_same_one(broker, window):
    die(broker, window, lambda run: run.batch(), written=ONCE)
    fill(broker, 30, 5)
    with pytest.raises(TransactionConflict):
        Run(broker, written=ONCE).batch()
    assert copied(broker) == list(range(30))


@pytest.mark.row("R4")
@pytest.mark.parametrize("first", WINDOWS)
@pytest.mark.parametrize("second", WINDOWS)
def test_a_stream_that_is_cut_twice(broker, first, second):
    checkpoint = Checkpoint()
    for window in (first, second):
        die(broker, window, lambda run: run.stream(checkpoint), die_in=_next(checkpoint, window))
        fill(broker, len(broker.bodies("orders")), 5)
    Run(broker).stream(checkpoint)
    assert copied(broker) == sorted(int(body) for body in broker.bodies("orders"))


def _next(checkpoint, window):
    """Return the next batch that comes to a window; one that is written down is planned."""
    known = checkpoint.offsets if window == "W1" else checkpoint.commits
    return max(1, max(known, default=0) + 1)


def test_the_pretended_spark_writes_twice_without_transactions(broker):
    """What is shown above is not the pretended Spark's doing."""
    checkpoint, plain = Checkpoint(), {"delivery": "at_least_once"}
    die(broker, "W7", lambda run: run.stream(checkpoint), written=plain)
    Run(broker, written=plain).stream(checkpoint)
    assert len(copied(broker)) > 30
    assert set(copied(broker)) == set(range(30))


@pytest.mark.row("R2")
@pytest.mark.parametrize("window", ["W2", "W7", "W8"])
def test_where_a_query_begins_is_written_down_first(broker, window):
    """It begins with what is new: nothing is passed over before its first batch is over."""
    checkpoint, latest = Checkpoint(), {"startingOffsets": "latest"}
    die(broker, window, lambda run: run.stream(checkpoint), die_in=0, read=latest)
    fill(broker, 30, 5)
    die(broker, "W5", lambda run: run.stream(checkpoint), read=latest)
    fill(broker, 35, 5)
    Run(broker, read=latest).stream(checkpoint)
    assert copied(broker) == list(range(30, 40))


# -- W9, W10


@pytest.mark.row("R4")
def test_a_checkpoint_that_is_lost(broker):
    """W9: the same batches again have no effect; another one under a number is noticed."""
    Run(broker, written=WRITER).stream(Checkpoint())
    Run(broker, written=WRITER).stream(Checkpoint("query-2"))
    assert copied(broker) == list(range(30))
    fill(broker, 30, 1)
    with pytest.raises(TransactionConflict):
        Run(broker, written=WRITER).stream(Checkpoint("query-3"))
    assert copied(broker) == list(range(30))


@pytest.mark.row("R4")
@pytest.mark.parametrize("window", WINDOWS)
def test_a_checkpoint_that_is_copied_and_run_twice(broker, window):
    """W10: both do the same."""
    checkpoint = Checkpoint()
    die(broker, window, lambda run: run.stream(checkpoint))
    twin = copy.deepcopy(checkpoint)
    Run(broker).stream(checkpoint)
    Run(broker).stream(twin)
    assert copied(broker) == list(range(30))
    assert checkpoint == twin


@pytest.mark.row("R4")
def test_a_copied_checkpoint_with_other_batches_is_refused(broker):
    checkpoint = Checkpoint()
    die(broker, "W1", lambda run: run.stream(checkpoint))
    twin = copy.deepcopy(checkpoint)
    Run(broker).stream(checkpoint)
    with pytest.raises(TransactionConflict):
        Run(broker, limit=5).stream(twin)
    assert copied(broker) == list(range(30))


# -- W11


@pytest.mark.row("R4")
@pytest.mark.parametrize("window", WINDOWS)
def test_a_queue_that_comes_meanwhile(broker, window):
    checkpoint = Checkpoint()
    die(broker, window, lambda run: run.stream(checkpoint))
    broker.topics["orders"].append(Queue())
    queue = len(broker.topics["orders"]) - 1
    for number in range(30, 35):
        broker.put("orders", b"%d" % number, queue=queue)
    Run(broker).stream(checkpoint)
    assert copied(broker) == list(range(35))


def test_a_queue_that_comes_after_the_plan_of_a_batch_job(broker, monkeypatch):
    before = Run._batch

    def grown(run, *arguments):
        broker.topics["orders"].append(Queue())
        broker.put("orders", b"99", queue=len(broker.topics["orders"]) - 1)
        before(run, *arguments)

    monkeypatch.setattr(Run, "_batch", grown)
    Run(broker, written=ONCE).batch()
    assert copied(broker) == list(range(30))


# -- W12


def expire(broker):
    """Keep nothing of the first queue but its last row; return how many rows are gone."""
    queue = broker.topics["orders"][0]
    gone = [int(body) for body in broker.bodies("orders")[: queue.next - 1]]
    broker.expire("orders", 0, queue.next - 1)
    return gone


@pytest.mark.row("R4")
@pytest.mark.parametrize("window", ["W2", "W3", "W4", "W5"])
def test_rows_of_a_batch_that_is_written_down_are_gone(broker, window):
    checkpoint = Checkpoint()
    die(broker, window, lambda run: run.stream(checkpoint))
    gone = expire(broker)
    with pytest.raises(DataLoss):
        Run(broker).stream(checkpoint)
    assert copied(broker) == []
    Run(broker, lenient=True).stream(checkpoint)
    assert copied(broker) == sorted(set(range(30)) - set(gone))


@pytest.mark.row("R4")
def test_rows_are_gone_after_the_plan_of_a_batch_job(broker, monkeypatch):
    before, gone = Run._batch, []

    def late(run, *arguments):
        gone.extend(expire(broker))
        before(run, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_batch", late)
        with pytest.raises(DataLoss):
            Run(broker, written=ONCE).batch()
    assert copied(broker) == []
    Run(broker, written=ONCE, lenient=True).batch()
    assert copied(broker) == sorted(set(range(30)) - set(gone))


@pytest.mark.row("R4")
def test_a_batch_that_is_visible_is_not_visible_in_part(broker):
    """W7, then W12: what is run again is less than what was committed, and is refused."""
    checkpoint = Checkpoint()
    die(broker, "W7", lambda run: run.stream(checkpoint))
    seen = copied(broker)
    broker.expire("orders", 0, 1)
    with pytest.raises(TransactionConflict):
        Run(broker, lenient=True).stream(checkpoint)
    assert copied(broker) == seen


# -- W13, W14


@pytest.mark.row("R4")
@pytest.mark.parametrize("what", ["fetch", "prepare", "commit_prepared", "abort_prepared"])
def test_a_broker_that_is_another_one_for_a_moment(broker, what):
    checkpoint = Checkpoint()
    broker.fail(what, LOST)
    if what == "abort_prepared":
        broker.fail("commit_prepared", LOST)
    for _ in range(3):
        try:
            Run(broker).stream(checkpoint)
        except ConnectionLost:
            continue
        break
    assert copied(broker) == list(range(30))
    assert not any(broker.failures.values())


@pytest.mark.row("R4")
@pytest.mark.parametrize("window", ["", *WINDOWS])
def test_every_task_has_a_twin(broker, window):
    checkpoint = Checkpoint()
    if window:
        die(broker, window, lambda run: run.stream(checkpoint), twins=True)
    Run(broker, twins=True).stream(checkpoint)
    assert copied(broker) == list(range(30))
    assert broker.prepared == {}
    Run(broker, twins=True, written={**ONCE, "writerId": "job"}).batch()
    assert copied(broker) == sorted([*range(30), *range(30)])
    assert Transaction("job", 0) in broker.committed


def test_a_checkpoint_of_another_source_is_named(broker):
    with pytest.raises(OptionError, match="to another source"):
        Run(broker).stream(Checkpoint(offsets={0: '{"position": 5}'}, commits={0}))
