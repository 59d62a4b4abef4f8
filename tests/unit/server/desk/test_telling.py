"""Pushes to everybody: some connections a turn, in order, and each app is judged once a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from ternmq.server.desk.desk import Desk
from ternmq.server.desk.telling import A_TURN, Telling
from ternmq.wire.commands import Command

CHANGED = Command.TOPIC_CHANGED


class FakePeer:
    def __init__(self, app: str, session: int = 1) -> None:
        self.app, self.session, self.closed = app, session, False
        self.told: list[bytes] = []

    def push(self, command: int, body: bytes) -> None:
        assert command == CHANGED
        self.told.append(body)


class FakeDesk:
    """As far as it is asked: peers, and a loop whose turns are made by hand."""

    def __init__(self, peers: list[FakePeer]) -> None:
        self.callers = peers
        self.core = self.loop = self
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def turn(self) -> None:
        self.soon.pop(0)()


def test_so_many_a_turn_one_change_after_the_other() -> None:
    peers = [FakePeer(f"app-{n % 3}") for n in range(A_TURN * 2 + A_TURN // 2)]
    desk = FakeDesk(peers)
    telling = Telling(cast("Desk", desk))
    asked: list[str] = []

    def sees(app: str) -> bool:
        asked.append(app)
        return app != "app-2"

    telling.tell(CHANGED, b"one", sees)
    telling.tell(CHANGED, b"two", lambda app: True)
    assert sum(len(peer.told) for peer in peers) <= A_TURN
    turns = 0
    while desk.soon:
        before = sum(len(peer.told) for peer in peers)
        desk.turn()
        turns += 1
        assert sum(len(peer.told) for peer in peers) - before <= A_TURN
    assert 4 <= turns <= 6
    assert sorted(asked) == ["app-0", "app-1", "app-2"], "each app once"
    for peer in peers:
        assert peer.told == ([b"two"] if peer.app == "app-2" else [b"one", b"two"])
    desk.callers = []
    telling.tell(CHANGED, b"three", lambda app: True)
    assert not desk.soon, "nobody is there: nothing is left to do"


def test_who_left_or_said_no_hello_is_passed_over() -> None:
    here, stranger, gone = FakePeer("a"), FakePeer("", session=0), FakePeer("a")
    gone.closed = True
    telling = Telling(cast("Desk", FakeDesk([here, stranger, gone])))
    telling.tell(CHANGED, b"x", lambda app: True)
    assert [len(one.told) for one in (here, stranger, gone)] == [1, 0, 0]


def test_what_changes_more_quickly_than_it_is_told_waits_once_and_without_a_list_of_all() -> None:
    desk = FakeDesk([FakePeer("a") for _ in range(A_TURN * 3)])
    asked = 0

    class Counted(list[FakePeer]):
        def __iter__(self) -> Iterator[FakePeer]:
            nonlocal asked
            asked += 1
            return super().__iter__()

    desk.callers = peers = Counted(desk.callers)
    telling = Telling(cast("Desk", desk))
    for number in range(300):
        telling.tell(CHANGED, b"first" if not number else b"%d" % (number % 3), lambda app: True)
    while desk.soon:
        desk.turn()
    assert asked == 2, "all that came during the first round went round together"
    last = [b"first", b"0", b"1", b"2"]  # as they were told last: 297, 298, 299
    assert [peer.told for peer in list.__iter__(peers)] == [last] * len(peers)
