"""Consumer groups, and their failed messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from ternmq.client.declaration.policy import RetryPolicy
from ternmq.client.forms import failures
from ternmq.client.forms import groups as forms
from ternmq.http.api.call import TEXT, WHOLE, Answer, Call, Handler, Parameter, Route
from ternmq.http.api.listing import LIMIT, page
from ternmq.http.api.topics import DRY_RUN
from ternmq.model.errors import InvalidRequest
from ternmq.wire.commands import Command

_TOPIC: Final = "/v1/topics/{topic}"
_GROUP: Final = "/v1/topics/{topic}/groups/{group}"
_FAILED: Final = 100
_MOST_FAILED: Final = 1000


class Retry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """When a failed message is delivered again, and how often."""

    enabled: bool | UnsetType = UNSET
    first_s: float | UnsetType = UNSET
    factor: float | UnsetType = UNSET
    cap_s: float | UnsetType = UNSET
    jitter: float | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    exhausted: str | UnsetType = UNSET
    expires_s: float | UnsetType = UNSET


class _Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Settings that a group is made with, and that can be changed."""

    tags: str | UnsetType = UNSET
    filter: str | UnsetType = UNSET
    mode: str | UnsetType = UNSET
    lease_s: float | UnsetType = UNSET
    retry: Retry | UnsetType = UNSET


class Create(_Settings, kw_only=True):
    """A new group."""

    group: str
    start: str | UnsetType = UNSET


class Change(_Settings, kw_only=True):
    """Settings of a group; what is left out stays as it is."""

    window: int | UnsetType = UNSET
    concurrency: int | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    offline: list[str] | UnsetType = UNSET
    expired: str | UnsetType = UNSET


class Reset(msgspec.Struct, forbid_unknown_fields=True):
    """Where a group goes on: ``earliest``, ``latest``, a time, or an offset of a queue."""

    to: str | int
    queue: int | None = None


class Skip(msgspec.Struct, forbid_unknown_fields=True):
    """The message that a group skips."""

    queue: int
    offset: int


class Chosen(msgspec.Struct, forbid_unknown_fields=True):
    """Failed messages of one queue."""

    offsets: list[int]
    queue: int | None = None


_ARGUMENTS: Final = {
    "lease_s": "lease", "first_s": "first", "cap_s": "cap", "expires_s": "expires",
}  # fmt: skip


def _stated(asked: Create | Change | Retry) -> dict[str, Any]:
    """Return the arguments of the client's call for the fields that were given."""
    return {
        _ARGUMENTS.get(name, name): value
        for name in asked.__struct_fields__
        if name not in {"group", "retry"} and (value := getattr(asked, name)) is not UNSET
    }


async def list_(call: Call) -> Answer:
    """GET the groups of a topic on which the caller has a right."""
    found = await call.client.admin.groups(call.path["topic"])
    if not found:
        await call.client.admin.topic(call.path["topic"])  # refused if there is none
    return page([forms.plain(one) for one in found], call.given, "group")


async def get(call: Call) -> Answer:
    """GET a group."""
    return Answer(
        forms.plain(await call.client.admin.group(call.path["topic"], call.path["group"]))
    )


async def create(call: Call) -> Answer:
    """POST a new group."""
    asked, topic = call.take(Create), call.path["topic"]
    retry = None if asked.retry is UNSET else RetryPolicy(**_stated(asked.retry))
    await call.client.admin.create_group(topic, asked.group, retry=retry, **_stated(asked))
    where = {"Location": f"/v1/topics/{quote(topic)}/groups/{quote(asked.group)}"}
    found = await call.client.admin.group(topic, asked.group)
    return Answer(forms.plain(found), HTTPStatus.CREATED, where)


async def change(call: Call) -> Answer:
    """PATCH a group."""
    asked = call.take(Change)
    admin, topic, group = call.client.admin, call.path["topic"], call.path["group"]
    retry = None
    if asked.retry is not UNSET:
        policy = (await admin.group(topic, group)).spec.policy
        named = {_ARGUMENTS.get(name, name): one for name, one in forms.policy(policy).items()}
        retry = RetryPolicy(**(named | _stated(asked.retry)))
    await admin.change_group(topic, group, retry=retry, **_stated(asked))
    return await get(call)


async def delete(call: Call) -> Answer:
    """DELETE a group; with ``dry_run`` only say what would go."""
    admin, topic, group = call.client.admin, call.path["topic"], call.path["group"]
    info = await admin.group(topic, group)
    done = not call.given.get("dry_run", False)
    if done:
        await admin.delete_group(topic, group)
    return Answer({"done": done, "deleted": forms.plain(info)})


async def pause(call: Call) -> Answer:
    """POST: deliver nothing until it is resumed."""
    await call.client.admin.pause_group(call.path["topic"], call.path["group"])
    return await get(call)


async def resume(call: Call) -> Answer:
    """POST: deliver again."""
    await call.client.admin.resume_group(call.path["topic"], call.path["group"])
    return await get(call)


async def reset(call: Call) -> Answer:
    """POST: go on elsewhere; with ``dry_run`` only say what would come again."""
    asked = call.take(Reset)
    to: Any = asked.to
    if isinstance(to, str) and to not in {"earliest", "latest"}:
        try:
            to = datetime.fromisoformat(to)
        except ValueError as error:
            raise InvalidRequest(
                f"to is earliest, latest, an offset or a time, not {to[:60]!r}"
            ) from error
        if to.tzinfo is None:
            raise InvalidRequest("to is a time without its zone: add Z")
    dry_run = call.given.get("dry_run", False)
    found = await call.client.admin.reset_group(
        call.path["topic"], call.path["group"], to, queue=asked.queue, dry_run=dry_run
    )
    queues = [msgspec.structs.asdict(one) for one in found]
    return Answer({"done": not dry_run, "queues": queues})


async def skip(call: Call) -> Answer:
    """POST: skip one message."""
    asked = call.take(Skip)
    await call.client.admin.skip(
        call.path["topic"], call.path["group"], queue=asked.queue, offset=asked.offset
    )
    return Answer({"done": True, "queue": asked.queue, "offset": asked.offset})


def _failed(*, dead: bool) -> Handler:
    async def handler(call: Call) -> Answer:
        """GET failed messages."""
        topic, group = call.path["topic"], call.path["group"]
        limit = call.given.get("limit", _FAILED)
        if not 1 <= limit <= _MOST_FAILED:
            raise InvalidRequest(f"limit is 1 to {_MOST_FAILED:,}, not {limit:,}")
        letters = call.client.deadletters
        browse = letters.browse if dead else letters.waiting
        rows: AsyncIterator[Any] = browse(topic, group, queue=call.given.get("queue"))
        items: list[dict[str, object]] = []
        async for one in rows:
            items.append(failures.plain(topic, group, one))
            if len(items) == limit:
                break
        return Answer({"items": items})

    return handler


async def retry_now(call: Call) -> Answer:
    """POST: deliver messages at once that wait for a retry or are held."""
    return await _done(call, "retry")


async def delete_failed(call: Call) -> Answer:
    """POST: remove failed messages from the group."""
    return await _done(call, "delete")


async def _done(call: Call, what: str) -> Answer:
    asked = call.take(Chosen)
    topic, group = call.path["topic"], call.path["group"]
    act = getattr(call.client.deadletters, what)
    missing = await act(topic, group, asked.offsets, queue=asked.queue)
    over = set(missing)
    return Answer(
        {"results": [{"offset": one, "done": one not in over} for one in asked.offsets],
         "failed": len(over)}
    )  # fmt: skip


async def redrive(call: Call) -> Answer:
    """POST: deliver dead letters again, to the group that failed."""
    asked = call.take(Chosen)
    found = await call.client.deadletters.redrive(
        call.path["topic"], call.path["group"], asked.offsets, queue=asked.queue
    )
    done = {one.offset for one in found if one.done}
    return Answer(
        {"results": [{"offset": one, "done": one in done} for one in asked.offsets],
         "failed": len(set(asked.offsets) - done)}
    )  # fmt: skip


_FAILED_LIST: Final = (
    Parameter("queue", WHOLE, "Only those of this queue."),
    Parameter("limit", WHOLE, f"Most of them, at most {_MOST_FAILED}; by default {_FAILED}."),
)

ROUTES: Final = (
    Route(
        "GET", f"{_TOPIC}/groups", (Command.GROUP_LIST,),
        "List the groups of a topic on which the app has a right.", list_,
        (
            Parameter("q", TEXT, "Only names that contain this."),
            Parameter("after", TEXT, "Only names behind this one: `next` of the page before."),
            LIMIT,
        ),
        None, "groups",
    ),
    Route(
        "POST", f"{_TOPIC}/groups", (Command.GROUP_JOIN, Command.GROUP_CHANGE, Command.GROUP_LIST),
        "Create a group.", create, (), Create, "group", HTTPStatus.CREATED,
    ),
    Route("GET", _GROUP, (Command.GROUP_LIST,), "Show a group.", get, (), None, "group"),
    Route(
        "PATCH", _GROUP, (Command.GROUP_CHANGE, Command.GROUP_LIST),
        "Change settings of a group; what is left out stays as it is.", change, (), Change, "group",
    ),
    Route(
        "DELETE", _GROUP, (Command.GROUP_DELETE, Command.GROUP_LIST),
        "Delete a group, and forget where it was.", delete, (DRY_RUN,), None, "outcome",
    ),
    Route(
        "POST", f"{_GROUP}/pause", (Command.GROUP_CHANGE, Command.GROUP_LIST),
        "Deliver nothing to a group until it is resumed.", pause, (), None, "group",
    ),
    Route(
        "POST", f"{_GROUP}/resume", (Command.GROUP_CHANGE, Command.GROUP_LIST),
        "Deliver to a group again.", resume, (), None, "group",
    ),
    Route(
        "POST", f"{_GROUP}/reset", (Command.GROUP_RESET,),
        "Let a group go on elsewhere.", reset, (DRY_RUN,), Reset, "outcome",
    ),
    Route("POST", f"{_GROUP}/skip", (Command.GROUP_SKIP,), "Skip one message.", skip, (), Skip,
          "outcome"),
    Route(
        "GET", f"{_GROUP}/retries", (Command.FAILED_LIST,),
        "List messages that wait for a retry, or are held.", _failed(dead=False), _FAILED_LIST,
        None, "failed messages",
    ),
    Route(
        "GET", f"{_GROUP}/dead-letters", (Command.FAILED_LIST,), "List dead letters.",
        _failed(dead=True), _FAILED_LIST, None, "failed messages",
    ),
    Route(
        "POST", f"{_GROUP}/retry-now", (Command.FAILED_RETRY,),
        "Deliver messages at once that wait for a retry or are held.", retry_now, (), Chosen,
        "outcomes",
    ),
    Route(
        "POST", f"{_GROUP}/dead-letters/redrive", (Command.FAILED_REDRIVE,),
        "Deliver dead letters again, to this group only.", redrive, (), Chosen, "outcomes",
    ),
    Route(
        "POST", f"{_GROUP}/failed/delete", (Command.FAILED_DELETE,),
        "Remove failed messages from a group.", delete_failed, (), Chosen, "outcomes",
    ),
)  # fmt: skip
