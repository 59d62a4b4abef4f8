"""The fuzzers run: the corpus whole, and bent inputs for two seconds (BAD-1, of the codecs)."""

from __future__ import annotations

import pytest

from tests.fuzz import expressions, frames, records
from tests.fuzz.engine import FindingError, Input, Target, corpus, fuzz, judge

TARGETS = [frames.TARGET, records.TARGET, expressions.TARGET]
targets = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


@targets
def test_the_corpus(target: Target) -> None:
    inputs = list(corpus(target))
    assert {one.part for one in inputs} == set(target.parts)
    for one in inputs:
        judge(target, one)  # what it imports is not of the input
        judge(target, one, measured=True)


@targets
def test_two_seconds(target: Target) -> None:
    assert fuzz(target, 2, seed=20_261_121).runs > 200


@targets
def test_what_is_sown_is_sound(target: Target) -> None:
    for part, data in target.sown():
        target.parts[part](data)


def test_a_finding_is_a_finding() -> None:
    """A decoder that lets something else out, and one that takes memory, are found."""

    def careless(data: bytes) -> object:
        return {1: 2}[data[5]] if len(data) > 5 else None

    def greedy(data: bytes) -> object:
        return bytes(int.from_bytes(data[:4], "little") % (1 << 28))

    for part, run in {"careless": careless, "greedy": greedy}.items():
        target = Target(
            name="none",
            invariant="",
            parts={part: run},
            allowed={part: (ValueError,)},
            modules=("tests.fuzz",),
            sown=lambda part=part: iter([Input(part, b"\1\0\0\0")]),  # type: ignore[misc]
        )
        with pytest.raises(FindingError, match=part):
            fuzz(target, 20, seed=1)
