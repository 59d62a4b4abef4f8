"""The series of groups: in pieces of so many queues, of so many groups, while groups go."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ternmq.broker.query.messages import Queries
from ternmq.model.assignments import Assignment
from ternmq.model.specs import Mode
from ternmq.record.fact.facts import Outcome
from ternmq.server.metrics import groups as group_series
from ternmq.server.metrics.groups import FAMILIES, GroupSeries, series_of
from tests.unit.broker.kit import World


def world_of(groups: int) -> World:
    world = World()
    for number in range(groups):
        world.topic(f"t{number}")
        world.group(f"t{number}", "g")
    return world


def shown(series: GroupSeries) -> dict[tuple[str, str], float]:
    """Return what was written, by name of the metric and topic."""
    text = b"".join(series.text()).decode()
    return {
        (sample.name, sample.labels["topic"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def lags(series: GroupSeries) -> set[str]:
    return {topic for name, topic in shown(series) if name == "ternmq_group_lag"}


def test_a_piece_is_of_so_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_series, "PIECE_QUEUES", 6)
    series = GroupSeries(Queries(world_of(7).broker.ledger), 100)
    steps = [len(lags(series))]
    while series.step():
        steps.append(len(lags(series)))
    assert steps == [0, 2, 4, 6]
    assert lags(series) == {f"t{number}" for number in range(7)}


def test_one_group_of_many_queues_is_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_series, "PIECE_QUEUES", 2)
    world = World()
    world.topic("wide", queues=9)
    world.group("wide", "g")
    world.topic("next")
    world.group("next", "g")
    series = GroupSeries(Queries(world.broker.ledger), 100)
    assert series.step()
    assert lags(series) == {"wide"}
    assert not series.step()
    assert lags(series) == {"wide", "next"}


def test_groups_that_were_made_first_have_series() -> None:
    world = world_of(5)
    queries = Queries(world.broker.ledger)

    def seen() -> set[str]:
        series = GroupSeries(queries, 3)
        while series.step():
            pass
        return lags(series)

    assert seen() == {"t0", "t1", "t2"}
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t1"))
    assert seen() == {"t0", "t2", "t3"}
    none = GroupSeries(queries, 0)
    assert not none.step()
    assert lags(none) == set()


def test_groups_come_and_go_between_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_series, "PIECE_QUEUES", 3)
    world = world_of(6)
    series = GroupSeries(Queries(world.broker.ledger), 100)
    other = GroupSeries(Queries(world.broker.ledger), 100)
    assert series.step()
    for name in ("t0", "t1", "t4"):
        world.run(lambda name=name: world.broker.administration.delete_topic(world.now, name))  # type: ignore[misc]
    world.topic("late")
    world.group("late", "g")
    while series.step():
        assert other.step(), "two looks do not disturb each other"
    assert lags(series) == {"t0", "t2", "t3", "t5", "late"}
    while other.step():
        pass
    assert lags(other) == {"t2", "t3", "t5", "late"}


def test_it_says_how_groups_stand() -> None:
    world = world_of(2)
    session = world.join()
    world.send("t1", 5)
    world.pull(session, "t1", "g", 2)
    one = world.broker.views.catalog.subscription("t1", "g")
    one.counted().delivered += 2
    one.counted().settled["done"] = 7
    series = GroupSeries(Queries(world.broker.ledger), 100)
    assert not series.step()
    found = shown(series)
    assert {name: value for (name, topic), value in found.items() if topic == "t1"} == {
        "ternmq_delivered_total": 2,
        "ternmq_settled_total": 7,
        "ternmq_group_lag": 3,
        "ternmq_group_leased": 2,
        "ternmq_group_ready": 0,
        "ternmq_group_retrying": 0,
        "ternmq_group_retries_due": 0,
        "ternmq_group_dead_letters": 0,
    }
    told = series_of(Queries(world.broker.ledger), one)
    assert sorted(told.values()) == [0, 0, 0, 0, 2, 2, 3, 7]
    of_members = {"ternmq_group_members", "ternmq_group_unowned_queues"}
    assert {name.partition("{")[0] for name in told} == {one.name for one in FAMILIES} - of_members


def test_of_groups_with_members_it_says_how_many_and_which_queues_belong_to_nobody() -> None:
    world = World()
    world.topic("t", queues=5)
    world.group("t", "none", mode=Mode.OWNED)
    assign = (Assignment((0, 1), "billing*"), Assignment((4,), "web*"))
    world.group("t", "some", mode=Mode.OWNED, assign=assign)
    world.group("t", "shared")
    some = world.broker.views.catalog.subscription("t", "some")
    for name in ("billing-1", "billing-2"):
        session = world.join()
        world.broker.membership.join(world.now, session, some, name)
    queries = Queries(world.broker.ledger)
    series = GroupSeries(queries, 100)
    assert not series.step()
    lines = [line for line in b"".join(series.text()).decode().splitlines() if line[0] != "#"]
    shown = dict(line.rsplit(" ", 1) for line in lines)
    assert {
        name: value for name, value in shown.items() if "members" in name or "owned" in name
    } == {
        'ternmq_group_members{group="none",topic="t"}': "0",
        'ternmq_group_members{group="some",topic="t"}': "2",
        'ternmq_group_unowned_queues{group="none",topic="t"}': "5",
        'ternmq_group_unowned_queues{group="some",topic="t"}': "3",
    }
    told = series_of(queries, some)
    assert told['ternmq_group_members{group="some",topic="t"}'] == 2
    assert told['ternmq_group_unowned_queues{group="some",topic="t"}'] == 3


def test_a_retry_that_is_due_counts_until_a_consumer_fetches_it() -> None:
    world = world_of(1)
    session = world.join()
    world.send("t0", 2)
    pulled = world.pull(session, "t0", "g", 2)
    assert pulled is not None
    world.settle(session, "t0", "g", pulled, Outcome.RETRY, [(0, 2)])

    def due() -> float:
        series = GroupSeries(Queries(world.broker.ledger), 100)
        while series.step():
            pass
        found = shown(series)
        assert found["ternmq_group_retrying", "t0"] >= found["ternmq_group_retries_due", "t0"]
        return found["ternmq_group_retries_due", "t0"]

    assert due() == 0
    world.pass_time(10**9)
    assert due() == 2, "without anybody who asks"
    world.restart()
    world.pass_time(1)
    assert due() == 2
    assert world.pull(world.join(), "t0", "g", 1) is not None
    assert due() == 1
