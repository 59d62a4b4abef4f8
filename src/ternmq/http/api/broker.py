"""The broker itself: its state, apps, connected clients and open alarms."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ternmq.client.forms import apps as forms
from ternmq.client.forms import clients
from ternmq.client.forms.values import of_us
from ternmq.http.api.call import TEXT, Answer, Call, Parameter, Route
from ternmq.http.api.listing import LIMIT, page
from ternmq.model.errors import UnknownApp
from ternmq.wire.commands import Command

_APP: Final = "/v1/apps/{app}"
_PAGE: Final = (
    Parameter("q", TEXT, "Only names that contain this."),
    Parameter("after", TEXT, "Only names behind this one: `next` of the page before."),
    LIMIT,
)


class App(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Grants of an app, each as text: ``produce:orders``, ``consume:orders:billing``."""

    grants: list[str]
    owner: str = ""
    new_token: bool = False


class NewApp(App, kw_only=True):
    """A new app."""

    app: str


async def status(call: Call) -> Answer:
    """GET the state of the broker."""
    found = await call.client.admin.status()
    return Answer(
        {
            "broker": found.broker,
            "version": found.version,
            "role": found.role,
            "epoch": found.epoch,
            "now": of_us(found.now_us),
            "uptime_s": found.uptime_us / 1e6,
            "alarms": found.alarms,
            "disk": {
                "free_bytes": found.disk_free_bytes,
                "total_bytes": found.disk_total_bytes,
                "used": found.disk_used,
            },
        }
    )


async def alarms(call: Call) -> Answer:
    """GET the open alarms."""
    found = await call.client.admin.alarms()
    return Answer(
        {
            "items": [
                {"alarm": one.name, "subject": one.subject, "since": one.since, "text": one.text}
                for one in found
            ]
        }
    )


async def connected(call: Call) -> Answer:
    """GET the connected clients."""
    return Answer({"items": [clients.plain(one) for one in await call.client.admin.clients()]})


async def list_apps(call: Call) -> Answer:
    """GET all apps."""
    return page([forms.plain(one) for one in await call.client.admin.apps()], call.given, "app")


async def _app(call: Call, name: str) -> dict[str, object]:
    for one in await call.client.admin.apps():
        if one.app == name:
            return forms.plain(one)
    raise UnknownApp(f"there is no app {name!r}")


async def get_app(call: Call) -> Answer:
    """GET an app."""
    return Answer(await _app(call, call.path["app"]))


async def create_app(call: Call) -> Answer:
    """POST a new app; its token is in the answer, and is not shown again."""
    asked = call.take(NewApp)
    return await _put(call, asked.app, asked, HTTPStatus.CREATED)


async def put_app(call: Call) -> Answer:
    """PUT the grants of an app."""
    return await _put(call, call.path["app"], call.take(App), HTTPStatus.OK)


async def _put(call: Call, name: str, asked: App, status: HTTPStatus) -> Answer:
    token = await call.client.admin.put_app(
        name, asked.grants, owner=asked.owner, new_token=asked.new_token
    )
    found: dict[str, Any] = await _app(call, name)
    if token:
        found["token"] = token
    return Answer(found, status, {"Location": f"/v1/apps/{quote(name)}"})


async def delete_app(call: Call) -> Answer:
    """DELETE an app."""
    await call.client.admin.delete_app(call.path["app"])
    return Answer({"done": True, "app": call.path["app"]})


ROUTES: Final = (
    Route("GET", "/v1/broker", (Command.STATUS,), "Show the state of the broker.", status, (), None,
          "broker"),
    Route("GET", "/v1/alarms", (Command.ALARM_LIST,), "List the open alarms.", alarms, (), None,
          "alarms"),
    Route("GET", "/v1/clients", (Command.CLIENT_LIST,), "List the connected clients.", connected,
          (), None, "clients"),
    Route("GET", "/v1/apps", (Command.APP_LIST,), "List the apps.", list_apps, _PAGE, None, "apps"),
    Route(
        "POST", "/v1/apps", (Command.APP_PUT, Command.APP_LIST),
        "Create an app. The answer has its token, which is not shown again.", create_app, (),
        NewApp, "app", HTTPStatus.CREATED,
    ),
    Route("GET", _APP, (Command.APP_LIST,), "Show an app.", get_app, (), None, "app"),
    Route(
        "PUT", _APP, (Command.APP_PUT, Command.APP_LIST),
        "Set the grants of an app; with `new_token`, the answer has a new token.", put_app, (), App,
        "app",
    ),
    Route("DELETE", _APP, (Command.APP_DELETE,), "Delete an app.", delete_app, (), None, "outcome"),
)  # fmt: skip
