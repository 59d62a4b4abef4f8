"""Requests about failed messages, as a third-party client may send them."""

from __future__ import annotations

from typing import Any

import pytest

from ternmq.model.errors import InvalidRequest
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from tests.unit.server.test_port import answered, batch, create, opened

HERE = {"topic": "t", "group": "g", "queue": 0}


async def failing(caller: Any) -> None:
    """Make five messages, of which 0 and 1 wait for a retry, and 2 to 4 are dead."""
    await create(caller, "t")
    await answered(caller, Command.SEND, bodies.pack_send("t", 0, batch("t", *[b"x"] * 5)))
    pull = bodies.pack_pull(bodies.Pull("t", "g", None, 10, 0, 60_000))
    found = bodies.unpack_delivery(await answered(caller, Command.PULL, pull))
    for outcome, span in ((Outcome.RETRY, (0, 2)), (Outcome.DEAD, (2, 5))):
        settle = bodies.Settle(
            "t", "g", 0, found.epoch, found.lease, outcome, (span,), 3_600_000_000, "no"
        )
        await answered(caller, Command.SETTLE, bodies.pack_settle(settle))


async def ask(caller: Any, command: Command, kind: Any, **fields: Any) -> Any:
    request = {
        Command.FAILED_QUERY: control.FailedQuery,
        Command.FAILED_LIST: control.FailedList,
        Command.FAILED_RETRY: control.FailedRetry,
        Command.FAILED_DELETE: control.FailedDelete,
        Command.FAILED_REDRIVE: control.FailedRedrive,
    }[command]
    return control.decode(
        await answered(caller, command, control.encode(request(**HERE, **fields))), kind
    )


async def test_pieces_and_details() -> None:
    async with opened() as (_, caller):
        await failing(caller)
        query, found = Command.FAILED_QUERY, control.FailedFound
        first = await ask(caller, query, found, limit=2)
        assert (first.offsets, first.failed_us, first.next) == ([0, 1], [], "1")
        second = await ask(caller, query, found, limit=2, after=first.next)
        assert (second.offsets, second.next) == ([2, 3], "3")
        third = await ask(caller, query, found, limit=2, after=second.next)
        assert (third.offsets, third.next) == ([4], "")
        counted = await ask(caller, query, found, count=True)
        assert (counted.offsets, counted.counts) == ([], control.FailedCounts(waiting=2, dead=3))
        newest = await ask(caller, query, found, newest=True, limit=2)
        assert newest.offsets == [4, 3]
        assert newest.failed_us[0] >= newest.failed_us[1] > 0
        dead = control.FailedSelect(states=["dead"], until_us=newest.failed_us[0])
        assert not (await ask(caller, query, found, select=dead)).offsets
        page = await ask(
            caller, Command.FAILED_LIST, control.FailedPage, dead=False, offsets=[4, 0, 9, 2]
        )
        assert [(row.offset, row.dead) for row in page.rows] == [(4, True), (0, False), (2, True)]
        assert not page.more


async def test_what_is_required_of_named_messages() -> None:
    async with opened() as (_, caller):
        await failing(caller)
        done, every = control.FailedDone, [0, 1, 2, 3, 4, 9]
        waits, dead = (control.FailedSelect(states=[one]) for one in ("waiting", "dead"))
        ask_of = {"offsets": every, "dry_run": True}
        told = await ask(caller, Command.FAILED_RETRY, done, **ask_of)
        assert told == control.FailedDone(done=2, missing=[2, 3, 4, 9])
        told = await ask(caller, Command.FAILED_DELETE, done, **ask_of)
        assert told == control.FailedDone(done=5, missing=[9])
        told = await ask(caller, Command.FAILED_DELETE, done, only=waits, **ask_of)
        assert told == control.FailedDone(done=2, missing=[2, 3, 4, 9])
        many = control.FailedSelect(attempts=2)
        for command in (Command.FAILED_RETRY, Command.FAILED_DELETE):
            told = await ask(caller, command, done, offsets=[0, 2], only=many)
            assert told == control.FailedDone(done=0, missing=[0, 2])
        redriven = control.FailedRedriven
        again = await ask(
            caller, Command.FAILED_REDRIVE, redriven, offsets=[2, 3], only=many, dry_run=True
        )
        assert again == control.FailedRedriven(done=[], missing=[2, 3])
        again = await ask(caller, Command.FAILED_REDRIVE, redriven, offsets=[0, 2], only=dead)
        assert again == control.FailedRedriven(done=[2], missing=[0])
        again = await ask(caller, Command.FAILED_REDRIVE, redriven, offsets=[0], only=many)
        assert again == control.FailedRedriven(done=[], missing=[0])
        told = await ask(caller, Command.FAILED_DELETE, done, offsets=every, only=dead)
        assert told == control.FailedDone(done=2, missing=[0, 1, 2, 9])
        told = await ask(caller, Command.FAILED_RETRY, done, offsets=[0, 3], only=waits)
        assert told == control.FailedDone(done=1, missing=[3])


@pytest.mark.parametrize(
    ("command", "fields", "said"),
    [
        (Command.FAILED_QUERY, {"after": "-1"}, "after"),
        (Command.FAILED_QUERY, {"after": "1.2.3"}, "after"),
        (Command.FAILED_QUERY, {"after": "٣"}, "after"),
        (Command.FAILED_QUERY, {"after": "9" * 300}, "after"),
        (Command.FAILED_QUERY, {"after": str(2**63)}, "after"),
        (Command.FAILED_QUERY, {"key": "k", "after": "17"}, "after"),
        (Command.FAILED_QUERY, {"key": "k", "id": "1:0"}, "not both"),
        (Command.FAILED_REDRIVE, {"only": control.FailedSelect()}, "named offsets"),
        (Command.FAILED_RETRY, {"offsets": [], "only": control.FailedSelect()}, "offsets"),
        (Command.FAILED_DELETE, {"offsets": [], "dry_run": True}, "offsets"),
    ],
)
async def test_what_is_refused(command: Command, fields: dict[str, Any], said: str) -> None:
    async with opened() as (_, caller):
        await create(caller, "t")
        with pytest.raises(InvalidRequest, match=said):
            await ask(caller, command, control.FailedFound, **fields)
