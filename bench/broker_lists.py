"""What looks and goodbyes cost where there is much: STATUS, lists, scrapes, BYE; in ``broker.py``.

40,000 topics of one group each and 2,500 apps of five grants each. Whoever may connect may look, so
what a look takes of the loop is what everybody else waits. A client with a lease of half of the
groups says goodbye: all of these end. Beside each answer stands the longest
callback of the loop, in CPU time of its thread: the broker is ``broker_lists_server``.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec
from broker_lists_server import GRANTS, GROUP, TOKEN, app, topic
from core_kit import Figures, Measurement, Settings, Target, folder

from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Refusal

TOPICS: Final = 40_000
APPS: Final = 2_500
PAGE: Final = 50
LOOKS: Final = 9
"""Times that each is asked; the first answers of a process are slower and count as well."""
SERVER: Final = Path(__file__).with_name("broker_lists_server.py")
_DEADLINE_S: Final = 60.0

T = TypeVar("T", bound=msgspec.Struct)


class Asker:
    """A connection that asks one thing at a time."""

    def __init__(self, port: int, name: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S)
        self._session = ClientSession()
        self._sequence = 0
        hello = control.Hello(client=f"asker-{name}", app=name, token=TOKEN)
        self._socket.sendall(self._session.hello(hello))
        while self._session.welcome is None:
            self._session.receive(self._socket.recv(1 << 16))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def hold(self, name: str) -> None:
        """Send a message to a topic, and have it handed out for the topic's group."""
        self._sequence += 1
        batch = encode(
            [Row(b"order")], topic_seed=topic_seed(name), producer_id=1,
            first_sequence=self._sequence, born_us=1,
        )  # fmt: skip
        self.ask_raw(Command.SEND, bodies.pack_send(name, None, batch))
        pull = bodies.Pull(name, GROUP, None, 1, 0, 0)
        if not bodies.unpack_delivery(self.ask_raw(Command.PULL, bodies.pack_pull(pull))).runs:
            raise RuntimeError(f"{name} handed nothing out")

    def ask(self, command: Command, asked: msgspec.Struct) -> bytes:
        """Return the body of the answer."""
        return self.ask_raw(command, control.encode(asked))

    def ask_raw(self, command: Command, body: bytes) -> bytes:
        """Return the body of the answer to one that is laid out by hand."""
        self._socket.sendall(self._session.ask(command, body)[1])
        while True:
            for event in self._session.receive(self._socket.recv(1 << 20)):
                if isinstance(event, Refusal):
                    raise event.error
                if isinstance(event, Answer):
                    return event.body

    def get(self, command: Command, asked: msgspec.Struct, kind: type[T]) -> T:
        """Return the answer."""
        return control.decode_answer(self.ask(command, asked), kind)


class Watched:
    """A broker whose turns are timed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        ports = json.loads(self._line())
        self.port, self.http = int(ports["port"]), int(ports["http"])

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the broker did not start, or is gone")
        return line

    def tell(self, line: str) -> None:
        """Say something to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def longest(self) -> dict[str, float]:
        """Return the longest callback since the last look."""
        self.tell("report")
        found: dict[str, float] = json.loads(self._line())
        return found


@contextmanager
def _broker(path: Path, topics: int, apps: int, metrics_groups: int) -> Iterator[Watched]:
    command = [sys.executable, str(SERVER), str(path)]
    if not path.exists():
        subprocess.run([*command, "fill", str(topics), str(apps)], check=True)
    with subprocess.Popen(
        [*command, "serve", str(metrics_groups)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Watched(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def _measured(one: Watched, name: str, ask: Callable[[], int]) -> Figures:
    """Ask some times; return how long an answer took, how large it was, and what it held up."""
    took: list[float] = []
    size = 0
    one.tell("reset")
    for _ in range(LOOKS):
        began = time.perf_counter()
        size = ask()
        took.append((time.perf_counter() - began) * 1e3)
    longest = one.longest()
    return {
        f"{name}_ms": statistics.median(took),
        f"{name}_slowest_ms": max(took),
        f"{name}_kib": size / 1024,
        f"{name}_turn_cpu_ms": longest["cpu_ms"],
        f"{name}_turn_wall_ms": longest["wall_ms"],
    }


def _whole(asker: Asker) -> int:
    """Walk every page of every list that an operator may see; return how many entries."""
    entries, after = 0, ""
    while True:
        topics = asker.get(Command.TOPIC_LIST, control.TopicList(after=after), control.Topics)
        entries += len(topics.topics)
        after = topics.next
        if not after:
            break
    while True:
        groups = asker.get(
            Command.GROUP_LIST, control.GroupList(after=after, limit=1000), control.Groups
        )
        entries += len(groups.groups)
        after = groups.next
        if not after:
            break
    while True:
        apps = asker.get(Command.APP_LIST, control.AppList(after=after, limit=1000), control.Apps)
        entries += len(apps.apps)
        after = apps.next
        if not after:
            return entries


def looking(settings: Settings) -> Figures:
    """Ask an almost empty broker nothing, and a full one everything."""
    topics, apps = settings.scaled(TOPICS, 300), settings.scaled(APPS, 20)
    found: Figures = {}
    with folder(settings) as path:
        data = path / "data"
        with (
            _broker(data, topics, apps, 2_000) as one,
            Asker(one.port, "admin") as admin,
            Asker(one.port, app(3)) as shop,
        ):
            # What the start left to do (a STATE set, the first looks of a process) is no look's.
            time.sleep(0.0 if settings.quick else 3.0)
            url = f"http://127.0.0.1:{one.http}/metrics"
            last = control.TopicList(after=topic(topics - PAGE // 2), limit=PAGE)
            few = control.TopicList(limit=PAGE)
            named = control.GroupList(group="nobody", limit=PAGE)
            for name, ask in (
                ("status", lambda: len(admin.ask(Command.STATUS, control.StatusAsk()))),
                ("status_of_an_app", lambda: len(shop.ask(Command.STATUS, control.StatusAsk()))),
                ("page", lambda: len(admin.ask(Command.TOPIC_LIST, few))),
                ("page_of_an_app", lambda: len(shop.ask(Command.TOPIC_LIST, few))),
                ("last_page", lambda: len(admin.ask(Command.TOPIC_LIST, last))),
                ("groups_of_no_name", lambda: len(admin.ask(Command.GROUP_LIST, named))),
                ("scrape", lambda: len(_get(url))),
            ):
                found |= _measured(one, name, ask)
            listed = shop.get(Command.TOPIC_LIST, few, control.Topics).topics
            if len(listed) != GRANTS:
                raise RuntimeError(f"an app of {GRANTS} grants was shown {len(listed)} topics")
            one.tell("reset")
            began = time.perf_counter()
            entries = _whole(admin)
            found["everything_s"] = time.perf_counter() - began
            found["everything_turn_cpu_ms"] = one.longest()["cpu_ms"]
            if entries != 2 * topics + apps + 1:
                raise RuntimeError(f"{entries} entries were listed, of {2 * topics + apps + 1}")
        with _broker(data, topics, apps, topics) as one:
            url = f"http://127.0.0.1:{one.http}/metrics"
            found |= _measured(one, "scrape_of_all_groups", lambda: len(_get(url)))
    return found


def leaving(settings: Settings) -> Figures:
    """Hold a message of each of many groups, and say BYE."""
    topics = settings.scaled(TOPICS, 300) // 2
    found: Figures = {}
    with (
        folder(settings) as path,
        _broker(path / "data", topics, 1, 2_000) as one,
        Asker(one.port, "admin") as admin,
    ):
        for number in range(topics):
            admin.hold(topic(number))
        one.tell("reset")
        began = time.perf_counter()
        admin.ask_raw(Command.BYE, b"")
        found["goodbye_ms"] = (time.perf_counter() - began) * 1e3
        longest = one.longest()
        found["goodbye_turn_cpu_ms"] = longest["cpu_ms"]
        found["goodbye_turn_wall_ms"] = longest["wall_ms"]
    return found


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_DEADLINE_S) as answer:
        data: bytes = answer.read()
        return data


_LOOKS: Final = (
    "status",
    "status_of_an_app",
    "page",
    "page_of_an_app",
    "last_page",
    "groups_of_no_name",
    "scrape",
)
MEASUREMENTS: Final = (
    Measurement(
        "lists",
        "STATUS, pages and scrapes with 40,000 topics and 2,500 apps, and the longest turn beside",
        looking,
        (
            *[Target(f"{name}_ms", 300.0) for name in _LOOKS],
            *[Target(f"{name}_turn_cpu_ms", 2.0) for name in _LOOKS],
            Target("everything_turn_cpu_ms", 2.0),
            Target("scrape_of_all_groups_turn_cpu_ms", 2.0),
        ),
        {"topics": TOPICS, "apps": APPS, "grants": GRANTS, "page": PAGE, "looks": LOOKS},
    ),
    Measurement(
        "goodbye",
        "BYE of a client with leases of 20,000 groups, and the longest turn",
        leaving,
        (Target("goodbye_turn_cpu_ms", 2.0),),
        {"groups": TOPICS // 2},
    ),
)
