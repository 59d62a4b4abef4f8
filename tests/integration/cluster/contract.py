"""What every coordinator has to do; a test class for each implementation inherits these tests."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from ternmq.cluster.coordination.checking import check
from ternmq.cluster.coordination.port import Announced, Coordinator, Refused, Stored, Swapped
from ternmq.cluster.coordination.record import (
    MAX_BYTES,
    MAX_VERSION,
    BadRecord,
    Leadership,
    Member,
    Progress,
    Writer,
    pack,
    pack_progress,
    progress_key,
    unpack,
)
from ternmq.cluster.coordination.resolving import change, resolve
from ternmq.model.errors import InvalidName
from ternmq.model.types import Epoch, Position
from tests.asynchronous import until, until_true
from tests.integration.cluster.stores import Store, shows, views

KEY = "leadership/g"
WRITERS = 6
CHANGES = 15


def record(version: int, by: str = "a", why: str = "") -> Leadership:
    return Leadership(
        version=version,
        writer=Writer(by, 1, version),
        journal=1,
        epoch=Epoch(version),
        primary=by,
        members=(Member(by, 1),),
        why=why,
    )


def more(heard: list[int], before: int) -> bool:
    return len(heard) > before


async def newest(coordinator: Coordinator) -> Stored:
    """Return what is stored, when the coordinator answers."""
    found: list[Stored] = []

    async def answers() -> bool:
        answer = await coordinator.read(KEY)
        assert answer is not None
        if isinstance(answer, Stored):
            found.append(answer)
        return bool(found)

    await until_true(answers)
    return found[0]


class Contract:
    """Wants a fixture ``store``."""

    async def test_the_first_question_waits_for_the_connection(self, store: Store) -> None:
        one = store.view()
        try:
            assert await one.announce("a", b"1") == Announced()
        finally:
            await one.close()
        one = store.view()
        try:
            assert await one.read("leadership/none") is None
        finally:
            await one.close()

    async def test_a_check_finds_that_it_works(self, store: Store) -> None:
        async with views(store, 2) as (one, two):
            for coordinator in (one, two, one):
                await check(coordinator)
        async with views(store, 1) as (one,):
            await shows(one, {})  # what the checks announced is gone

    async def test_a_record_is_created_once(self, store: Store) -> None:
        async with views(store, 2) as (one, two):
            assert await one.read(KEY) is None
            assert await one.create(KEY, b"first") == Swapped(1)
            assert await one.create(KEY, b"again") == Refused()
            assert await two.create(KEY, b"other") == Refused()
            assert await two.read(KEY) == Stored(b"first", 1)

    async def test_a_stale_swap_is_refused(self, store: Store) -> None:
        async with views(store, 2) as (one, two):
            assert await one.swap(KEY, 1, b"nothing is there") == Refused()
            assert await one.read(KEY) is None
            await one.create(KEY, b"first")
            assert await two.swap(KEY, 1, b"second") == Swapped(2)
            for version in (1, 3, MAX_VERSION - 1):
                assert await one.swap(KEY, version, b"stale") == Refused()
            assert await one.read(KEY) == Stored(b"second", 2)
            assert await one.swap(KEY, 2, b"") == Swapped(3)
            assert await two.read(KEY) == Stored(b"", 3)

    async def test_keys_are_apart(self, store: Store) -> None:
        async with views(store, 1) as (one,):
            keys = ["leadership/g", "leadership/G", "progress/g", "leadership/g.", "a/" + "x" * 127]
            for number, key in enumerate(keys):
                assert await one.create(key, bytes([number])) == Swapped(1)
            for number, key in enumerate(keys):
                assert await one.read(key) == Stored(bytes([number]), 1)

    async def test_any_bytes_up_to_the_most_are_kept(self, store: Store) -> None:
        async with views(store, 2) as (one, two):
            for version, value in enumerate(
                (bytes(range(256)), b"\xff" * MAX_BYTES, b":x %s ?"), 1
            ):
                if version == 1:
                    await one.create(KEY, value)
                else:
                    assert await one.swap(KEY, version - 1, value) == Swapped(version)
                assert await two.read(KEY) == Stored(value, version)

    async def test_what_is_not_allowed_is_not_asked(self, store: Store) -> None:
        async with views(store, 1) as (one,):
            for key in ("", "g", "/g", "a/b/c", "a/..", "a/x y", "ä/b", "a/" + "x" * 128):
                with pytest.raises(InvalidName):
                    await one.read(key)
                with pytest.raises(InvalidName):
                    await one.create(key, b"")
                with pytest.raises(InvalidName):
                    one.watch(key, print)
            with pytest.raises(InvalidName):
                await one.announce("a/b", b"")
            await one.create(KEY, b"first")
            # -1 means any version to ZooKeeper.
            for version in (-1, 0, MAX_VERSION):
                with pytest.raises(ValueError, match="version"):
                    await one.swap(KEY, version, b"")
            with pytest.raises(ValueError, match="at most"):
                await one.swap(KEY, 1, b"x" * (MAX_BYTES + 1))
            with pytest.raises(ValueError, match="at most"):
                await one.announce("a", b"x" * (MAX_BYTES + 1))
            assert await one.read(KEY) == Stored(b"first", 1)

    async def test_of_many_writers_one_wins_each_version(self, store: Store) -> None:
        won: list[tuple[int, str]] = []

        async def write(number: int, one: Coordinator) -> None:
            mine = 0
            while mine < CHANGES:
                found = await newest(one)
                new = record(found.version + 1, f"b{number}")
                outcome = await change(one, KEY, new)
                if isinstance(outcome, Swapped):
                    won.append((outcome.version, new.writer.broker))
                    mine += 1

        async with views(store, WRITERS) as made:
            assert await change(made[0], KEY, record(1)) == Swapped(1)
            await asyncio.gather(*[write(number, one) for number, one in enumerate(made)])
            last = 1 + WRITERS * CHANGES
            assert sorted(version for version, _ in won) == list(range(2, last + 1))
            found = await newest(made[0])
            assert found.version == last
            assert (last, unpack(found.value, last).primary) in won

    async def test_progress_is_a_value_like_any(self, store: Store) -> None:
        async with views(store, 2) as (one, two):
            value = pack_progress(Progress(Epoch(3), Position(4096)))
            assert await one.create(progress_key("g"), value) == Swapped(1)
            assert await two.read(progress_key("g")) == Stored(value, 1)

    async def test_a_change_is_hinted(self, store: Store) -> None:
        async with views(store, 2) as (one, two):
            heard: list[int] = []
            stop = two.watch(KEY, lambda: heard.append(1))
            value = b"v"
            for version in range(4):
                # A hint of the watch's beginning may come first, so it must come again.
                before = len(heard)
                outcome = await (
                    one.swap(KEY, version, value) if version else one.create(KEY, value)
                )
                assert outcome == Swapped(version + 1)
                await until(partial(more, heard, before), "a hint", 30)
            stop()
            stop()

    async def test_an_announcement_is_seen_and_ends_with_its_process(self, store: Store) -> None:
        async with views(store, 1) as (watcher,):
            await shows(watcher, {})
            async with views(store, 2) as (one, two):
                assert await one.announce("a", b"1") == Announced()
                assert await two.announce("b", b"2") == Announced()
                await shows(watcher, {"a": b"1", "b": b"2"})
                assert await one.announce("a", b"3") == Announced()
                await shows(watcher, {"a": b"3", "b": b"2"})
            await shows(watcher, {})

    async def test_a_process_that_starts_again_takes_its_name(self, store: Store) -> None:
        async with views(store, 2) as (one, watcher):
            assert await one.announce("a", b"former life") == Announced()
            async with views(store, 1) as (two,):
                assert await two.announce("a", b"new life") == Announced()
                await shows(watcher, {"a": b"new life"})

    async def test_rubbish_is_told_and_stays(self, store: Store) -> None:
        async with views(store, 1) as (one,):
            store.plant(KEY, b"x" * (MAX_BYTES + 1))
            with pytest.raises(BadRecord):
                await one.read(KEY)
            with pytest.raises(BadRecord):
                await resolve(one, KEY, record(2))
            assert await one.create(KEY, pack(record(1))) == Refused()
            store.plant("leadership/h", b"rubbish")
            assert await one.read("leadership/h") == Stored(b"rubbish", 1)
            with pytest.raises(BadRecord):
                await change(one, "leadership/h", record(1, "b"))

    async def test_a_record_of_another_version_is_told(self, store: Store) -> None:
        async with views(store, 1) as (one,):
            store.plant(KEY, pack(record(9)))
            found = await newest(one)
            with pytest.raises(BadRecord, match="says that it is version 9"):
                unpack(found.value, found.version)

    async def test_many_announcements(self, store: Store) -> None:
        async with views(store, 1) as (one,):
            await asyncio.gather(*[one.announce(f"b{n}", bytes([n])) for n in range(20)])
            await shows(one, {f"b{n}": bytes([n]) for n in range(20)})
