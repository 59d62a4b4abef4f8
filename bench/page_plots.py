"""The plots of the page: which figures stand in which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from svg_plot import Row, plot

Results = Mapping[str, Mapping[str, Any]]
"""By suite, then by measurement, as ``runner`` writes them."""

# The columns of ``peers``: a broker, and the language of its client.
PEER_NAMES: Final = {
    "ternmq": "TernMQ (Python)",
    "redis": "Redis (Python)",
    "redis_go": "Redis (Go)",
    "rabbitmq": "RabbitMQ, classic (Python)",
    "rabbitmq_go": "RabbitMQ, classic (Go)",
    "rabbitmq_quorum": "RabbitMQ, quorum (Python)",
    "rabbitmq_quorum_go": "RabbitMQ, quorum (Go)",
    "nats_go": "NATS JetStream (Go)",
    "kafka_java": "Kafka (Java)",
    "rocketmq_java": "RocketMQ (Java)",
}


def rate(value: float) -> str:
    """Return a rate as text: 1.2 M, 450 k, 90."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value / 1e3:.3g} k" if value >= 1e3 else f"{value:.3g}"


def ms(value: float) -> str:
    """Return milliseconds as text."""
    return f"{value:.3g} ms"


def ratio(value: float) -> str:
    """Return a share as text."""
    return f"{value:.2f}"


def values(results: Results, suite: str, name: str, figure: str) -> list[float]:
    """Return all values of a figure; none if it was not measured."""
    one = results.get(suite, {}).get(name)
    found = one["figures"].get(figure) if one else None
    return list(found["values"]) if found else []


def plots(results: Results, rounds: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return SVGs by name; what was not measured is left out."""
    found: dict[str, str] = {}

    def add(
        name: str,
        title: str,
        subtitle: str,
        rows: Sequence[Row],
        shown: Callable[[float], str],
        *,
        from_zero: bool = False,
    ) -> None:
        there = [row for row in rows if row.values]
        if there:
            found[name] = plot(title, subtitle, there, shown, from_zero=from_zero)

    def of(
        label: str, name: str, figure: str, target: float | None = None, kind: str = "ours"
    ) -> Row:
        return Row(label, values(results, "broker", name, figure), kind, target)

    add(
        "throughput", "Messages a second, one client process",
        "every round a dot, the median a stroke, the aim a triangle; logarithmic; more is better",
        [
            of("send 1 KiB, 256 in flight", "sends-256", "sends_per_s", 50_000),
            of("send_many, 100 B", "send-many", "messages_per_s", 500_000),
            of("send_soon, 100 B", "send-soon", "messages_per_s", 150_000),
            of("pull and ack, 100 B", "pull", "messages_per_s", 300_000),
            of("process(), 100 B", "process", "messages_per_s", 80_000),
            of("async handler, 100 B", "handler", "messages_per_s", 80_000),
            of("70 groups, all together", "groups-70", "deliveries_per_s", 600_000),
        ],
        rate,
    )  # fmt: skip
    add(
        "latency", "Time until an answer",
        "beside the raw disk of the same rounds; logarithmic; less is better",
        [
            of("one send at a time, p50", "sends-1", "p50_ms"),
            of("  a raw write and fdatasync, p50", "sends-1", "raw_p50_ms", kind="raw"),
            of("5,000/s, send to handler, p50", "end-to-end", "p50_ms"),
            of("5,000/s, send to handler, p99", "end-to-end", "p99_ms"),
            of("  a raw write and fdatasync, p99", "end-to-end", "raw_p99_ms", kind="raw"),
            of("256 sends in flight, p50", "sends-256", "p50_ms"),
            of("256 sends in flight, p99", "sends-256", "p99_ms"),
        ],
        ms,
    )  # fmt: skip
    for name, title, figure, shown in (
        ("sends-256", "Durable sends of 1 KiB a second, 256 in flight", "per_s", rate),
        ("sends-1", "One durable send of 1 KiB at a time, median time", "p50_ms", ms),
        ("bulk", "Durable messages of 100 bytes a second, 1,000 in flight", "per_s", rate),
        ("consume", "Messages of 100 bytes taken and acknowledged a second", "per_s", rate),
        ("end-to-end", "2,000 durable messages a second, due to received, median", "p50_ms", ms),
    ):
        rows = [
            Row(label, values(results, "peers", name, f"{peer}_{figure}"),
                "ours" if peer == "ternmq" else "peer")
            for peer, label in PEER_NAMES.items()
        ]  # fmt: skip
        if figure == "p50_ms":
            raw = values(results, "peers", name, "raw_p50_ms")
            rows.append(Row("a raw write and fdatasync", raw, "raw"))
        better = "more is better" if figure == "per_s" else "less is better"
        add(f"peers-{name}", title, f"the same rounds; logarithmic; {better}", rows, shown)
    add(
        "rounds", "After each change: CPU time a message against before",
        "every pair a dot; below the triangle is better",
        [
            Row(f"{at}. {load}, {figure[:6]}", one["figures"][figure]["ratios"], target=1.0)
            for at, kept in enumerate(rounds, 1)
            for load, one in kept["loads"].items()
            for figure in (kept["figure"],)
            if figure in one["figures"]
        ],
        ratio, from_zero=True,
    )  # fmt: skip
    return found
