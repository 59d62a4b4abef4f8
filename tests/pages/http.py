"""The page of the REST API, made of its table of routes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ternmq.http.api.call import Route
from ternmq.http.api.routes import ROUTES

_HEAD: Final = """\
# REST API

Made by `make docs` from `src/ternmq/http/api/`: change it there.

What can be asked of [`ternmq http`](../guide/http.md). Each route names the commands of the broker
that it asks; the app needs [their rights](../protocol/control.md). Times have a zone. Durations in
the query and in pulls are such as `10s`, `5m` or `1h30m`; fields that end in `_s` are seconds.
Errors are [problems](../guide/http.md#errors).
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *[_section(one) for one in ROUTES]]).rstrip("\n") + "\n"


def _section(route: Route) -> str:
    commands = ", ".join(f"`{one.name}`" for one in route.commands)
    lines = [f"## {route.method} {route.path}", "", route.about, "", f"Asks {commands}."]
    if route.parameters:
        lines += ["", "| parameter | type | what it is |", "|---|---|---|"]
        for one in route.parameters:
            kind = one.kind.schema.get("format", one.kind.schema["type"])
            header = f" Also as the header `{one.header}`." if one.header else ""
            lines.append(f"| `{one.name}` | {kind} | {one.about}{header} |")
    if route.takes is bytes:
        lines += ["", "The body is the message."]
    elif route.takes is not None:
        lines += ["", "The body is JSON:", "", "| field | type | default |", "|---|---|---|"]
        lines += _fields(route.takes)
    lines += ["", f"Answers {int(route.status)}{f': {route.gives}' if route.gives else ''}.", ""]
    return "\n".join(lines)


def _fields(kind: Any) -> list[str]:
    (_, *_), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    schema = parts[kind.__name__]
    required = set(schema.get("required", []))
    return [
        f"| `{name}` | {_type(one)} | {'required' if name in required else _default(one)} |"
        for name, one in schema["properties"].items()
    ]


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).lower()
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "any JSON"))


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return "as it is, or the usual one"
    value = schema["default"]
    return "none" if value in {None, ""} else f"`{value}`".lower()
