"""Names for the numbers in records: topics, groups, sessions.

Numbers are never reused, so names are only added: names from before the first record come from a
catalog, the others from the records themselves. The driver of a read gets the catalog once, and
sends it to the tasks packed.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from ternmq.record.fact import control
from ternmq.record.fact.header import Kind

_SHOWN: Final = 8
"""Characters shown of a client's name: with the whole name, its session could be taken over."""
_TOPIC: Final = frozenset({"topic"})
_GROUP: Final = frozenset({"group"})
_SESSION: Final = frozenset({"app", "client"})
_LEVEL: Final = 1
"""Of the compression: a higher level takes three times as long and saves a tenth."""


class Client(NamedTuple):
    """The client of a session."""

    app: str
    client: str
    """The beginning of the client's name."""
    address: str = ""


@dataclass(slots=True)
class Names:
    """Names by number; unknown numbers have no entry."""

    topics: dict[int, str] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    sessions: dict[int, Client] = field(default_factory=dict)

    def packed(self, columns: Collection[str]) -> bytes:
        """Return the names that these columns need, for ``unpacked``; empty if there are none.

        Addresses are left out: no column contains them.
        """
        told = (
            {} if _TOPIC.isdisjoint(columns) else self.topics,
            {} if _GROUP.isdisjoint(columns) else self.groups,
            {}
            if _SESSION.isdisjoint(columns)
            else {number: (one.app, one.client) for number, one in self.sessions.items()},
        )
        return zlib.compress(msgspec.msgpack.encode(told), _LEVEL) if any(told) else b""

    @classmethod
    def unpacked(cls, packed: bytes) -> Names:
        """Return the names that were packed."""
        if not packed:
            return cls()
        topics, groups, sessions = _DECODER.decode(zlib.decompress(packed))
        clients = {number: Client(app, client) for number, (app, client) in sessions.items()}
        return cls(topics, groups, clients)

    def learn(self, kind: int, body: bytes) -> None:
        """Add the names of a CONFIG or JOINED record; others contain none."""
        if kind == Kind.CONFIG:
            change = control.unpack_config(body)
            if isinstance(change, control.TopicCreated | control.TopicChanged):
                self.topics[change.number] = change.spec.name
            elif isinstance(change, control.Subscribed):
                self.groups[change.group] = change.group_name
        elif kind == Kind.JOINED:
            joined = control.unpack_joined(body)
            self.joined(joined.session, joined.app, joined.client, joined.address)

    def joined(self, session: int, app: str, client: str, address: str) -> None:
        """Add the client of a session."""
        self.sessions[session] = Client(app, client[:_SHOWN], address)


_DECODER: Final = msgspec.msgpack.Decoder(
    tuple[dict[int, str], dict[int, str], dict[int, tuple[str, str]]]
)


def named(columns: Collection[str]) -> bool:
    """Return whether any of these columns contains names."""
    return not (_TOPIC | _GROUP | _SESSION).isdisjoint(columns)
