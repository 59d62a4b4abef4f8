"""An inbox in a real Redis: claims that end, and servers that are away, refuse or lose answers."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import ternmq
from ternmq.reliable import Inbox, idempotent
from ternmq.reliable.inbox.claims import Answer, ClaimStore
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.inbox.redis import PREFIX, RedisClaims, claims_of
from ternmq.reliable.inbox.store import Asked
from tests.black_box.process import wait_until
from tests.integration.cluster.proxying import LosingProxy
from tests.integration.reliable.inboxes import AwaitedMessage, Message
from tests.redises import DURABLE, RedisServer, redis_server

ENTRY = Entry("orders/billing", b"order-7")
KEY = PREFIX + b"orders/billing:order-7"
LONG_MS = 300_000
SHORT_MS = 100
BUSY_S = 20.0
"""Longest wait of a test for another thread."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as one:
        yield one


@pytest.fixture
def make(server: RedisServer) -> Iterator[Callable[..., RedisClaims]]:
    """Make claims in the server, as a process of its own each."""
    made: list[RedisClaims] = []

    def make_one(claim_ms: int = LONG_MS, query: str = "") -> RedisClaims:
        made.append(claims_of(server.url + query, claim_ms))
        return made[-1]

    yield make_one
    for one in made:
        one.close()


class Handled:
    """A handler with an inbox in Redis, and its calls."""

    def __init__(self, inbox: Inbox, during: Callable[[], object] = lambda: None) -> None:
        self.inbox = inbox
        self.during = during
        self.calls: list[str] = []

        @idempotent(inbox)
        def handle(order: str) -> None:
            self.calls.append(order)
            self.during()

        self._handle = handle

    def __call__(self, id_: str = "order-7") -> None:
        self._handle(id_, Message(id_))


@contextmanager
def handler(url: str, **options: float) -> Iterator[Handled]:
    with Inbox.redis(url, **options) as inbox:
        yield Handled(inbox)


def errors() -> type[Exception]:
    """Return the class of all errors of redis-py."""
    found: type[Exception] = pytest.importorskip("redis").exceptions.RedisError
    return found


# -- claims ---------------------------------------------------------------------------------------


def test_the_claim_of_a_process_that_died_ends(make, server) -> None:
    assert make(SHORT_MS).claim(ENTRY, "dead") == Answer(claimed=True)
    assert 0 < server.ask("PTTL", KEY) <= SHORT_MS
    heir = make()
    wait_until(lambda: heir.claim(ENTRY, "next") == Answer(claimed=True), "the claim has ended")
    assert SHORT_MS < server.ask("PTTL", KEY) <= LONG_MS


def test_a_claim_keeps_others_out_until_it_is_given_up(make, server) -> None:
    one, other = make(), make()
    assert one.claim(ENTRY, "me") == Answer(claimed=True)
    assert other.claim(ENTRY, "you") == Answer(busy=True)
    one.give_up(ENTRY, "me")
    assert server.ask("GET", KEY) is None
    assert other.claim(ENTRY, "you") == Answer(claimed=True)


def test_a_claim_that_has_ended_is_not_given_up_by_its_first_owner(make) -> None:
    slow, heir = make(SHORT_MS), make()
    slow.claim(ENTRY, "slow")
    wait_until(lambda: heir.claim(ENTRY, "next") == Answer(claimed=True), "the claim has ended")
    slow.give_up(ENTRY, "slow")
    assert make().claim(ENTRY, "third") == Answer(busy=True)


def test_what_is_done_is_known_for_as_long_as_it_is_kept(make, server) -> None:
    one = make()
    one.claim(ENTRY, "me")
    one.finish(ENTRY, "me", b"\0result", 60_000)
    assert SHORT_MS < server.ask("PTTL", KEY) <= 60_000
    one.give_up(ENTRY, "me")  # it is no claim any more
    assert one.claim(ENTRY, "you") == Answer(result=b"\0result")
    one.finish(ENTRY, "me", b"\0result", SHORT_MS)
    wait_until(lambda: one.claim(ENTRY, "you") == Answer(claimed=True), "it is forgotten")
    assert server.ask("KEYS", b"*") == [KEY]


@pytest.mark.parametrize("keep_ms", [0, 10**30])
def test_a_time_that_redis_does_not_take_is_bent_to_one_that_it_takes(make, keep_ms) -> None:
    one = make(claim_ms=keep_ms)
    one.claim(ENTRY, "me")
    one.finish(ENTRY, "me", None, keep_ms)


def test_of_two_handlers_with_one_id_at_once_one_runs(server) -> None:
    inside, go_on = threading.Event(), threading.Event()
    with (
        handler(server.url) as one,
        handler(server.url) as other,
        ThreadPoolExecutor(2) as threads,
    ):

        def during() -> None:
            inside.set()
            assert go_on.wait(BUSY_S)

        one.during = during
        first = threads.submit(one)
        assert inside.wait(BUSY_S)
        second = threads.submit(other)
        wait_until(lambda: _asked(server, b"get") >= 2, "the second waits")
        go_on.set()
        first.result(BUSY_S)
        second.result(BUSY_S)
        assert (one.calls, other.calls) == (["order-7"], [])
        assert (one.inbox.stats().handled, other.inbox.stats().suppressed) == (1, 1)


def _asked(server: RedisServer, command: bytes) -> int:
    """Return how often the server ran a command."""
    stats = server.ask("INFO", "commandstats")
    return int(stats.get(f"cmdstat_{command.decode()}", {"calls": 0})["calls"])


# -- servers that are away ------------------------------------------------------------------------


def test_a_server_that_is_away_at_the_start(tmp_path) -> None:
    with redis_server(tmp_path, start=False) as server, handler(server.url) as handle:
        with pytest.raises(errors(), match="refused"):
            handle()
        assert handle.calls == []
        server.start()
        handle()
        handle()
        assert handle.calls == ["order-7"]


def test_a_server_that_is_killed_and_started_again_knows_what_was_done(tmp_path) -> None:
    with redis_server(tmp_path, *DURABLE) as server, handler(server.url) as handle:
        handle("before")
        server.kill()
        with pytest.raises(errors()):
            handle("before")
        with pytest.raises(errors()):
            handle("between")
        server.start()
        for id_ in ("before", "between", "between"):
            handle(id_)
        assert handle.calls == ["before", "between"]


def test_a_server_without_persistence_forgets_and_the_message_is_handled_again(server) -> None:
    with handler(server.url) as handle:
        handle()
        server.kill()
        server.start()
        handle()
        assert handle.calls == ["order-7", "order-7"]


def test_a_restart_between_two_messages_is_not_seen(tmp_path) -> None:
    """The connection of the first is gone; the command of the second is sent again."""
    with redis_server(tmp_path, *DURABLE) as server, handler(server.url) as handle:
        handle("a")
        server.kill()
        server.start()
        handle("b")
        assert handle.calls == ["a", "b"]


def test_a_server_that_is_killed_while_the_handler_runs(tmp_path) -> None:
    """The effect has happened, and the mark fails: handled again once the claim has ended."""
    claim_s = SHORT_MS / 1000
    with (
        redis_server(tmp_path, *DURABLE) as server,
        handler(server.url, claim=claim_s) as handle,
    ):
        handle.during = server.kill
        with pytest.raises(errors()):
            handle()
        server.start()
        handle.during = lambda: None
        handle()  # it waits for the end of the claim
        handle()
        assert handle.calls == ["order-7", "order-7"]


def test_a_server_that_answers_nothing_is_not_waited_for_without_end(server) -> None:
    url = f"{server.url}?socket_timeout=0.1"
    with handler(url, claim=SHORT_MS / 1000) as handle:
        handle("before")
        server.stop()
        try:
            with pytest.raises(errors(), match=r"(?i)timeout"):
                handle()
            assert handle.calls == ["before"]
        finally:
            server.go_on()
        handle()
        assert handle.calls == ["before", "order-7"]


def test_the_wait_for_an_answer_has_an_end_by_default(make) -> None:
    claims = make()
    claims.claim(ENTRY, "me")
    made = claims._client._pool.connection_kwargs
    assert (made["socket_timeout"], made["socket_connect_timeout"]) == (5.0, 5.0)


# -- servers that refuse --------------------------------------------------------------------------


@pytest.mark.parametrize("account", ["", ":wrong@", "nobody:wrong@"])
def test_a_wrong_password_is_an_error_and_the_handler_does_not_run(tmp_path, account) -> None:
    with redis_server(tmp_path, "--requirepass", "secret") as server:
        with handler(f"redis://{account}127.0.0.1:{server.port}/0") as handle:
            with pytest.raises(errors(), match=r"(?i)auth|password") as found:
                handle()
            assert handle.calls == []
            assert "secret" not in str(found.value)
        with handler(f"redis://:secret@127.0.0.1:{server.port}/0") as handle:
            handle()
            handle()
            assert handle.calls == ["order-7"]


def test_no_memory_left_before_the_handler(server) -> None:
    with handler(server.url) as handle:
        handle("before")
        server.settle("maxmemory", "1")
        with pytest.raises(errors(), match="maxmemory"):
            handle("refused")
        server.settle("maxmemory", "0")
        handle("refused")
        assert handle.calls == ["before", "refused"]


def test_no_memory_left_for_the_mark(server) -> None:
    """The effect has happened, and the mark is refused: handled again after the claim."""
    with handler(server.url, claim=SHORT_MS / 1000) as handle:
        handle.during = lambda: server.settle("maxmemory", "1")
        with pytest.raises(errors(), match="maxmemory"):
            handle()
        handle.during = lambda: None
        server.settle("maxmemory", "0")
        handle()
        handle()
        assert handle.calls == ["order-7", "order-7"]


def test_a_server_that_became_a_replica_is_left(server) -> None:
    with handler(server.url) as handle:
        handle("before")
        assert server.others() == 1
        server.ask("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(errors(), match="read only"):
            handle()
        assert handle.calls == ["before"]
        # Its name may lead to the new primary by now: the next command connects again.
        wait_until(lambda: server.others() == 0, "the connection is closed")
        server.ask("REPLICAOF", "NO", "ONE")
        handle()
        handle("before")
        assert handle.calls == ["before", "order-7"]


def test_a_replica_that_takes_over_knows_what_it_was_sent(server, tmp_path) -> None:
    folder = tmp_path / "replica"
    folder.mkdir()
    options = ("--replicaof", "127.0.0.1", f"{server.port}", "--repl-diskless-sync-delay", "0")
    server.settle("repl-diskless-sync-delay", "0")
    with redis_server(folder, *options) as replica:
        wait_until(lambda: b"up" in _link(replica), "the replica has connected")
        with handler(server.url) as handle:
            handle()
        server.ask("SET", "later", "1")  # WAIT waits for what its own connection has written
        assert server.ask("WAIT", 1, int(BUSY_S * 1000)) == 1
        with handler(replica.url) as handle, pytest.raises(errors(), match="read only"):
            handle("other")
        server.kill()
        replica.ask("REPLICAOF", "NO", "ONE")
        with handler(replica.url) as handle:
            handle()
            assert handle.calls == []


def _link(replica: RedisServer) -> bytes:
    return str(replica.ask("INFO", "replication").get("master_link_status")).encode()


# -- answers that are lost ------------------------------------------------------------------------


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("mark", [b"NX", b"GET", b"d"])
def test_a_lost_answer_is_no_other_handlers_claim(server, make, mark, made) -> None:
    """The command is sent again: the claim is the caller's, the mark is set, the handler runs once.

    ``d`` is the mark of a message without a result, as the protocol writes it.
    """

    async def run() -> None:
        async with LosingProxy(server.port) as proxy:
            with Inbox.redis(f"redis://127.0.0.1:{proxy.port}/0") as inbox:
                calls = []

                @idempotent(inbox)
                async def handle(order: str) -> None:
                    calls.append(order)

                if mark == b"GET":  # asked of what is known
                    await handle("order-7", AwaitedMessage("order-7"))
                sent = b"$1\r\nd\r\n" if mark == b"d" else mark
                proxy.lose(sent, made=made)
                await handle("order-7", AwaitedMessage("order-7"))
                await handle("order-7", AwaitedMessage("order-7"))
                assert (calls, proxy.lost) == (["order-7"], 1)

    asyncio.run(run())
    assert make().claim(ENTRY, "you") == Answer()


@pytest.mark.parametrize("made", [True, False])
def test_a_claim_is_given_up_although_the_answer_is_lost(server, make, made) -> None:
    async def run() -> None:
        async with LosingProxy(server.port) as proxy:
            with Inbox.redis(f"redis://127.0.0.1:{proxy.port}/0") as inbox:

                @idempotent(inbox)
                async def handle(order: str) -> None:
                    proxy.lose(b"EVAL", made=made)
                    raise ternmq.Reject("not yet")

                with pytest.raises(ternmq.Reject):
                    await handle("order-7", AwaitedMessage("order-7"))
                assert proxy.lost == 1

    asyncio.run(run())
    assert make().claim(ENTRY, "you") == Answer(claimed=True)


def test_the_error_of_a_handler_stays_its_own_if_the_claim_cannot_be_given_up(
    server, caplog
) -> None:
    with handler(server.url) as handle:

        def during() -> None:
            server.kill()
            raise ternmq.Reject("the card was declined")

        handle.during = during
        with (
            caplog.at_level(logging.WARNING, "ternmq.reliable"),
            pytest.raises(ternmq.Reject, match="declined"),
        ):
            handle()
        assert "could not be given up" in caplog.text


# -- handlers that are awaited --------------------------------------------------------------------


def test_handlers_that_are_awaited(server) -> None:
    async def run() -> None:
        with Inbox.redis(server.url, wait=0.05) as inbox:
            calls = []

            @idempotent(inbox, result=True)
            async def handle(order: int) -> int:
                calls.append(order)
                if len(calls) == 1:
                    raise ternmq.Reject("not yet")
                return order

            with pytest.raises(ternmq.Reject):
                await handle(7, AwaitedMessage("a"))
            assert await handle(7, AwaitedMessage("a")) == 7
            assert await handle(8, AwaitedMessage("a")) == 7
            assert calls == [7, 7]

            async with inbox.store.visit_awaited(ENTRY, Asked((), 1000, result=False)):
                with pytest.raises(ternmq.Retry) as found:
                    await handle(7, AwaitedMessage("order-7"))
            assert found.value.reason == "in progress elsewhere"

    asyncio.run(run())


class Gate(RedisClaims):
    """Claims, whose first answer waits on the way to the server or back."""

    def __init__(self, claims: RedisClaims, *, before: bool) -> None:
        super().__init__(claims._connect, claims.name, LONG_MS)
        self._before = before
        self.there, self.go_on = threading.Event(), threading.Event()

    def claim(self, entry: Entry, token: str) -> Answer:
        answer = None if self._before else super().claim(entry, token)
        if not self.there.is_set():
            self.there.set()
            assert self.go_on.wait(BUSY_S)
        return answer or super().claim(entry, token)


@pytest.mark.parametrize("before", [True, False])
def test_a_handler_that_is_cancelled_while_it_claims_leaves_no_claim(server, make, before) -> None:
    gate = Gate(make(), before=before)

    async def run() -> None:
        store = ClaimStore(gate, 1.0)

        async def visit() -> None:
            async with store.visit_awaited(ENTRY, Asked((), 1000, result=False)):
                raise AssertionError("it was cancelled")

        task = asyncio.create_task(visit())
        await asyncio.to_thread(gate.there.wait, BUSY_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.go_on.set()

    asyncio.run(run())  # it waits for the thread
    gate.close()
    assert _asked(server, b"set") == 1
    assert make().claim(ENTRY, "you") == Answer(claimed=True)


# -- connections ----------------------------------------------------------------------------------


def test_closing_leaves_no_connection_and_the_next_use_opens_another(server) -> None:
    with handler(server.url) as handle:
        assert server.others() == 0  # no I/O before the first message
        handle("a")
        assert server.others() == 1
        handle.inbox.close()
        wait_until(lambda: server.others() == 0, "it is closed")
        handle("b")
        assert server.others() == 1
    wait_until(lambda: server.others() == 0, "it is closed")


def test_a_forked_child_has_connections_of_its_own(server) -> None:
    with handler(server.url) as handle:
        handle("parent")
        child = os.fork()
        if child == 0:
            try:
                handle("parent")
                handle("child")
                os._exit(0 if handle.calls == ["parent", "child"] else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        handle("child")
        assert handle.calls == ["parent"]


def test_values_are_bytes_whatever_the_url_says(make) -> None:
    claims = make(query="?decode_responses=True")
    claims.claim(ENTRY, "me")
    claims.finish(ENTRY, "me", b"\xff", 60_000)
    assert claims.claim(ENTRY, "me") == Answer(result=b"\xff")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://user:secret@cache:6379/3?password=secret", "cache:6379/3"),
        ("rediss://:secret@cache/0", "cache/0"),
        ("unix://user:secret@/run/redis.sock?db=1&password=secret", "/run/redis.sock"),
    ],
)
def test_texts_name_the_server_and_no_password(url, place) -> None:
    pytest.importorskip("redis", reason="needs redis-py")
    assert claims_of(url, 1000).name == f"the Redis at {place}"


def test_what_is_no_url_of_a_redis() -> None:
    pytest.importorskip("redis", reason="needs redis-py")
    with pytest.raises(ternmq.InvalidRequest, match="redis://host:6379/0"):
        Inbox.redis("http://localhost")
