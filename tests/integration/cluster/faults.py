"""What happens to the servers and networks of coordinators; test classes inherit these tests."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from urllib.parse import urlsplit

import pytest

from ternmq.cluster.coordination.port import Refused, Swapped, Unknown
from ternmq.cluster.coordination.record import pack, unpack
from ternmq.cluster.coordination.resolving import change, resolve
from tests.asynchronous import until, until_true
from tests.coordinators import Server
from tests.integration.cluster.contract import KEY, newest, record
from tests.integration.cluster.proxying import LosingProxy
from tests.integration.cluster.stores import Store, Ticker, shows, views

HUNG_S = 1.0
"""Deadline of calls to a server that hangs."""
LATE_S = 5.0
"""A machine with other work may be late by this."""
_ANNOUNCES = """
import asyncio, sys
from tests.integration.cluster.stores import DatabaseStore, ZooKeeperStore, ready
async def main(kind, url):
    kind = {"DatabaseStore": DatabaseStore, "ZooKeeperStore": ZooKeeperStore}[kind]
    store = kind.__new__(kind)  # it removes nothing
    store.url = url
    view = store.view()
    await ready(view)
    await view.announce("mortal", b"here")
    print("announced", flush=True)
    await asyncio.Event().wait()
asyncio.run(main(*sys.argv[1:]))
"""


def through(url: str, proxy: LosingProxy) -> str:
    """Return the URL with the proxy's port."""
    return url.replace(f":{urlsplit(url).port}", f":{proxy.port}")


class Kills:
    """Wants a fixture ``store``."""

    async def test_an_announcement_ends_with_a_killed_process(self, store: Store) -> None:
        async with views(store, 1) as (watcher,):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _ANNOUNCES, type(store).__name__, store.url,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert process.stdout is not None
            try:
                assert await process.stdout.readline() == b"announced\n"
                await shows(watcher, {"mortal": b"here"})
            finally:
                os.kill(process.pid, signal.SIGKILL)
                await process.wait()
            await shows(watcher, {})


class Databases:
    """Wants fixtures ``store`` and ``server``."""

    async def test_threads_that_hang_are_free_again_while_the_server_hangs(
        self, store: Store, server: Server
    ) -> None:
        async with views(store, 1, deadline_s=HUNG_S) as (one,):
            places = one._threads._places
            most = places._value
            await asyncio.gather(*[one.read(KEY) for _ in range(most)])
            server.stop()
            try:
                answers = await asyncio.gather(*[one.read(KEY) for _ in range(most)])
                assert all(isinstance(answer, Unknown) for answer in answers)
                await until(lambda: places._value == most, "the threads are free", 30)
            finally:
                server.go_on()

    async def test_a_process_that_was_replaced_waits_for_the_end_of_the_later_one(
        self, store: Store, server: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with views(store, 2) as (one, two):
            await one.announce("a", b"1")
            await two.announce("a", b"2")
            await until(lambda: "another process announced the name a" in caplog.text)
            await shows(one, {"a": b"2"})
            two._tending.cancel()  # as if the process was stopped
            await shows(one, {"a": b"1"})


class Faults(Kills):
    """Wants fixtures ``store`` and ``server``."""

    @pytest.mark.parametrize("made", [True, False], ids=["made", "dropped"])
    async def test_a_swap_whose_answer_is_lost(
        self, store: Store, server: Server, made: bool
    ) -> None:
        async with (
            LosingProxy(server.port) as proxy,
            views(store, 1) as (direct,),
            views(store, 1, url=through(store.url, proxy)) as (one,),
        ):
            await change(direct, KEY, record(1))
            mine = record(2, why="a request that is lost")
            proxy.lose(b"a request that is lost", made=made)
            assert isinstance(await one.swap(KEY, 1, pack(mine)), Unknown)
            assert proxy.lost == 1
            if made:

                async def there() -> bool:
                    return (await newest(direct)).version == 2

                await until_true(there)
                assert await resolve(direct, KEY, mine) == Swapped(2)
            else:
                assert isinstance(await resolve(direct, KEY, mine), Unknown)

            async def resolved() -> bool:
                outcome = await change(one, KEY, mine)
                assert not isinstance(outcome, Refused)
                return outcome == Swapped(2)

            await until_true(resolved)
            found = await newest(direct)
            assert (found.version, unpack(found.value, 2)) == (2, mine)

    @pytest.mark.parametrize("made", [True, False], ids=["made", "dropped"])
    async def test_a_create_whose_answer_is_lost(
        self, store: Store, server: Server, made: bool
    ) -> None:
        async with (
            LosingProxy(server.port) as proxy,
            views(store, 1) as (direct,),
            views(store, 1, url=through(store.url, proxy)) as (one,),
        ):
            # The nodes above it are there.
            await change(direct, "leadership/other", record(1))
            mine = record(1, why="a request that is lost")
            proxy.lose(b"a request that is lost", made=made)
            assert isinstance(await one.create(KEY, pack(mine)), Unknown)
            assert proxy.lost == 1

            async def resolved() -> bool:
                outcome = await change(one, KEY, mine)
                assert not isinstance(outcome, Refused)
                return outcome == Swapped(1)

            await until_true(resolved)
            assert (await newest(direct)).version == 1
            assert await change(direct, KEY, record(1, "b")) == Refused()

    async def test_a_swap_that_another_overtook(self, store: Store, server: Server) -> None:
        async with (
            LosingProxy(server.port) as proxy,
            views(store, 1) as (direct,),
            views(store, 1, url=through(store.url, proxy)) as (one,),
        ):
            await change(direct, KEY, record(1))
            mine = record(2, why="a request that is lost")
            proxy.lose(b"a request that is lost", made=False)
            assert isinstance(await one.swap(KEY, 1, pack(mine)), Unknown)
            assert await change(direct, KEY, record(2, "b")) == Swapped(2)

            async def refused() -> bool:
                outcome = await change(one, KEY, mine)
                assert not isinstance(outcome, Swapped)
                return outcome == Refused()

            await until_true(refused)
            found = await newest(direct)
            assert unpack(found.value, found.version).primary == "b"

    async def test_a_server_that_hangs(self, store: Store, server: Server) -> None:
        async with views(store, 1, deadline_s=HUNG_S) as (one,), Ticker() as ticker:
            await change(one, KEY, record(1))
            mine = record(2)
            server.stop()
            try:
                for _ in range(3):  # more calls than there are threads
                    began = time.monotonic()
                    answers = await asyncio.gather(
                        one.swap(KEY, 1, pack(mine)), one.read(KEY), one.announced()
                    )
                    assert all(isinstance(answer, Unknown) for answer in answers)
                    assert time.monotonic() - began < HUNG_S + LATE_S
                began = time.monotonic()
                assert isinstance(await one.announce("a", b"1"), Unknown)
                assert time.monotonic() - began < HUNG_S + LATE_S
            finally:
                server.go_on()

            async def resolved() -> bool:
                outcome = await change(one, KEY, mine)
                assert not isinstance(outcome, Refused)
                return outcome == Swapped(2)

            await until_true(resolved)
            assert (await newest(one)).version == 2
            await shows(one, {"a": b"1"})  # what was announced meanwhile
            assert ticker.longest_s < HUNG_S  # a call that blocked would take that long

    async def test_a_hint_after_a_connection_that_ended(self, store: Store, server: Server) -> None:
        async with (
            LosingProxy(server.port) as proxy,
            views(store, 1) as (direct,),
            views(store, 1, url=through(store.url, proxy)) as (one,),
        ):
            await change(direct, KEY, record(1))
            heard: list[int] = []
            one.watch(KEY, lambda: heard.append(1))
            proxy.lose(b"leadership", made=False)
            await one.read(KEY)
            await until(lambda: proxy.lost, "the connection is cut")

            async def answers() -> bool:
                return not isinstance(await one.read(KEY), Unknown)

            await until_true(answers)
            before = len(heard)
            assert await change(direct, KEY, record(2)) == Swapped(2)
            await until(lambda: len(heard) > before, "a hint", 30)
