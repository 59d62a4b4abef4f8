"""OpenAPI 3.1, made of the table of routes."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from ternmq.http.api.call import NDJSON, Route
from ternmq.http.api.messages import Batch
from ternmq.http.api.problems import CONTENT_TYPE
from ternmq.http.api.routes import ROUTES

_NAMES: Final = re.compile(r"{(\w+)}")
_REFS: Final = "#/components/schemas/{name}"
_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "retriable", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "code": {"type": "integer"},
        "retriable": {"type": "boolean"},
        "request_id": {"type": "string"},
    },
}


def document() -> dict[str, Any]:
    """Return the description of all routes."""
    taken = [one.takes for one in ROUTES if one.takes is not None and one.takes is not bytes]
    kinds = list(dict.fromkeys(taken))
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REFS)
    names = dict(zip(kinds, _refs(kinds), strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "TernMQ",
            "version": "1",
            "description": "Send, consume and administer over HTTP.",
        },
        "security": [{"app": []}, {"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": _PROBLEM},
            "securitySchemes": {
                "app": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _refs(kinds: list[Any]) -> list[dict[str, Any]]:
    found, _ = msgspec.json.schema_components(kinds, ref_template=_REFS)
    return list(found)


def _operation(route: Route, names: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": route.about,
        "operationId": f"{route.method.lower()}{_NAMES.sub('', route.path).replace('/', '_')}",
        "parameters": [
            *[
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in _NAMES.findall(route.path)
            ],
            *[
                {
                    "name": one.name,
                    "in": "query",
                    "description": one.about
                    + (f" Also as the header `{one.header}`." if one.header else ""),
                    "schema": dict(one.kind.schema),
                }
                for one in route.parameters
            ],
        ],
        "responses": {
            str(int(route.status)): {"description": route.gives or "done"},
            "default": {
                "description": "A problem.",
                "content": {CONTENT_TYPE: {"schema": {"$ref": _REFS.format(name="Problem")}}},
            },
        },
    }
    if route.takes is bytes:
        found["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    elif route.takes is not None:
        content: dict[str, Any] = {"application/json": {"schema": names[route.takes]}}
        if route.takes is Batch:
            content[NDJSON] = {"schema": {"type": "string"}}
        found["requestBody"] = {"required": not route.optional, "content": content}
    return found
