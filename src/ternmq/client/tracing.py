"""``traceparent`` and its like: into the headers of what is sent, out of those of what comes.

Done when OpenTelemetry is installed, by the propagators that it is set up with; else nothing. It is
imported with the first message that has something to take along: that takes 40 ms, which a command
of the command line does not need.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

try:
    import opentelemetry.environment_variables  # noqa: F401 - says that its API is there, no more
except ImportError:
    enabled = False
else:
    enabled = True
"""OpenTelemetry is there."""


def active() -> bool:
    """Return whether there may be something to send along: a span, or baggage. 0.2 µs.

    Where nobody has imported OpenTelemetry's context, or is about to, nothing was put into it.
    """
    current = getattr(sys.modules.get("opentelemetry.context"), "get_current", None)
    return current is not None and bool(current())


def sent(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers with what the current span adds; those given win."""
    if not active():
        return headers
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    if not carrier:
        return headers
    return {**carrier, **headers}


@contextmanager
def received(headers: Mapping[str, str]) -> Iterator[None]:
    """Let spans that begin in this block continue the sender's trace."""
    if not enabled or not headers:
        yield
        return
    from opentelemetry import context, propagate

    token = context.attach(propagate.extract(dict(headers)))
    try:
        yield
    finally:
        context.detach(token)
