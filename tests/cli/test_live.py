"""Views that change: figures of a broker that does not answer are marked as old."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from ternmq.cli.terminal.live import looks
from ternmq.model.errors import CannotConnect, ConnectionLost, UnknownTopic


def test_figures_are_marked_while_the_broker_is_away() -> None:
    asyncio.run(_marked())


async def _marked() -> None:
    answers: list[object] = ["first", ConnectionLost("cut"), CannotConnect("no broker"), "second"]
    hanging = asyncio.get_running_loop().create_future()

    async def look() -> object:
        if len(answers) == 1 and not hanging.done():
            await hanging
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    seen = looks(look, 0.01)
    one = await anext(seen)
    assert (one.view, one.age_s, one.why, one.below) == ("first", 0.0, "", "")
    ages = [one.age_s]
    for why in ("cut", "no broker"):
        one = await anext(seen)
        assert one.view == "first"
        assert why in one.why
        assert one.below.startswith("these figures are ")
        assert why in one.below
        ages.append(one.age_s)
    for _ in range(3):  # a look without an answer keeps nobody waiting
        one = await anext(seen)
        assert (one.view, "no broker" in one.below) == ("first", True)
        ages.append(one.age_s)
    assert ages == sorted(set(ages))
    hanging.set_result(None)
    async for one in seen:
        if one.view == "second":
            break
    assert (one.age_s, one.below) == (0.0, "")
    await seen.aclose()


@pytest.mark.parametrize("answers", [[CannotConnect("x")], ["fine", UnknownTopic("gone")]])
def test_what_cannot_pass_is_raised(answers: list[object]) -> None:
    asyncio.run(_raised(answers))


async def _raised(answers: list[object]) -> None:
    async def look() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with contextlib.aclosing(looks(look, 0.01)) as seen:
        with pytest.raises((CannotConnect, UnknownTopic)):
            async for _ in seen:
                pass
