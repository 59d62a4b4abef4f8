"""A signal that ends ``ternmq pipeline run`` may interrupt any line of it."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from types import FrameType

import pytest

from ternmq.cli.pipeline.run import Stop


@pytest.mark.timeout(60)
def test_a_signal_at_any_line_of_a_wait() -> None:
    for at in itertools.count(1):
        lines = 0

        def trace(frame: FrameType, event: str, arg: object) -> object:
            nonlocal lines
            del frame, arg
            if event == "line":
                lines += 1
                if lines == at:  # noqa: B023 - it is called in this round only
                    os.kill(os.getpid(), signal.SIGTERM)
            return trace

        stop = Stop()
        with stop.signals():
            sys.settrace(trace)  # type: ignore[arg-type]
            try:
                stop.wait(0.001)
            finally:
                sys.settrace(None)
        if lines < at:  # it ended before: all lines have been tried
            assert at > 2
            assert not stop.told()
            break
        assert stop.told()
        stop.wait(3600)  # returns at once
