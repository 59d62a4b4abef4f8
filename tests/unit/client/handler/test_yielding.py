"""What is said of a generator that yields twice, or never."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator

import pytest

from ternmq.client.handler.yielding import async_context_of, context_of


def twice(of: object) -> Iterator[object]:
    yield of
    yield of


def again(of: object) -> Iterator[object]:
    try:
        yield of
    except ValueError:
        yield of


def never(of: object) -> Iterator[object]:
    if of is None:
        yield of


async def twice_awaited(of: object) -> AsyncIterator[object]:
    yield of
    yield of


async def again_awaited(of: object) -> AsyncIterator[object]:
    try:
        yield of
    except ValueError:
        yield of


async def never_awaited(of: object) -> AsyncIterator[object]:
    if of is None:
        yield of


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (twice, None, "middleware m yielded a second time: it must yield once"),
        (again, ValueError(), "middleware m yielded a second time: it must yield once"),
        (never, None, "middleware m returned without a yield: it must yield once"),
    ],
)
def test_it_is_named(function: object, error: Exception | None, text: str) -> None:
    made = context_of(function, "middleware m")  # type: ignore[arg-type]

    def use() -> None:
        with made(1):
            if error is not None:
                raise error

    with pytest.raises(RuntimeError, match=text):
        use()


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (twice_awaited, None, "middleware m yielded a second time: it must yield once"),
        (again_awaited, ValueError(), "middleware m yielded a second time: it must yield once"),
        (never_awaited, None, "middleware m returned without a yield: it must yield once"),
    ],
)
async def test_it_is_named_where_it_is_awaited(
    function: object, error: Exception | None, text: str
) -> None:
    made = async_context_of(function, "middleware m")  # type: ignore[arg-type]

    async def use() -> None:
        async with made(1):
            if error is not None:
                raise error

    with pytest.raises(RuntimeError, match=text):
        await use()


def fail(error: Exception) -> None:
    raise error


def test_one_that_yields_once_is_a_context() -> None:
    seen: list[object] = []

    def once(of: object) -> Iterator[object]:
        try:
            yield of
        except ValueError as error:
            seen.append(error)
        seen.append("left")

    made = context_of(once, "middleware m")
    assert list(inspect.signature(made).parameters) == ["of"]
    error = ValueError()
    with made(1) as given:
        assert given == 1
    with made(2):
        fail(error)
    assert seen == ["left", error, "left"]
