"""Names for the numbers in records: topics, groups, sessions.

Numbers are never reused, so names are only added: names from before the first record come from a
catalog, the others from the records themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ternmq.record.fact import control
from ternmq.record.fact.header import Kind

_SHOWN: Final = 8
"""Characters shown of a client's name: with the whole name, its session could be taken over."""


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
