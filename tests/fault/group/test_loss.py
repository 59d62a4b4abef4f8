"""An operator accepts loss: a broker that is no member leads, and the old primary follows it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ternmq.sync
from tests.fault.group.brokers import GROUP, Brokers, wait
from tests.fault.group.checks import at_rest, differences, extent
from tests.fault.group.test_coordinator import group_of
from tests.fault.group.tools import LONG
from tests.fault.processes import DEADLINE, environment

pytestmark = [pytest.mark.fault, pytest.mark.slow]

COUNT = 100
ACCEPT = ("promote", "b", "--accept-loss")


class Operator:
    """Runs ``ternmq cluster`` beside a group."""

    def __init__(self, brokers: Brokers) -> None:
        self._cluster = brokers.cluster

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ternmq", "cluster", *words],
            env={**environment(), "TERNMQ_CLUSTER": self._cluster, "TERNMQ_BROKER_GROUP": GROUP},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str, code: int = 0) -> str:
        """Return all that a command says."""
        process = self.start(*words)
        out, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == code, (words, out, err)
        return out + err

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def status(self) -> Any:
        return self.json("status")


def send(client: ternmq.sync.Client, what: str) -> set[bytes]:
    """Send messages, one at a time; return their bodies, all of which were answered."""
    bodies = [b"%s-%03d" % (what.encode(), number) for number in range(COUNT)]
    for body in bodies:
        client.send("t", body)
    return set(bodies)


def pulled(client: ternmq.sync.Client, count: int) -> set[bytes]:
    """Return the bodies of so many messages, and of what else is there at once."""
    found: list[bytes] = []
    while len(found) < count:
        messages = client.pull("t", group="g", max_messages=50, wait=30)
        assert messages
        found += [one.body for one in messages]
        messages.ack()
    found += [one.body for one in client.pull("t", group="g", max_messages=50, wait=0)]
    assert len(set(found)) == len(found)
    return set(found)


def alone(brokers: Brokers, name: str) -> bool:
    """Whether a broker is the only member."""
    record = brokers.record()
    return record is not None and [one.broker for one in record.members] == [name]


def shows(operator: Operator, name: str) -> bool:
    """Whether one broker alone runs, and says how far its copy reaches."""
    found = operator.status()["brokers"]
    return [one["broker"] for one in found] == [name] and found[0]["reach"] is not None


def kept_aside(data: Path) -> bytes:
    return b"".join(one.read_bytes() for one in sorted((data / "repair").glob("copy-*")))


def missing(operator: Operator) -> int:
    """Return how much b is known to lack; before the primary has said how far it is: nothing."""
    found = operator.json(*ACCEPT, "--dry-run")
    assert found["done"] is False
    return int(found["missing_bytes"])


@pytest.fixture
def pair(memory_folder: Path) -> Iterator[Brokers]:
    with Brokers(memory_folder / "group") as brokers:
        yield brokers


KINDS = ("sqlite", "zookeeper", *(("postgresql", "mariadb") if LONG else ()))
"""A database is a database: the long form takes all of them."""


@pytest.fixture(params=KINDS)
def each(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[Brokers]:
    with group_of(request.param, memory_folder / "group") as (brokers, _):
        yield brokers


def recorded(brokers: Brokers, operator: Operator, end: int) -> bool:
    """Whether the coordinator knows that the group came further than a position."""
    found = operator.status()["committed"]
    return found is not None and found["position"] > end


def loses_b(brokers: Brokers, operator: Operator, client: ternmq.sync.Client) -> set[bytes]:
    """Have b fall out, and a answer more alone, and die; return what only a has then."""
    brokers.kill("b")
    wait(lambda: alone(brokers, "a"), "a is the only member")
    lost = send(client, "lost")
    end = extent(brokers.data["b"]).end
    wait(lambda: recorded(brokers, operator, end), "a has said how far it is")
    brokers.kill("a")
    return lost


@pytest.mark.timeout(240)
def test_a_follower_that_fell_out_leads_and_the_old_primary_follows_it(each: Brokers) -> None:
    """With each kind of database as the coordinator."""
    operator = Operator(each)
    with ternmq.sync.connect(each.url, timeout=60) as client:
        client.admin.create_topic("t")
        client.admin.create_group("t", "g")
        kept = send(client, "kept")
        lost = loses_b(each, operator, client)
        each.start("b")
        wait(lambda: shows(operator, "b"), "b says how far its copy reaches")
        before = each.record()
        said = operator.run("promote", "b", code=1)
        assert "b is not a member: it may lack messages that were answered" in said
        assert "nothing was changed: add --yes" in operator.run(*ACCEPT, code=1)
        assert missing(operator) > 100 * COUNT
        assert "nothing was changed: --dry-run" in operator.run(*ACCEPT, "--dry-run")
        assert each.record() == before
        assert operator.status()["loss"] is None

        end = extent(each.data["b"]).end
        found = operator.json(*ACCEPT, "--yes")
        assert (found["primary"], found["before"]) == ("b", "a")
        assert found["loss"]["missing_bytes"] > 100 * COUNT
        loss = operator.status()["loss"]
        assert loss["epoch"] == found["epoch"]
        assert loss["position"] <= end
        assert "accepted" in operator.run("status")
        more = send(client, "more")

        each.kill("b")  # it can go on with what it has, whatever a said before
        each.start("b")
        each.wait_for_primary("b")

        each.start("a")
        each.wait_until_whole()
        aside = kept_aside(each.data["a"])
        assert all(body in aside for body in lost)
        each.kill("b")  # a is a member, and leads with what was left
        each.wait_for_primary("a")
        assert operator.status()["loss"] == loss
        found = pulled(client, 2 * COUNT)
        assert found == kept | more
        each.start("b")
        each.wait_until_whole()
    at_rest(each)
    assert not differences(each.data["a"], each.data["b"])


@pytest.mark.timeout(240)
def test_a_primary_that_was_stopped_meanwhile_gives_up_what_it_had_answered(pair: Brokers) -> None:
    """Its process lives, and knows that it had answered: only with the acceptance does it cut."""
    operator = Operator(pair)
    with ternmq.sync.connect(pair.url, timeout=60) as client:
        client.admin.create_topic("t")
        client.admin.create_group("t", "g")
        kept = send(client, "kept")
        pair.kill("b")
        wait(lambda: alone(pair, "a"), "a is the only member")
        lost = send(client, "lost")
        pair["a"].stop()
        wait(lambda: not operator.status()["brokers"], "a is not announced any more")
        pair.start("b")
        wait(lambda: shows(operator, "b"), "b says how far its copy reaches")
        operator.run(*ACCEPT, "--yes")
        pair["a"].go_on()
        pair.wait_until_whole()
        assert "cut below the commit mark" in pair.log("a")
        aside = kept_aside(pair.data["a"])
        assert all(body in aside for body in lost)
        assert pulled(client, COUNT) == kept
    at_rest(pair)
    assert not differences(pair.data["a"], pair.data["b"])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["asynchronous", "backup"])
def test_a_copy_that_nobody_waited_for_leads(kind: str, pair: Brokers) -> None:
    operator = Operator(pair)
    with ternmq.sync.connect(pair.url, timeout=60) as client:
        client.admin.create_topic("t")
        client.admin.create_group("t", "g")
        if kind == "asynchronous":
            operator.run("set", "copy=asynchronous")
        else:
            pair.kill("b")
            pair.start("b", follower="backup")
        wait(lambda: alone(pair, "a"), "b is no member")
        sent = send(client, "sent")
        end = extent(pair.data["a"]).end
        wait(lambda: extent(pair.data["b"]).end >= end, "b has everything")
        said = operator.run(*ACCEPT, "--yes", code=1)
        assert "the primary a runs, or was killed a moment ago" in said
        pair.kill("a")
        wait(lambda: shows(operator, "b"), "b says how far its copy reaches")
        operator.run(*ACCEPT, "--yes")
        assert pulled(client, COUNT) == sent
        assert alone(pair, "b")
        if kind == "backup":  # whoever follows it is a member
            pair.start("a")
            pair.wait_until_whole()


@pytest.mark.timeout(240)
def test_an_old_folder_of_the_primary_leads_if_its_loss_is_accepted(pair: Brokers) -> None:
    operator, data = Operator(pair), pair.data["a"]
    with ternmq.sync.connect(pair.url, timeout=60) as client:
        client.admin.create_topic("t")
        client.admin.create_group("t", "g")
        pair.kill("b")
        wait(lambda: alone(pair, "a"), "a is the only member")
        kept = send(client, "kept")
        pair.kill("a")
        shutil.copytree(data, pair.folder / "old")
        pair.start("a")
        send(client, "lost")
        pair.kill("a")
        shutil.rmtree(data)
        (pair.folder / "old").rename(data)
        assert pair.begin("a").wait() == 2
        assert "older than what was answered" in pair.log("a")
        wait(lambda: not operator.status()["brokers"], "a is not announced any more")
        command = operator.start("promote", "a", "--accept-loss", "--yes", "--wait", "60s")
        wait(lambda: operator.status()["order"] is not None, "it is ordered")
        pair.start("a")
        out, err = command.communicate(timeout=DEADLINE)
        assert command.returncode == 0, (out, err)
        assert pulled(client, COUNT) == kept
        pair.start("b")
        pair.wait_until_whole()
    at_rest(pair)
    assert not differences(pair.data["a"], pair.data["b"])
