"""What TernMQ needs of a coordinator: one small port with several implementations.

A coordinator holds values of at most 64 KiB under keys (``kind/name``), each with a version. It
also knows which processes are alive (``announce``). It must be linearizable for ``create`` and
``swap``, and must never forget a change that it confirmed; docs/adr/0020 says which stores do.

Every call ends within the deadline that the coordinator was opened with. What became of a change
is ``Swapped``, ``Refused`` or ``Unknown``. Unknown is not a failure: the change may have happened,
and it may still happen later, as long as the version is the one that it replaces. Until that is
resolved (``resolving``) the caller has to reckon with both states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ternmq.cluster.coordination.record import MAX_BYTES, MAX_VERSION, BadRecord
from ternmq.model.errors import InvalidName
from ternmq.model.printing import quoted
from ternmq.model.specs import check_name

FIRST_VERSION: Final = 1
"""Version of a value that was created and not changed since."""
DEADLINE_S: Final = 2.0
"""Longest time of a call, unless the coordinator is opened with another."""
MAX_KEY: Final = 200
"""Most characters of a key."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that a coordinator holds.

    Attributes:
        value: Its bytes, at most 64 KiB; not checked otherwise.
        version: 1 when it was created, one more with each change.
    """

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Swapped:
    """The change was made.

    Attributes:
        version: Version of the new value.
    """

    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The change was not made and never will be: the coordinator held another version."""


@dataclass(frozen=True, slots=True)
class Announced:
    """The name was announced."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer came: the call may have had its effect, may have it later, or never.

    Attributes:
        why: What went wrong, for a log; one line without secrets.
    """

    why: str


Outcome = Swapped | Refused | Unknown


class Coordinator(Protocol):
    """A store with compare-and-set. Loop only; calls may run at the same time.

    A key has two parts, ``kind/name``, each of which is a name as for topics (``record`` makes
    them). A call with a key, value or version that is not allowed raises ``InvalidName`` or
    ``ValueError`` and asks nobody.
    """

    async def read(self, key: str) -> Stored | Unknown | None:
        """Return what is stored under a key: the newest confirmed value; None if there is none.

        Raises:
            BadRecord: It is too large, or not bytes with a version.
        """
        ...

    async def create(self, key: str, value: bytes) -> Outcome:
        """Store a value with version 1 if there is none under the key; else it is refused."""
        ...

    async def swap(self, key: str, version: int, value: bytes) -> Outcome:
        """Replace a value if it has this version; else it is refused.

        It is also refused if there is no value under the key.
        """
        ...

    def watch(self, key: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Have a function called in the loop when the value may have changed.

        This is a hint: it may come late, twice or not at all, and also when nothing changed. Who
        needs to know reads from time to time as well.

        Returns:
            A function that ends the watch.
        """
        ...

    async def announce(self, name: str, value: bytes) -> Announced | Unknown:
        """Show others a name with a value for as long as this process lives and is connected.

        An announcement of the same name by another process is replaced: a process that starts
        again need not wait for its former life to be over. If a later process replaces this one,
        this one gives way until the later one is gone. If the coordinator forgets it, it is made
        again. After Unknown the coordinator goes on trying. A second call with the same name
        replaces the value.
        """
        ...

    async def announced(self) -> Mapping[str, bytes] | Unknown:
        """Return the announcements of all living processes.

        A process that was killed disappears within seconds. What another program put among them
        (names that are not allowed, values that are too large) is left out and logged.
        """
        ...

    async def close(self) -> None:
        """Withdraw the announcements and end the connections, within the deadline."""
        ...


def check_key(key: str) -> str:
    """Return the key if it is allowed.

    Raises:
        InvalidName: It is not two names with a slash between them, or it is too long.
    """
    kind, slash, name = key.partition("/")
    if not slash or len(key) > MAX_KEY:
        raise InvalidName(f"not a key of a coordinator: {quoted(key)}")
    check_name(kind, "the kind of a key")
    check_name(name, "the name in a key")
    return key


def check_value(value: bytes) -> bytes:
    """Return the value if it may be stored.

    Raises:
        ValueError: It is larger than 64 KiB.
    """
    if len(value) > MAX_BYTES:
        raise ValueError(f"a value of {len(value):,} bytes; at most {MAX_BYTES:,}")
    return value


def check_version(version: int) -> int:
    """Return the version if a value may have it.

    ZooKeeper takes a negative version for any version, so this check must come before the call.

    Raises:
        ValueError: No value has this version, or one after it.
    """
    if not FIRST_VERSION <= version < MAX_VERSION:
        raise ValueError(f"no value can be replaced at version {version}")
    return version


def stored(value: object, version: object) -> Stored:
    """Return what a store returned for a key, checked.

    Raises:
        BadRecord: It is not bytes with a version, or it is too large.
    """
    if type(value) is not bytes:
        raise BadRecord(f"the coordinator holds {type(value).__name__}, not bytes")
    if len(value) > MAX_BYTES:
        raise BadRecord(f"the coordinator holds {len(value):,} bytes; at most {MAX_BYTES:,}")
    if type(version) is not int or not FIRST_VERSION <= version <= MAX_VERSION:
        raise BadRecord(f"the coordinator holds a value with version {version!r}")
    return Stored(value, version)


def announcement(name: object, value: object) -> str | None:
    """Return why an announcement of a store is to be left out; None if it is well-formed."""
    try:
        check_name(name, "an announced name")
    except InvalidName as error:
        return str(error)
    if type(value) is not bytes or len(value) > MAX_BYTES:
        return f"the value announced by {name} is not bytes, or larger than {MAX_BYTES:,} bytes"
    return None
