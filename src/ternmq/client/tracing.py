"""``traceparent`` and its like: into the headers of what is sent, out of those of what comes.

Done when OpenTelemetry is installed, by the propagators that it is set up with; else nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

try:
    from opentelemetry import context as _context
    from opentelemetry import propagate as _propagate
except ImportError:
    enabled = False
else:
    enabled = True
"""OpenTelemetry is there."""


def active() -> bool:
    """Return whether there may be something to send along: a span, or baggage. 0.2 µs."""
    return enabled and bool(_context.get_current())


def sent(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers with what the current span adds; those given win."""
    if not active():
        return headers
    carrier: dict[str, str] = {}
    _propagate.inject(carrier)
    if not carrier:
        return headers
    return {**carrier, **headers}


@contextmanager
def received(headers: Mapping[str, str]) -> Iterator[None]:
    """Let spans that begin in this block continue the sender's trace."""
    if not enabled or not headers:
        yield
        return
    token = _context.attach(_propagate.extract(dict(headers)))
    try:
        yield
    finally:
        _context.detach(token)
