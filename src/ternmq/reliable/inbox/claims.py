"""Stores without transactions: a handler claims a message, runs, and marks it as done.

After a crash between the effect and the mark, the claim ends and the handler runs again: at least
once. Without crashes each message has its effect once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from ternmq.model.errors import InvalidHandler
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.inbox.store import Asked, InProgress, Visit
from ternmq.reliable.libraries.opening import Wanted

log: Final = logging.getLogger("ternmq.reliable")

POLL_S: Final = (0.005, 0.1)
"""First and longest pause between two questions whether another handler is done."""


@dataclass(slots=True, frozen=True)
class Answer:
    """What became of a claim.

    Attributes:
        claimed: It is the caller's; else the message is known, or ``busy``.
        busy: Another handler has it.
        result: Of a known message: its result, if one was kept.
    """

    claimed: bool = False
    busy: bool = False
    result: bytes | None = None


class Claims(Protocol):
    """Claims and marks by entry. Callable from any thread.

    Attributes:
        name: For texts.
        blocks: Whether calls wait for a network: in a loop they are made in threads.
    """

    name: str
    blocks: bool

    def claim(self, entry: Entry, token: str) -> Answer:
        """Claim a message, unless it is claimed or done."""

    def finish(self, entry: Entry, token: str, result: bytes | None, keep_ms: int) -> None:
        """Mark a message as done, for so long."""

    def give_up(self, entry: Entry, token: str) -> None:
        """End the caller's claim: the message is not done."""

    def forget(self, entry: Entry) -> bool:
        """Forget a message; return whether it was done."""

    def close(self) -> None:
        """Close connections."""

    def leave(self) -> None:
        """Forget connections and locks in a forked child."""


class ClaimStore:
    """Remembers messages by claims and marks; see ``Store``.

    Args:
        claims: Where they are.
        wait_s: How long to wait for another handler.
    """

    def __init__(self, claims: Claims, wait_s: float) -> None:
        self._claims = claims
        self._wait_s = wait_s

    def check(self, name: str, wanted: Sequence[Wanted], *, awaited: bool) -> None:
        """Refuse handlers that want a transaction; see ``Store``."""
        del awaited
        if wanted:
            raise InvalidHandler(
                f"handler {name}: its parameter {wanted[0].name!r} receives the transaction of an "
                f"inbox, and {self._claims.name} has none"
            )

    @contextmanager
    def visit(self, entry: Entry, asked: Asked) -> Iterator[Visit]:
        """Return the visit of a message; see ``Store``."""
        token = secrets.token_hex(8)
        waiting = _Waiting(self._wait_s)
        while (answer := self._claims.claim(entry, token)).busy:
            time.sleep(waiting.pause(self._claims.name))
        visit = Visit(not answer.claimed, answer.result)
        if visit.known:
            yield visit
            return
        try:
            yield visit
        except BaseException:
            _give_up(self._claims, entry, token)
            raise
        self._claims.finish(entry, token, visit.result, asked.keep_ms)

    @asynccontextmanager
    async def visit_awaited(self, entry: Entry, asked: Asked) -> AsyncIterator[Visit]:
        """Return the visit of a message; see ``Store``."""
        claims, token = self._claims, secrets.token_hex(8)
        waiting = _Waiting(self._wait_s)
        answer = await self._claim_awaited(entry, token)
        while answer.busy:  # another process may have it: there is nothing to be woken by
            await asyncio.sleep(waiting.pause(claims.name))
            answer = await self._claim_awaited(entry, token)
        visit = Visit(not answer.claimed, answer.result)
        if visit.known:
            yield visit
            return
        try:
            yield visit
        except BaseException:
            if claims.blocks:
                await asyncio.to_thread(_give_up, claims, entry, token)
            else:
                claims.give_up(entry, token)
            raise
        if claims.blocks:
            await asyncio.to_thread(claims.finish, entry, token, visit.result, asked.keep_ms)
        else:
            claims.finish(entry, token, visit.result, asked.keep_ms)

    async def _claim_awaited(self, entry: Entry, token: str) -> Answer:
        if not self._claims.blocks:
            return self._claims.claim(entry, token)
        question = _Question(self._claims, entry, token)
        try:
            return await asyncio.to_thread(question.ask)
        except asyncio.CancelledError:  # the thread goes on
            await asyncio.to_thread(question.withdraw)
            raise

    def asks_again(self, error: Exception) -> bool:
        """Return False: there are no transactions."""
        del error
        return False

    def forget(self, entries: Iterable[Entry]) -> int:
        """Forget messages; see ``Store``."""
        return sum([self._claims.forget(entry) for entry in entries])

    def begin(self) -> None:
        """Do nothing: marks end by themselves."""

    def prepare(self, *, moved: bool) -> list[str]:
        """Do nothing."""
        del moved
        return []

    def clean(self, now_ms: int | None) -> int:
        """Return 0: marks end by themselves."""
        del now_ms
        return 0

    def close(self) -> None:
        """Close connections; see ``Store``."""
        self._claims.close()

    async def close_awaited(self) -> None:
        """Close connections; see ``Store``."""
        await asyncio.to_thread(self._claims.close)

    def leave(self) -> None:
        """Forget connections in a forked child."""
        self._claims.leave()


def _give_up(claims: Claims, entry: Entry, token: str) -> None:
    """End a claim after an error, which is not replaced by another one."""
    try:
        claims.give_up(entry, token)
    except Exception as error:  # noqa: BLE001  # of any library; the caller raises its own
        log.warning(
            "%s %s: its claim in %s could not be given up, so it is not handled until the claim "
            "ends by itself: %s", entry.consumer, entry.id.decode(), claims.name, error,
        )  # fmt: skip


class _Question:
    """A claim in a thread, whose caller may go away meanwhile. Callable from two threads."""

    def __init__(self, claims: Claims, entry: Entry, token: str) -> None:
        self._claims = claims
        self._entry = entry
        self._token = token
        self._lock = threading.Lock()
        self._claimed = False
        self._withdrawn = False

    def ask(self) -> Answer:
        """Claim the message; give it up if nobody waits for the answer any more."""
        answer = self._claims.claim(self._entry, self._token)
        with self._lock:
            self._claimed = answer.claimed
            withdrawn = self._withdrawn
        if answer.claimed and withdrawn:
            _give_up(self._claims, self._entry, self._token)
        return answer

    def withdraw(self) -> None:
        """Give up what was claimed, or will be."""
        with self._lock:
            self._withdrawn = True
            claimed = self._claimed
        if claimed:
            _give_up(self._claims, self._entry, self._token)


class _Waiting:
    """Pauses, longer and longer, until it has taken too long."""

    def __init__(self, wait_s: float) -> None:
        self._until = time.monotonic() + wait_s
        self._pause, self._longest = POLL_S

    def pause(self, name: str) -> float:
        """Return the next pause, in seconds; raises InProgress when the time is over."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise InProgress(name)
        pause = min(self._pause, left)
        self._pause = min(self._longest, self._pause * 2)
        return pause
