"""What every test run has: quick ones, mission rows, the rule about skips, examples that repeat."""

from __future__ import annotations

import signal

import hypothesis

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
