"""The web application: requests become calls, errors become problems."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from ternmq.http.api import openapi, problems
from ternmq.http.api.call import Answer, Call, Route, parsed
from ternmq.http.api.credentials import Credential, credential_of
from ternmq.http.api.guard import BODY_BYTES, Guard
from ternmq.http.api.pool import Pool
from ternmq.http.api.problems import (
    MethodNotAllowed,
    NotFound,
)
from ternmq.http.api.routes import ROUTES
from ternmq.model.errors import InvalidRequest, TernMQError
from ternmq.model.units import Address

log: Final = logging.getLogger("ternmq")

KEEP_ALIVE_S: Final = 15.0
SWEEP_S: Final = 5.0
_QUERY_FIELDS: Final = 100
_HEADERS: Final = {
    "Server": "ternmq",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_CHALLENGE: Final = 'Basic realm="TernMQ", charset="UTF-8"'
_UNAUTHORISED: Final = 401


@dataclass(slots=True, frozen=True)
class Settings:
    """Settings of the server.

    Attributes:
        url: The broker; None: as every client.
        listen: Where it listens.
        hosts: Names that requests may be for, beside loopback addresses; a name protects those on
            loopback from pages that rebind their own name to it.
        timeout: Seconds for a request to the broker in all.
    """

    url: str | None
    listen: Address
    hosts: Collection[str] = ()
    timeout: float = 10.0


class Api:
    """The routes over one pool. Not thread-safe: use it in one loop."""

    def __init__(self, settings: Settings) -> None:
        self._guarding = Guard(settings.hosts, local=settings.listen.is_loopback)
        self.pool = Pool(settings.url, settings.timeout)
        self.stopping = asyncio.Event()
        self._openapi = msgspec.json.encode(openapi.document())

    def application(self) -> web.Application:
        """Return the application, to be run."""
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES)
        for route in ROUTES:
            app.router.add_route(route.method, route.path, self._handler(route))
        app.router.add_get("/v1/openapi.json", self._describe)
        app.router.add_get("/livez", _alive)
        app.cleanup_ctx.append(self._running)
        return app

    @asynccontextmanager
    async def _running(self, _app: web.Application) -> AsyncIterator[None]:
        sweeping = asyncio.get_running_loop().create_task(self._sweep())
        yield
        sweeping.cancel()
        await self.pool.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.pool.sweep()

    async def _describe(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._openapi, content_type="application/json")

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Answer every error as a problem, and give every answer its headers."""
        request_id = secrets.token_hex(8)
        try:
            self._guarding.check(request)
            response = await handler(request)
        except TernMQError as error:
            response = _problem(error, request_id)
        except web.HTTPException as error:
            response = _problem(_of_web(request, error), request_id)
        except Exception:
            log.exception("request %s failed: %s %s", request_id, request.method, request.path)
            response = _problem(_Unexpected("an error of the server: see its log"), request_id)
        response.headers.update(_HEADERS)
        response.headers["Request-Id"] = request_id
        return response

    def _handler(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            given = parsed(route, _query_of(request), request.headers)
            credential = credential_of(request.headers)
            body = await self._guarding.body(request) if route.takes is not None else b""
            try:
                return await self._answer(route, request, given, credential, body)
            finally:
                self._guarding.done(len(body))

        return handle

    async def _answer(
        self,
        route: Route,
        request: web.Request,
        given: dict[str, Any],
        credential: Credential,
        body: bytes,
    ) -> web.StreamResponse:
        async with self.pool.session(credential) as entry:
            answer = await route.handler(
                Call(
                    entry.client,
                    entry.detached,
                    request.match_info,
                    given,
                    request.headers,
                    body,
                    request.content_type if "Content-Type" in request.headers else "",
                    self.stopping,
                )
            )
        return _response(answer)


class _Unexpected(TernMQError):
    """An error of the server."""


def _query_of(request: web.Request) -> list[tuple[str, str]]:
    text = request.rel_url.raw_query_string
    try:
        return parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict",
            max_num_fields=_QUERY_FIELDS,
        )  # fmt: skip
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the query cannot be read: {error}") from error


def _response(answer: Answer) -> web.Response:
    return web.Response(
        body=answer.data(),
        status=int(answer.status),
        headers={**answer.headers, "Content-Type": answer.content_type},
    )


def _problem(error: TernMQError, request_id: str) -> web.Response:
    told = problems.problem(error, request_id)
    headers = {"Content-Type": problems.CONTENT_TYPE}
    if told["status"] == _UNAUTHORISED:
        headers["WWW-Authenticate"] = _CHALLENGE
    if told["retriable"]:
        headers["Retry-After"] = str(problems.RETRY_AFTER_S)
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(error.allowed))
    body = msgspec.json.encode(told) + b"\n"
    return web.Response(body=body, status=told["status"], headers=headers)


def _of_web(request: web.Request, error: web.HTTPException) -> TernMQError:
    """Return the error for one of the library."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        return MethodNotAllowed(
            f"{request.path} has no method {error.method}", set(error.allowed_methods)
        )
    if isinstance(error, web.HTTPNotFound):
        return NotFound(f"there is no path {request.path[:200]!r}: see /v1/openapi.json")
    return InvalidRequest(error.reason)


async def _alive(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="alive\n")
