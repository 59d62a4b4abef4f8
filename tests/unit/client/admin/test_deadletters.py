"""Messages that failed are named in requests that the broker takes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ternmq.client.admin.deadletters import DeadLetters
from ternmq.client.connection.session import Session
from ternmq.model.errors import LeaseExpired
from ternmq.wire import control
from ternmq.wire.commands import Command


class Asked:
    """A session that answers that odd offsets are missing, and that none of the last are there."""

    def __init__(self) -> None:
        self.home = None
        self.requests: list[tuple[Command, list[int]]] = []

    async def control(self, command: Command, asked: Any, kind: type[Any]) -> Any:
        assert kind is control.FailedDone
        self.requests.append((command, asked.offsets))
        if asked.offsets[0] >= 2 * control.MAX_FAILED:
            raise LeaseExpired("none of these messages waits for a retry")
        missing = [one for one in asked.offsets if one % 2]
        return control.FailedDone(done=len(asked.offsets) - len(missing), missing=missing)


@pytest.mark.parametrize(
    ("ask", "command"), [("retry", Command.FAILED_RETRY), ("delete", Command.FAILED_DELETE)]
)
def test_many_are_named_some_in_a_request(ask: str, command: Command) -> None:
    session = Asked()
    letters = DeadLetters(
        cast("Session", session), cast("Any", SimpleNamespace()), cast("Any", None)
    )
    count = 2 * control.MAX_FAILED + 3
    missing = asyncio.run(getattr(letters, ask)("t", "g", range(count), queue=0))
    assert {one for one, _ in session.requests} == {command}
    assert [len(rows) for _, rows in session.requests] == [250, 250, 3]
    assert [row for _, rows in session.requests for row in rows] == list(range(count))
    assert missing == [*range(1, 500, 2), 500, 501, 502]
