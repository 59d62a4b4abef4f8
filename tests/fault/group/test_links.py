"""The network between the brokers of a group fails (REP-3, flapping).

Followers reach the primary through a link that can be cut, as ``advertise`` says; clients do not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import coordinators
from tests.fault.group.brokers import Brokers, wait
from tests.fault.group.checks import sound
from tests.fault.group.link import Link
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import passed, seconds
from tests.fault.processes import wait_until
from tests.fault.server.broker import Address
from tests.fault.server.reviewing import merged

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MORE = 60
FLAPS = 10.0


@contextlib.contextmanager
def linked(folder: Path, **given) -> Iterator[tuple[Brokers, dict[str, Link]]]:
    """Brokers that followers reach through a link each."""
    with contextlib.ExitStack() as stack:
        links = {name: stack.enter_context(Link(Address("127.0.0.1", 1))) for name in ("a", "b")}
        advertise = {name: f"127.0.0.1:{one.address.port}" for name, one in links.items()}
        brokers = Brokers(folder, advertise=advertise, **given)
        for name, one in links.items():
            one.target = brokers.address(name)
        yield stack.enter_context(brokers), links


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["cut", "there", "back"])
def test_the_link_of_the_pair_fails(how, memory_folder, verdicts):
    """The primary goes on alone; what it answers meanwhile is copied when the link is healed."""
    record = memory_folder / "history"
    with linked(memory_folder / "group") as (brokers, links):
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            primary, link = brokers.primary, links[brokers.primary]
            if how == "cut":
                link.cut()
            else:
                link.hold(there=how == "there", back=how == "back")
            wait(lambda: alone(brokers), "one copy is left")
            load.sent(4 * MORE)
            link.heal()
            brokers.wait_until_whole()
            assert brokers.primary == primary, "the primary was there all the time"
            load.sent(MORE)
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


def alone(brokers: Brokers) -> bool:
    found = brokers.record()
    return found is not None and len(found.members) == 1


@pytest.mark.timeout(300)
def test_a_link_that_drops_again_and_again(memory_folder, verdicts):
    """A connection that breaks every three seconds costs no message and no order."""
    record = memory_folder / "history"
    with linked(memory_folder / "group") as (brokers, links):
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            over = passed(seconds(FLAPS, 60.0))
            while not over():
                for link in links.values():
                    link.cut()
                    link.heal()
                wait_until(either(over, passed(seconds(1.0, 3.0))), "the next time")
                load.sent(10)
            brokers.wait_until_whole()
            load.sent(MORE)
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


def either(*conditions):
    return lambda: any(one() for one in conditions)


@pytest.mark.timeout(300)
def test_the_primary_sees_nobody_but_its_clients(memory_folder, verdicts):
    """REP-3: cut off from the replica and the coordinator it answers nothing; it follows later."""
    record, second = memory_folder / "history", memory_folder / "faithful"
    with coordinators.postgresql() as server:
        if server is None:
            pytest.skip("needs PostgreSQL")
        with Link(Address("127.0.0.1", server.port)) as asked:
            through = server.url.replace(f":{server.port}/", f":{asked.address.port}/")
            given = {"cluster": server.url, "clusters": {"a": through}}
            with linked(memory_folder / "group", **given) as (brokers, links):
                cut = (links["a"], links["b"], asked)
                with GroupLoad(brokers.addresses, record) as load:
                    load.sent(MORE)
                    with GroupLoad([brokers.address("a")], second, number=7) as faithful:
                        faithful.sent(10)
                        for one in cut:
                            one.cut()
                        brokers.wait_for_primary("b")
                        load.sent(MORE)
                        before = faithful.counts.sent
                        load.sent(2 * MORE)
                        assert faithful.counts.sent == before, "an answer of the old reign"
                        for one in cut:
                            one.heal()
                        brokers.wait_until_whole()
                        assert brokers.primary == "b"
                        assert faithful.counts.sent == before, "an answer of the old reign"
                    load.sent(MORE)
                    load.stop_sending()
                    load.drained()
                sound(brokers, verdicts, merged([record, second], memory_folder / "all"))
