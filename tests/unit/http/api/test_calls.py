"""Parameters, problems, and the table of routes."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path

import pytest

from ternmq.http.api import call, openapi, problems
from ternmq.http.api.call import Parameter, Route, parsed
from ternmq.http.api.routes import ROUTES
from ternmq.model import errors
from ternmq.model.errors import InvalidRequest, TernMQError
from ternmq.wire.commands import TABLE, Command

GOLDEN = Path(__file__).parents[3] / "golden" / "openapi.json"


async def nothing(_call: call.Call) -> call.Answer:
    return call.Answer()


ROUTE = Route(
    "GET", "/x", (Command.STATUS,), "about", nothing,
    (
        Parameter("limit", call.WHOLE, ""),
        Parameter("wait", call.DURATION, ""),
        Parameter("since", call.MOMENT, ""),
        Parameter("dry_run", call.FLAG, ""),
        Parameter("key", call.TEXT, "", "Ternmq-Key"),
    ),
)  # fmt: skip


def test_values() -> None:
    query = [("limit", "7"), ("wait", "1m30s"), ("since", "2026-11-30T12:00:00Z"), ("dry_run", "1")]
    assert parsed(ROUTE, query, {"Ternmq-Key": "k"}) == {
        "limit": 7,
        "wait": timedelta(seconds=90),
        "since": datetime(2026, 11, 30, 12, tzinfo=UTC),
        "dry_run": True,
        "key": "k",
    }


@pytest.mark.parametrize(
    ("query", "headers", "text"),
    [
        ([("limitt", "7")], {}, "no parameter 'limitt' here; did you mean 'limit'"),
        ([("limit", "7"), ("limit", "8")], {}, "given twice"),
        ([("key", "a")], {"Ternmq-Key": "b"}, "in the query and in the header Ternmq-Key"),
        ([("limit", "-1")], {}, "not a whole number"),
        ([("limit", "\u0661")], {}, "not a whole number"),
        ([("limit", "9" * 20)], {}, "not a whole number"),
        ([("wait", "10")], {}, "not a duration"),
        ([("wait", "9" * 30 + "d")], {}, "longer than"),
        ([("since", "yesterday")], {}, "not a time"),
        ([("since", "2026-11-30T12:00:00")], {}, "without its zone"),
        ([("dry_run", "maybe")], {}, "neither true nor false"),
    ],
)
def test_what_cannot_be_read(
    query: list[tuple[str, str]], headers: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidRequest, match=text):
        parsed(ROUTE, query, headers)


def kinds(of: type[TernMQError]) -> list[type[TernMQError]]:
    return [of, *[deeper for one in of.__subclasses__() for deeper in kinds(one)]]


def test_every_error_has_a_status() -> None:
    for kind in kinds(TernMQError):
        if kind.__module__ != errors.__name__:
            continue
        error = kind.__new__(kind)
        error.args = ("what happened",)
        found = problems.problem(error, "1f")
        assert 400 <= found["status"] <= 599, kind
        assert HTTPStatus(found["status"])
        assert (found["title"], found["detail"]) == (kind.__name__, "what happened")


def test_a_route_is_named_once_and_its_commands_have_policies() -> None:
    assert len({(one.method, one.path) for one in ROUTES}) == len(ROUTES)
    for route in ROUTES:
        assert all(command in TABLE for command in route.commands)
        assert re.fullmatch(r"(/[a-z0-9.-]+|/\{[a-z]+\})+", route.path), route.path
        assert route.about.endswith("."), route.path
    with pytest.raises(ValueError, match="names no command"):
        Route("GET", "/y", (), "about", nothing)


def _lost(before: object, now: object, at: str) -> list[str]:
    """Return what a description had before and has not now."""
    if isinstance(before, dict):
        if not isinstance(now, dict):
            return [at]
        missing = [f"{at}/{name}" for name in before if name not in now]
        return missing + [
            lost
            for name, one in before.items()
            if name in now
            for lost in _lost(one, now[name], f"{at}/{name}")
        ]
    if isinstance(before, list):
        if not isinstance(now, list):
            return [at]
        return [f"{at}: {one}" for one in before if one not in now]
    return [] if before == now else [f"{at}: {before} became {now}"]


def _without_texts(value: object) -> object:
    if isinstance(value, dict):
        texts = {"description", "summary", "examples"}
        return {name: _without_texts(one) for name, one in value.items() if name not in texts}
    return [_without_texts(one) for one in value] if isinstance(value, list) else value


def test_openapi_only_gains() -> None:
    """`python -m tests.unit.http.api.test_calls` adds what is new."""
    now = json.loads(json.dumps(openapi.document()))
    before = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert _lost(_without_texts(before), _without_texts(now), "") == []
    assert now == before, "new routes or fields: write them with the command above"


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(openapi.document(), indent=1) + "\n", encoding="utf-8")
