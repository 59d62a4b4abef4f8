"""Worker processes of a test run (``-n``), and what a worker hands over when it ends.

The process that started the workers gets the report of each test from them. What else a plugin has
learnt in a worker, it sends with ``hand_over`` and reads with ``handed_over``.
"""

from __future__ import annotations

from typing import Any

import pytest


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process runs tests for another one, which reports them."""
    return hasattr(config, "workerinput")


def hand_over(config: pytest.Config, name: str, value: object) -> None:
    """Send something from a worker that ends: numbers, strings, lists and dicts of these."""
    config.workeroutput[f"ternmq-{name}"] = value  # type: ignore[attr-defined]


def handed_over(node: Any, name: str) -> Any:
    """Return what a worker sent before it ended; None if it crashed."""
    return getattr(node, "workeroutput", {}).get(f"ternmq-{name}")
