"""The core with a journal that has copies: nobody is answered before they have acknowledged."""

from __future__ import annotations

import pytest

from ternmq.model.marks import Rests
from ternmq.model.types import Position
from tests.unit.server.engine.test_sync_pace import Desk, until, with_desk


def test_answers_wait_for_the_commit_mark() -> None:
    async def work(desk: Desk) -> None:
        core, journal = desk.core, desk.core.broker.journal
        journal.share_commits()
        desk.send(count=3)
        await until(lambda: journal.durable == journal.end)
        core.touch()
        await until(lambda: not core.pressed and core._turn is None)
        assert desk.answered == 0
        core.commit(journal.durable, strict=False)
        await until(lambda: desk.answered == 3)
        assert journal.committed == journal.durable

    with_desk(work)


def test_settling_down_waits_for_the_commit_mark() -> None:
    async def work(desk: Desk) -> None:
        journal = desk.core.broker.journal
        journal.share_commits()
        desk.send()
        await until(lambda: journal.durable == journal.end)
        await desk.core.settle_down(0.05)
        assert desk.answered == 0
        desk.core.commit(journal.durable, strict=False)
        await until(lambda: desk.answered == 1)

    with_desk(work)


def test_settling_down_does_not_spin_while_another_copy_is_waited_for() -> None:
    async def work(desk: Desk) -> None:
        journal = desk.core.broker.journal
        journal.share_commits()
        desk.send()
        await until(lambda: journal.durable == journal.end)
        turns = desk.core.turns
        await desk.core.settle_down(0.2)
        assert desk.core.turns - turns < 20
        desk.core.commit(journal.durable, strict=False)
        await until(lambda: desk.answered == 1)

    with_desk(work)


def test_answers_about_strict_topics_wait_until_two_copies_are_sure() -> None:
    async def work(desk: Desk) -> None:
        core, journal = desk.core, desk.core.broker.journal
        journal.share_commits()
        desk.send()
        core.hold(desk, b"0", journal.end, Rests.STRICT, 0)
        await until(lambda: journal.durable == journal.end)
        core.commit(journal.durable, strict=False)
        await until(lambda: desk.answered == 1)
        assert not core.broker.ledger.copies.strict
        assert len(core.gate) == 1
        core.commit(journal.durable, strict=True)  # the mark does not move, and it is sure now
        await until(lambda: desk.answered == 2)
        assert core.broker.ledger.copies.strict

    with_desk(work)


def test_answers_wait_until_as_many_copies_count_as_are_needed() -> None:
    async def work(desk: Desk) -> None:
        core, journal = desk.core, desk.core.broker.journal
        journal.share_commits()
        desk.send()
        core.broker.ledger.copies.needed = 3
        core.hold(desk, b"0", journal.end, Rests.COPIES, 0)
        await until(lambda: journal.durable == journal.end)
        core.commit(journal.durable, strict=False)
        await until(lambda: desk.answered == 1)
        assert len(core.gate) == 1
        core.commit(journal.durable, strict=True)
        await until(lambda: desk.answered == 2)
        desk.send()
        core.hold(desk, b"0", journal.end, Rests.COPIES, 0)
        await until(lambda: journal.durable == journal.end)
        core.commit(journal.durable, strict=False)
        await until(lambda: desk.answered == 3)
        assert len(core.gate) == 1
        core.broker.ledger.copies.needed = 1  # an operator gives up the wish
        core.commit(journal.durable, strict=False)
        await until(lambda: desk.answered == 4)

    with_desk(work)


def test_what_is_not_durable_here_cannot_be_committed() -> None:
    async def work(desk: Desk) -> None:
        journal = desk.core.broker.journal
        journal.share_commits()
        with pytest.raises(ValueError, match="cannot be committed"):
            desk.core.commit(Position(journal.end + 8), strict=False)
        desk.core.commit(journal.durable, strict=False)

    with_desk(work)
