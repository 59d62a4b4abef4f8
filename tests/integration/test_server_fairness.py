"""An app that asks for everything and takes nothing, beside one that does its work.

What others have to wait for is bounded in turns of the loop, units of work and bytes, not seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar, cast

import msgspec
import pytest

from ternmq.broker.delivery.parking import OVER, SERVED
from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import Busy, TernMQError
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.server.commands import journal_reads
from ternmq.server.commands.pulls import WOKEN_CALLS
from ternmq.server.desk import whole_lists
from ternmq.server.desk.accounts import CONTROL_UNITS, PORTION, ROUND
from ternmq.server.engine.coldreads import COLD_READS
from ternmq.server.engine.sync_pace import SyncPace
from ternmq.server.native.connection import Connection
from ternmq.server.native.hub import FEW_BYTES
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import Command
from ternmq.wire.session import Request
from tests.asynchronous import until
from tests.integration.raw import RawClient, texts

T = TypeVar("T")

MEMORY = 1 << 20
SETTINGS = {"memory": "1MiB", "send_buffer": "64KiB", "stall_timeout": "10m"}
EVIL = "evil"
GOOD = "good"
ROW = Row(b"x")
MUCH = 1 << 40
MINUTE_MS = 60_000


@pytest.fixture
def one() -> Iterator[InProcessBroker]:
    with broker(manual=False, settings=SETTINGS) as started:
        yield started


@pytest.fixture
def good(one: InProcessBroker) -> Iterator[RawClient]:
    with RawClient(one.port, app=GOOD) as client:
        yield client


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def filled(client: RawClient, topic: str, rows: int = 800) -> None:
    """Store what is worth reading."""
    some = [Row(b"x" * 1000) for _ in range(rows)]
    client.call(Command.SEND, bodies.pack_send(topic, None, client.batch(topic, some)))


def frozen(one: InProcessBroker, app: str, frames: int, command: Command, body: bytes) -> RawClient:
    """Return a connection that asks for much and reads nothing."""
    peer = RawClient(one.port, app=app)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    asked = [peer.session.ask(command, body)[1] for _ in range(frames)]
    with contextlib.suppress(OSError):
        peer.socket.sendall(b"".join(asked))
    return peer


def whole(topic: str) -> bytes:
    return bodies.pack_read(bodies.Read(topic, 0, 0, 10_000, 0, 0))


async def test_answers_that_one_app_does_not_take_hold_no_other_up(
    one: InProcessBroker, good: RawClient, stack: contextlib.ExitStack
) -> None:
    unwritten = one._server.hub.accounts.unwritten
    filled(good, "bulk")
    good.join("orders", "billing")
    for _ in range(24):
        stack.enter_context(frozen(one, EVIL, 40, Command.READ, whole("bulk")))
    await until(lambda: unwritten.held > MEMORY, "the budget is used up")
    for number in range(20):
        good.send("orders", f"{number}")
        pulled = good.pull("orders", "billing", wait_ms=20_000)
        assert texts(pulled) == {number: f"{number}"}
        good.settle("orders", "billing", pulled)
        assert good.read("bulk", 0, 10).stop == 10
        found = good.manage(Command.FIND, control.Find(topic="bulk", offset=3), control.FoundPage)
        assert found.found[0].offset == 3
    assert unwritten.held > MEMORY, "and it still is"


def peers_of(one: InProcessBroker, app: str | None = None) -> list[Connection]:
    """Return the connections of an app (None: of all)."""
    peers = [peer for peer in one._server.hub.peers if isinstance(peer, Connection)]
    return [peer for peer in peers if app in {None, peer.app}]


def in_loop(one: InProcessBroker, call: Callable[[], T]) -> T:
    """Do something in the broker's loop."""

    async def run() -> T:
        return call()

    return asyncio.run_coroutine_threadsafe(run(), one._loop).result(20)


def breath(client: RawClient, *asked: tuple[Command, bytes]) -> list[int]:
    """Ask several things in one write; return their ids."""
    some = [client.session.ask(command, body) for command, body in asked]
    client.socket.sendall(b"".join([frame for _, frame in some]))
    return [id_ for id_, _ in some]


@contextlib.contextmanager
def in_thread(call: Callable[[], object]) -> Iterator[None]:
    """Do something that may block for the length of a block in a thread."""
    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        thread.join(20)


class Log:
    """Notes what is carried out: in which turn, of which app."""

    def __init__(self, one: InProcessBroker, name: str) -> None:
        self.seen: list[tuple[int, str]] = []
        hub = one._server.hub
        before = getattr(hub.commands, name)

        def noted(peer: Connection, request: Request) -> None:
            self.seen.append((hub.round, peer.app))
            before(peer, request)

        setattr(hub.commands, name, noted)

    def most_a_turn(self, app: str) -> int:
        """Return the most requests of an app that were carried out in one turn."""
        return max(Counter([turn for turn, of in self.seen if of == app]).values())

    def before_first(self, app: str) -> int:
        """Return how many requests were carried out before the first of an app."""
        return [of for _, of in self.seen].index(app)


# -- answers -------------------------------------------------------------------------------------


async def test_to_end_connections_and_come_again_is_no_way_round(
    stack: contextlib.ExitStack,
) -> None:
    with (
        broker(manual=False, settings={**SETTINGS, "stall_timeout": "3s"}) as one,
        RawClient(one.port, app=GOOD) as good,
    ):
        accounts = one._server.hub.accounts
        filled(good, "bulk")
        for _ in range(24):
            stack.enter_context(frozen(one, EVIL, 40, Command.READ, whole("bulk")))
        await until(lambda: accounts.unwritten.held > MEMORY, "the budget is used up")
        stack.close()
        await until(lambda: one._server.hub.counters.connections == 1, "they are gone")
        assert accounts.by_app[EVIL].unwritten.held > MEMORY // 2, "what they left is charged"
        with RawClient(one.port, app=EVIL) as again:
            assert in_loop(one, lambda: accounts.by_app[EVIL].connections) == 1
            assert good.read("bulk", 0).start == 0
            await until(lambda: not accounts.unwritten.held, "cooled down", 30)
            assert accounts.unwritten.holders == 0
            assert again.read("bulk", 0).start == 0


# -- requests ------------------------------------------------------------------------------------


async def test_requests_of_one_app_wait_while_it_has_too_many_and_no_others(
    one: InProcessBroker, good: RawClient
) -> None:
    accounts, core = one._server.hub.accounts, one._server.core
    good.create("orders")
    good.join("orders", "billing")
    with RawClient(one.port, app=EVIL) as evil:
        pending = accounts.by_app[EVIL].pending
        in_loop(one, lambda: pending.take(MUCH))
        waits = evil.ask(Command.SEND, bodies.pack_send("evil", None, evil.batch("evil", [ROW])))
        await until(lambda: accounts.by_app[EVIL].runnable, "it is held back")
        for number in range(10):
            assert good.send("orders", "a").first_offset == number
            pulled = good.pull("orders", "billing")
            assert good.settle("orders", "billing", pulled).rows == 1
        assert waits not in evil.answers
        assert accounts.pending.held_back
        in_loop(one, lambda: pending.take(-MUCH))
        in_loop(one, core.touch)
        assert bodies.unpack_receipt(evil.wait(waits)).first_offset == 0
    await until(lambda: not accounts.pending.held)


async def test_connections_of_an_app_that_has_too_many_requests_are_not_read(
    one: InProcessBroker, stack: contextlib.ExitStack
) -> None:
    """Else each would bring one whole request more, which no budget counts."""
    hub, size = one._server.hub, 120_000
    evil = [stack.enter_context(RawClient(one.port, app=EVIL)) for _ in range(7)]
    evil[0].create("evil")
    pending = hub.accounts.by_app[EVIL].pending
    in_loop(one, lambda: pending.take(MUCH))
    asked: list[tuple[RawClient, int]] = []
    for peer in evil:
        body = bodies.pack_send("evil", None, peer.batch("evil", [Row(bytes(size))]))
        id_, frame = peer.session.ask(Command.SEND, body)
        stack.enter_context(in_thread(partial(peer.socket.sendall, frame)))
        asked.append((peer, id_))
    await until(lambda: in_loop(one, lambda: hub.counters.stalled) == len(evil), "none is read")
    kept = [sum(len(request.body) for request in peer._backlog) for peer in peers_of(one)]
    assert sum(kept) + hub.accounts.unfinished.held <= len(evil) * FEW_BYTES < size
    in_loop(one, lambda: pending.take(-MUCH))
    in_loop(one, one._server.core.touch)
    for peer, id_ in asked:
        assert bodies.unpack_receipt(peer.wait(id_)).stored == 1


@pytest.mark.parametrize("what", ["send", "settle", "pull", "control"])
async def test_an_app_has_so_much_work_done_in_a_turn(
    one: InProcessBroker, good: RawClient, stack: contextlib.ExitStack, what: str
) -> None:
    good.create("orders")
    good.create("evil")
    good.join("evil", "evil")
    evil = [stack.enter_context(RawClient(one.port, app=EVIL)) for _ in range(8)]
    settle = bodies.Settle("evil", "evil", 0, 1, 1, int(Outcome.DONE), (), None, "")
    join = control.encode(control.GroupJoin(topic="evil", group="evil"))
    asked = {
        "settle": (Command.SETTLE, bodies.pack_settle(settle)),
        "pull": (Command.PULL, bodies.pack_pull(bodies.Pull("evil", "evil", None, 1, 0, 0))),
        "control": (Command.GROUP_JOIN, join),
    }
    log = Log(one, "run")
    each = 400
    for peer in evil:
        for_send = (Command.SEND, bodies.pack_send("evil", None, peer.batch("evil", [ROW])))
        breath(peer, *[asked.get(what, for_send)] * each)
    assert good.send("orders", "a").stored == 1
    await until(lambda: sum(of == EVIL for _, of in log.seen) == each * len(evil), "done", 60)
    most = ROUND // CONTROL_UNITS if what == "control" else ROUND
    assert log.most_a_turn(EVIL) <= most
    assert len({turn for turn, of in log.seen if of == EVIL}) >= each * len(evil) // most
    turn = next(turn for turn, of in log.seen if of == GOOD)
    for peer in evil:
        with contextlib.suppress(TernMQError):
            peer.call(Command.PING)
    assert turn <= max(turn for turn, _ in log.seen)


async def test_while_others_ask_a_turn_has_little_time_for_one_app(
    one: InProcessBroker,
    good: RawClient,
    stack: contextlib.ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A portion as it comes, and at the turn's end portions for a time: here it is over at once."""
    monkeypatch.setattr("ternmq.server.native.hub.RUN_S", 0.0)
    accounts = one._server.hub.accounts
    monkeypatch.setattr(accounts, "cool_down", lambda _: None)  # who asked once still does
    good.create("orders")
    good.create("evil")
    evil = [stack.enter_context(RawClient(one.port, app=EVIL)) for _ in range(4)]
    evil[0].call(Command.PING)
    assert in_loop(one, lambda: accounts.mixed)
    log, each = Log(one, "run"), 400
    for peer in evil:
        body = bodies.pack_send("evil", None, peer.batch("evil", [ROW]))
        breath(peer, *[(Command.SEND, body)] * each)
    assert good.send("orders", "a").stored == 1
    await until(lambda: sum(of == EVIL for _, of in log.seen) == each * len(evil), "done", 60)
    assert log.most_a_turn(EVIL) <= PORTION


def test_portions_of_work_go_on_while_a_turn_has_time(
    one: InProcessBroker, good: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of apps that have much to do, not of one alone; ``ROUND`` units in all at most."""
    monkeypatch.setattr("ternmq.server.native.hub.RUN_S", 60.0)
    monkeypatch.setattr(one._server.hub.accounts, "cool_down", lambda _: None)
    good.create("evil")
    with RawClient(one.port, app=EVIL) as evil:
        evil.call(Command.PING)
        log = Log(one, "run")
        body = bodies.pack_send("evil", None, evil.batch("evil", [ROW]))

        def ask() -> None:  # all in one pass of the loop, whatever the sockets do
            [peer] = peers_of(one, EVIL)
            for id_ in range(100, 100 + 3 * ROUND):
                evil.session._asked[id_] = Command.SEND
                peer._backlog.append(Request(Command.SEND, id_, body, one_way=False))
            peer.go_on()

        in_loop(one, ask)
        for id_ in range(100, 100 + 3 * ROUND):
            evil.wait(id_)
        assert 4 * PORTION < log.most_a_turn(EVIL) <= ROUND


async def test_beside_a_flood_a_send_waits_for_one_turn(
    one: InProcessBroker, good: RawClient
) -> None:
    """On a quick disk: its sync runs in the turn's end, and waits for no thread to be let in."""
    hub, core = one._server.hub, one._server.core

    class Quick:
        quick = fair = True

        def took(self, seconds: float) -> None:
            """A busy machine makes no disk slow."""

        def took_pressed(self, seconds: float, *, here: bool) -> None:
            """The same."""

    core._pace = cast("SyncPace", Quick())
    good.create("orders")
    good.create("empty")
    nothing = bodies.pack_read(bodies.Read("empty", 0, 0, 1, 0, 0))
    log = Log(one, "run")
    answered: list[int] = []
    put = Connection.put

    def noted(self: Connection, frame: bytes, settled_bytes: int) -> None:
        if self.app == GOOD:
            answered.append(hub.round)
        put(self, frame, settled_bytes)

    with (
        pytest.MonkeyPatch.context() as patched,
        contextlib.ExitStack() as stack,
    ):
        patched.setattr(Connection, "put", noted)
        for _ in range(4):
            evil = stack.enter_context(RawClient(one.port, app=EVIL))
            asked = [evil.session.ask(Command.READ, nothing)[1] for _ in range(5000)]
            stack.enter_context(in_thread(partial(flood, evil, b"".join(asked))))

        def pressed() -> bool:
            good.call(Command.PING)
            return in_loop(one, lambda: core.pressed)

        await until(pressed, "there is more to do than a turn does")
        log.seen.clear()
        answered.clear()
        beside = 0
        while beside < 20:
            good.send("orders", "a")
            if not in_loop(one, lambda: len(hub.desk.late.queue)):
                break  # the flood is over
            beside += 1
    began = [turn for turn, of in log.seen if of == GOOD]
    assert beside >= 3
    assert answered[:beside] == began[:beside]


def flood(peer: RawClient, data: bytes) -> None:
    """Send until all is sent, or the connection is closed."""
    with contextlib.suppress(OSError):
        peer.socket.sendall(data)


def test_connections_of_one_app_take_turns(
    one: InProcessBroker, good: RawClient, stack: contextlib.ExitStack
) -> None:
    good.create("orders")
    one_, other = (stack.enter_context(RawClient(one.port, app=EVIL)) for _ in range(2))
    send = Command.SEND, bodies.pack_send("orders", None, one_.batch("orders", [ROW]))
    many = breath(one_, *[send] * 5 * ROUND)
    assert other.send("orders", "b").stored == 1
    one_.wait(many[-1])


# -- reads, look-ups, the disk -------------------------------------------------------------------


@pytest.mark.parametrize("what", ["read", "find", "list", "status", "ranges"])
async def test_look_ups_take_turns_by_app(
    one: InProcessBroker, good: RawClient, stack: contextlib.ExitStack, what: str
) -> None:
    filled(good, "bulk", 100)
    find = Command.FIND, control.encode(control.Find(topic="bulk", offset=3))
    ranges = control.QueueRanges(topics=[control.RangesAsk(topic="bulk")])
    asked = {
        "read": (Command.READ, bodies.pack_read(bodies.Read("bulk", 0, 0, 1, 0, 0))),
        "find": find,
        "list": (Command.TOPIC_LIST, control.encode(control.TopicList())),
        "status": (Command.STATUS, control.encode(control.StatusAsk())),
        "ranges": (Command.QUEUE_RANGES, control.encode(ranges)),
    }[what]
    evil = [stack.enter_context(RawClient(one.port, app=EVIL)) for _ in range(4)]
    log = Log(one, "read")
    late = one._server.hub.desk.late.queue

    def ask() -> None:  # all in one pass of the loop, whatever the sockets do
        for peer in peers_of(one, EVIL):
            for id_ in range(100, 300):
                peer._backlog.append(Request(*asked[:1], id_, asked[1], one_way=False))
            peer.go_on()
        healthy = peers_of(one, GOOD)[0]
        healthy._backlog.append(Request(find[0], 1 << 40, find[1], one_way=False))
        good.session._asked[1 << 40] = find[0]
        healthy.go_on()
        assert len(late) > 10

    in_loop(one, ask)
    good.wait(1 << 40)
    assert log.before_first(GOOD) <= 1
    assert evil


def test_cold_reads_take_turns_by_app(
    one: InProcessBroker, good: RawClient, stack: contextlib.ExitStack
) -> None:
    core = one._server.core
    evil = [stack.enter_context(RawClient(one.port, app=EVIL)) for _ in range(4)]
    ran: list[str] = []
    done = threading.Event()

    class Cold:
        def __init__(self, app: str) -> None:
            self.app = app

        def run(self) -> None:
            ran.append(self.app)

    def ask() -> None:
        peers = sorted(one._server.hub.peers, key=lambda peer: peer.app)
        for peer in peers:
            if peer.app == EVIL:
                for _ in range(100):
                    core.cold_reads.read(WouldBlock(Cold(EVIL)), lambda: None, peer)
        core.cold_reads.read(WouldBlock(Cold("")), lambda: None)
        [healthy] = [peer for peer in peers if peer.app == GOOD]
        core.cold_reads.read(WouldBlock(Cold(GOOD)), done.set, healthy)

    in_loop(one, ask)
    assert done.wait(20)
    assert ran.index(GOOD) <= COLD_READS + 2
    assert ran.index("") <= COLD_READS + 2
    assert evil


# -- what waits ----------------------------------------------------------------------------------


def test_connections_that_end_and_come_again_get_no_more_reads_of_the_disk(
    one: InProcessBroker, good: RawClient
) -> None:
    core, peers, generations = one._server.core, one._server.hub.peers, 12
    ran: list[str] = []
    over: list[str] = []
    done, goes_on = threading.Event(), threading.Event()

    class Cold:
        def __init__(self, app: str) -> None:
            self.app = app

        def run(self) -> None:
            goes_on.wait(20)
            ran.append(self.app)

    def ask(app: str, count: int, then: Callable[[], object]) -> None:
        [peer] = [peer for peer in peers if peer.app == app]
        for _ in range(count):
            core.cold_reads.read(WouldBlock(Cold(app)), cast("Callable[[], None]", then), peer)

    for _ in range(generations):
        with RawClient(one.port, app=EVIL) as evil:
            in_loop(one, lambda: ask(EVIL, 5, lambda: over.append(EVIL)))
            evil.bye()
        while in_loop(one, lambda: len(peers)) > 1:
            pass
    assert in_loop(one, lambda: len(core.cold_reads._queued)) == 0, (
        "nothing is read for who is gone"
    )
    assert in_loop(one, lambda: len(core.cold_reads)) == COLD_READS, "the thread has these"
    assert len(over) == generations * 5 - COLD_READS, "what waited was told of it"
    in_loop(one, lambda: ask(GOOD, 1, done.set))
    goes_on.set()
    assert done.wait(20)
    assert ran.index(GOOD) <= COLD_READS + 2


def test_figures_of_groups_take_over_some_changes_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not those of a whole second in one turn."""
    monkeypatch.setattr("ternmq.server.engine.engine.SETTLED_AT", 4)
    with broker(settings=SETTINGS) as one, RawClient(one.port) as client:
        figures = one._server.core.broker.views.figures
        for number in range(10):
            client.create(f"topic-{number}")
            client.join(f"topic-{number}", "billing")
            client.send(f"topic-{number}", "a")
            assert client.pull(f"topic-{number}", "billing").runs
            client.call(Command.PING)  # the turn of the pull is over
            assert in_loop(one, lambda: len(figures.changed)) < 4
        in_loop(one, figures.settle)
        assert figures.leased == 10


def test_whole_lists_are_made_a_page_at_a_time_in_turns(
    one: InProcessBroker, good: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app whose rights leave nearly all out has pages that are empty: many for each list."""
    for number in range(10):
        good.create(f"topic-{number}")
        good.join(f"topic-{number}", "billing")
    hub, made = one._server.hub, 0
    rounds: Counter[int] = Counter()
    monkeypatch.setattr("ternmq.server.desk.late.READS_S", 0.0)  # a read a turn
    go_on = whole_lists.WholeList.go_on

    def counted(self: whole_lists.WholeList) -> None:
        self._asked = msgspec.structs.replace(self._asked, limit=1)
        rounds[hub.round] += 1
        go_on(self)

    monkeypatch.setattr(whole_lists.WholeList, "go_on", counted)
    ids = breath(good, *[(Command.GROUP_LIST, control.encode(control.GroupList()))] * 8)
    for id_ in ids:
        made += len(control.decode(good.wait(id_), control.Groups).groups)
    assert made == 8 * 10
    assert max(rounds.values()) == 1


@pytest.mark.parametrize("command", [Command.PULL, Command.READ, Command.JOURNAL_READ])
def test_there_is_a_place_to_wait_for_others(
    command: Command, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_reads, "MAX_WAITING", 80)
    with (
        broker(settings={"limits.waiters": 80}) as one,
        RawClient(one.port, app=GOOD) as good,
        RawClient(one.port, app=EVIL) as evil,
    ):
        good.create("orders")
        good.join("orders", "billing")
        end = one._server.core.broker.journal.end
        body = {
            Command.PULL: bodies.pack_pull(bodies.Pull("orders", "billing", None, 1, 0, MINUTE_MS)),
            Command.READ: bodies.pack_read(bodies.Read("orders", 0, 0, 1, 0, MINUTE_MS)),
            Command.JOURNAL_READ: bodies.pack_journal_read(
                bodies.JournalRead(end, 0, MINUTE_MS, without_bodies=False)
            ),
        }[command]
        ids = breath(evil, *[(command, body)] * 100)
        for id_ in ids[70:]:
            with pytest.raises(Busy) as caught:
                evil.wait(id_)
            assert caught.value.retriable
        assert not evil.answers
        waits = good.ask(command, body)
        good.call(Command.PING)
        assert not good.answers
        evil.close()
        good.call(Command.CANCEL, waits.to_bytes(8, "little"))
        good.wait(waits)
        again = good.ask(command, body)
        good.call(Command.PING)
        good.call(Command.CANCEL, again.to_bytes(8, "little"))
        good.wait(again)
    assert not one._server.hub.desk.waiting.taken


@pytest.mark.parametrize(("seconds", "most"), [(60.0, WOKEN_CALLS * OVER), (0.0, OVER)])
async def test_parked_pulls_of_one_group_do_not_wake_all_in_one_turn(
    good: RawClient,
    one: InProcessBroker,
    stack: contextlib.ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    most: int,
) -> None:
    monkeypatch.setattr("ternmq.server.commands.pulls.WOKEN_S", seconds)
    hub, parked = one._server.hub, 900
    good.create("evil")
    good.join("evil", "evil")
    good.create("orders")
    good.join("orders", "billing")
    evil = stack.enter_context(RawClient(one.port, app=EVIL))
    pull = bodies.pack_pull(bodies.Pull("evil", "evil", None, 1, 0, MINUTE_MS))
    breath(evil, *[(Command.PULL, pull)] * parked)
    evil.call(Command.PING)
    waits = good.ask_pull("orders", "billing", wait_ms=MINUTE_MS)
    good.call(Command.PING)
    turns: Counter[int] = Counter()
    pulls = hub.commands._handlers[Command.PULL].__self__  # type: ignore[attr-defined]
    over = pulls._over

    def noted(parked: object, reply: object) -> None:
        turns[hub.round] += 1
        over(parked, reply)

    pulls._over = noted
    evil_rows = bodies.pack_send("evil", None, evil.batch("evil", [ROW] * parked))
    rows = bodies.pack_send("orders", None, good.batch("orders", [Row(b"a")]))
    evil.ask(Command.SEND, evil_rows)
    good.ask(Command.SEND, rows)
    assert texts(bodies.unpack_delivery(good.wait(waits))) == {0: "a"}
    await until(lambda: sum(turns.values()) == parked + 1, "all are woken")
    assert max(turns.values()) <= most


async def test_a_pull_that_is_over_may_be_cancelled_or_lost_before_it_is_answered(
    good: RawClient,
    one: InProcessBroker,
    stack: contextlib.ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More are over than one turn answers. One of the rest is cancelled, others lose their
    connection: they get what they leased, or give it back, and nobody else is left waiting."""
    monkeypatch.setattr("ternmq.server.commands.pulls.WOKEN_CALLS", 1)
    hub = one._server.hub
    parking, places = one._server.core.broker.parking, hub.desk.waiting
    good.create("orders")
    waits: list[tuple[RawClient, int, str]] = []
    each = SERVED - 1  # of five groups, so that some are more than one turn answers
    for group in "abcde":
        good.join("orders", group)
        for number in range(each):
            name = "lost" if number == each - 1 else GOOD
            client = stack.enter_context(RawClient(one.port, app=name))
            waits.append((client, client.ask_pull("orders", group, 1, MINUTE_MS), group))
            await until(lambda: in_loop(one, lambda: places.taken) == len(waits), "it waits")
    at_once = each * -(-OVER // each)  # groups are served whole until that many are over
    assert len(waits) > at_once > OVER
    cancelled, cancelled_id, _ = waits[OVER]
    lost, lost_id, group = waits[at_once - 1]
    peers = {peer.session: peer for peer in hub.peers}
    cancel = Request(Command.CANCEL, 999, bodies.pack_cancel(cancelled_id), one_way=True)
    wake = hub.core.on_woken
    left: list[int] = []

    def woken() -> None:
        wake()
        if parking._over and not left:
            left.append(len(parking._over))
            hub.commands.run(peers[cancelled.number], cancel)
            cast("Connection", peers[lost.number]).connection_lost(None)

    hub.core.on_woken = woken
    good.send("orders", *[f"{number}" for number in range(each)])
    for client, id_, _ in waits:
        if id_ != lost_id or client is not lost:
            assert bodies.unpack_delivery(client.wait(id_)).runs, "everybody gets a message"
    assert 0 < left[0] <= at_once - OVER, "some were over and not answered yet"
    assert good.pull("orders", group, 1, MINUTE_MS).runs, "what was lost on the way comes again"
    assert in_loop(one, lambda: places.taken) == 0, "places are given back"


# -- requests that are not whole -----------------------------------------------------------------


async def test_unfinished_requests_of_one_app_cut_no_other_off(
    one: InProcessBroker, good: RawClient, stack: contextlib.ExitStack
) -> None:
    unfinished, cut_off = one._server.hub.accounts.unfinished, one._server.hub.counters.cut_off
    old, frame = good.session.ask(
        Command.SEND, bodies.pack_send("orders", None, good.batch("orders", [Row(bytes(300_000))]))
    )
    good.socket.sendall(frame[:200_000])
    await until(lambda: unfinished.held >= 200_000, "it is there, and older than all others")
    part = frames.head(Command.SEND, 0, 9, MEMORY) + bytes(100 << 10)
    for _ in range(40):
        peer = stack.enter_context(RawClient(one.port, app=EVIL))
        with contextlib.suppress(OSError):
            peer.socket.sendall(part)
    await until(lambda: cut_off["slow"] + cut_off["memory"] > 15, "some are cut off", 30)
    good.socket.sendall(frame[200_000:])
    assert bodies.unpack_receipt(good.wait(old)).stored == 1


# -- connections ---------------------------------------------------------------------------------


async def test_connections_of_an_app_are_limited() -> None:
    with (
        broker(settings={"connections_per_app": 3}) as one,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(3):
            stack.enter_context(RawClient(one.port, app=EVIL))
        with pytest.raises(Busy) as caught:
            RawClient(one.port, app=EVIL)
        assert caught.value.retriable
        with RawClient(one.port, app=GOOD) as good:
            told = good.manage(Command.STATUS, control.StatusAsk(), control.Status)
            assert told.metrics['ternmq_held_back_total{what="connections"}'] == 1
            assert told.metrics["ternmq_apps_connected"] == 2
        stack.close()
        await until(lambda: not one._server.hub.counters.connections)
        with RawClient(one.port, app=EVIL) as again:
            again.call(Command.PING)
    accounts = one._server.hub.accounts
    assert not accounts.pending.held
    assert not accounts.unfinished.holders
