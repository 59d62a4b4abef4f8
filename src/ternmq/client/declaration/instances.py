"""The broadcast instances that a client is: what their settings are, and which are in use.

All consumers of a client that state the same topic and instance are one instance, and share its
messages. The settings that one states when it joins replace those of the instance, so a consumer
that runs would get what another one asked for. Such a join is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from ternmq.client.declaration.source import Source
from ternmq.model.errors import GroupSettingsMismatch
from ternmq.model.header_filter import same_header_filter
from ternmq.model.specs import SubscriptionSpec
from ternmq.model.tag_filter import same_filter

Place = tuple[str, str]
"""Topic and name of the instance; an empty name: it has none."""


class Instances:
    """The instances of one client. Not thread-safe: call it from the client's loop."""

    def __init__(self) -> None:
        self._specs: dict[Place, SubscriptionSpec] = {}
        self._users: Counter[Place] = Counter()
        self._locks: defaultdict[Place, asyncio.Lock] = defaultdict(asyncio.Lock)

    def joining(self, source: Source) -> asyncio.Lock:
        """Return the lock of a join: a consumer begins before the next one joins."""
        return self._locks[_place(source)]

    def joined(self, source: Source, spec: SubscriptionSpec) -> None:
        """Note the settings of an instance."""
        self._specs[_place(source)] = spec

    def begin(self, source: Source) -> None:
        """Note that a consumer of a joined instance begins."""
        self._users[_place(source)] += 1

    def end(self, source: Source) -> None:
        """Note that a consumer has stopped to pull."""
        place = _place(source)
        self._users[place] -= 1
        if not self._users[place]:
            del self._users[place]

    def changes(self, source: Source) -> bool:
        """Return whether a join changes the settings of the instance.

        Raises:
            GroupSettingsMismatch: It does, and a consumer of the instance runs.
        """
        place = _place(source)
        has = self._specs.get(place)
        other = None if has is None else _difference(source, has)
        if other is None:
            return False
        if self._users[place]:
            name = repr(source.instance) if source.instance else "without a name"
            raise GroupSettingsMismatch(
                f"a consumer of this client is broadcast instance {name} of topic "
                f"{source.topic!r} with another {other}: state another instance= here, since all "
                "consumers of an instance share its messages"
            )
        return True


def _place(source: Source) -> Place:
    return source.topic, source.instance


def _difference(source: Source, spec: SubscriptionSpec) -> str | None:
    """Return the first stated setting that an instance does not have."""
    if source.tags is not None and not same_filter(source.tags, spec.tags):
        return "tags"
    if source.filter is not None and not same_header_filter(source.filter, spec.filter):
        return "filter"
    if source.lease_us is not None and source.lease_us != spec.lease_us:
        return "lease"
    return None
