"""ZooKeeper ends the session of a broker, or elects another leader (REP-5).

Three servers. A session is ended as ZooKeeper ends one whose client it has not heard of: a second
client with the same id and password closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import kazoo.client
import pytest

from ternmq.cluster.coordination.record import Leadership
from tests import coordinators
from tests.fault.group.brokers import Brokers, wait
from tests.fault.group.checks import sound
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import LONG, PATIENT_S, cycles

pytestmark = [pytest.mark.fault, pytest.mark.slow]

TIMES = cycles(1)
MORE = 60
SERVERS: Final = 3
ENDED: Final = "the session with ZooKeeper ended; a new one is opened"


class Sessions:
    """The sessions of brokers, as the ensemble knows them: each announces a name.

    Args:
        hosts: ``host:port,host:port`` of the servers.
    """

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts

    def of(self, name: str) -> int:
        """Return the session of a broker; 0: it has announced nothing."""
        client = kazoo.client.KazooClient(self._hosts)
        client.start()
        try:
            stat = client.exists(f"/ternmq/announced/{name}")
        finally:
            client.stop()
            client.close()
        return 0 if stat is None else int(stat.ephemeralOwner)

    def end(self, name: str) -> int:
        """End the session of a broker; return its number."""
        session = self.of(name)
        assert session, f"{name} is not announced"
        other = kazoo.client.KazooClient(self._hosts, client_id=(session, password(session)))
        other.start()
        taken = other.client_id
        other.stop()
        other.close()
        assert taken is not None
        assert taken[0] == session, "ZooKeeper gave another session: the password is not this one"
        return session


def password(session: int) -> bytes:
    """Return the password that ZooKeeper gives to a session: 16 bytes of Java's ``Random``.

    ``SessionTrackerImpl`` and ``ZooKeeperServer.generatePasswd`` seed it with the session's number.
    """
    seed = ((session ^ 0xB3415C00) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    found = b""
    while len(found) < 16:
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        found += (seed >> 16).to_bytes(4, "little")
    return found


@pytest.fixture
def servers() -> Iterator[list[coordinators.Server]]:
    with coordinators.zookeeper(SERVERS) as found:
        if found is None:
            pytest.skip("needs ZooKeeper and a Java")
        yield found


def leader_of(servers: list[coordinators.Server]) -> coordinators.Server:
    """Return the leader of an ensemble, once it has one."""
    found: list[coordinators.Server] = []

    def led() -> bool:
        found[:] = [one for one in servers if not one.ended and coordinators.leads(one)]
        return len(found) == 1

    wait(led, "the ensemble has a leader")
    return found[0]


def again(server: coordinators.Server) -> None:
    """Start a server that was killed."""
    server.again()
    coordinators.wait_for_zookeeper(server)


def reign(brokers: Brokers) -> Callable[[], bool]:
    """Return what tells whether the same reign is recorded, once the coordinator says so.

    Its members may have changed: on a busy machine one may be silent for too long.
    """

    def read() -> Leadership:
        found: list[Leadership] = []

        def said() -> bool:
            record = brokers.record()
            found[:] = [] if record is None else [record]
            return bool(found)

        wait(said, "the coordinator answers")
        return found[0]

    before = read()
    return lambda: (now := read()).primary == before.primary and now.epoch == before.epoch


@pytest.mark.timeout(180 + 120 * TIMES)
def test_sessions_end_and_the_leader_of_the_ensemble_dies(servers, memory_folder, verdicts):
    """Clients notice nothing, and the primary stays; then it dies, and its member leads."""
    record = memory_folder / "history"
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in servers)
    sessions = Sessions(hosts)
    with Brokers(memory_folder / "group", cluster=f"zk://{hosts}/ternmq") as brokers:
        with GroupLoad(brokers.addresses, record, silent_s=PATIENT_S) as load:
            for _ in range(TIMES):
                load.sent(MORE)
                primary, replica = brokers.primary, brokers.other
                noticed = load.noticed
                is_as_before = reign(brokers)
                for name in (primary, replica):
                    ended = sessions.end(name)
                    wait(lambda n=name, old=ended: sessions.of(n) not in (0, old), "a new session")
                    assert ENDED in brokers.log(name)
                leader = leader_of(servers)
                leader.kill()
                assert leader_of(servers) is not leader
                load.sent(MORE)
                load.settled(2)
                assert is_as_before(), brokers.record()
                assert load.noticed == noticed, "a client noticed it"

                if LONG:
                    again(leader)
                    sessions.end(primary)
                    brokers.kill(replica)  # is taken out in the new session
                    load.sent(MORE)
                    brokers.start(replica)
                    brokers.wait_until_whole()
                    assert brokers.primary == primary
                    leader = leader_of(servers)
                    leader.kill()
                brokers.kill(primary)  # its member stands where there is a new leader
                load.sent(MORE)
                brokers.wait_for_primary(replica)
                brokers.start(primary)
                brokers.wait_until_whole()
                if LONG:
                    again(leader)
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)
