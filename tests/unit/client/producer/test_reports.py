"""What a producer tells of itself."""

from __future__ import annotations

import pytest

from ternmq.client.producer.reports import _ENTRIES, BUCKET_US, MAX_RUNS, Counts
from ternmq.wire.control import Report, ReportEntry, SequenceRun

NOW = BUCKET_US + 5


def entry(reports: list[Report]) -> ReportEntry:
    (report,) = reports
    (one,) = report.entries
    return one


def test_counts_are_cumulative_and_name_their_sequences() -> None:
    counts = Counts()
    counts.sent("orders", NOW, 3, 5)
    first = entry(counts.reports(7, NOW))
    assert first == ReportEntry(bucket_us=BUCKET_US, sent=5, given_up=0, first=3, stop=8)
    counts.sent("orders", NOW, 20, 1)
    again = entry(counts.reports(7, NOW))
    assert (again.sent, again.first, again.stop, again.closed) == (6, 3, 21, False)
    assert counts.reports(7, NOW) == []


def test_what_was_given_up_is_named() -> None:
    counts = Counts()
    counts.sent("orders", NOW, 1, 10)
    for first in (2, 3, 7):
        counts.given_up("orders", NOW, first, 1)
    one = entry(counts.reports(7, NOW))
    assert one.given_up == 3
    assert one.runs == [SequenceRun(first=2, stop=4), SequenceRun(first=7, stop=8)]


def test_what_was_left_out_is_named_too() -> None:
    counts = Counts()
    counts.sent("orders", NOW, 1, 10)
    counts.answered("orders", 3, NOW, 1, 10)
    counts.left_out("orders", 3, NOW, [4, 5, 9])
    one = entry(counts.reports(7, NOW))
    assert (one.given_up, one.left_out) == (0, 3)
    assert one.runs == [SequenceRun(first=4, stop=6), SequenceRun(first=9, stop=10)]


def test_runs_have_a_cap_and_the_count_goes_on() -> None:
    counts = Counts()
    for number in range(MAX_RUNS + 5):
        counts.given_up("orders", NOW, 2 * number, 1)
    one = entry(counts.reports(7, NOW))
    assert (one.given_up, len(one.runs)) == (MAX_RUNS + 5, MAX_RUNS)


def test_a_bucket_is_told_once_more_when_it_is_over() -> None:
    counts = Counts()
    counts.sent("orders", NOW, 1, 1)
    assert not entry(counts.reports(7, NOW)).closed
    assert counts.reports(7, 2 * BUCKET_US - 1) == []
    assert entry(counts.reports(7, 2 * BUCKET_US)).closed
    assert counts.reports(7, 2 * BUCKET_US) == []


@pytest.mark.parametrize("told", [False, True])
def test_a_producer_that_ends_closes_what_it_sent(told: bool) -> None:
    counts = Counts()
    counts.sent("orders", NOW, 1, 1)
    if told:
        counts.reports(7, NOW)
    assert entry(counts.reports(7, NOW, ends=True)).closed


def test_a_clock_that_goes_back_opens_a_bucket_again() -> None:
    counts = Counts()
    counts.sent("orders", NOW, 1, 1)
    counts.reports(7, 2 * BUCKET_US)
    counts.sent("orders", NOW, 2, 1)
    one = entry(counts.reports(7, NOW))
    assert (one.sent, one.closed) == (2, False)


def test_a_report_has_room_for_all_that_waited() -> None:
    counts = Counts()
    for bucket in range(_ENTRIES + 1):
        counts.sent("orders", bucket * BUCKET_US, bucket, 1)
    first, second = counts.reports(7, 0)
    assert (len(first.entries), len(second.entries)) == (_ENTRIES, 1)


def told(counts: Counts, now_us: int = NOW, *, ends: bool = False) -> dict[int, tuple[object, ...]]:
    """Return what is reported of each topic, by its number."""
    found: dict[int, tuple[object, ...]] = {}
    for report in counts.reports(7, now_us, ends=ends):
        (one,) = report.entries
        found[report.topic_number] = (one.sent, one.first, one.stop, one.closed)
    return found


def test_a_topic_that_is_made_again_has_counts_of_its_own() -> None:
    counts = Counts()
    counts.sent("orders", NOW, 1, 10)
    counts.answered("orders", 3, NOW, 1, 10)
    assert told(counts) == {3: (10, 1, 11, False)}
    counts.sent("orders", NOW, 11, 2)
    counts.answered("orders", 8, NOW, 11, 2)
    counts.sent("orders", NOW, 13, 4)
    counts.answered("orders", 8, NOW, 13, 4)
    assert told(counts) == {3: (10, 1, 13, True), 8: (6, 11, 17, False)}
    assert told(counts, ends=True) == {8: (6, 11, 17, True)}


def test_answers_of_two_topics_of_one_name_come_in_any_order() -> None:
    counts = Counts()
    for first in range(1, 41, 10):
        counts.sent("orders", NOW, first, 10)
    for number, start in ((8, 31), (3, 1), (8, 21), (3, 11)):
        counts.answered("orders", number, NOW, start, 10)
    counts.left_out("orders", 3, NOW, [12])
    by_number = {one.topic_number: one.entries[0] for one in counts.reports(7, NOW)}
    assert (by_number[3].sent, by_number[3].left_out) == (20, 1)
    assert (by_number[8].sent, by_number[8].left_out) == (20, 0)


def test_a_report_that_did_not_arrive_is_of_the_topic_that_it_was_of() -> None:
    counts = Counts()
    counts.sent("orders", NOW, 1, 10)
    (unknown,) = counts.reports(7, NOW)
    counts.answered("orders", 3, NOW, 1, 10)
    counts.again(unknown)
    (first,) = counts.reports(7, NOW)
    assert first.topic_number == 3
    counts.sent("orders", NOW, 11, 2)
    counts.answered("orders", 8, NOW, 11, 2)
    both = counts.reports(7, NOW)
    for one in both:
        counts.again(one)
    assert [one.topic_number for one in counts.reports(7, NOW)] == [3, 8]


def test_a_topic_that_is_gone_is_forgotten_in_time() -> None:
    counts = Counts()
    for number in range(1, 5):
        counts.sent("orders", NOW, number, 1)
        counts.answered("orders", number, NOW, number, 1)
    counts.reports(7, NOW)
    later = NOW + 4 * BUCKET_US
    assert counts.reports(7, later)
    assert counts.reports(7, later) == []
    counts.sent("orders", later, 9, 1)
    counts.answered("orders", 4, later, 9, 1)
    assert [one.topic_number for one in counts.reports(7, later)] == [4]


def test_an_answer_that_comes_when_its_bucket_is_forgotten_reports_no_empty_one() -> None:
    counts = Counts()
    counts.sent("orders", NOW, 1, 1)
    counts.answered("orders", 3, NOW, 1, 1)
    counts.sent("orders", NOW, 2, 5)
    later = NOW + 5 * BUCKET_US
    counts.reports(7, later)
    counts.reports(7, later)
    counts.answered("orders", 8, NOW, 2, 5)
    assert told(counts, later) == {8: (5, 2, 7, True)}
