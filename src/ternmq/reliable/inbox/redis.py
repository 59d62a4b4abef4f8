"""A store in Redis, or a server that speaks as it does.

    ternmq:inbox:{topic/group}:{id}     "c" and the token of the handler that has it, for a time
                                        "d" and the result: the message was handled

What Redis forgets is handled again: after a restart without persistence, a failover that loses
writes, or an eviction (set ``maxmemory-policy noeviction``). What it refuses (no memory left, a
replica) is an error: before the handler it does not run; after it the message is handled again once
the claim has ended.

Commands whose outcome is not known are sent again: each of them may come twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from ternmq.model.errors import InvalidRequest
from ternmq.reliable.inbox.claims import Answer
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.libraries.extras import installed

PREFIX: Final = b"ternmq:inbox:"
GIVE_UP: Final = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)
"""Ends a claim, unless it has ended and another handler has the message."""
TIMEOUT_S: Final = 5.0
"""Longest wait for a connection, and for an answer, unless the URL has other values."""
TRIES: Final = 3
_PAUSE_S: Final = (0.02, 0.5)
"""First and longest pause between two tries."""
_LONGEST_MS: Final = 10**15
"""Redis refuses times that it cannot add to its clock; this is 30,000 years."""


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
        self._claim_ms = _time_of(claim_ms)
        self._client: Commands | None = None
        self._lock = threading.Lock()

    def claim(self, entry: Entry, token: str) -> Answer:
        """Claim a message; see ``Claims``."""
        key, mine, run = _key(entry), _claim(token), self._run
        if run("SET", key, mine, "NX", "PX", self._claim_ms):
            return Answer(claimed=True)
        found = run("GET", key)
        if found == mine:  # the answer was lost, and the command was sent again
            return Answer(claimed=True)
        if not isinstance(found, bytes) or not found.startswith(b"d"):
            return Answer(busy=True)  # or it has ended since: the next question tells
        return Answer(result=found[1:] or None)

    def finish(self, entry: Entry, token: str, result: bytes | None, keep_ms: int) -> None:
        """Mark a message as done; see ``Claims``."""
        del token  # its effect has happened, whoever has a claim now
        self._run("SET", _key(entry), b"d" + (result or b""), "PX", _time_of(keep_ms))

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
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def leave(self) -> None:
        """Forget the connections of the parent."""
        self._client = None
        self._lock = threading.Lock()

    def _run(self, *command: bytes | str | int) -> object:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            client = self._client
        return client.execute_command(*command)


def _key(entry: Entry) -> bytes:
    return PREFIX + entry.consumer.encode() + b":" + entry.id


def _claim(token: str) -> bytes:
    return b"c" + token.encode()


def _time_of(ms: int) -> int:
    """Return a time that Redis takes, in ms."""
    return min(max(ms, 1), _LONGEST_MS)


class _RedisPy:
    """A client of ``redis-py`` with connections of its own. Callable from any thread.

    Args:
        library: The package.
        url: Of the server; what it says counts.

    Raises:
        ValueError: The URL is none.
    """

    def __init__(self, library: Any, url: str) -> None:  # noqa: ANN401 - it has no types
        first_s, longest_s = _PAUSE_S
        errors = library.exceptions
        self._read_only: type[Exception] = errors.ReadOnlyError
        self._pool = library.ConnectionPool.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S,
            retry=library.retry.Retry(
                library.backoff.ExponentialBackoff(longest_s, first_s), TRIES - 1
            ),
            retry_on_error=[errors.ConnectionError, errors.TimeoutError],
        )  # fmt: skip
        # Values are bytes, whatever the URL of an application says about its own.
        self._pool.connection_kwargs["decode_responses"] = False
        self._client = library.Redis(connection_pool=self._pool)

    def execute_command(self, *command: bytes | str | int) -> object:
        """Run a command; raises ``redis.exceptions.RedisError``."""
        try:
            answer: object = self._client.execute_command(*command)
        except self._read_only:
            # It was the primary when the connection was made. Its name may lead to another server
            # by now.
            self._pool.disconnect(inuse_connections=False)
            raise
        return answer

    def close(self) -> None:
        """Close its connections."""
        self._pool.disconnect()


def claims_of(url: str, claim_ms: int) -> RedisClaims:
    """Return the claims in a server, with clients of ``redis-py``. No I/O.

    Raises:
        InvalidRequest: The URL is none, or the package is missing.
    """
    with installed("an inbox in Redis"):
        import redis
        import redis.backoff
        import redis.exceptions
        import redis.retry
    try:
        _RedisPy(redis, url)
    except ValueError as error:
        raise InvalidRequest(f"url= is like redis://host:6379/0: {error}") from error
    return RedisClaims(lambda: _RedisPy(redis, url), f"the Redis at {_shown(url)}", claim_ms)


def _shown(url: str) -> str:
    """Return the place of a server: no account, nor what a query may contain of one."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] + parts.path
