"""How many messages are asked for ahead, by the times of messages."""

from __future__ import annotations

import pytest

from ternmq.client.consumer.prefetch import LONGEST_S, MOST_AHEAD, SPAN_S, Prefetch


def due(prefetch: Prefetch) -> bool:
    return prefetch.due


class Worker:
    """Handlers that take so long each, under a clock of their own."""

    def __init__(self, workers: int) -> None:
        self.prefetch = Prefetch(workers)
        self.now = 1000.0

    def pull(self, seconds: float, busy: int) -> int:
        """Let messages come, have one worked on; return how many are asked for ahead then."""
        self.prefetch.more(self.now, busy)
        assert due(self.prefetch)
        self.prefetch.begin(self.now)
        assert not due(self.prefetch)
        self.now += seconds
        self.prefetch.end(self.now, busy)
        return self.prefetch.size


def test_none_is_asked_for_before_one_was_timed() -> None:
    assert Prefetch(16).size == 0
    assert due(Prefetch(16))


@pytest.mark.parametrize(("workers", "seconds"), [(1, 0.2), (4, 2.0), (100, 60.0)])
def test_slow_handlers_have_nothing_ahead(workers: int, seconds: float) -> None:
    worker = Worker(workers)
    assert [worker.pull(seconds, workers) for _ in range(20)] == [0] * 20


def test_quick_handlers_ask_for_twice_as_many_each_time() -> None:
    worker = Worker(4)
    sizes = [worker.pull(0.00001, 4) for _ in range(10)]
    assert sizes == [8, 16, 32, 64, 128, 256, 512, 1024, MOST_AHEAD, MOST_AHEAD]


@pytest.mark.parametrize(("busy", "seconds"), [(1, 0.01), (4, 0.05), (16, 0.02)])
def test_it_is_what_the_handlers_do_in_a_span(busy: int, seconds: float) -> None:
    worker = Worker(busy)
    size = [worker.pull(seconds, busy) for _ in range(20)][-1]
    assert size == pytest.approx(busy * SPAN_S / seconds, abs=1)


def test_what_computes_in_the_loop_counts_once() -> None:
    """Of 16 workers one runs at a time: 5 ms each are 200 a second, not 3,200."""
    worker = Worker(16)
    assert [worker.pull(0.005, 1) for _ in range(5)][-1] == pytest.approx(20, abs=1)


def test_handlers_that_become_slow_come_down_in_a_few_steps() -> None:
    worker = Worker(1)
    for _ in range(12):
        worker.pull(0.00001, 1)
    assert [worker.pull(5.0, 1) for _ in range(6)] == [256, 64, 16, 4, 1, 0]


def test_one_slow_message_among_quick_ones_is_forgiven() -> None:
    worker = Worker(1)
    for _ in range(12):
        worker.pull(0.00001, 1)
    worker.pull(5.0, 1)
    assert [worker.pull(0.00001, 1) for _ in range(2)] == [512, 1024]


def test_a_message_that_takes_very_long_counts_as_it_stands() -> None:
    prefetch = Prefetch(4)
    prefetch.begin(0.0)
    prefetch.more(LONGEST_S / 2, 4)
    assert not due(prefetch)  # it is waited for
    prefetch.more(LONGEST_S * 2, 4)
    assert due(prefetch)
    assert prefetch.size == 0
    prefetch.begin(LONGEST_S * 2)
    prefetch.end(LONGEST_S * 2 + 0.001, 4)
    assert prefetch.size == 8


def test_a_lost_message_says_nothing() -> None:
    prefetch = Prefetch(1)
    prefetch.begin(0.0)
    prefetch.forget()
    prefetch.end(0.00001, 1)
    assert prefetch.size == 0
    prefetch.more(0.1, 1)
    assert due(prefetch)


def test_after_a_wait_that_was_too_long_it_begins_anew() -> None:
    worker = Worker(2)
    for _ in range(12):
        worker.pull(0.00001, 2)
    worker.prefetch.none()
    assert worker.prefetch.size == 0
    assert worker.pull(0.00001, 2) == 4


def test_a_clock_that_does_not_move_does_no_harm() -> None:
    worker = Worker(1)
    assert [worker.pull(0.0, 0) for _ in range(12)][-1] == MOST_AHEAD
