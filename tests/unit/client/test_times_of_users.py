"""Every public call that takes a time takes seconds and a timedelta alike."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

import ternmq
import ternmq.sync
import ternmq.testing
from ternmq.client import bulk
from ternmq.client.admin import admin, deadletters
from ternmq.client.connection import line
from ternmq.sync import admin as sync_admin

URL = "ternmq://127.0.0.1:7117"
NO_TIMES = {
    ("RetryPolicy.__init__", "factor"),
    ("RetryPolicy.__init__", "jitter"),
    ("DeadLetters.redrive", "rate"),
    *[
        (f"{kind}DeadLetters.{name}_matching", "rate")
        for kind in ("", "Sync")
        for name in ("retry", "delete", "redrive")
    ],
    ("Admin.put_producer_group", "factor"),
    ("Admin.put_producer_group", "jitter"),
}
"""Numbers, and not how long something is."""
UNITS = {"days", "hours", "minutes", "seconds", "milliseconds"}
"""Of ``ManualClock.advance`` and ``jump_wall``, beside its timedelta."""


def public() -> Iterator[tuple[str, Any]]:
    """Return the functions that applications call, by name of class and method."""
    kinds: set[type] = {bulk.Bulk, line.BulkOptions}
    for module in (ternmq, ternmq.sync, ternmq.testing):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found):
                kinds.add(found)
            elif inspect.isfunction(found):
                yield f"{module.__name__}.{name}", found
    for module in (admin, deadletters, sync_admin):
        found = {one for _, one in inspect.getmembers(module, inspect.isclass)}
        kinds |= {one for one in found if one.__module__ == module.__name__}
    for kind in kinds:
        if kind.__module__.startswith("ternmq."):
            for name, method in inspect.getmembers(kind, inspect.isfunction):
                if not name.startswith("_") or name == "__init__":
                    yield f"{kind.__name__}.{name}", method


def test_every_time_may_be_a_timedelta() -> None:
    found = list(public())  # ``Client`` is two
    assert {"ternmq.connect", "Client.send", "InProcessBroker.wait_idle", "Bulk.journal",
            "Admin.create_topic"} <= {name for name, _ in found}  # fmt: skip
    wrong = [
        f"{name}({one.name}=)"
        for name, function in found
        for one in inspect.signature(function).parameters.values()
        if "float" in str(one.annotation)
        and "timedelta" not in str(one.annotation)
        and (name, one.name) not in NO_TIMES
        and not (name in {"ManualClock.advance", "ManualClock.jump_wall"} and one.name in UNITS)
    ]
    assert wrong == []


@pytest.mark.parametrize("connect", [ternmq.connect, ternmq.sync.connect], ids=["async", "sync"])
def test_connect(connect: Any) -> None:
    client = connect(
        URL,
        timeout=timedelta(seconds=2),
        max_processing_time=timedelta(minutes=1),
        drain_timeout=timedelta(),
    )
    options = client.options
    times = options.timeout, options.max_processing_time, options.drain_timeout
    assert times == (2.0, 60.0, 0.0)
    assert all(isinstance(one, float) for one in times)
    options = replace(options, connect_timeout=timedelta(seconds=3))
    assert (options.connect_timeout, options.timeout) == (3.0, 2.0)


@pytest.mark.parametrize("wrong", ["5", True, -1, float("nan"), timedelta(seconds=-1), None])
def test_what_is_no_time_is_named(wrong: Any) -> None:
    options = ternmq.connect(URL).options
    asked: list[tuple[str, Any]] = [
        *[
            (name, lambda **given: replace(options, **given))
            for name in ("timeout", "connect_timeout", "max_processing_time", "drain_timeout",
                         "first_backoff", "longest_backoff")
        ],
        *[
            (name, line.BulkOptions)
            for name in ("timeout", "connect_timeout", "first_backoff", "longest_backoff")
        ],
        *[
            (name, connect)
            for name in ("timeout", "max_processing_time", "drain_timeout")
            for connect in (ternmq.connect, ternmq.sync.connect)
        ],
    ]  # fmt: skip
    for name, make in asked:
        with pytest.raises(ternmq.InvalidRequest, match=f"^{name} (is|must be) .*second"):
            make(**{name: wrong})


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("timeout", "more than 0 seconds"),
        ("max_processing_time", "more than 0 seconds"),
        ("drain_timeout", "0 seconds or more"),
    ],
)
def test_a_timeout_has_an_end(name: str, least: str) -> None:
    wrong: Any = {name: float("inf")}
    with pytest.raises(ternmq.InvalidRequest, match=f"^{name} must be {least}, and finite"):
        ternmq.connect(URL, **wrong)


@pytest.mark.parametrize("wrong", [0, -1, timedelta(0), float("nan")])
async def test_a_send_waits_for_more_than_no_time(wrong: Any) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"^timeout must be more than 0 seconds"):
        await ternmq.connect(URL).send("t", 1, timeout=wrong)
    with pytest.raises(ternmq.InvalidRequest, match=r"^timeout must be more than 0 seconds"):
        ternmq.sync.connect(URL).send("t", 1, timeout=wrong)


def test_bulk_options_take_timedeltas() -> None:
    options = line.BulkOptions(url=URL, timeout=timedelta(minutes=1), connect_timeout=2)
    assert (options.timeout, options.resolved().timeout) == (60.0, 60.0)
    assert options.resolved().connect_timeout == 2
