"""A store in Redis, or a server that speaks as it does.

    ternmq:inbox:{topic/group}:{id}     "c" and the token of the handler that has it, for a time
                                        "d" and the result: the message was handled

What Redis forgets is handled again: after a restart without persistence, a failover that loses
writes, or an eviction (set ``maxmemory-policy noeviction``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ternmq.model.errors import InvalidRequest
from ternmq.reliable.inbox.claims import Answer
from ternmq.reliable.inbox.entry import Entry

PREFIX: Final = b"ternmq:inbox:"
GIVE_UP: Final = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)
"""Ends a claim, unless it has ended and another handler has the message."""


class Commands(Protocol):
    """A client of Redis, as far as it is used here: that of ``redis-py``, which blocks."""

    def execute_command(self, *command: bytes | str | int) -> object:
        """Run a command; return its answer, with strings as bytes."""

    def close(self) -> None:
        """Close its connections."""


class RedisClaims:
    """Claims in Redis; see ``Claims``.

    Args:
        connect: Makes a client, without I/O.
        name: The server, without the password, for texts.
        claim_ms: How long a claim lasts, if the process of its handler dies.
    """

    blocks = True

    def __init__(self, connect: Callable[[], Commands], name: str, claim_ms: int) -> None:
        self.name = name
        self._connect = connect
        self._claim_ms = claim_ms
        self._client: Commands | None = None

    def claim(self, entry: Entry, token: str) -> Answer:
        """Claim a message; see ``Claims``."""
        key, run = _key(entry), self._run
        if run("SET", key, _claim(token), "NX", "PX", self._claim_ms):
            return Answer(claimed=True)
        found = run("GET", key)
        if not isinstance(found, bytes) or not found.startswith(b"d"):
            return Answer(busy=True)  # or it has ended since: the next question tells
        return Answer(result=found[1:] or None)

    def finish(self, entry: Entry, token: str, result: bytes | None, keep_ms: int) -> None:
        """Mark a message as done; see ``Claims``."""
        del token  # its effect has happened, whoever has a claim now
        self._run("SET", _key(entry), b"d" + (result or b""), "PX", keep_ms)

    def give_up(self, entry: Entry, token: str) -> None:
        """End a claim; see ``Claims``."""
        self._run("EVAL", GIVE_UP, 1, _key(entry), _claim(token))

    def forget(self, entry: Entry) -> bool:
        """Forget a message; see ``Claims``."""
        found = self._run("GET", _key(entry))
        if not isinstance(found, bytes) or not found.startswith(b"d"):
            return False
        return self._run("DEL", _key(entry)) == 1

    def close(self) -> None:
        """Close the connections; the next use opens others."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def leave(self) -> None:
        """Forget the connections of the parent."""
        self._client = None

    def _run(self, *command: bytes | str | int) -> object:
        if self._client is None:
            self._client = self._connect()
        return self._client.execute_command(*command)


def _key(entry: Entry) -> bytes:
    return PREFIX + entry.consumer.encode() + b":" + entry.id


def _claim(token: str) -> bytes:
    return b"c" + token.encode()


def claims_of(url: str, claim_ms: int) -> RedisClaims:
    """Return the claims in a server, with clients of ``redis-py``. No I/O.

    Raises:
        InvalidRequest: The URL is none, or the package is missing.
    """
    try:
        from redis import Redis
    except ImportError as error:
        raise InvalidRequest(
            "an inbox in Redis needs redis-py: pip install 'ternmq[redis]'"
        ) from error

    def connect() -> Commands:
        client: Commands = Redis.from_url(url)
        return client

    try:
        connect().close()
    except ValueError as error:
        raise InvalidRequest(f"url= is like redis://host:6379/0: {error}") from error
    return RedisClaims(
        connect, f"the Redis at {url.partition('://')[2].rpartition('@')[2]}", claim_ms
    )
