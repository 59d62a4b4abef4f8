"""The arguments TOPIC and GROUP; a shell completes them with names that the broker gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from ternmq.cli.reach.connection import names_of
from ternmq.cli.reach.parameters import GROUP, NAME

_TIMEOUT_S: Final = 1.0


def _ask(context: click.Context, what: str) -> list[str]:
    """Return names for completion from the broker; none if it does not answer quickly."""
    try:
        return names_of(context, what, _TIMEOUT_S)
    except Exception:  # noqa: BLE001 - a shell that completes needs words, not errors
        return []


def _completing(what: str) -> Callable[..., list[CompletionItem]]:
    def complete(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in _ask(context, what) if name.startswith(begun)]

    return complete


def topic_argument(name: str = "topic", **more: Any) -> Callable[[Any], Any]:
    """Return the argument TOPIC, which the shell can complete."""
    shown = "TOPIC" if more.get("required", True) else "[TOPIC]"
    return click.argument(
        name, metavar=shown, type=NAME, shell_complete=_completing("topics"), **more
    )


def group_argument(**more: Any) -> Callable[[Any], Any]:
    """Return the argument GROUP, which the shell can complete."""
    shown = "GROUP" if more.get("required", True) else "[GROUP]"
    return click.argument(
        "group", metavar=shown, type=GROUP, shell_complete=_completing("groups"), **more
    )
