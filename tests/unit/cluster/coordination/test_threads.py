"""Blocking calls in threads: time limits, sessions that hang, errors."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ternmq.cluster.coordination.threads import OutOfTime, Threads
from tests.asynchronous import until


class Session:
    """Hangs when asked to, until it is aborted or let go."""

    made: list[Session]

    def __init__(self) -> None:
        self.go = threading.Event()
        self.aborted = self.closed = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def hang(self) -> str:
        assert self.go.wait(30)
        return "late"

    def name(self) -> str:
        return threading.current_thread().name


@pytest.fixture
def made() -> list[Session]:
    return []


def threads(made: list[Session], most: int = 2) -> Threads[Session]:
    def start() -> Session:
        made.append(Session())
        return made[-1]

    return Threads("ternmq-test", start, most)


async def warm(one: Threads[Session], count: int) -> None:
    """Have a number of sessions ready, so that what comes takes no time to begin."""
    together = threading.Barrier(count)
    await asyncio.gather(*[one.run(lambda _: together.wait(10), 10) for _ in range(count)])


async def test_calls_after_each_other_share_a_session(made: list[Session]) -> None:
    one = threads(made)
    for _ in range(5):
        assert await one.run(Session.name, 5) == "ternmq-test"
    assert len(made) == 1
    one.close()
    await until(lambda: made[0].closed)


async def test_calls_at_the_same_time_have_a_session_each(made: list[Session]) -> None:
    one = threads(made)
    calls = [asyncio.create_task(one.run(Session.hang, 30)) for _ in range(3)]
    await until(lambda: len(made) == 2)
    assert not any(call.done() for call in calls)
    for session in made:
        session.go.set()
    assert await asyncio.gather(*calls) == ["late"] * 3
    assert len(made) == 2
    one.close()


async def test_a_call_that_hangs_is_given_up(made: list[Session]) -> None:
    one = threads(made)
    await warm(one, 1)
    with pytest.raises(OutOfTime):
        await one.run(Session.hang, 0.01)
    assert made[0].aborted
    assert await one.run(Session.name, 5) == "ternmq-test"
    assert len(made) == 2
    made[0].go.set()
    await until(lambda: made[0].closed)
    assert not made[1].closed
    one.close()


async def test_threads_that_hang_count(made: list[Session]) -> None:
    one = threads(made)
    await warm(one, 2)
    for _ in range(2):
        with pytest.raises(OutOfTime):
            await one.run(Session.hang, 0.01)
    with pytest.raises(OutOfTime):  # there is no third thread
        await one.run(Session.name, 0.01)
    assert len(made) == 2
    made[0].go.set()
    assert await one.run(Session.name, 5) == "ternmq-test"
    made[1].go.set()
    one.close()


async def test_who_is_cancelled_gives_its_call_up(made: list[Session]) -> None:
    one = threads(made)
    call = asyncio.create_task(one.run(Session.hang, 30))
    await until(lambda: made)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert made[0].aborted
    made[0].go.set()
    await until(lambda: made[0].closed)
    one.close()


async def test_an_error_ends_the_session(made: list[Session]) -> None:
    one = threads(made)

    def fail(session: Session) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await one.run(fail, 5)
    assert made[0].closed
    await one.run(Session.name, 5)
    assert len(made) == 2
    one.close()


async def test_an_error_of_the_start_is_raised() -> None:
    def start() -> Session:
        raise OSError("nobody there")

    one: Threads[Session] = Threads("ternmq-test", start, 1)
    for _ in range(3):
        with pytest.raises(OSError, match="nobody there"):
            await one.run(Session.name, 5)
    one.close()


def test_a_loop_that_closed_does_not_matter(made: list[Session]) -> None:
    async def hang() -> None:
        one = threads(made)
        await warm(one, 1)
        with pytest.raises(OutOfTime):
            await one.run(Session.hang, 0.01)

    asyncio.run(hang())
    made[0].go.set()
    for thread in threading.enumerate():
        if thread.name == "ternmq-test":
            thread.join(10)
    assert made[0].closed
