"""What a caller reads about a field that the broker would refuse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ternmq.client.connection.requests import encoded
from ternmq.model.errors import InvalidRequest
from ternmq.wire import control


def find(**fields: Any) -> control.Find:
    return control.Find(topic="t", **fields)


def commit(**fields: Any) -> control.TransactionCommit:
    given: dict[str, Any] = {"writer": "w", "batch_id": 1, "ids": [1], "digest": 1}
    return control.TransactionCommit(**given | fields)


def replay(**fields: Any) -> control.GroupReplay:
    return control.GroupReplay(topic="t", group="g", **fields)


def span(start: int, stop: int) -> control.ReplaySpan:
    return control.ReplaySpan(queue=0, start=start, stop=stop)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (find(offset=-1), "offset must be 0 or more, not -1"),
        (find(offset=2**63), f"offset must be at most {2**63 - 1}, not {2**63}"),
        (find(offset=10**5000), f"offset must be at most {2**63 - 1}, not a number of more than"),
        (find(offset=1.5), "offset is a whole number, not 1.5"),
        (find(offset=True), "offset is a whole number, not True"),
        (find(offset=[]), "offset is a whole number, not list"),
        (find(queue=-1, offset=0), "queue must be 0 or more, not -1"),
        (find(id="i" * 300), "id has 300 characters, at most 200 are allowed"),
        (find(id="a\nb"), r"id has characters that are not allowed: 'a\nb'"),
        (commit(writer=""), "writer is empty"),
        (commit(ids=[1, -1]), "prepared must be 0 or more, not -1"),
        (commit(ids=[1, "x"]), "an entry of prepared is a whole number, not 'x'"),
        (replay(ids=["a", 7]), "an entry of ids is a str, not 7"),
        (replay(ids=["a"] * 101), "ids has 101 entries, at most 100 are allowed"),
        (replay(spans=[span(0, 3), span(5, 2**63)]), f"stop must be at most {2**63 - 1}, not "),
        (replay(spans=[span(0, 3)] * 1001), "spans has 1001 entries, at most 1000 are allowed"),
    ],
)
def test_the_text_says_the_bound(asked: msgspec.Struct, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        encoded(asked)
    said = str(caught.value)
    assert said.startswith(says)
    assert "`" not in said
    assert "Expected" not in said


def test_what_the_broker_can_read_is_sent() -> None:
    body = encoded(find(offset=3))
    assert control.decode(body, control.Find) == find(offset=3)
