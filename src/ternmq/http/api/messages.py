"""Sending messages, reading and finding them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ternmq.client.content.codecs import JSON, TEXT
from ternmq.client.content.message import Message
from ternmq.client.forms import messages as forms
from ternmq.http.api.call import (
    DURATION,
    FLAG,
    FORM,
    MOMENT,
    NDJSON,
    WHOLE,
    Answer,
    Call,
    Parameter,
    Route,
    outcome_of,
)
from ternmq.http.api.call import TEXT as WORD
from ternmq.model.errors import InvalidRequest
from ternmq.model.outcomes import Receipt
from ternmq.wire.commands import Command

_HEADERS: Final = "Ternmq-Header-"
_PAGE: Final = 100
_MOST: Final = 1000
_BATCH: Final = 10_000
"""Most messages of one batch."""

_TOPIC: Final = "/v1/topics/{topic}"
_SENDING: Final = (
    Parameter("key", WORD, "Text by which the message can be found.", "Ternmq-Key"),
    Parameter(
        "ordering_key", WORD, "Messages of an ordered topic with the same one are delivered in "
        "order.", "Ternmq-Ordering-Key",
    ),
    Parameter("tag", WORD, "Its kind within the topic, for filters.", "Ternmq-Tag"),
    Parameter(
        "id", WORD, "An id of your own, at most 128 bytes: a second message with it is not stored "
        "again, and the answer is the first receipt.", "Idempotency-Key",
    ),
    Parameter("queue", WHOLE, "Number of its queue.", "Ternmq-Queue"),
    Parameter(
        "deliver_after", DURATION, "It is delivered that much later.", "Ternmq-Deliver-After"
    ),
    Parameter("deliver_at", MOMENT, "It is delivered then.", "Ternmq-Deliver-At"),
    Parameter(
        "expires_after", DURATION, "After this time it is not delivered any more.",
        "Ternmq-Expires-After",
    ),
    Parameter("priority", WHOLE, "Its level, on a topic that has levels.", "Ternmq-Priority"),
)  # fmt: skip


async def send(call: Call) -> Answer:
    """POST a message: the body is the message."""
    given = dict(call.given)
    one_way = given.pop("one_way", False)
    topic = call.path["topic"]
    headers = message_headers(call.headers)
    content_type = content_type_of(call)
    if one_way:
        refused = sorted(given.keys() & {"id", "deliver_after", "deliver_at", "expires_after"})
        if refused:
            raise InvalidRequest(f"one_way does not go with {refused[0]}")
        call.client.send_oneway(
            topic, call.body, headers=headers, content_type=content_type, **given
        )
        return Answer({"topic": topic}, HTTPStatus.ACCEPTED)
    receipt = await call.client.send(
        topic, call.body, headers=headers, content_type=content_type, **given
    )
    status = HTTPStatus.OK if receipt.duplicate else HTTPStatus.CREATED
    where = f"/v1/topics/{quote(topic)}/messages/{quote(receipt.id, safe='')}"
    return Answer(receipt_form(receipt), status, {"Location": where})


def content_type_of(call: Call) -> str:
    """Return the content type of a message: that of the request, which must be true of JSON.

    The type that curl states for ``-d`` by itself says nothing of the body.

    Raises:
        InvalidRequest: It is JSON by its type, and is none.
    """
    if call.content_type == FORM:
        return ""
    if call.content_type == JSON:
        if not forms.is_json(call.body):
            raise InvalidRequest("the body is not JSON, as its Content-Type says")
        return JSON
    text = call.headers.get("Content-Type", "")
    return TEXT if text.lower().replace(" ", "") == f"{TEXT};charset=utf-8" else text


def message_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a message: those with the prefix ``Ternmq-Header-``, and the trace's.

    HTTP does not distinguish capitals in names of headers: they are lower case here.
    """
    found = {
        name[len(_HEADERS) :].lower(): text
        for name, text in headers.items()
        if name.lower().startswith(_HEADERS.lower()) and len(name) > len(_HEADERS)
    }
    for name in ("traceparent", "tracestate"):
        if name in headers:
            found.setdefault(name, headers[name])
    return found


def receipt_form(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt in the form of JSON."""
    found: dict[str, Any] = {
        "id": receipt.id,
        "topic": receipt.topic,
        "queue": receipt.queue,
        "offset": receipt.offset,
        "durable": receipt.durable,
        "duplicate": receipt.duplicate,
    }
    if receipt.application_id:
        found["application_id"] = receipt.application_id
    if receipt.due_at is not None:
        found["due_at"] = receipt.due_at
    return found


class Batch(msgspec.Struct):
    """Messages, each as ``ternmq tail --json`` prints them."""

    messages: list[msgspec.Raw]


async def send_batch(call: Call) -> Answer:
    """POST many messages; each item has an outcome of its own."""
    if call.content_type in {NDJSON, "application/ndjson", "application/jsonl"}:
        lines = [one for one in call.body.splitlines() if one.strip()]
    else:
        lines = [bytes(one) for one in call.take(Batch).messages]
    if len(lines) > _BATCH:
        raise InvalidRequest(
            f"a batch has at most {_BATCH:,} messages, this one has {len(lines):,}"
        )
    messages: list[Message] = []
    outcomes: list[dict[str, Any] | None] = [None] * len(lines)
    places: list[int] = []
    for at, text in enumerate(lines):
        try:
            messages.append(forms.message_of(text, Message(b"")))
            places.append(at)
        except ValueError as error:
            outcomes[at] = {"error": outcome_of(InvalidRequest(f"the message {error}"))}
    found = await call.client.send_many(call.path["topic"], messages, return_errors=True)
    for at, one in zip(places, found, strict=True):
        if isinstance(one, Exception):
            outcomes[at] = {"error": outcome_of(one)}
        else:
            outcomes[at] = receipt_form(one)
    failed = sum("error" in (one or {}) for one in outcomes)
    status = HTTPStatus.MULTI_STATUS if failed else HTTPStatus.CREATED
    return Answer({"results": outcomes, "failed": failed}, status)


async def find(call: Call) -> Answer:
    """GET the messages of a key."""
    given = dict(call.given)
    if not given.get("key"):
        raise InvalidRequest(
            "name a key (?key=...); by place: /v1/topics/{topic}/queues/{queue}/messages"
        )
    limit = _limit(given)
    found = await call.client.find(call.path["topic"], limit=limit, **given)
    return Answer({"items": [forms.plain(forms.shown(one)) for one in found]})


async def get(call: Call) -> Answer:
    """GET a message by its id."""
    found = await call.client.get(call.path["topic"], call.path["id"])
    return Answer(forms.plain(forms.shown(found)))


async def get_body(call: Call) -> Answer:
    """GET the body of a message, as it was sent."""
    found = await call.client.get(call.path["topic"], call.path["id"])
    kind = found.content_type or "application/octet-stream"
    if kind not in {JSON, TEXT}:  # no browser shows what a sender calls a page
        kind = "application/octet-stream"
    return Answer(body=found.body, content_type=kind, headers={"Content-Disposition": "attachment"})


async def read(call: Call) -> Answer:
    """GET a page of a queue."""
    given = dict(call.given)
    limit = _limit(given)
    start = given.get("offset", given.get("since", "earliest"))
    if "offset" in given and "since" in given:
        raise InvalidRequest("give offset or since, not both")
    queue = call.path["queue"]
    if not queue.isascii() or not queue.isdigit() or len(queue) > 9:
        raise InvalidRequest(f"{queue[:60]!r} is no number of a queue")
    items: list[dict[str, Any]] = []
    following = start if isinstance(start, int) else None
    reading = call.client.read(call.path["topic"], start=start, queue=int(queue))
    async with contextlib.aclosing(reading) as rows:  # type: ignore[type-var]
        async for one in rows:
            items.append(forms.plain(one))
            following = one.offset + 1
            if len(items) == limit:
                break
    return Answer({"items": items, "next": following})


def _limit(given: dict[str, Any]) -> int:
    limit = int(given.pop("limit", _PAGE))
    if not 1 <= limit <= _MOST:
        raise InvalidRequest(f"limit is 1 to {_MOST:,}, not {limit:,}")
    return limit


LIMIT: Final = Parameter("limit", WHOLE, f"Most of them, at most {_MOST}; by default {_PAGE}.")

ROUTES: Final = (
    Route(
        "POST", f"{_TOPIC}/messages", (Command.SEND,),
        "Send a message: the body is the message, with its Content-Type. Answered when it is "
        "stored: 201; 200 if it was stored before under the same id.",
        send,
        (*_SENDING, Parameter("one_way", FLAG, "Answer at once (202), before it is stored.")),
        bytes, "receipt", HTTPStatus.CREATED,
    ),
    Route(
        "POST", f"{_TOPIC}/batches", (Command.SEND,),
        "Send many messages, as JSON or as a line of JSON each (application/x-ndjson). Each has an "
        "outcome of its own; 207 if one was refused.",
        send_batch, (), Batch, "outcomes", HTTPStatus.CREATED,
    ),
    Route(
        "GET", f"{_TOPIC}/messages", (Command.FIND,), "Find the messages of a key, newest first.",
        find,
        (
            Parameter("key", WORD, "The key."),
            Parameter("since", MOMENT, "Only those stored from then on."),
            Parameter("until", MOMENT, "Only those stored before."),
            LIMIT,
        ),
        None, "messages",
    ),
    Route(
        "GET", f"{_TOPIC}/messages/{{id}}", (Command.FIND,),
        "Show a message by its id: the broker's, or the sender's own.", get, (), None, "message",
    ),
    Route(
        "GET", f"{_TOPIC}/messages/{{id}}/body", (Command.FIND,),
        "Download the body of a message, as it was sent.", get_body, (), None, "bytes",
    ),
    Route(
        "GET", f"{_TOPIC}/queues/{{queue}}/messages", (Command.READ,),
        "Read a page of a queue; `next` is the offset of the page behind it.", read,
        (
            Parameter("offset", WHOLE, "The first one; by default the oldest that is kept."),
            Parameter("since", MOMENT, "The first one stored from then on, instead."),
            LIMIT,
        ),
        None, "messages",
    ),
)  # fmt: skip
