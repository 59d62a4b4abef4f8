"""docs/reference/defaults.md is what holds when nothing is said. ``make docs`` writes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.client.admin import places
from ternmq.client.connection.options import Options
from ternmq.client.connection.stats import CONNECTIONS
from ternmq.client.consumer import concluding, consumer, prefetch
from ternmq.client.content.validation import LEAST_LEASE_US, MAX_ID_BYTES
from ternmq.client.declaration.policy import RetryPolicy as Policy
from ternmq.client.declaration.source import Source
from ternmq.client.producer import reports
from ternmq.model import specs
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import Limits, RetryPolicy, SubscriptionSpec, TopicSpec
from ternmq.model.units import write_duration, write_size
from ternmq.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "defaults.md"

_INTRODUCTION = """# Defaults

Made by `make docs` from the code: change it there.

This page lists the value of each setting and argument that you do not set. For the settings of the
broker itself, see [settings](settings.md).
"""

_BOUNDS = """\
A value outside its bounds is refused with `InvalidRequest`; `ternmq` then exits with status 2.
Use a short lease only in tests: if a consumer is blocked for longer than its lease (a slow disk or
network, a paused machine), it loses its messages to other consumers. A group that was created with
a lease below the bound keeps this lease.
"""


def default(function: Callable[..., Any], name: str) -> Any:
    """Return what an argument is when it is not given."""
    return inspect.signature(function).parameters[name].default


def seconds(value: float) -> str:
    return write_duration(round(value * 1_000_000))


def tables() -> dict[str, list[tuple[str, str]]]:
    """Return the tables of the page: (what, value)."""
    topic, group, retry = TopicSpec(name="t"), SubscriptionSpec(), RetryPolicy()
    settings, limits = Settings(), Limits()
    options = Options(address=ternmq.connect("ternmq://localhost").options.address)
    client = ternmq.Client
    return {
        "A topic": [
            ("queues", f"{topic.queues}"),
            ("ordered", "yes" if topic.ordered else "no"),
            ("durability", f"`{topic.durability.value}`"),
            ("messages are kept", write_duration(topic.retention_us)),
            (
                "messages that a group has not finished are kept",
                "until it has finished them" if topic.keep_until_consumed else "no longer",
            ),
            (
                "old messages are removed early",
                f"if more than {settings.retention_watermark:.0%} of the disk is in use",
            ),
        ],
        "A group": [
            ("mode", f"`{group.mode.value}`; on ordered topics `ordered`"),
            ("start", f"`{group.start.value}`"),
            (
                "lease",
                f"{write_duration(group.lease_us)}, extended while a consumer works on the message",
            ),
            ("messages of a queue that all members hold", f"{group.window:,} at most"),
            ("a session that lost its connection is kept", write_duration(limits.session_grace_us)),
        ],
        "Failures": [
            ("first delay", write_duration(retry.first_us)),
            ("each later delay", f"x {retry.factor:g}, cap {write_duration(retry.cap_us)}"),
            ("jitter", f"{retry.jitter:.0%} more or less"),
            ("attempts in all", f"{retry.attempts}"),
            ("after the last attempt", f"`{retry.exhausted.value}`"),
            ("dead letters are kept", write_duration(limits.dead_letter_us)),
            ("longest delay of a `Retry(...)`", f"{concluding.MAX_DELAY // 86_400} d"),
        ],
        "Sending": [
            ("`timeout`, including further tries", seconds(options.timeout)),
            ("body", f"{write_size(settings.body_bytes)} at most"),
            ("`id`", f"{MAX_ID_BYTES} bytes at most"),
            (
                "deduplication",
                (
                    f"{write_duration(limits.dedup_window_us)}, "
                    f"{limits.dedup_batches:,} batches and ids at most"
                ),
            ),
            ("queue", "by ordering key or key; without a key, each batch goes to the next queue"),
            (
                "unsent and unanswered messages in the client",
                (
                    f"{write_size(options.buffer_bytes)}, "
                    f"of these {write_size(options.window_bytes)} unanswered"
                ),
            ),
            (
                "one batch",
                (
                    f"{write_size(options.batch_bytes)} of bodies, "
                    f"{options.batch_rows:,} messages at most"
                ),
            ),
            ("counts are reported", f"every {seconds(reports.BEAT)}"),
        ],
        "Consuming": [
            (
                "`max_in_flight`",
                (
                    "`None`: one for each free handler, and in advance as many as the handlers "
                    f"finish in {prefetch.SPAN_S:g} s, {prefetch.MOST_AHEAD:,} at most"
                ),
            ),
            (
                "unsettled messages that a `consume` loop holds, without `max_in_flight`",
                f"{consumer.UNSETTLED} at most",
            ),
            ("`concurrency` of a handler", f"{default(client.handler, 'concurrency')}"),
            (
                "`pull`",
                (
                    f"{default(client.pull, 'max_messages')} messages at most, "
                    f"waits {seconds(default(client.pull, 'wait'))}"
                ),
            ),
            (
                "`consume_batches`",
                (
                    f"{default(client.consume_batches, 'max_messages')} messages at most, "
                    f"collected for {seconds(default(client.consume_batches, 'max_wait'))} at most"
                ),
            ),
            (
                "leases are extended",
                (
                    f"for {seconds(options.max_processing_time)} (`max_processing_time`); "
                    "of a message in a handler, until it ends"
                ),
            ),
            ("a client that stops waits for handlers", seconds(options.drain_timeout)),
        ],
        "Connections": [
            ("broker", f"`{settings.listen}`"),
            ("connections of a client", f"{CONNECTIONS} at most"),
            ("one attempt to connect", seconds(options.connect_timeout)),
            (
                "pause before the next attempt to connect",
                f"{seconds(options.first_backoff)} x 2, cap {seconds(options.longest_backoff)}",
            ),
            ("heartbeat", write_duration(settings.heartbeat_us)),
        ],
    }


_CENTURY = "a hundred years"


def bounds() -> list[tuple[str, str, str]]:
    """Return what times and numbers can be: (what, least, most)."""
    least_lease, most_lease = write_duration(LEAST_LEASE_US), write_duration(specs.MAX_LEASE_US)
    return [
        ("`lease` of a group", least_lease, most_lease),
        ("`window` of a group", "1", f"{specs.MAX_WINDOW:,}"),
        ("`first` of a retry policy", "0", "`cap`"),
        ("`cap`", "`first`", _CENTURY),
        ("`factor`", "1", f"{specs.MAX_FACTOR:,g}"),
        ("`jitter`", "0", "below 1"),
        ("`attempts`", "1", f"{specs.MAX_ATTEMPTS:,}"),
        ("delay of one `Retry(...)`, `retry(delay)`", "0", f"{concluding.MAX_DELAY // 86_400} d"),
        (
            "messages in one call of `deadletters.retry`, `delete` or `redrive`",
            "0",
            f"{places.MOST_NAMED:,}",
        ),
        ("`retention` of a topic", "more than 0", _CENTURY),
        ("`queues` of a topic", "1", "4,096"),
        ("`wait` of a pull", "0", "1d"),
        ("`timeout`, `connect_timeout`, `max_processing_time`", "more than 0", "none"),
        ("`drain_timeout`", "0 (no wait)", "none"),
    ]


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for title, rows in tables().items():
        lines = [f"\n## {title}\n", "| what | default |", "|---|---|"]
        lines += [f"| {what} | {value} |" for what, value in rows]
        parts.append("\n".join(lines) + "\n")
    lines = ["\n## Bounds\n", _BOUNDS, "| what | least | most |", "|---|---|---|"]
    parts.append("\n".join(lines + [f"| {' | '.join(row)} |" for row in bounds()]) + "\n")
    return "".join(parts)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize("lease", [0, 0.001, 0.0999, 86_400.1, timedelta(milliseconds=1)])
def test_a_lease_that_a_client_cannot_keep_is_refused(lease: float | timedelta) -> None:
    with pytest.raises(InvalidRequest, match=r"^lease must be 0\.1 s to a day, not "):
        Source("t", "g", lease=lease)
    assert Source("t", "g", lease=0.1).lease_us == LEAST_LEASE_US
    assert Source("t", "g", lease=86_400).lease_us == specs.MAX_LEASE_US
    # As a broker has it that was given one by an earlier version.
    SubscriptionSpec(lease_us=specs.LEAST_LEASE_US).check()


@pytest.mark.parametrize(
    ("field", "fits", "beyond"),
    [
        ("attempts", (1, specs.MAX_ATTEMPTS), (0, specs.MAX_ATTEMPTS + 1)),
        ("factor", (1, specs.MAX_FACTOR), (0.9, specs.MAX_FACTOR + 1)),
        ("jitter", (0, 0.99), (-0.1, 1)),
        ("first", (0, 300), (-1, 301)),
        ("cap", (1, 36_525 * 86_400), (0.5, 36_526 * 86_400)),
    ],
)
def test_the_bounds_of_a_retry_policy_are_those_of_the_page(
    field: str, fits: tuple[float, ...], beyond: tuple[float, ...]
) -> None:
    made: Any = Policy
    for value in fits:
        made(**{field: value})
    for value in beyond:
        with pytest.raises(InvalidRequest):
            made(**{field: value})


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
