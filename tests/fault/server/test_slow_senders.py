"""A thousand peers that send a byte now and then, before HELLO and after it (BAD-2)."""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import pytest

from ternmq.wire import frames
from ternmq.wire.commands import Command
from tests.fault.processes import wait_until
from tests.fault.server.broker import Broker
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load
from tests.fault.server.memory import memory_limit, oom_kills, put_into
from tests.fault.server.raw import Peer
from tests.fault.server.results import keep
from tests.fault.server.tools import SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LIMIT: Final = 128 << 20
SENDERS: Final = 1000
HELD: Final = 64 << 10
"""Most memory that each may cost."""
PROMISED: Final = 1 << 20
"""Bytes of the frame that never comes."""
EVERY_S: Final = 0.5
"""Each sends a byte so often: ten times what BAD-2 says."""
HANDSHAKE_S: Final = 3
GOOD: Final = Plan(producers=4, window=4)


class Drip:
    """Has each of some peers send a byte again and again, in a thread."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._peers = peers
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            for peer in self._peers:
                with contextlib.suppress(OSError):  # it was closed
                    peer.send(b"\0")


@pytest.mark.timeout(180)
@pytest.mark.row("A8")
@pytest.mark.parametrize("known", [False, True], ids=["before HELLO", "after HELLO"])
def test_a_thousand_slow_senders(known, memory_folder, verdicts):
    """Each is held by a few bytes, strangers are closed in time, and good load goes on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    data, record = memory_folder / "data", memory_folder / "history"
    settings = {
        **SMALL,
        "handshake_timeout": f"{HANDSHAKE_S}s",
        "connections_per_ip": str(SENDERS + 100),
        "connections_per_app": str(SENDERS + 100),
    }
    frame = frames.head(Command.SEND if known else Command.HELLO, 0, 9, PROMISED if known else 200)
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(memory_limit(LIMIT))
        broker = stack.enter_context(Broker(data, memory_folder / "logs", **settings))
        put_into(group, broker)
        load = stack.enter_context(Load(broker.ready(), record, GOOD))
        load.sent(500)
        load.settled(50)
        resident = broker.resident_bytes()
        peers = []
        for number in range(SENDERS):
            peer = stack.enter_context(Peer(load.address, hello=known, name=f"slow{number}"))
            peer.send(frame)
            peers.append(peer)
        with Drip(peers):
            load.sent(500)
            load.settled(50)
            grown = broker.resident_bytes() - resident
            if not known:
                wait_until(lambda: all(peer.cut for peer in peers), "strangers closed")
            load.sent(200)
        assert load.losses == 0, "a good connection was lost"
        assert not load.counts.refused, load.counts.refused
        load.stop_sending()
        assert oom_kills(group) == 0
        assert "Traceback" not in broker.log, broker.log
        peak = broker.peak_bytes()
        broker.terminate()
        assert broker.wait() == 0, broker.log
    each = grown / SENDERS
    print(f"{each / 1024:.1f} KiB each, peak {peak >> 20} MB")
    keep(
        f"bad-2-slow-senders-{'after' if known else 'before'}-hello",
        {"senders": SENDERS, "kib_each": round(each / 1024, 1), "peak_mib": peak >> 20},
    )
    assert each < HELD
    verdicts.sound(data, record)
