"""What every test run has: quick ones, mission rows, the rule about skips, examples that repeat."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator

import hypothesis
import pytest

pytest_plugins = [
    "pytester",
    "tests.memory_plugin",
    "tests.parallel_plugin",
    "tests.quick_plugin",
    "tests.rows_plugin",
    "tests.skips_plugin",
]

# Two cores and a shared disk: how long an example took says nothing about the code.
# A failing example is printed in a form that can be pasted into the test.
hypothesis.settings.register_profile("ternmq", deadline=None, print_blob=True)
hypothesis.settings.load_profile("ternmq")

# A shell that starts the tests in the background has them ignore SIGINT, and whatever they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector of garbage away from what the tests themselves consist of.

    Half a million objects are made here and live as long as the run. A full collection would visit
    them for half a second, dozens of times now and again and again during the tests.
    """
    gc.disable()
    try:
        found = yield
    finally:
        gc.enable()
    gc.collect()
    gc.freeze()
    return found
