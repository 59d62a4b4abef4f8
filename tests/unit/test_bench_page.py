"""What the page of the benchmarks says of figures that have no aim."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def page_text(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("page_text")


def hostile(figures: dict[str, float]) -> dict[str, object]:
    told = {name: {"median": value, "spread": 0.0} for name, value in figures.items()}
    return {"overload": {"hostile": {"about": "a flood", "figures": told}}}


def test_the_control_of_a_flood_is_told(page_text: ModuleType) -> None:
    figures = {"control_p99_times": 1.25, "control_p99_ms": 1.84, "control_cores": 0.31}
    text = page_text._aims(hostile(figures))
    assert "for comparison" in text
    assert "(0.31 cores)" in text
    assert "1.2 times its p99 without other load (1.8 ms)" in text


def test_nothing_is_told_of_a_control_that_was_not_measured(page_text: ModuleType) -> None:
    assert "for comparison" not in page_text._aims(hostile({"sends_p99_ms": 3.0}))
