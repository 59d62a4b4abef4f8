from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

import pytest

from ternmq.client.consumer.telling import outside


@contextlib.contextmanager
def provider() -> Iterator[None]:
    yield
    raise RuntimeError("cleanup")


def test_a_traceback_begins_at_the_users_code_behind_contextlib() -> None:
    stack = contextlib.ExitStack()
    stack.enter_context(provider())
    with pytest.raises(RuntimeError, match="cleanup") as raised:
        stack.close()
    whole = raised.value.__traceback__
    assert whole is not None
    inner = whole.tb_next  # without this test's own frame
    assert inner is not None
    assert inner.tb_frame.f_code.co_filename == contextlib.__file__
    found = outside(inner)
    assert found is not None
    assert next(one.name for one in traceback.extract_tb(found)) == "provider"
    only = inner
    while only.tb_next is not None and only.tb_next is not found:
        only = only.tb_next
    only.tb_next = None
    assert outside(inner) is inner, "nothing else is left: it stays whole"
