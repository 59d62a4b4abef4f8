"""Commands that wait for a record that somebody mends: no thread reads for them meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.log.worker import Job
from ternmq.server.engine import coldreads
from ternmq.server.engine.clocks import SystemClocks
from ternmq.server.engine.coldreads import Awaited, ColdReads


class Bench:
    """Cold reads, and what they ask for."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.submitted: list[Job] = []
        self.touched = 0
        self.reads = ColdReads(
            loop, SystemClocks(loop), self.submitted.append, self._touch, lambda error: None
        )

    def _touch(self) -> None:
        self.touched += 1


class Read:
    def run(self) -> None:
        """Read nothing."""


async def test_commands_go_on_when_it_is_over():
    bench, job, ran = Bench(), Awaited(), []
    bench.reads.read(WouldBlock(job), lambda: ran.append("one"))
    bench.reads.read(WouldBlock(job), lambda: ran.append("two"))
    assert (bench.submitted, ran, len(bench.reads)) == ([], [], 1)
    bench.reads.go_on(job)
    assert (ran, len(bench.reads), bench.touched) == (["one", "two"], 0, 1)
    bench.reads.go_on(job)
    assert (ran, bench.touched) == (["one", "two"], 1)


async def test_other_reads_do_not_wait_for_it():
    bench = Bench()
    bench.reads.read(WouldBlock(Awaited()), lambda: None)
    reads = [Read() for _ in range(coldreads.COLD_READS)]
    for one in reads:
        bench.reads.read(WouldBlock(one), lambda: None)
    assert bench.submitted == reads


async def test_nothing_goes_on_after_the_end():
    bench, job, ran = Bench(), Awaited(), []
    bench.reads.read(WouldBlock(job), lambda: ran.append("one"))
    bench.reads.close()
    bench.reads.go_on(job)
    assert ran == []


@pytest.mark.parametrize("ended", [True, False])
def test_a_thread_that_runs_it_waits_but_not_for_long(ended, monkeypatch):
    """Upkeep gives every job to its thread."""
    monkeypatch.setattr(coldreads, "_AWAITED_S", 30.0 if ended else 0.01)
    job = Awaited()
    thread = threading.Thread(target=job.run)
    thread.start()
    if ended:
        assert thread.is_alive()
        job.end()
    thread.join(20)
    assert not thread.is_alive()
