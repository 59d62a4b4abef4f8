"""Several databases as one store: each id belongs to one of them.

Rendezvous hashing: an id belongs to the shard whose name, hashed together with the id, gives the
largest number. So every process finds the same shard, the ids are spread evenly, and a shard more
or less moves only the ids that it gets or had.

Where ids belong depends on the set of names. It is stored in each database, as rows of
``ternmq_schema`` (``shard:NAME``, 1 for the shard itself, 0 for the others): with another set,
messages that were handled would be looked for elsewhere and handled again.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from xxhash import xxh3_64_intdigest

from ternmq.model.errors import DatabaseNotPrepared, InvalidRequest, ShardsChanged
from ternmq.model.words import counted
from ternmq.reliable.database.port import Work
from ternmq.reliable.database.prepare import versions
from ternmq.reliable.database.tables import filled
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.inbox.sql import SqlStore
from ternmq.reliable.inbox.store import Asked, Visit
from ternmq.reliable.libraries.opening import Wanted

PREFIX: Final = "shard:"
MAX_NAME: Final = 32
"""Longest name of a shard."""
_ADD: Final = "INSERT INTO {schema} (component, version) VALUES (:component, :version)"
_REMOVE: Final = "DELETE FROM {schema} WHERE component = :component"


def check_names(names: Iterable[object]) -> tuple[str, ...]:
    """Return names of shards, sorted.

    Raises:
        InvalidRequest: There is none, or one is not valid.
    """
    found = []
    for one in names:
        if not isinstance(one, str) or not one.isascii() or not one.replace("-", "a").isalnum():
            raise InvalidRequest(f"shard {one!r}: its name has letters, digits and -")
        if len(one) > MAX_NAME:
            raise InvalidRequest(f"shard {one!r}: its name has at most {MAX_NAME} characters")
        found.append(one)
    if not found:
        raise InvalidRequest("shards= names one database at least: {'a': engine, 'b': other}")
    return tuple(sorted(found))


def shard_of(id_: bytes, names: Sequence[str]) -> str:
    """Return the shard that an id belongs to. O(names)."""
    return max(names, key=lambda name: (xxh3_64_intdigest(name.encode() + b"\0" + id_), name))


class Shards:
    """Remembers messages in several databases; see ``Store``.

    Args:
        stores: By name.

    Raises:
        InvalidRequest: A name is not valid, or two of them are one database.
    """

    def __init__(self, stores: Mapping[str, SqlStore]) -> None:
        self.names = check_names(stores)
        for one, other in itertools.combinations(self.names, 2):
            if stores[one].own.is_same(stores[other].own):
                raise InvalidRequest(
                    f"shards {one!r} and {other!r} are one database, {stores[one].own.name}"
                )
        self._stores = dict(stores)
        self._checked: set[str] = set()
        self._lock = threading.Lock()

    def check(self, name: str, wanted: Sequence[Wanted], *, awaited: bool) -> None:
        """Check that a handler can work with each of them; see ``Store``."""
        for store in self._stores.values():
            store.check(name, wanted, awaited=awaited)

    @contextmanager
    def visit(self, entry: Entry, asked: Asked) -> Iterator[Visit]:
        """Return the visit of a message; see ``Store``."""
        name = shard_of(entry.id, self.names)
        if name not in self._checked:
            self._check_names(name)
        with self._stores[name].visit(entry, asked) as visit:
            yield visit

    @asynccontextmanager
    async def visit_awaited(self, entry: Entry, asked: Asked) -> AsyncIterator[Visit]:
        """Return the visit of a message; see ``Store``."""
        name = shard_of(entry.id, self.names)
        if name not in self._checked:
            await asyncio.to_thread(self._check_names, name)
        async with self._stores[name].visit_awaited(entry, asked) as visit:
            yield visit

    def asks_again(self, error: Exception) -> bool:
        """Return whether the transaction may succeed at once; see ``Store``."""
        return any(store.asks_again(error) for store in self._stores.values())

    def forget(self, entries: Iterable[Entry]) -> int:
        """Forget messages, each in its shard; see ``Store``."""
        by_name: dict[str, list[Entry]] = {}
        for entry in entries:
            by_name.setdefault(shard_of(entry.id, self.names), []).append(entry)
        return sum([self._stores[name].forget(some) for name, some in by_name.items()])

    def begin(self) -> None:
        """Begin to clean each; see ``Store``."""
        for store in self._stores.values():
            store.begin()

    def prepare(self, *, moved: bool) -> list[str]:
        """Make the tables in each, and note the names; see ``Inbox.prepare``."""
        done = []
        for name in self.names:
            said = [f"shard {name}: {one}" for one in self._stores[name].prepare(moved=moved)]
            done += [*said, f"shard {name}: {self._note(name, moved=moved)}"]
        return done

    def clean(self, now_ms: int | None) -> int:
        """Remove rows from each; see ``Inbox.clean``."""
        return sum([store.clean(now_ms) for store in self._stores.values()])

    def close(self) -> None:
        """Close each; see ``Store``."""
        for store in self._stores.values():
            store.close()

    async def close_awaited(self) -> None:
        """Close each; see ``Store``."""
        for store in self._stores.values():
            await store.close_awaited()

    def leave(self) -> None:
        """Forget the connections in a forked child."""
        self._lock = threading.Lock()
        for store in self._stores.values():
            store.leave()

    # -- the names --------------------------------------------------------------------------------

    def _wanted(self, name: str) -> dict[str, int]:
        """Return the rows that the database of a shard must have."""
        return {PREFIX + one: int(one == name) for one in self.names}

    def _check_names(self, name: str) -> None:
        """Check the names that are stored in a shard, once.

        Raises:
            ShardsChanged: They are others.
            DatabaseNotPrepared: There are none.
        """
        with self._lock:
            if name in self._checked:
                return
            store = self._stores[name]
            with store.own.reading() as work:
                stored = _stored(store, work)
            if not stored:
                raise DatabaseNotPrepared(
                    f"shard {name!r}, {store.own.name}, does not know the names of the shards: "
                    "call inbox.prepare()"
                )
            if stored != self._wanted(name):
                raise self._changed(name, stored)
            self._checked.add(name)

    def _note(self, name: str, *, moved: bool) -> str:
        """Write the names into a shard; return what was done.

        Raises:
            ShardsChanged: There are others, and nothing was said of moved rows.
        """
        store, wanted = self._stores[name], self._wanted(name)
        with store.own.writing(durable=True) as work:
            stored = _stored(store, work)
            if stored == wanted:
                return f"it is one of {counted(len(wanted), 'shard')}"
            if stored and not moved:
                raise self._changed(name, stored)
            _remove(store, work, stored)
            for component, version in wanted.items():
                values = {"component": store.own.dialect.text(component), "version": version}
                work.run(_filled(store, _ADD), values)
        return f"noted that it is one of {counted(len(wanted), 'shard')}"

    def _changed(self, name: str, stored: Mapping[str, int]) -> ShardsChanged:
        here = f"shard {name!r} of {', '.join(self.names)}"
        return _changed(self._stores[name], stored, here)


def check_alone(store: SqlStore) -> None:
    """Check that a database is no shard; one that was not prepared is none.

    Raises:
        ShardsChanged: It is.
    """
    with store.own.reading() as work:
        stored = _stored(store, work)
    if stored:
        raise _changed(store, stored, "the only database")


def note_alone(store: SqlStore) -> list[str]:
    """Note that a database is no shard any more; return what was done."""
    with store.own.writing(durable=True) as work:
        stored = _stored(store, work)
        _remove(store, work, stored)
    return ["noted that it is no shard any more"] if stored else []


def _stored(store: SqlStore, work: Work) -> dict[str, int]:
    found = versions(store.own, work, store.schema)
    return {name: number for name, number in found.items() if name.startswith(PREFIX)}


def _remove(store: SqlStore, work: Work, stored: Iterable[str]) -> None:
    for component in stored:
        values = {"component": store.own.dialect.text(component)}
        work.run(_filled(store, _REMOVE), values)


def _changed(store: SqlStore, stored: Mapping[str, int], here: str) -> ShardsChanged:
    names = [one.removeprefix(PREFIX) for one in stored]
    own = next((one.removeprefix(PREFIX) for one in stored if stored[one]), "?")
    return ShardsChanged(
        f"{store.own.name} is shard {own!r} of {', '.join(sorted(names))}; here it is {here}: an "
        "id would belong to another database"
    )


def _filled(store: SqlStore, statement: str) -> str:
    return filled(store.own.dialect, statement, store.schema)
