"""OpenTelemetry: a trace goes in at the send and comes out where the message is worked on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API


@pytest.fixture
def tracer() -> Iterator[trace.Tracer]:
    provider = TracerProvider()
    yield provider.get_tracer("tests")
    provider.shutdown()


def current_trace() -> int:
    return trace.get_current_span().get_span_context().trace_id


async def test_a_trace_goes_along(api: API, real: InProcessBroker, tracer: trace.Tracer) -> None:
    traces: dict[bytes, int] = {}
    parents: dict[bytes, int] = {}
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        for body in (b"one", b"two"):
            with tracer.start_as_current_span("send") as span:
                traces[body] = span.get_span_context().trace_id
                parents[body] = span.get_span_context().span_id
                await client.send("orders", body, headers={"own": "1"})
        with tracer.start_as_current_span("send many") as span:
            traces[b"three"] = span.get_span_context().trace_id
            parents[b"three"] = span.get_span_context().span_id
            await client.send_many("orders", [b"three"])
        await client.send("orders", b"without")
        await client.send_many("orders", [b"without"])
    seen: dict[bytes, int] = {}
    consumer = ternmq.connect(real.url)
    worked: list[bytes] = []

    @consumer.handler("orders", group="g", concurrency=1)
    async def handle(delivery: ternmq.Delivery) -> None:
        worked.append(delivery.body)
        with tracer.start_as_current_span("work") as span:
            assert isinstance(span, ReadableSpan)
            if delivery.body != b"without":
                assert span.parent is not None
                assert span.parent.span_id == parents[delivery.body]
                assert span.parent.is_remote
                seen[delivery.body] = span.get_span_context().trace_id
            else:
                assert span.parent is None
                assert not delivery.headers
        if delivery.body == b"one":
            assert delivery.headers["own"] == "1"
        if len(worked) == 5:
            consumer.stop()

    await consumer.run()
    assert sorted(worked) == [b"one", b"three", b"two", b"without", b"without"]
    assert seen == traces
    assert len(set(traces.values())) == 3
    assert current_trace() == 0, "nothing stays attached"


async def test_a_handler_in_a_thread_has_it_too(
    real: InProcessBroker, tracer: trace.Tracer
) -> None:
    client = await ternmq.connect(real.url)
    with tracer.start_as_current_span("send") as span:
        sent = span.get_span_context().trace_id
        await client.send("orders", b"x")
    seen: list[int] = []

    @client.handler("orders", group="g")
    def handle(delivery: ternmq.sync.Delivery) -> None:
        seen.append(current_trace())
        client.stop()

    await client.run()
    assert seen == [sent]


async def test_what_was_given_wins_and_baggage_goes_along(
    real: InProcessBroker, tracer: trace.Tracer
) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with ternmq.connect(real.url) as client:
        token = context.attach(baggage.set_baggage("tenant", "blue"))
        try:
            with tracer.start_as_current_span("send"):
                await client.send("orders", b"x", headers={"traceparent": own})
        finally:
            context.detach(token)
        (delivery,) = await client.pull("orders", group="g")
        assert delivery.headers == {"traceparent": own, "baggage": "tenant=blue"}
        await delivery.ack()


_WITHOUT = """
import sys
for name in ("opentelemetry", "pydantic"):
    sys.modules[name] = None  # as if it were not installed
import ternmq, ternmq.sync
from ternmq.client.content import tracing
from ternmq.testing import broker
assert not tracing.enabled
with broker(manual=False) as one, ternmq.sync.connect(one.url) as client:
    client.send("orders", {"n": 1}, headers={"traceparent": "00-a-b-01"})
    client.send_many("orders", [b"2"])
    first, second = client.pull("orders", group="g", max_messages=2)
    assert (first.value, first.headers) == ({"n": 1}, {"traceparent": "00-a-b-01"})
    with tracing.received(first.headers):
        first.ack()
    second.ack()
print("works")
"""


def test_it_works_without_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "works\n"), done.stderr
