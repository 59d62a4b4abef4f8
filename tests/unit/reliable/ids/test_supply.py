"""Which numbers a process uses and asks for; the clock is moved by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from ternmq.client.numbers import Reserve
from ternmq.model.errors import CannotConnect, Forbidden
from ternmq.reliable.ids.supply import LEAST, LIFETIME_NS, MOST, SECOND_NS, Ask, Supply

MS = SECOND_NS // 1_000
RESERVE = 1 << 62


class Process:
    """A supply, its clock and a broker that answers when the test says so."""

    def __init__(self, *, reserve: bool = True) -> None:
        self.now = 10 * SECOND_NS
        self.reserve = Reserve()
        if reserve:
            self.reserve.answered(RESERVE, 1_000)
        self.supply = Supply("orders", self.reserve)
        self.next = 1

    def ask(self) -> Ask:
        ask = self.supply.ask(self.now)
        assert ask is not None
        return ask

    def answer(self, ask: Ask) -> range:
        block = range(self.next, self.next + ask.count)
        self.next = block.stop
        self.supply.answered(ask, block.start, ask.count, self.now)
        return block

    def take(self, count: int = 1) -> list[int | None]:
        return [self.supply.take(self.now) for _ in range(count)]

    def wants(self) -> bool:
        return self.supply.wants


def test_nothing_is_there_before_the_first_answer_and_one_request_is_under_way() -> None:
    process = Process()
    assert process.take() == [None]
    ask = process.ask()
    assert (ask.count, ask.began_ns) == (LEAST, process.now)
    assert process.take() == [None]
    assert process.supply.ask(process.now) is None
    block = process.answer(ask)
    assert process.take(3) == [*block[:3]]


def test_the_next_block_is_asked_for_at_half_once() -> None:
    process = Process()
    block = process.answer(process.ask())
    process.take(len(block) // 2 - 1)
    assert not process.wants()
    process.take()
    assert process.wants()
    ask = process.ask()
    process.take(len(block) // 2 - 1)
    assert not process.wants()
    following = process.answer(ask)
    assert process.take(3) == [block[-1], *following[:2]]
    assert process.supply.blocks == 2


def test_the_next_block_is_asked_for_at_half_of_its_time() -> None:
    process = Process()
    block = process.answer(process.ask())
    process.take()
    process.now += LIFETIME_NS // 2 - 1
    process.take()
    assert not process.wants()
    process.now += 1
    assert process.take() == [block[2]]
    assert process.wants()


def test_a_block_is_used_for_less_than_a_second_from_its_request_on() -> None:
    process = Process()
    ask = process.ask()
    process.now += 300 * MS
    block = process.answer(ask)
    process.now = ask.began_ns + LIFETIME_NS - 1
    assert process.take() == [block[0]]
    process.now += 1
    assert process.take() == [None]
    assert LIFETIME_NS < SECOND_NS


def test_a_block_in_store_ages_as_well() -> None:
    process = Process()
    process.answer(process.ask())
    process.take(60)
    second = process.answer(process.ask())
    process.now += LIFETIME_NS
    assert process.take() == [None]
    third = process.answer(process.ask())
    assert process.take() == [third[0]]
    assert third[0] > second[-1]


def test_an_answer_that_comes_too_late_is_dropped_and_another_is_asked_for_at_once() -> None:
    process = Process()
    ask = process.ask()
    process.now += LIFETIME_NS
    process.answer(ask)
    assert process.take() == [None]
    assert process.supply.stale == 1
    assert process.take() == [None]
    block = process.answer(process.ask())
    assert process.take() == [block[0]]


def test_blocks_are_as_large_as_twice_what_the_last_second_used() -> None:
    process = Process()
    sizes = []
    for _ in range(12):  # as fast as it can: each answer is used up at once
        ask = process.ask()
        sizes.append(ask.count)
        process.answer(ask)
        process.take(min(ask.count, 400_000))
        process.now += MS
        process.take(ask.count)
    assert sizes[0] == sizes[1] - LEAST == LEAST
    assert sizes == sorted(sizes)
    assert sizes[-1] == MOST


def test_after_a_burst_blocks_become_small_again() -> None:
    process = Process()
    for _ in range(5):
        ask = process.ask()
        process.answer(ask)
        process.take(ask.count)
    assert process.supply.ask(process.now + 10 * MS).count > 10 * LEAST  # type: ignore[union-attr]
    quiet = Process()
    for _ in range(5):
        ask = quiet.ask()
        quiet.answer(ask)
        quiet.take(ask.count)
    quiet.now += 2 * SECOND_NS
    quiet.answer(quiet.ask())
    quiet.take(3)
    quiet.now += 2 * SECOND_NS
    quiet.take()
    assert quiet.ask().count == LEAST


def test_who_falls_back_takes_from_the_reserve_at_once_until_the_broker_answers() -> None:
    process = Process()
    block = process.answer(process.ask())
    process.take(len(block))
    ask = process.ask()
    assert process.take() == [None]
    assert process.supply.fall_back() == RESERVE
    assert process.take(2) == [RESERVE + 1, RESERVE + 2]
    assert (process.supply.away, process.supply.fallbacks) == (True, 3)
    following = process.answer(ask)
    assert process.take() == [following[0]]
    assert (process.supply.away, process.supply.fallbacks) == (False, 3)
    assert process.supply.taken == len(block) + 4


def test_an_answer_that_is_too_late_does_not_end_the_fall_back() -> None:
    process = Process()
    ask = process.ask()
    assert process.supply.fall_back() == RESERVE
    process.now += LIFETIME_NS
    process.answer(ask)
    assert process.take() == [RESERVE + 1]
    block = process.answer(process.ask())
    assert process.take() == [block[0]]


def test_without_a_reserve_nobody_falls_back() -> None:
    process = Process(reserve=False)
    ask = process.ask()
    assert process.supply.fall_back() is None
    assert not process.supply.away
    process.supply.failed(ask, CannotConnect("no broker"), process.now)
    assert process.take() == [None]
    assert process.ask().count == LEAST  # at once


def test_after_failures_the_reserve_is_used_and_requests_come_ever_more_rarely() -> None:
    process = Process()
    pauses = []
    for at in range(7):
        process.supply.failed(process.ask(), CannotConnect("no broker"), process.now)
        failed_ns = process.now
        assert process.take() == [RESERVE + at]
        while process.supply.ask(process.now) is None:
            process.now += 10 * MS
        pauses.append((process.now - failed_ns) // MS)
        asking = process.supply.asking
        assert asking is not None
        process.supply.failed(asking, CannotConnect("no broker"), process.now)
        process.now += 2 * SECOND_NS
    assert pauses[:2] == [100, 400]
    assert pauses[-1] == 2_000
    process.answer(process.ask())
    process.take()
    process.supply.failed(Ask(1, process.now), CannotConnect("no broker"), process.now)
    process.now += 100 * MS
    assert process.supply.due(process.now)


def test_a_definite_refusal_is_no_reason_to_use_the_reserve() -> None:
    process = Process()
    process.supply.fall_back()
    ask = process.ask()
    process.supply.failed(ask, Forbidden("no right"), process.now)
    assert isinstance(ask.error, Forbidden)
    assert process.take() == [None]
    assert not process.supply.away


def test_numbers_that_this_process_had_are_not_taken_again() -> None:
    process = Process()
    process.answer(process.ask())
    process.take(60)
    process.next = 50
    ask = process.ask()
    process.answer(ask)
    assert "has lost data" in str(ask.error)
    assert process.take(41) == [*range(61, 101), None]


def test_the_reserve_is_asked_for_once() -> None:
    reserve = Reserve()
    assert reserve.ask()
    assert not reserve.ask()
    reserve.answered(0, 0)  # the request failed
    assert reserve.ask()
    reserve.answered(RESERVE, 2)
    assert not reserve.ask()
    assert [reserve.take() for _ in range(3)] == [RESERVE, RESERVE + 1, None]
    assert reserve.ask()  # it is used up


@dataclass
class Together:
    """Processes with clocks of their own and a broker that is slow, or away, at random."""

    chance: random.Random
    now: int = 0
    next: int = 1
    taken: list[tuple[int, int, int]] = field(default_factory=list)
    """(when, process, number), without those of reserves."""
    reserved: set[int] = field(default_factory=set)

    def run(self, count: int, steps: int) -> None:
        chance = self.chance
        processes = [Process(reserve=False) for _ in range(count)]
        for at, process in enumerate(processes):
            process.reserve.answered(RESERVE + at * 10_000_000, 10_000_000)
        asked: list[tuple[Process, Ask, int]] = []
        for _ in range(steps):
            self.now += chance.choice((0, 1, 50_000, MS, 20 * MS, 300 * MS))
            at = chance.randrange(count)
            process = processes[at]
            supply = process.supply
            offset = at * 77 * SECOND_NS  # no two clocks agree
            for _ in range(chance.choice((1, 3, 80, 700))):
                number = supply.take(self.now + offset)
                if number is None and chance.random() < 0.1:
                    number = supply.fall_back()
                if number is None:
                    break
                if number >= RESERVE:
                    assert number not in self.reserved
                    self.reserved.add(number)
                else:
                    self.taken.append((self.now, at, number))
            ask = supply.ask(self.now + offset)
            if ask is not None:
                # It is given when it reaches the broker, and arrives later still.
                asked.append((process, ask, -1))
            chance.shuffle(asked)
            kept = []
            for process, ask, first in asked:
                offset = processes.index(process) * 77 * SECOND_NS
                draw = chance.random()
                if first < 0 and draw < 0.4:
                    kept.append((process, ask, self.next))
                    self.next += ask.count
                elif first >= 0 and draw < 0.4:
                    process.supply.answered(ask, first, ask.count, self.now + offset)
                elif draw > 0.97:  # lost: also what was given already
                    process.supply.failed(ask, CannotConnect("cut"), self.now + offset)
                else:
                    kept.append((process, ask, first))
            asked = kept


@pytest.mark.parametrize("seed", range(12))
def test_numbers_taken_more_than_a_second_apart_are_in_order_in_all_processes(seed: int) -> None:
    world = Together(random.Random(seed))
    world.run(4, 1_000)
    numbers = [number for _, _, number in world.taken]
    assert len(numbers) > 1_000
    assert world.reserved
    assert len(set(numbers)) == len(numbers)
    last: dict[int, int] = {}
    for _, process, number in world.taken:
        assert number > last.get(process, 0)
        last[process] = number
    highest, behind = 0, 0
    for when, _, number in world.taken:
        while world.taken[behind][0] < when - SECOND_NS:
            highest = max(highest, world.taken[behind][2])
            behind += 1
        assert number > highest
