"""Whose the name of a replay is: the broker remembers it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.client.connection.connecting import options_of
from ternmq.model.errors import TransactionConflict
from ternmq.pipeline.replay.replay import Replay
from ternmq.pipeline.replay.select import Selection
from ternmq.spark.broker.bulk_port import BulkPort
from ternmq.spark.broker.connecting import Broker
from ternmq.testing import InProcessBroker


@pytest.fixture
def port(real: InProcessBroker) -> Iterator[BulkPort]:
    made = BulkPort(Broker((options_of(real.url, None, None, 5.0, 5.0).address,)))
    yield made
    made.close()


@pytest.fixture
def one(real: InProcessBroker) -> Replay:
    broker = Broker((options_of(real.url, None, None, 5.0, 5.0).address,))
    return Replay("two", "/tables", broker, "again", Selection("orders", keys=("a", "b")))


def highest(port: BulkPort) -> int | None:
    known = port.committed("replay/two")
    return None if known is None else known.highest


def test_a_name_is_kept_alive_by_every_day_that_it_is_used(one: Replay, port: BulkPort) -> None:
    one.check_name(port)
    assert highest(port) is None
    for day, known in ((20_000, 20_000), (20_000, 20_000), (20_040, 20_040), (20_001, 20_040)):
        one.take_name(port, day)
        assert highest(port) == known


@pytest.mark.parametrize("day", [20_000, 20_001])
def test_another_request_does_not_get_it(one: Replay, port: BulkPort, day: int) -> None:
    one.take_name(port, 20_000)
    for other in (
        replace(one, to_topic="other"),
        replace(one, tables="/others"),
        replace(one, selection=replace(one.selection, keys=("a",))),
        replace(one, selection=replace(one.selection, sets={"key": "upper(key)"})),
    ):
        with pytest.raises(TransactionConflict, match="use another --name"):
            other.check_name(port)
        with pytest.raises(TransactionConflict, match="use another --name"):
            other.take_name(port, day)
    same = replace(one, selection=replace(one.selection, keys=("b", "a"), mark="two"))
    same.check_name(port)
    same.take_name(port, day)
    assert highest(port) == day


def test_two_that_take_it_at_once(
    one: Replay, port: BulkPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker decides, where both asked before either had it."""
    one.take_name(port, 20_000)
    other = replace(one, to_topic="other")
    monkeypatch.setattr(BulkPort, "committed", lambda *_: None)
    with pytest.raises(TransactionConflict, match="the name two belongs to another replay"):
        other.take_name(port, 20_000)
