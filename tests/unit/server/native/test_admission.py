"""Who may connect."""

from __future__ import annotations

import resource

import pytest

from ternmq.server.native.admission import LEAST, RESERVED, Admission
from ternmq.settings import Settings


class Peer:
    def __init__(self) -> None:
        self.turned_away = 0

    def turn_away(self) -> None:
        self.turned_away += 1


@pytest.fixture
def descriptors(monkeypatch):
    """Let the process have so many descriptors."""

    def limit(count: int) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (count, count))

    limit(resource.RLIM_INFINITY)
    return limit


def test_the_oldest_stranger_makes_room(descriptors):
    door = Admission(Settings(connections=3))
    peers = [Peer() for _ in range(5)]
    assert all(door.admit(peer, "a") for peer in peers[:3])
    assert door.introduced(peers[0], "shop")
    assert door.admit(peers[3], "a")
    assert [peer.turned_away for peer in peers] == [0, 1, 0, 0, 0]
    door.left(peers[1], "a")
    assert door.admit(peers[4], "a")
    assert [peer.turned_away for peer in peers] == [0, 1, 1, 0, 0]


def test_clients_do_not_make_room(descriptors):
    door = Admission(Settings(connections=1))
    client, late = Peer(), Peer()
    assert door.admit(client, "a")
    assert door.introduced(client, "shop")
    assert not door.admit(late, "a")
    door.left(client, "a")
    assert door.admit(late, "a")
    assert not client.turned_away


def test_one_address_has_its_own_limit(descriptors):
    door = Admission(Settings(connections_per_ip=1))
    first = Peer()
    assert door.admit(first, "a")
    assert not door.admit(Peer(), "a")
    assert door.admit(Peer(), "b")
    door.left(first, "a")
    assert door.admit(Peer(), "a")
    assert not first.turned_away


@pytest.mark.parametrize(("limit", "room"), [(RESERVED + 20, 20), (RESERVED, LEAST), (1, LEAST)])
def test_descriptors_are_kept_free(descriptors, limit, room):
    descriptors(limit)
    door = Admission(Settings())
    for number in range(room):
        peer = Peer()
        assert door.admit(peer, "a")
        assert door.introduced(peer, f"app{number}")
    assert not door.admit(Peer(), "a")
    descriptors(RESERVED + 100)  # it may change while the broker runs
    assert door.admit(Peer(), "a")


def test_a_machine_without_such_limits(monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    assert Admission(Settings()).admit(Peer(), "a")


def test_one_app_has_its_own_limit(descriptors):
    door = Admission(Settings(connections_per_app=1))
    first, second, third = Peer(), Peer(), Peer()
    assert all(door.admit(peer, "a") for peer in (first, second, third))
    assert door.introduced(first, "evil")
    assert not door.introduced(second, "evil")
    assert door.introduced(third, "good")
    assert door.apps.refused == 1
    door.left(second, "a")
    assert door.admit(second, "a")
    assert not door.introduced(second, "evil"), "who was refused was not counted"
    door.left(first, "a")
    assert door.introduced(second, "evil")


def test_one_app_does_not_take_the_last_places(descriptors):
    descriptors(RESERVED + 80)
    door = Admission(Settings())
    taken = 0
    for _ in range(80):
        peer = Peer()
        assert door.admit(peer, "a")
        if not door.introduced(peer, "evil"):
            door.left(peer, "a")
            break
        taken += 1
    assert taken == 70, "an eighth is left"
    for number in range(10):
        peer = Peer()
        assert door.admit(peer, "b")
        assert door.introduced(peer, f"good{number}")
