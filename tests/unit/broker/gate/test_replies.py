"""The gate: an answer goes out when what it rests on is committed, and not before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.gate.replies import Gate
from ternmq.model.marks import Rests

holds = st.tuples(st.just("hold"), st.integers(0, 50), st.sampled_from(Rests))
releases = st.tuples(st.just("release"), st.integers(0, 10), st.integers(0, 10))


@given(st.lists(holds | releases, max_size=60))
def test_answers_wait_for_their_mark(steps: list[tuple[str, int, int]]) -> None:
    gate: Gate[tuple[int, Rests, int]] = Gate()
    progress: list[tuple[int, Rests, int]] = []
    durable = written = strict = copies = 0
    out: list[tuple[int, Rests, int]] = []
    for number, (what, one, other) in enumerate(steps):
        if what == "hold":
            answer = (one, Rests(other), number)
            gate.hold(one, Rests(other), answer)
            progress.append(answer)
        else:
            written += one
            durable = min(durable + other, written)
            strict = max(strict, durable - 3 * (number % 2))  # two copies are not always sure
            copies = max(copies, durable - 5 * (number % 3))
            free = gate.release(durable, written, strict, copies)
            marks = {
                Rests.DURABLE: durable, Rests.WRITTEN: written, Rests.STRICT: strict,
                Rests.COPIES: copies,
            }  # fmt: skip
            assert all(position <= marks[rests] for position, rests, _ in free)
            out += free
            # What is still in waits for its mark, or behind another of its kind that does.
            for answer in progress:
                if answer not in out:
                    before = [
                        one
                        for one in progress
                        if one[1] == answer[1] and one[2] <= answer[2] and one not in out
                    ]
                    assert max(one[0] for one in before) > marks[answer[1]]
        assert len(gate) == len(progress) - len(out)
    for rests in Rests:
        numbers = [number for _, kind, number in out if kind is rests]
        assert numbers == sorted(numbers)
    gate.release(1000, 1000, 1000, 1000)
    assert not len(gate)
