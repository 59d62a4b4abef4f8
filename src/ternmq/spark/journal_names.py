"""Names of the numbers that stand in records: topics, groups, sessions.

Numbers are never used again, so names are only ever added: those that were there before the first
record come from a catalog, the others from the records themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ternmq.record import control
from ternmq.record.header import Kind

_SHOWN: Final = 8
"""So much of a client's name is shown: who knows it whole may take its session over."""


class Client(NamedTuple):
    """Who a session is."""

    app: str
    client: str
    """The beginning of the client's name."""
    address: str = ""


@dataclass(slots=True)
class Names:
    """What numbers stand for; what is not known has no entry."""

    topics: dict[int, str] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    sessions: dict[int, Client] = field(default_factory=dict)

    def learn(self, kind: int, body: bytes) -> None:
        """Take in a CONFIG or JOINED record; others tell no names."""
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
        """Take in who a session is."""
        self.sessions[session] = Client(app, client[:_SHOWN], address)
