"""Which failed messages of a group are meant: by state, time, attempts, key or id."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from ternmq.client.content.validation import check_id, text, time_us, whole
from ternmq.model.errors import InvalidRequest
from ternmq.wire import control

FailedState = Literal["waiting", "held", "dead"]
"""``waiting``: for its retry; ``held``: until an operator retries or deletes it; ``dead``: it is a
dead letter."""
STATES: Final[tuple[FailedState, ...]] = ("waiting", "held", "dead")
_EVER_US: Final = 2**63 - 1


@dataclass(slots=True, frozen=True, kw_only=True)
class FailedQuery:
    """Failed messages for which all of this holds.

    Attributes:
        states: ``waiting``, ``held``, ``dead``; empty: every state that the call is about.
        since: Their last failure was at or after this time.
        until: Their last failure was before this time.
        attempts: At least this number of attempts was made.
        key: They have this key.
        id: The message with this id: of a receipt, or of the application's own.
    """

    states: Sequence[FailedState] = ()
    since: datetime | None = None
    until: datetime | None = None
    attempts: int = 0
    key: str | None = None
    id: str | None = None

    def select(self, *of: FailedState) -> control.FailedSelect:
        """Return it in the form of a request, for a call about messages in some states.

        Raises:
            InvalidRequest: It is no query, or about no message in these states.
        """
        if isinstance(self.states, str) or not isinstance(self.states, Collection):
            raise InvalidRequest('states are a list, such as ["dead"]')
        for one in self.states:
            if one not in STATES:
                raise InvalidRequest(f"states are {', '.join(STATES)}, not {one!r}")
        states: list[FailedState] = [one for one in of if one in self.states or not self.states]
        wrong = [one for one in self.states if one not in of]
        if wrong:
            raise InvalidRequest(f"this is for messages that are {' or '.join(of)}, not {wrong[0]}")
        attempts = whole("attempts", self.attempts)
        if not 0 <= attempts <= _EVER_US:
            raise InvalidRequest(f"attempts must be 0 or more, not {attempts}")
        since_us = 0 if self.since is None else time_us("since", self.since)
        until_us = _EVER_US if self.until is None else time_us("until", self.until)
        if since_us >= until_us:
            raise InvalidRequest("since must be before until: no message failed in this time")
        if self.key is not None and self.id is not None:
            raise InvalidRequest("give a key or an id, not both")
        if self.key is not None:
            text("key", self.key)
        if self.id is not None:
            check_id("id", self.id)
        return control.FailedSelect(
            states=[] if len(states) == len(STATES) else list(states),
            since_us=since_us,
            until_us=until_us,
            attempts=attempts,
        )


def check_query(query: object) -> FailedQuery:
    """Return a query.

    Raises:
        InvalidRequest: It is something else.
    """
    if not isinstance(query, FailedQuery):
        raise InvalidRequest(
            "a query is a FailedQuery, such as ternmq.FailedQuery(attempts=3), not "
            f"{type(query).__name__}"
        )
    return query
