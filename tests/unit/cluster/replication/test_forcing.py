"""A loss that an operator accepts: what is known of it, who may lead, what others may cut."""

from __future__ import annotations

import msgspec
import pytest

from ternmq.cluster.coordination.loss import Loss, gap, goes_first, loss_of, recorded
from ternmq.cluster.coordination.record import (
    Floor,
    Leadership,
    Member,
    Progress,
    Reach,
    Writer,
    Writes,
    pack,
)
from ternmq.cluster.replication.forcing import Held, forced
from ternmq.cluster.replication.standing import MayNotStand
from ternmq.model.types import Epoch, Position

A, B, C = Member("a", 1), Member("b", 2), Member("c", 3)
RECORD = Leadership(
    version=7,
    writer=Writer("a", 1, 3),
    journal=99,
    epoch=Epoch(5),
    primary="a",
    members=(A,),
    floor=Floor(Epoch(5), Position(1000), 17),
    writes=Writes.CLOSED,
    kept={"later": b"\x01"},
)
PROGRESS = Progress(Epoch(5), Position(3000))
LAST = Floor(Epoch(5), Position(1960), 3)


def reach(epoch: int, end: int, committed: int) -> Reach:
    return Reach(Epoch(epoch), Position(end), Position(committed))


HELD = Held(reach(5, 2000, 1900), LAST)


def leads(
    record: Leadership = RECORD,
    held: Held | None = HELD,
    running: dict[str, int] | None = None,
    accepted: int = 2000,
) -> Leadership:
    return forced(
        record, B, held, running or {"b": 2}, Position(accepted), Writer("b", 2, 1),
        record.writes, "an operator accepted loss", 5,
    )  # fmt: skip


# -- what is known --------------------------------------------------------------------------------


def test_what_is_missing_is_what_the_group_had_and_the_copy_has_not() -> None:
    found = gap(RECORD, PROGRESS, HELD.reach)
    assert (found.recorded, found.shared, found.promised) == (3000, 2000, 1900)
    assert found.missing_bytes == 1000
    assert gap(RECORD, None, HELD.reach).recorded == 1000  # the floor is there
    assert gap(RECORD, None, HELD.reach).missing_bytes == 0


def test_a_copy_of_an_earlier_reign_parts_at_the_floor_at_the_latest() -> None:
    found = gap(RECORD, PROGRESS, reach(4, 2000, 900))
    assert (found.shared, found.promised, found.missing_bytes) == (1000, 900, 2000)


def test_a_copy_of_the_time_before_a_loss_has_nothing_of_what_came_after() -> None:
    record = leads()
    told = reach(5, 2990, 2990)  # the old primary, with what it had answered alone
    found = gap(msgspec.structs.replace(record, floor=None), None, told)
    assert (found.shared, found.promised) == (1900, 1900)


def test_the_progress_of_a_reign_before_the_loss_is_not_wanted_any_more() -> None:
    assert recorded(RECORD, PROGRESS) == 3000
    assert recorded(RECORD, Progress(Epoch(6), Position(1))) == 0
    after = leads()
    assert recorded(after, PROGRESS) == 1900
    assert recorded(after, Progress(Epoch(6), Position(2500))) == 2500


# -- who may lead ---------------------------------------------------------------------------------


def test_it_leads_alone_and_its_last_record_is_the_floor() -> None:
    made = leads()
    assert (made.version, made.epoch, made.primary, made.members) == (8, 6, "b", (B,))
    assert (made.cut_below, made.cut_epoch, made.cut_at_us) == (1900, 6, 5)
    assert made.floor == LAST
    assert (made.journal, made.writes, made.kept) == (99, Writes.CLOSED, RECORD.kept)
    assert loss_of(made) == Loss(Epoch(6), Position(1900))
    assert loss_of(RECORD) is None
    pack(made)


def test_a_second_loss_reaches_back_to_the_first_as_the_other_history_may_be_there_still() -> None:
    first = leads()
    again = leads(first, Held(reach(6, 5000, 4800), LAST), {}, 5000)
    assert (again.cut_below, again.cut_epoch) == (1900, 7)
    further = msgspec.structs.replace(first, cut_below=Position(4900))
    assert leads(further, Held(reach(6, 5000, 4800), LAST), {}, 5000).cut_below == 4800


def test_a_mark_beyond_its_end_says_no_more_than_its_end() -> None:
    assert leads(held=Held(reach(5, 2000, 2500), LAST)).cut_below == 2000


@pytest.mark.parametrize(
    ("running", "first"),
    [
        ({"b": 2}, ""),
        ({"a": 1, "b": 2}, "a"),
        ({"a": 77, "b": 2}, "a"),  # another life: it can begin again with its disk
        ({"b": 2, "c": 3}, "c"),
        ({"b": 2, "c": 4}, ""),  # its process is over
        ({"b": 2, "d": 4}, "d"),  # acknowledges what its disk has
        ({"b": 2, "e": 5}, ""),  # no member
    ],
)
def test_nobody_leads_so_beside_one_that_has_what_was_answered(
    running: dict[str, int], first: str
) -> None:
    record = msgspec.structs.replace(RECORD, members=(A, C, Member("d", 0)))
    assert goes_first(record, running, "b") == first
    if first:
        with pytest.raises(MayNotStand, match=f"{first} runs"):
            leads(record, running=running)
    else:
        assert leads(record, running=running).members == (B,)


def test_the_recorded_primary_is_not_in_its_own_way() -> None:
    assert goes_first(RECORD, {"a": 9}, "a") == ""


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (None, "is empty"),
        (Held(reach(5, 1999, 1900), LAST), "reaches to 1999, and the operator accepted"),
        (Held(reach(6, 2000, 1900), LAST), "records of epoch 6"),
    ],
)
def test_a_journal_that_the_operator_did_not_mean_does_not_lead(
    held: Held | None, text: str
) -> None:
    with pytest.raises(MayNotStand, match=text):
        leads(held=held)


# -- what others may cut --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "followed", "left"),
    [
        (5, 6, 1900),  # all its records are of the time before
        (5, 8, 1900),
        (6, 6, 2500),  # it has a record of the new reign: its mark is a promise again
        (5, 5, 2500),  # the primary is not of the new history
    ],
)
def test_the_commit_mark_counts_less_before_the_first_record_of_the_new_reign(
    last: int, followed: int, left: int
) -> None:
    loss = Loss(Epoch(6), Position(1900))
    assert loss.promised(Position(2500), Epoch(last), Epoch(followed)) == left
    assert loss.promised(Position(1200), Epoch(last), Epoch(followed)) == 1200
