"""How much work a call is: bytecodes of Python that it runs. Repeatable, where time is not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def bytecodes(call: Callable[[], object]) -> int:
    """Run a call; return how many bytecodes it and all that it calls ran.

    Python 3.12.1 counts none of the first call that is ever looked into, and 3.13 not all of the
    first one of each function.
    """
    _count(lambda: None)
    return _count(call)


def _count(call: Callable[[], object]) -> int:
    count = 0

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        del frame, argument
        count += event == "opcode"
        return local

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
