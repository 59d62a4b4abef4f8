"""``ternmq cluster`` and ``ternmq broker list``, beside a coordinator in SQLite and no broker."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ternmq.cli import main
from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Coordinator, Swapped
from ternmq.cluster.coordination.record import (
    Floor,
    Leadership,
    Member,
    Progress,
    Reach,
    Writes,
    leadership_key,
)
from ternmq.cluster.coordination.wishes import Change, Copying, Failover, GroupSettings, Order
from ternmq.model.types import Epoch, Position
from tests.black_box.process import DEADLINE
from tests.cli.conftest import CommandLine, Processes

NUMBERS = {"a": 0xA, "b": 0xB, "c": 0xC}


class Others:
    """Brokers that the coordinator sees: they announce themselves, and may carry out orders."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.orders: list[Order] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._coordinators: dict[str, Coordinator] = {}

    def do(self, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(DEADLINE)

    def begin(
        self, name: str, group: str = "main", reach: Reach | None = None, life: int | None = None
    ) -> None:
        """Have a broker announce itself."""

        async def announce() -> None:
            self._coordinators[name] = one = await open_coordinator(self.url)
            mine = Group(one, group, name, NUMBERS[name] if life is None else life)
            await mine.announce(f"host-{name}:7117", tls=False, software="ternmq 1.0", reach=reach)

        self.do(announce)

    def end(self, name: str) -> None:
        """End a broker."""
        self.do(self._coordinators.pop(name).close)

    def lead(self, primary: str, members: str, epoch: int = 1, **more: object) -> None:
        """Write the record of a reign that has begun."""

        async def write() -> None:
            group = Group(self._coordinators[primary], "main", primary, NUMBERS[primary])
            before = await group.read()
            record = Leadership(
                version=before.version + 1 if isinstance(before, Leadership) else 1,
                writer=group.writer(),
                journal=5,
                epoch=Epoch(epoch),
                primary=primary,
                members=tuple(Member(one, NUMBERS[one]) for one in members),
                floor=Floor(Epoch(epoch), Position(0), 1),
                why="it has begun",
                at_us=1_700_000_000_000_000,
            )
            wanted = msgspec.structs.replace(record, **more)
            assert isinstance(await group.change(wanted), Swapped)

        self.do(write)

    def ask(self, work: Callable[[Group], Awaitable[None]]) -> None:
        """Do something with the records of the group."""

        async def run() -> None:
            one = await open_coordinator(self.url)
            await work(Group(one, "main", "somebody", 9))
            await one.close()

        self.do(run)

    def obey(self, winner: str, **more: object) -> None:
        """Carry out the next order, with this broker as the primary."""

        async def run() -> None:
            group = Group(self._coordinators[winner], "main", winner, NUMBERS[winner])
            while True:
                order = await group.order()
                if isinstance(order, Order) and order.epoch:
                    self.orders.append(order)
                    break
                await asyncio.sleep(0.02)
            record = await group.read()
            assert isinstance(record, Leadership)
            for begun in (False, True):
                epoch = Epoch(order.epoch + 1)
                floor = Floor(epoch, Position(9), 2) if begun else record.floor
                record = msgspec.structs.replace(
                    record, version=record.version + 1, writer=group.writer(), epoch=epoch,
                    primary=winner, floor=floor,
                    members=(Member(winner, NUMBERS[winner]),), why="an operator asks for it",
                    **more,
                )  # fmt: skip
                assert isinstance(await group.change(record), Swapped)

        self._obeying = asyncio.run_coroutine_threadsafe(run(), self._loop)

    def close(self) -> None:
        for name in list(self._coordinators):
            self.end(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()


@pytest.fixture
def others(tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Others]:
    url = f"sqlite:///{tmp_path / 'cluster.db'}"
    monkeypatch.setenv("TERNMQ_CLUSTER", url)
    one = Others(url)
    yield one
    one.close()


@pytest.fixture
def pair(others: Others) -> Others:
    """Brokers a, which leads, and b, a member."""
    others.begin("a")
    others.begin("b")
    others.lead("a", "ab")
    return others


def test_a_pair_is_well(cli: CommandLine, pair: Others) -> None:
    async def progress(group: Group) -> None:
        await group.put_progress(Progress(Epoch(1), Position(12_345)))

    pair.ask(progress)
    out = cli("cluster", "status").out
    assert out.splitlines()[0] == "two copies: a (primary), b"
    assert "a at host-a:7117" in out
    assert "at least up to 12,345 (said every 10 s)" in out
    found = cli("cluster", "status", "--json").json
    assert (found["well"], found["says"]) == (True, "two copies: a (primary), b")
    assert (found["primary"], found["address"], found["epoch"]) == ("a", "host-a:7117", 1)
    assert found["members"][1] == {
        "broker": "b", "incarnation": f"{0xB:016x}", "runs": True
    }  # fmt: skip
    assert found["committed"] == {"epoch": 1, "position": 12_345}
    assert found["since"] == "2023-11-14T22:13:20.000Z"
    assert found["settings"] == {
        "failover": "automatic", "copy": "synchronous", "read_only_behind_s": 0.0,
        "lease_s": 3.0, "silent_s": 2.0, "copies": 1,
    }  # fmt: skip
    assert cli("broker", "list").rows == [
        ["main", "a", "primary", "host-a:7117", "ternmq", "1.0"],
        ["main", "b", "member", "host-b:7117", "ternmq", "1.0"],
    ]
    assert [one["role"] for one in cli("broker", "list", "--json").json] == ["primary", "member"]


def test_what_is_wrong_is_said_in_the_first_line(cli: CommandLine, pair: Others) -> None:
    def says() -> str:
        found = cli("cluster", "status", "--json").json
        assert found["well"] is False
        return str(found["says"])

    pair.end("b")
    waits = "a is the primary; sends wait; the process of b that counts as a copy does not run"
    assert says() == waits
    pair.begin("b", life=0xBB)  # it has been started again
    assert says() == waits
    pair.end("b")
    pair.lead("a", "a", why="without b: it is silent")
    alone = "one copy: a (primary) is the only member (without b: it is silent)"
    assert says() == f"{alone}; no other broker runs"
    pair.begin("b")
    assert says() == f"{alone}; b is not a member"
    pair.lead("a", "ab", writes=Writes.CLOSED)
    assert says() == ("two copies: a (primary), b; new messages are refused until two copies exist")
    pair.lead("a", "ab", epoch=2, floor=Floor(Epoch(1), Position(0), 1))
    begins = "no primary yet: a begins to lead; wait until it has recovered its journal"
    assert says() == begins
    pair.lead("a", "ab", epoch=2)
    assert cli("cluster", "status", "--json").json["well"] is True
    pair.end("a")
    pair.begin("a", life=0xAA)
    assert says() == begins
    pair.end("a")
    assert says() == "no primary: a does not run, and b takes over within seconds"

    async def by_hand(group: Group) -> None:
        await group.put_settings(GroupSettings(failover=Failover.OPERATOR))

    pair.ask(by_hand)
    assert says().endswith("and `ternmq cluster promote b` makes b the primary")
    pair.end("b")
    assert says().endswith("no other copy has everything that was answered: start a")
    assert cli("broker", "list").err == "no broker runs with this coordinator\n"


def test_watch_says_each_change_once(
    cli: CommandLine, pair: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(4))

    async def every(seconds: float | None) -> object:
        for turn in looks:
            if turn == 2:
                await asyncio.to_thread(pair.lead, "b", "b", 2)
            yield turn

    monkeypatch.setattr("ternmq.cli.broker.cluster.every", every)
    lines = cli("cluster", "status", "--watch").out.splitlines()
    assert [line.partition("  ")[2] for line in lines] == [
        "epoch 1: two copies: a (primary), b",
        "epoch 2: one copy: b (primary) is the only member; a is not a member",
    ]
    assert "--interval is for --watch" in cli("cluster", "status", "--interval", "1s", code=2).err


def test_settings_are_changed(cli: CommandLine, pair: Others) -> None:
    new = ("failover=operator", "copy=asynchronous", "read_only_behind=30s")
    dry = cli("cluster", "set", *new, "--dry-run")
    assert dry.out.splitlines() == [
        "failover: automatic -> operator",
        "copy: synchronous -> asynchronous",
        "read_only_behind: off -> 30s",
    ]
    assert dry.err == "nothing was changed: --dry-run\n"
    found: list[object] = []

    async def read(group: Group) -> None:
        found.append(await group.settings())

    pair.ask(read)
    cli("cluster", "set", *new)
    pair.ask(read)
    assert found == [
        GroupSettings(),
        GroupSettings(
            failover=Failover.OPERATOR, copy=Copying.ASYNCHRONOUS, read_only_behind_us=30_000_000
        ),
    ]
    assert cli("cluster", "set", *new).err == "broker group main has these settings already\n"
    done = cli("cluster", "set", "read_only_behind=off", "--json").json
    assert (done["done"], done["after"]["read_only_behind_s"]) == (True, 0.0)
    times = cli("cluster", "set", "lease=1s", "silent=600ms")
    assert times.out.splitlines() == ["lease: 3s -> 1s", "silent: 2s -> 600ms"]
    shown = cli("cluster", "status").out
    assert re.search(r"(?m)^lease +1s$", shown)
    assert re.search(r"(?m)^silent +600ms$", shown)


def test_more_copies_than_there_are(cli: CommandLine, pair: Others) -> None:
    together = ("copies=3", "copy=asynchronous")
    assert "no follower counts there" in cli("cluster", "set", *together, code=2).err
    assert cli("cluster", "set", "copies=3").out == "copies: 1 -> 3\n"
    found = cli("cluster", "status", "--json").json
    assert (found["well"], found["settings"]["copies"]) == (False, 3)
    shown = cli("cluster", "status").out
    assert shown.startswith("two copies: a (primary), b; new messages are refused until 3 copies")
    assert re.search(r"(?m)^messages +refused \(ReadOnly\): 2 of 3 copies$", shown)
    cli("cluster", "set", "copies=2")
    assert cli("cluster", "status", "--json").json["well"] is True


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("failovr=reads", "there is no setting 'failovr'; did you mean failover?"),
        ("x=reads", "there are failover, copy, read_only_behind, lease, silent, copies"),
        ("failover=red", "failover cannot be 'red'; did you mean reads?"),
        ("copy=", "copy cannot be '': use synchronous, asynchronous"),
        ("read_only_behind=30", "it is not a duration"),
        ("read_only_behind=2d", "it is more than a day"),
        ("failover", "'failover' is not NAME=VALUE"),
        ("lease=off", "lease cannot be 'off': it is not a duration"),
        ("lease=999ms", "lease cannot be 999ms: it is at least 1s and at most 1m"),
        ("lease=61s", "lease cannot be 61s: it is at least 1s and at most 1m"),
        ("silent=499ms", "silent cannot be 499ms: with a lease of 3s it is at least 500ms"),
        ("silent=2401ms", "with a lease of 3s it is at least 500ms and at most 2400ms"),
        ("copies=0", "copies cannot be 0: it is at least 1"),
        ("copies=all", "copies cannot be 'all': it is not a number"),
        ("copies=65", "copies cannot be 65: it is at least 1 and at most 64"),
        ("lease=1s", "silent cannot be 2s: with a lease of 1s"),
    ],
)
def test_settings_that_cannot_be(cli: CommandLine, pair: Others, given: str, said: str) -> None:
    assert said in cli("cluster", "set", given, code=2).err


def test_a_switch_is_ordered_and_waited_for(cli: CommandLine, pair: Others) -> None:
    pair.obey("b")
    assert cli("cluster", "switch", "--to", "b").err.startswith("b is the primary of epoch 2, ")
    (order,) = pair.orders
    assert (order.change, order.broker, order.epoch) == (Change.SWITCH, "b", 1)


def test_another_broker_was_faster(cli: CommandLine, pair: Others) -> None:
    pair.begin("c")
    pair.lead("a", "abc")
    pair.obey("c")
    said = cli("cluster", "switch", "--to", "b", code=1).err
    assert "c is the primary now, of epoch 2, and not b: an operator asks for it" in said


def test_an_order_that_nobody_carries_out_is_withdrawn(cli: CommandLine, pair: Others) -> None:
    said = cli("cluster", "switch", "--to", "b", "--wait", "300ms", code=7).err
    assert "no broker has made the change within 300ms, and the request is withdrawn" in said
    found: list[object] = []

    async def read(group: Group) -> None:
        found.append(await group.order())

    pair.ask(read)
    (order,) = found
    assert isinstance(order, Order)
    assert order.epoch == 0  # of no reign
    assert cli("cluster", "status", "--json").json["order"] is None


def test_orders_that_cannot_be_meant(cli: CommandLine, pair: Others) -> None:
    for words in (("switch", "--to"), ("promote",)):
        said = cli("cluster", *words, "a", code=1).err
        assert "a is the primary already, of epoch 1" in said
        assert "no broker 'bb' that is a member or runs" in cli("cluster", *words, "bb", code=4).err
    pair.begin("c")
    assert "c is not a member" in cli("cluster", "switch", "--to", "c", code=7).err
    said = cli("cluster", "promote", "c", code=1).err
    assert "c is not a member: it may lack messages that were answered" in said
    pair.end("b")
    assert "b does not run" in cli("cluster", "switch", "--to", "b", code=1).err
    pair.begin("b")
    pair.end("a")
    said = cli("cluster", "switch", "--to", "b", code=1).err
    assert "the primary a does not run, so it cannot hand over" in said


def test_a_promotion_asks_unless_nobody_leads(cli: CommandLine, pair: Others) -> None:
    said = cli("cluster", "promote", "b", code=1).err
    assert "`ternmq cluster switch --to b` hands over" in said
    assert "nothing was changed: add --yes to do it" in said
    pair.end("a")
    pair.obey("b")
    found = cli("cluster", "promote", "b", "--json").json
    assert (found["primary"], found["epoch"], found["before"]) == ("b", 2, "a")
    assert pair.orders[0].change is Change.PROMOTE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_order_of_a_command_that_was_stopped_is_withdrawn(
    cli: CommandLine, pair: Others, processes: Processes, number: signal.Signals
) -> None:
    """Else it would be carried out when nobody waits for it any more."""
    processes.environment["TERNMQ_CLUSTER"] = pair.url
    command = processes.start("cluster", "switch", "--to", "b", "--wait", "60s")
    until = time.monotonic() + DEADLINE
    while cli("cluster", "status", "--json").json["order"] is None:
        assert time.monotonic() < until
        assert command.poll() is None
    command.send_signal(number)
    command.communicate(timeout=DEADLINE)
    assert command.returncode != 0
    assert cli("cluster", "status", "--json").json["order"] is None


# -- with a loss ----------------------------------------------------------------------------------

LOSES = ("promote", "b", "--accept-loss")


@pytest.fixture
def fallen(others: Others) -> Others:
    """Broker a, which led alone and is gone, and b, which is no member."""

    async def progress(group: Group) -> None:
        await group.put_progress(Progress(Epoch(3), Position(50_000)))

    others.begin("a")
    others.lead("a", "a", 3)
    others.ask(progress)
    others.end("a")
    others.begin("b", reach=Reach(Epoch(3), Position(40_000), Position(39_000)))
    return others


def test_what_would_be_lost_is_said_before(cli: CommandLine, fallen: Others) -> None:
    says = str(cli("cluster", "status", "--json").json["says"])
    assert says.endswith(
        "start a; or lose messages: `ternmq cluster promote b --accept-loss --dry-run` shows what"
    )
    assert "b at host-b:7117, ternmq 1.0, no member, its copy reaches to 40,000" in (
        cli("cluster", "status").out
    )
    assert "--accept-loss --dry-run` shows what" in cli("cluster", "promote", "b", code=1).err
    said = cli("cluster", *LOSES, "--dry-run")
    assert said.err == "nothing was changed: --dry-run\n"
    assert "a had at least up to 50,000" in said.out
    assert "up to 40,000, epoch 3; surely the same as others up to 39,000" in said.out
    assert "at least 10,000 bytes of the journal, and up to 10 s more" in said.out
    assert "of durability `normal` and `strict`" in said.out
    assert cli("cluster", *LOSES, "--dry-run", "--json").json == {
        "done": False,
        "broker": "b",
        "epoch": 3,
        "recorded": 50_000,
        "reach": {"epoch": 3, "end": 40_000, "committed": 39_000},
        "shared": 40_000,
        "missing_bytes": 10_000,
        "further": [],
    }
    fallen.begin("c", reach=Reach(Epoch(3), Position(41_000), Position(0)))
    assert "c reaches further than b" in cli("cluster", *LOSES, "--dry-run").out
    said = cli("cluster", *LOSES, code=1)
    assert "at least 10,000 bytes" in said.out
    assert "Make sure first that a is stopped" in said.err
    assert "nothing was changed: add --yes to do it" in said.err
    assert cli("cluster", "status", "--json").json["order"] is None
    assert "is for --accept-loss" in cli("cluster", "promote", "b", "--dry-run", code=2).err


def test_a_broker_leads_although_it_lacks_something(cli: CommandLine, fallen: Others) -> None:
    fallen.obey(
        "b", cut_below=Position(39_000), cut_epoch=Epoch(4), cut_at_us=1_700_000_000_000_000
    )
    found = cli("cluster", *LOSES, "--yes", "--json").json
    assert (found["primary"], found["epoch"], found["before"]) == ("b", 4, "a")
    assert found["loss"]["missing_bytes"] == 10_000
    (order,) = fallen.orders
    assert (order.change, order.broker, order.accepted) == (Change.PROMOTE, "b", 40_000)
    assert cli("cluster", "status", "--json").json["loss"] == {
        "epoch": 4, "position": 39_000, "since": "2023-11-14T22:13:20.000Z"
    }  # fmt: skip
    out = cli("cluster", "status").out
    assert "epoch 4 began without what other copies had from 39,000 on" in out


def test_the_broker_that_led_last_is_promoted_before_it_starts(
    cli: CommandLine, fallen: Others
) -> None:
    fallen.begin("a")
    said = cli("cluster", "promote", "a", "--accept-loss", code=1).err
    assert "a is the primary already, of epoch 3, and runs" in said
    fallen.end("a")
    said = cli("cluster", "promote", "a", "--accept-loss", "--dry-run").out
    assert "not known here, because it does not run; its log says" in said
    assert "b reaches further than a" in said
    fallen.begin("a", "other")  # what carries the order out
    fallen.obey("a")
    found = cli("cluster", "promote", "a", "--accept-loss", "--yes")
    assert "no loss had to be accepted: its journal has what was answered" in found.err
    assert fallen.orders[0].accepted == 0


def test_nothing_is_given_up_while_somebody_has_it(cli: CommandLine, pair: Others) -> None:
    pair.begin("c", reach=Reach(Epoch(1), Position(1), Position(1)))

    def said(broker: str, code: int = 1) -> str:
        return cli("cluster", "promote", broker, "--accept-loss", "--yes", code=code).err

    assert "b is a member: it has everything that was answered" in said("b")
    assert "the primary a runs, or was killed a moment ago: nothing has to be lost" in said("c")
    pair.end("a")
    assert "b is a member and runs: it has everything" in said("c")
    assert "`ternmq cluster promote b`" in said("c")
    pair.end("b")
    pair.begin("b")  # a new process, which is a member all the same by its name here
    pair.end("c")
    assert "no broker 'c' that is a member or runs" in said("c", 4)
    pair.lead("b", "b")
    pair.begin("c")
    pair.end("b")
    assert "c does not say how far its copy reaches" in said("c")


def test_places_where_there_is_nothing(
    cli: CommandLine, others: Others, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.begin("a")
    others.lead("a", "a")
    said = cli("cluster", "status", "--broker-group", "mian", code=4).err
    assert "the coordinator has no broker group 'mian'; did you mean main?" in said
    gone = f"sqlite:///{tmp_path / 'gone.db'}"
    assert "there is no file" in cli("cluster", "status", "--cluster", gone, code=4).err
    assert not (tmp_path / "gone.db").exists()
    assert "did you mean sqlite" in cli("cluster", "status", "--cluster", "sqlit:///x", code=2).err
    away = "postgresql://u:secret@127.0.0.1:1/x"
    said = cli("cluster", "status", "--cluster", away, code=3).err
    assert "the coordinator does not answer" in said
    assert "secret" not in said
    monkeypatch.delenv("TERNMQ_CLUSTER")
    assert "Give --cluster URL, or set TERNMQ_CLUSTER" in cli("cluster", "status", code=2).err


def test_a_coordinator_that_holds_rubbish_is_not_believed(cli: CommandLine, pair: Others) -> None:
    async def spoil() -> None:
        one = await open_coordinator(pair.url)
        await one.swap(leadership_key("main"), 1, b"rubbish")
        await one.close()

    pair.do(spoil)
    assert (
        "the coordinator returned a record that is not valid"
        in cli("cluster", "status", code=1).err
    )


def test_names_of_brokers_and_settings_are_completed(
    cli: CommandLine,
    pair: Others,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def offered(line: str) -> list[str]:
        monkeypatch.setenv("_TERNMQ_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            main.run([])
        return [one.partition(",")[2] for one in capsys.readouterr().out.splitlines() if one]

    assert offered("ternmq cluster ") == [
        "status",
        "set",
        "init",
        "switch",
        "promote",
        "restore",
        "dev",
    ]
    assert offered("ternmq cluster promote ") == ["a", "b"]
    assert offered("ternmq cluster switch --to b") == ["b"]
    assert offered("ternmq cluster set failover=o") == ["failover=operator"]
