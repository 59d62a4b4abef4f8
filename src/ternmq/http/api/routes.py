"""The table of routes. The server, OpenAPI and the reference page are made of it."""

from __future__ import annotations

from typing import Final

from ternmq.http.api import broker, consuming, groups, messages, topics
from ternmq.http.api.call import Route

ROUTES: Final[tuple[Route, ...]] = (
    *messages.ROUTES, *consuming.ROUTES, *topics.ROUTES, *groups.ROUTES, *broker.ROUTES,
)  # fmt: skip
