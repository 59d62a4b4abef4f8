"""Reasons for alarms of a broker group: what must last for a while before it needs a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ternmq.broker.catalog.alarms import AlarmKey
from ternmq.broker.ledger.alarms import COORDINATOR, COPY_BEHIND, ONE_COPY, READ_ONLY
from ternmq.wire.control import FollowerInfo

PATIENCE_S: Final = 5.0
"""How long a copy must be missing, or the coordinator silent, before that is an alarm."""
BEHIND_S: Final = 30.0
"""How long a follower must be behind; to catch up after a restart usually takes less."""
BEHIND_BYTES: Final = 1 << 20


class Reasons:
    """Finds out what lasts. Not thread-safe: call it from the broker's loop.

    Args:
        group: Name of the broker group.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._since: dict[AlarmKey, float] = {}
        """What is wrong -> since when, by the clock of ``look``."""

    def look(
        self,
        now_s: float,
        *,
        copies: int,
        missing: str,
        followers: Sequence[FollowerInfo],
        trouble: str,
        read_only: str,
    ) -> Mapping[AlarmKey, str]:
        """Return what has been wrong for long enough, with the texts of the alarms.

        Args:
            now_s: The time, of a clock that nobody sets.
            copies: Number of recorded members.
            missing: Which copies are missing, for people.
            followers: The followers of this primary.
            trouble: What is wrong with the coordinator; empty: nothing.
            read_only: Why the group takes no new messages; empty: it does.
        """
        found: dict[AlarmKey, str] = {}
        wrong: dict[AlarmKey, float] = {}
        for key, patience_s, text in self._wrong(copies, missing, followers, trouble, read_only):
            wrong[key] = self._since.get(key, now_s)
            if now_s - wrong[key] >= patience_s:
                found[key] = text
        self._since = wrong
        return found

    def _wrong(
        self,
        copies: int,
        missing: str,
        followers: Sequence[FollowerInfo],
        trouble: str,
        read_only: str,
    ) -> Iterator[tuple[AlarmKey, float, str]]:
        if copies < 2:
            text = f"the journal has one copy that counts: {missing}"
            yield AlarmKey(ONE_COPY, self._group), PATIENCE_S, text
        for one in followers:
            if one.connected and one.behind_bytes > BEHIND_BYTES and one.kind != "backup":
                text = f"{one.broker} does not keep up: it is {one.behind_bytes:,} bytes behind"
                yield AlarmKey(COPY_BEHIND, one.broker), BEHIND_S, text
        if trouble:
            text = f"{trouble}; sends go on, but neither copies nor the primary can change"
            yield AlarmKey(COORDINATOR, ""), PATIENCE_S, text
        if read_only:
            yield AlarmKey(READ_ONLY, self._group), PATIENCE_S, read_only
