"""Measures the outbox on SQLite, PostgreSQL and MariaDB; see ``runner``.

    python bench/outbox.py                      everything, five rounds each
    python bench/outbox.py confirm-1-sqlite     some of it
    python bench/outbox.py --quick              a smoke run, nothing is written

A transaction with a message is compared with the same transaction without one (``raw``), in the
same round and in turns. A broker process, a database and up to eight applications share the
machine. ``share`` is transactions a second until no row is left, over raw commits a second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

from broker_kit import broker, client, figures_of, ready, started
from core_kit import Figures, Measurement, Settings, Target, folder
from database_kit import NAMES, database
from runner import Suite, run

from tests.black_box.process import BrokerProcess

CLIENTS: Final = Path(__file__).with_name("outbox_clients.py")
SECONDS: Final = 3.0
BACKLOG: Final = 100_000
ONE_KEY: Final = 2_000
AWAY: Final = 1_000_000
OTHERS: Final = 20_000
_KEY: Final = "TERNMQ_BENCH_DATABASE"


@contextmanager
def shop(settings: Settings, name: str) -> Iterator[str]:
    """Run a broker and a database for the applications; yield the broker's URL."""
    with broker(settings) as one, database(settings, name) as url:
        os.environ[_KEY] = url
        try:
            yield one.url
        finally:
            del os.environ[_KEY]


def confirm(settings: Settings, *, name: str, writers: int) -> Figures:
    """Compare transactions with a message, and without."""
    seconds = 0.5 if settings.quick else SECONDS
    with shop(settings, name) as url:
        raw = _all(url, "raw", writers, seconds, first=0)
        with_message = _all(url, "confirm", writers, seconds, first=100)
    return {
        "raw_per_s": raw["per_s"],
        "raw_p50_ms": raw["commit_p50_ms"],
        "per_s": with_message["per_s"],
        "commit_p50_ms": with_message["commit_p50_ms"],
        "share": with_message["per_s"] / raw["per_s"],
        "over_1_5_raw_ms": with_message["commit_p50_ms"] - 1.5 * raw["commit_p50_ms"],
    }


def _all(url: str, verb: str, writers: int, seconds: float, first: int) -> Figures:
    processes = [
        started(url, verb, CLIENTS, writer=first + number, seconds=seconds)
        for number in range(writers)
    ]
    found = [figures_of(process) for process in processes]
    return {
        "per_s": sum([one["transactions"] / one["all_s"] for one in found]),
        "commit_p50_ms": sorted([one["commit_p50_ms"] for one in found])[writers // 2],
    }


def paced(settings: Settings, *, name: str, ordered: bool) -> Figures:
    """Measure from the commit to the stored message, at 200 transactions a second."""
    with shop(settings, name) as url:
        raw = client(url, "raw", CLIENTS, writer=0, seconds=0.5 if settings.quick else 2.0)
        found = client(
            url, "paced", CLIENTS, rate=200, ordered=int(ordered),
            seconds=0.5 if settings.quick else SECONDS,
        )  # fmt: skip
    found["raw_p99_ms"] = raw["commit_p99_ms"]
    found["over_two_raw_ms"] = found["stored_p99_ms"] - 2 * raw["commit_p99_ms"]
    return found


def backlog(settings: Settings, *, name: str, rows: int = BACKLOG, keys: int = 0) -> Figures:
    """Let a compensator send what was left."""
    with shop(settings, name) as url:
        return client(url, "backlog", CLIENTS, count=settings.scaled(rows, 500), keys=keys)


def away(settings: Settings, *, name: str) -> Figures:
    """Let rows wait until the broker is back."""
    count = settings.scaled(AWAY, 2_000)
    with (
        folder(settings) as path,
        BrokerProcess("dev", path) as one,
        database(settings, name) as url,
    ):
        one.kill()
        command = [sys.executable, str(CLIENTS), "away", one.url, f"count={count}"]
        given = {**os.environ, _KEY: url}
        with Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=given) as waits:
            ready(waits)
            one.start()
            assert waits.stdin is not None
            waits.stdin.write("go\n")
            waits.stdin.flush()
            return figures_of(waits, 600.0)


def blocked(settings: Settings, *, name: str) -> Figures:
    """Let a compensator send rows beside those of a blocked key, and without such."""
    count, others = settings.scaled(BACKLOG, 2_000), settings.scaled(OTHERS, 500)
    with shop(settings, name) as url:
        return client(url, "blocked", CLIENTS, count=count, others=others)


def idle(settings: Settings, *, name: str) -> Figures:
    """Measure a compensator that has nothing to do."""
    with shop(settings, name) as url:
        return client(url, "idle", CLIENTS, seconds=1.0 if settings.quick else 5.0)


def rapid(settings: Settings, *, name: str) -> Figures:
    """Compare sends that nobody answers with transactions."""
    seconds = 0.5 if settings.quick else SECONDS
    with shop(settings, name) as url:
        sends = client(url, "rapid", CLIENTS, writer=0, seconds=seconds)
        found = _all(url, "confirm", 1, seconds, first=0)
    rate = sends["messages_per_s"]
    return {"rapid_per_s": rate, "per_s": found["per_s"], "times": rate / found["per_s"]}


def _measurements() -> Iterator[Measurement]:
    for name in NAMES:
        least = 0.4 if name == "sqlite" else 0.5
        for writers in (1, 8):
            share = least if writers == 1 or name == "sqlite" else 0.6
            yield Measurement(
                f"confirm-{writers}-{name}",
                f"transactions with a message, {writers} at a time, on {name}",
                partial(confirm, name=name, writers=writers),
                (Target("share", share, at_least=True), Target("over_1_5_raw_ms", 0.5)),
                {"writers": writers, "body_bytes": 512},
            )
        for ordered in (False, True):
            yield Measurement(
                f"stored-{'ordered-' if ordered else ''}{name}",
                f"from the commit to the stored message, on {name}",
                partial(paced, name=name, ordered=ordered),
                (Target("over_two_raw_ms", 150.0 if ordered else 50.0),),
                {"transactions_per_s": 200},
            )
        yield Measurement(
            f"backlog-{name}",
            f"a compensator sends what was left, on {name}",
            partial(backlog, name=name),
            (Target("rows_per_s", 10_000.0, at_least=True), Target("memory_mib", 64.0)),
            {"rows": BACKLOG, "body_bytes": 512},
        )
        yield Measurement(
            f"backlog-keys-{name}",
            f"a compensator sends what was left, of 1,000 ordering keys, on {name}",
            partial(backlog, name=name, keys=1_000),
            (Target("rows_per_s", 5_000.0, at_least=True), Target("memory_mib", 64.0)),
            {"rows": BACKLOG, "keys": 1_000, "body_bytes": 512},
            rounds=3,
        )
        yield Measurement(
            f"backlog-key-{name}",
            f"a compensator sends what was left, of one ordering key, on {name}",
            partial(backlog, name=name, rows=ONE_KEY, keys=1),
            (Target("times_lone", 0.5, at_least=True),),
            {"rows": ONE_KEY, "keys": 1, "body_bytes": 512},
        )
        yield Measurement(
            f"away-{name}",
            f"a million rows wait until the broker is back, on {name}",
            partial(away, name=name),
            (Target("first_s", 2.0), Target("memory_mib", 64.0)),
            {"rows": AWAY, "body_bytes": 512},
            rounds=3,
        )
        yield Measurement(
            f"blocked-{name}",
            f"a compensator sends rows beside those of a blocked key, on {name}",
            partial(blocked, name=name),
            (Target("share", 0.5, at_least=True),),
            {"rows_blocked": BACKLOG, "rows": OTHERS, "keys": 1_000, "body_bytes": 512},
            rounds=3,
        )
        yield Measurement(
            f"idle-{name}",
            f"a compensator that has nothing to do, on {name}",
            partial(idle, name=name),
            (Target("core_share", 0.01), Target("statements_per_s", 15.0)),
        )
    yield Measurement(
        "rapid-sqlite",
        "sends that nobody answers, beside transactions on SQLite",
        partial(rapid, name="sqlite"),
        (Target("times", 2.0, at_least=True),),
    )


SUITE: Final = Suite(Path(__file__), "Measure the outbox.", tuple(_measurements()))

if __name__ == "__main__":
    sys.exit(run(SUITE))
