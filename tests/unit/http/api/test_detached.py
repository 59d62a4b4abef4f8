"""Pulls whose caller goes at a bad moment: what came is given back."""

from __future__ import annotations

import asyncio

import pytest

from ternmq.http.api.detached import Detached, _Pull
from ternmq.model.errors import ConnectionLost
from ternmq.wire import bodies

TOLD = bodies.delivery_head(1, 2, 3, 4, 10, 5, 0, [(0, 1, 1, 1)])


class Recording(Detached):
    """Records what is given back."""

    def __init__(self) -> None:
        self.back: list[tuple[object, ...]] = []

    def give_back(self, topic: str, group: str, queue: int, epoch: int, lease: int) -> None:
        self.back.append((topic, group, queue, epoch, lease))


async def test_it_comes_after_the_caller_has_gone() -> None:
    one = Recording()
    pull = _Pull(one, "t", "g", asyncio.get_running_loop())
    assert pull.gone(), "the broker must be told"
    pull.answered(TOLD)
    assert one.back == [("t", "g", 2, 3, 4)]


async def test_it_comes_in_the_moment_in_which_the_caller_goes() -> None:
    one = Recording()
    pull = _Pull(one, "t", "g", asyncio.get_running_loop())

    async def wait() -> None:
        try:
            await pull.future
        except asyncio.CancelledError:
            assert not pull.gone(), "the broker has answered"
            raise

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    pull.answered(TOLD)
    waiting.cancel()  # the answer is there, and nobody has taken it
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert one.back == [("t", "g", 2, 3, 4)]


async def test_nothing_is_given_back_of_nothing() -> None:
    one = Recording()
    pull = _Pull(one, "t", "g", asyncio.get_running_loop())
    pull.answered(bodies.delivery_head(0, 0, 0, 0, 0, 5, 0, ()))
    assert not pull.gone()
    other = _Pull(one, "t", "g", asyncio.get_running_loop())
    other.lost()
    assert not other.gone()
    with pytest.raises(ConnectionLost):
        await other.future
    assert one.back == []
