"""Topics, and what is not due yet on them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from ternmq.client.forms import scheduled
from ternmq.client.forms import topics as forms
from ternmq.http.api.call import FLAG, MOMENT, TEXT, WHOLE, Answer, Call, Parameter, Route
from ternmq.http.api.listing import LIMIT, page
from ternmq.wire.commands import Command

_TOPIC: Final = "/v1/topics/{topic}"


class Change(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Settings of a topic that can be changed; what is left out stays as it is."""

    queues: int | UnsetType = UNSET
    durability: str | UnsetType = UNSET
    retention_s: float | UnsetType = UNSET
    keep_until_consumed: bool | UnsetType = UNSET
    ignore_ordering_keys: bool | UnsetType = UNSET
    expires_s: float | UnsetType = UNSET


class Create(Change, kw_only=True):
    """A new topic."""

    topic: str
    ordered: bool | UnsetType = UNSET
    levels: int | UnsetType = UNSET
    broadcast: bool | UnsetType = UNSET


_ARGUMENTS: Final = {"retention_s": "retention", "expires_s": "expires_after"}


def _stated(asked: Change) -> dict[str, Any]:
    """Return the arguments of the client's call for the fields that were given."""
    return {
        _ARGUMENTS.get(name, name): value
        for name in asked.__struct_fields__
        if name != "topic" and (value := getattr(asked, name)) is not UNSET
    }


async def list_(call: Call) -> Answer:
    """GET the topics on which the caller has a right."""
    found = await call.client.admin.topics()
    return page([forms.plain(one) for one in found], call.given, "topic")


async def create(call: Call) -> Answer:
    """POST a new topic."""
    asked = call.take(Create)
    await call.client.admin.create_topic(asked.topic, **_stated(asked))
    found = await call.client.admin.topic(asked.topic)
    where = {"Location": f"/v1/topics/{quote(asked.topic)}"}
    return Answer(forms.plain(found), HTTPStatus.CREATED, where)


async def get(call: Call) -> Answer:
    """GET a topic."""
    return Answer(forms.plain(await call.client.admin.topic(call.path["topic"])))


async def change(call: Call) -> Answer:
    """PATCH a topic."""
    asked = call.take(Change)
    await call.client.admin.change_topic(call.path["topic"], **_stated(asked))
    return await get(call)


async def delete(call: Call) -> Answer:
    """DELETE a topic; with ``dry_run`` only say what would go."""
    info = await call.client.admin.topic(call.path["topic"])
    done = not call.given.get("dry_run", False)
    if done:
        await call.client.admin.delete_topic(call.path["topic"])
    return Answer({"done": done, "deleted": forms.plain(info)})


async def hours(call: Call) -> Answer:
    """GET how many messages become due, by the hour."""
    found = await call.client.admin.scheduled(call.path["topic"])
    items = [{"hour": one.hour, "messages": one.messages} for one in found]
    return Answer({"items": items})


async def due(call: Call) -> Answer:
    """GET messages that are not due yet."""
    given = dict(call.given)
    found = await call.client.admin.scheduled_messages(
        call.path["topic"],
        since=given.get("since"),
        until=given.get("until"),
        limit=given.get("limit", 100),
    )
    return Answer({"items": [scheduled.plain(one) for one in found]})


async def cancel(call: Call) -> Answer:
    """DELETE a message that is not due yet."""
    await call.client.cancel(call.path["topic"], call.path["id"])
    return Answer({"done": True, "id": call.path["id"]})


DRY_RUN: Final = Parameter("dry_run", FLAG, "Only say what would happen.")

ROUTES: Final = (
    Route(
        "GET", "/v1/topics", (Command.TOPIC_LIST,), "List the topics on which the app has a right.",
        list_,
        (
            Parameter("q", TEXT, "Only names that contain this."),
            Parameter("after", TEXT, "Only names behind this one: `next` of the page before."),
            LIMIT,
        ),
        None, "topics",
    ),
    Route(
        "POST", "/v1/topics", (Command.TOPIC_CREATE, Command.TOPIC_LIST), "Create a topic.", create,
        (), Create, "topic", HTTPStatus.CREATED,
    ),
    Route("GET", _TOPIC, (Command.TOPIC_LIST,), "Show a topic.", get, (), None, "topic"),
    Route(
        "PATCH", _TOPIC, (Command.TOPIC_CHANGE, Command.TOPIC_LIST),
        "Change settings of a topic; what is left out stays as it is.", change, (), Change, "topic",
    ),
    Route(
        "DELETE", _TOPIC, (Command.TOPIC_DELETE, Command.TOPIC_LIST),
        "Delete a topic with all its messages and groups.", delete, (DRY_RUN,), None, "outcome",
    ),
    Route(
        "GET", f"{_TOPIC}/scheduled/hours", (Command.SCHEDULE_HOURS,),
        "Count the messages that are not due yet, by the hour.", hours, (), None, "hours",
    ),
    Route(
        "GET", f"{_TOPIC}/scheduled", (Command.SCHEDULE_LIST,),
        "List messages that are not due yet.", due,
        (
            Parameter("since", MOMENT, "Only those due from then on."),
            Parameter("until", MOMENT, "Only those due before."),
            Parameter("limit", WHOLE, "Most of them; by default 100."),
        ),
        None, "scheduled messages",
    ),
    Route(
        "DELETE", f"{_TOPIC}/scheduled/{{id}}", (Command.SCHEDULE_CANCEL,),
        "Cancel a message that is not due yet.", cancel, (), None, "outcome",
    ),
)  # fmt: skip
