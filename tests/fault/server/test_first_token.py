"""The power goes, or the broker is killed, right after a first start: somebody can still get in."""

from __future__ import annotations

import itertools
import stat
from pathlib import Path

import pytest

import ternmq.sync
from ternmq.access.tokens import is_whole
from tests.fault.processes import wait_until
from tests.fault.server.broker import APP, Address, Broker
from tests.fault.server.tools import POWER_CUTS, SMALL
from tests.fault.tools import need_root, need_strace, strace
from tests.fault.volumes import Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

NO_TOKEN = {**SMALL, "admin_token": "off"}
"""As an operator begins: the broker makes the token."""


def _enters(address: Address, token: str) -> None:
    """Connect as ``admin`` and do what only an operator may; what it asks for is durable."""
    url = f"ternmq://{address.host}:{address.port}"
    with ternmq.sync.connect(url, app=APP, token=token) as client:
        assert [one.app for one in client.admin.apps()] == [APP]
        client.admin.create_topic("entered")
        client.admin.delete_topic("entered")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_the_power_goes_after_the_first_start(kind: str, memory_folder: Path) -> None:
    """The journal has the app and the file has its token, whole: after every cut."""
    need_root(f"mkfs.{kind}")
    logs = memory_folder / "logs"
    with Volume(memory_folder / "volume", kind) as volume:
        for number in range(max(4, POWER_CUTS)):
            data = volume.point / f"data-{number}" / "of" / "a-broker"
            file = data / "admin.token"
            with Broker(data, logs, **NO_TOKEN) as broker:
                _enters(broker.ready(), file.read_text().strip())
                volume.cut(broker)
            token = file.read_text().strip()
            assert is_whole(token), f"cut {number}: {token!r}"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert [one.name for one in data.glob(".admin.token*")] == []
            with Broker(data, logs, **NO_TOKEN) as broker:
                _enters(broker.ready(), token)
                broker.terminate()
                assert broker.wait() == 0
            for path in (data / "journal").iterdir():
                path.unlink()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("call", ["fsync", "fdatasync", "rename"])
def test_kill_9_at_every_step_of_the_first_start(call: str, memory_folder: Path) -> None:
    """The next start lets in who read the file before the kill, or reads it now."""
    need_strace()
    logs = memory_folder / "logs"
    told = 0
    for number in itertools.count(1):
        data = memory_folder / f"data-{number}"
        file = data / "admin.token"
        dying = strace(trace=[call], inject=f"signal=KILL:when={number}")
        with Broker(data, logs, before=dying, **NO_TOKEN) as broker:
            wait_until(lambda: broker.ended or broker.listens, "ended, or listening")
            if broker.listens:
                break
        before = file.read_text().strip() if file.exists() else None
        assert before is None or is_whole(before), (call, number)
        with Broker(data, logs, **NO_TOKEN) as broker:
            _enters(broker.ready(), file.read_text().strip())
        if before is not None:
            told += 1
            assert file.read_text().strip() == before, (call, number)
    assert number > 1, "nothing was killed"
    assert told or call != "fsync", "no kill came after the token"


@pytest.mark.timeout(120)
def test_a_token_that_cannot_be_written_is_of_no_app(memory_folder: Path) -> None:
    """The start fails and says why; the next one begins with nothing, and is right."""
    need_strace()
    data, logs = memory_folder / "data", memory_folder / "logs"
    failing = strace(trace=["rename"], inject="error=ENOSPC:when=1")
    with Broker(data, logs, before=failing, **NO_TOKEN) as broker:
        assert broker.wait() == 1
        assert "No space left on device" in broker.log
        assert "admin.token" in broker.log
        assert "Traceback" not in broker.log
    assert sorted(one.name for one in data.iterdir()) == ["LOCK", "journal"]
    with Broker(data, logs, **NO_TOKEN) as broker:
        _enters(broker.ready(), (data / "admin.token").read_text().strip())
