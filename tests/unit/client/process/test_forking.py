"""What is watched for forks."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from ternmq.client.process.forking import watch, watched


class Thing:
    """Is watched."""

    def after_fork(self) -> None: ...


@pytest.fixture
def restless() -> Iterator[None]:
    """Have threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_what_nobody_holds_is_not_watched() -> None:
    kept, gone = Thing(), Thing()
    watch(kept)
    watch(gone)
    del gone
    gc.collect()
    assert watched(Thing) == [kept]


def test_threads_make_clients_while_another_looks(restless: None) -> None:
    over = threading.Event()

    def make() -> None:
        while not over.is_set():
            for one in [Thing() for _ in range(50)]:
                watch(one)

    makers = [threading.Thread(target=make) for _ in range(2)]
    for one in makers:
        one.start()
    try:
        for _ in range(20_000):
            watched(Thing)
    finally:
        over.set()
        for one in makers:
            one.join()
