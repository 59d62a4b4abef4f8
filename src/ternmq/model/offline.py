"""The clients that are switched off for a consumer group: ``SubscriptionSpec.offline``.

An entry is the name of a client as lists show it: its first 8 characters. With ``APP/`` before it,
the entry is for the clients of that app only. Either part may be the beginning of names followed by
``*``: ``billing/*`` switches off all clients of app billing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ternmq.model.errors import InvalidRequest
from ternmq.model.printing import quoted

CLIENT_SHOWN: Final = 8
"""Number of characters of a client's name that lists show: the whole name gives access to its
session."""
MAX_OFFLINE: Final = 256
"""Most entries of one group."""
_PART: Final = r"[A-Za-z0-9._-]"
_ENTRY: Final = re.compile(
    rf"(?:(?:{_PART}{{1,127}}|{_PART}{{0,127}}\*)/)?"
    rf"(?:{_PART}{{1,{CLIENT_SHOWN}}}|{_PART}{{0,{CLIENT_SHOWN}}}\*)\Z"
)


def check_offline(entries: Iterable[str]) -> None:
    """Check the entries of a group.

    Raises:
        InvalidRequest: One is not valid, or there are too many.
    """
    listed = list(entries)
    if len(listed) > MAX_OFFLINE:
        raise InvalidRequest(
            f"at most {MAX_OFFLINE} entries of clients can be switched off, not {len(listed)}: "
            "one entry can be for many clients, such as 'billing/*'"
        )
    for entry in listed:
        if type(entry) is not str or _ENTRY.match(entry) is None:
            raise InvalidRequest(
                f"not the name of a client: {quoted(str(entry))}; state its first {CLIENT_SHOWN} "
                "characters, as `ternmq client list` shows them, or APP/CLIENT; each may end in *"
            )


def is_offline(entries: Iterable[str], app: str, client: str) -> bool:
    """Return whether a client of an app is switched off. O(entries)."""
    shown = client[:CLIENT_SHOWN]
    for entry in entries:
        of_app, slash, name = entry.rpartition("/")
        if _covers(name, shown) and (not slash or _covers(of_app, app)):
            return True
    return False


def _covers(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
