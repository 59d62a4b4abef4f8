"""``ternmq dev`` begins again at its address, with nothing of before: who was there goes on.

A broker that keeps is another matter: what is not there was deleted, and whoever wants it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self

import pytest

import ternmq
import ternmq.sync
from ternmq.broker.group.lease import EPOCH_LIMIT
from ternmq.cli.terminal.exits import ExitCode
from tests.black_box.process import DEADLINE, BrokerProcess, free_port, wait_until
from tests.cli.conftest import Processes

_APP = """\
import ternmq
client = ternmq.connect()

@client.handler("orders", group="workers")
async def on_order(order: str) -> None:
    print("handled", order, flush=True)
"""


class Dev:
    """``ternmq dev`` without a folder, at one port."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._port = free_port()
        self.url = f"ternmq://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        process = self._process = self._processes.start(
            "dev", "--listen", f"127.0.0.1:{self._port}", "--http", "off",
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"listening on")
        return self

    def again(self, number: signal.Signals) -> int:
        """End it by a signal and start it again; return the exit status of its end."""
        status = self._end(number)
        self.__enter__()
        return status

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        process.send_signal(number)
        status = process.wait(DEADLINE)
        process.stdout.close()
        return status

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGTERM)


@pytest.fixture
def dev(processes: Processes, tmp_path: Path) -> Iterator[Dev]:
    temporary = tmp_path / "temporary"  # what is killed leaves its folder
    temporary.mkdir()
    processes.environment |= {"TMPDIR": str(temporary)}
    with Dev(processes) as one:
        processes.environment["TERNMQ_URL"] = one.url
        yield one


class Follower:
    """A command that prints what comes, into a file."""

    def __init__(
        self, processes: Processes, *arguments: str, program: Sequence[str] | None = None
    ) -> None:
        self.file = processes.folder / f"{'-'.join(arguments[:2]).replace(':', '-')}.out"
        with self.file.open("wb") as out:
            self.process = processes.start(
                *arguments,
                program=program,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        assert self.process.poll() is None, self.file.read_text()
        return self.file.read_text()

    def says(self, text: str) -> None:
        wait_until(lambda: text in self.said, f"{self.file.name}: {text}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_who_is_there_goes_on(dev: Dev, processes: Processes, number: signal.Signals) -> None:
    (processes.folder / "app.py").write_text(_APP, encoding="utf-8")
    with ternmq.sync.connect(dev.url) as client:
        for n in range(3):
            client.send("orders", f"before {n}")
        client.send("other", "so that the topics have other numbers afterwards")
        followers = [
            Follower(processes, "worker", "app:client"),
            Follower(processes, "tail", "orders", "-f"),
            Follower(processes, "consume", "orders", "--group", "printers"),
            Follower(processes, "consume", "nothing-yet", "--group", "first"),
        ]
        worker, tail, consume, first = followers
        try:
            for one in (worker, tail, consume):
                one.says("before 2")
            first.says("created topic nothing-yet, and group first on it")
            for again in range(2):
                dev.again(number)
                client.send("other", "first")
                assert client.send("orders", f"anew {again}").offset == 0
                client.send("nothing-yet", f"here {again}")
                for one in (worker, tail, consume):
                    one.says(f"anew {again}")
                    assert one.said.count(f"anew {again}") == 1, one.said
                first.says(f"here {again}")
        finally:
            for one in followers:
                one.end()


_DECLARES = """\
import ternmq, ternmq.sync
client = {connect}()
orders = ternmq.Topic("orders", queues=3, retention=86400)
client.declare(ternmq.Topic("only-sent", ordered=True, queues=2))

@client.handler(orders, group="workers", retry=ternmq.RetryPolicy(first=7, attempts=3), lease=40)
{define} on_order(order: str) -> None:
    print("handled", order, flush=True)
"""
_RUN = {
    "worker": ("ternmq.connect", "async def", None),
    "worker of a sync client": ("ternmq.sync.connect", "def", None),
    "library": ("ternmq.connect", "async def", "import asyncio; asyncio.run(client.run())"),
    "sync client": ("ternmq.sync.connect", "def", "client.run()"),
}


def _declared(client: ternmq.sync.Client) -> object:
    topics = {
        one.spec.name: (one.spec.queues, one.spec.ordered, one.retention)
        for one in client.admin.topics()
        if one.spec.name != "other"
    }
    group = client.admin.group("orders", "workers")
    return topics, ternmq.RetryPolicy.of(group.spec.retry), group.lease


@pytest.mark.parametrize("kind", _RUN)
@pytest.mark.parametrize("first", ["worker", "producer"])
def test_what_was_declared_is_declared_again(
    dev: Dev, processes: Processes, kind: str, first: str
) -> None:
    """Before or after others make it by a send: the settings are those that the code states."""
    connect, define, run = _RUN[kind]
    code = _DECLARES.format(connect=connect, define=define)
    (processes.folder / "app.py").write_text(code, encoding="utf-8")
    wanted = (
        {"orders": (3, False, timedelta(days=1)), "only-sent": (2, True, timedelta(days=7))},
        ternmq.RetryPolicy(first=7, attempts=3),
        timedelta(seconds=40),
    )
    if run is None:
        worker = Follower(processes, "worker", "app:client")
    else:
        (processes.folder / "main.py").write_text(f"from app import client\n{run}\n")
        worker = Follower(processes, "main.py", program=(sys.executable,))
    with ternmq.sync.connect(dev.url) as client:
        try:
            _sent_and_handled(client, worker, "before")
            assert _declared(client) == wanted
            for again in range(2):
                if first == "producer":  # its send makes the topic while the worker is away
                    worker.process.send_signal(signal.SIGSTOP)
                dev.again(signal.SIGKILL)
                if first == "producer":
                    client.send("orders", "made")
                    worker.process.send_signal(signal.SIGCONT)
                    worker.says("handled made")
                _sent_and_handled(client, worker, f"anew {again}")
                wait_until(lambda: _declared(client) == wanted, "everything is as declared")
        finally:
            worker.end()


def _sent_and_handled(client: ternmq.sync.Client, worker: Follower, text: str) -> None:
    wait_until(
        lambda: any(group.members for group in client.admin.groups("orders")), "a worker is there"
    )
    client.send("orders", text)
    worker.says(f"handled {text}")


@pytest.mark.parametrize("made", ["topic", "group"])
def test_what_cannot_be_declared_again_ends_the_worker(
    dev: Dev, processes: Processes, made: str
) -> None:
    """Somebody created topic or group as the code does not want it, at the broker after."""
    code = _DECLARES.format(connect="ternmq.connect", define="async def")
    code = code.replace('"workers"', '"workers", start="earliest"')
    (processes.folder / "app.py").write_text(code, encoding="utf-8")
    with ternmq.sync.connect(dev.url) as client:
        worker = Follower(processes, "worker", "app:client")
        try:
            _sent_and_handled(client, worker, "before")
            worker.process.send_signal(signal.SIGSTOP)
            dev.again(signal.SIGKILL)
            if made == "topic":
                client.admin.create_topic("orders", queues=5)
                wrong = "topic orders: queues 5 -> 3 cannot be changed"
            else:
                client.admin.create_topic("orders", queues=3, retention=86400)
                client.admin.create_group("orders", "workers", start="latest")
                wrong = "group workers on orders: start latest -> earliest cannot be changed"
            worker.process.send_signal(signal.SIGCONT)
            assert worker.process.wait(DEADLINE) == ExitCode.UNSOUND
            said = worker.file.read_text()
            assert said.count(wrong) == 1, said
        finally:
            worker.end()


def test_a_group_that_others_made_is_changed_by_a_worker_that_goes_on(
    dev: Dev, processes: Processes
) -> None:
    """Before it joins the group at the broker after: joining as declared would be refused."""
    code = _DECLARES.format(connect="ternmq.connect", define="async def")
    (processes.folder / "app.py").write_text(code, encoding="utf-8")
    with ternmq.sync.connect(dev.url) as client:
        worker = Follower(processes, "worker", "app:client")
        try:
            _sent_and_handled(client, worker, "before")
            worker.process.send_signal(signal.SIGSTOP)
            dev.again(signal.SIGKILL)
            client.admin.create_topic("orders", queues=3, retention=86400)
            client.admin.create_group("orders", "workers", lease=7)
            worker.process.send_signal(signal.SIGCONT)
            _sent_and_handled(client, worker, "after")
            assert client.admin.group("orders", "workers").lease == timedelta(seconds=40)
        finally:
            worker.end()


def test_what_the_broker_after_has_no_room_for_holds_nobody_else_up(
    dev: Dev, processes: Processes
) -> None:
    """It is tried again and again, while groups that are not declared are joined."""

    async def go_on() -> None:
        async with ternmq.connect(dev.url, timeout=1) as client:
            client.declare(ternmq.Topic("orders", queues=9))

            @client.handler("orders", group="workers")
            async def handle(_order: str) -> None: ...

            await client.apply()
            assert not await client.pull("notes", group="readers", wait=0)
            processes.environment["TERNMQ_LIMITS_GROUP_QUEUES"] = "8"
            await asyncio.to_thread(dev.again, signal.SIGKILL)
            async with asyncio.timeout(DEADLINE):
                while True:  # the client may wait for longer than its timeout before it connects
                    with contextlib.suppress(ternmq.CannotConnect):
                        assert not await client.pull("notes", group="readers", wait=0)
                        break
            assert len(await client.admin.groups("notes")) == 1
            assert not await client.admin.groups("orders")

    asyncio.run(go_on())


def test_a_topic_that_was_not_declared_comes_again_with_its_first_use(dev: Dev) -> None:
    """It was there when the program applied what it declares: a handler on it."""
    handled: list[str] = []

    async def go_on() -> None:
        async with ternmq.connect(dev.url) as client:
            await client.send("orders", "before")

            @client.handler("orders", group="workers")
            async def handle(order: str) -> None:
                handled.append(order)

            await client.apply()
            running = asyncio.create_task(client.run())
            await asyncio.to_thread(wait_until, lambda: handled == ["before"], "it is handled")
            await asyncio.to_thread(dev.again, signal.SIGKILL)
            with ternmq.sync.connect(dev.url) as other:
                there = partial(other.admin.groups, "orders")
                await asyncio.to_thread(
                    wait_until, lambda: running.done() or bool(there()), "it joins"
                )
                await asyncio.to_thread(other.send, "orders", "after")
            await asyncio.to_thread(
                wait_until, lambda: running.done() or len(handled) == 2, "the next one is handled"
            )
            client.stop()
            await running

    asyncio.run(go_on())
    assert handled == ["before", "after"]


def test_a_lease_of_before_is_none_of_the_broker_after(dev: Dev) -> None:
    """Both begin to count anew: the ack of one must not settle what the other handed out."""
    with ternmq.sync.connect(dev.url) as client, ternmq.sync.connect(dev.url) as other:
        client.send("orders", "before")
        (held,) = client.pull("orders", group="g", wait=5)
        dev.again(signal.SIGKILL)
        other.send("orders", "after")
        (taken,) = other.pull("orders", group="g", wait=5)
        with pytest.raises((ternmq.LeaseExpired, ternmq.ConnectionLost)):
            held.ack()
        assert other.admin.group("orders", "g").queues[0].leased == 1
        taken.ack()


_HELD = """\
import asyncio, os
import ternmq
client = ternmq.connect()

@client.handler("orders", group="workers")
async def on_order(order: str) -> None:
    print("began", order, flush=True)
    while order == "before" and not os.path.exists("through"):
        await asyncio.sleep(0.01)
    print("handled", order, flush=True)
"""


def test_a_handler_that_runs_since_before_does_not_settle_another_message(
    dev: Dev, processes: Processes
) -> None:
    """The first message of each broker is at offset 0: they are not the same message."""
    (processes.folder / "app.py").write_text(_HELD, encoding="utf-8")
    with ternmq.sync.connect(dev.url) as client:
        client.send("orders", "before")
        worker = Follower(processes, "worker", "app:client")
        try:
            worker.says("began before")
            dev.again(signal.SIGKILL)
            assert client.send("orders", "after").offset == 0
            worker.says("handled after")
            (processes.folder / "through").touch()
            worker.says("handled before")
            wait_until(
                lambda: client.admin.group("orders", "workers").queues[0].floor == 1, "settled"
            )
            assert worker.said.count("began after") == worker.said.count("began before") == 1
        finally:
            worker.end()


def test_it_ends_in_good_order_while_messages_are_leased(dev: Dev) -> None:
    """Its epoch is the time: what it writes of leases at its end has room for that."""
    with ternmq.sync.connect(dev.url) as client:
        client.send("orders", "held")
        (held,) = client.pull("orders", group="g", wait=5)
        assert dev.again(signal.SIGTERM) == 0
        assert not held.settled


def test_a_broker_that_keeps_has_deleted_what_is_not_there(
    processes: Processes, tmp_path: Path
) -> None:
    """A worker makes no topic anew that an operator has deleted: it ends, and says why."""
    (processes.folder / "app.py").write_text(_APP, encoding="utf-8")
    with BrokerProcess("dev", tmp_path / "kept") as broker:
        processes.environment["TERNMQ_URL"] = broker.url
        with ternmq.sync.connect(broker.url) as client:
            client.send("orders", "one")
            worker = Follower(processes, "worker", "app:client")
            try:
                worker.says("handled one")
                broker.restart(kill=True)
                client.send("orders", "two")
                worker.says("handled two")
                client.admin.delete_topic("orders")
                assert worker.process.wait(DEADLINE) == 4
            finally:
                worker.end()
            assert "orders" not in [one.spec.name for one in client.admin.topics()]


def test_dev_says_that_it_forgets(dev: Dev) -> None:
    """Library authors see it in WELCOME; its epoch is another than that of the one before."""
    code = (
        "import asyncio, sys, ternmq\n"
        "async def main():\n"
        "    async with ternmq.connect(sys.argv[1]) as client:\n"
        "        welcome = client._session.welcome\n"
        "        print(welcome.forgets, welcome.epoch)\n"
        "asyncio.run(main())\n"
    )

    def asked() -> list[str]:
        return subprocess.run(
            [sys.executable, "-c", code, dev.url], capture_output=True, text=True, check=True
        ).stdout.split()

    forgets, before = asked()
    dev.again(signal.SIGINT)
    assert forgets == "True"
    after = asked()[1]
    assert after != before
    assert max(int(after), int(before)) < EPOCH_LIMIT
