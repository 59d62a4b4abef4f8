"""What is held, settled and given up: without a loop, with a clock that the test sets."""

from __future__ import annotations

import asyncio
import gc
import math
import random
from collections import Counter
from typing import cast

import pytest

from ternmq.client.consumer.core import Ended, SettleCore
from ternmq.client.consumer.lease import Lease, Settles, Span
from ternmq.client.consumer.settles import Ask
from ternmq.model.errors import (
    Busy,
    ClientClosed,
    ConnectionLost,
    Forbidden,
    InvalidRequest,
    LeaseExpired,
    ProtocolError,
    TernMQError,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies

SECONDS = 10.0
NOBODY = cast("asyncio.Future[None]", None)


class Client:
    """A core with a clock, a connection that can be lost, and the settles that went over it."""

    loop = None

    def __init__(self) -> None:
        self.core = SettleCore(self)
        self.now = 100.0
        self.connected = True
        self.closed = False
        self.ended: list[Ended] = []
        self._numbers = 0

    # -- what a lease needs

    def dirty(self, lease: Lease) -> None:
        lease.dirty = True
        self.core.recorded.append(lease)

    # -- what a settle needs

    def answered(self, ask: Ask, body: bytes) -> None:
        self.core.answered(ask, body)
        self._take()

    def wants_again(self, ask: Ask, error: TernMQError) -> None:
        self.core.refused(ask, error, self.now, closed=self.closed)
        self._take()

    # -- events

    def lease(self, *spans: Span) -> Lease:
        self._numbers += 1
        settler = cast("Settles", self)
        lease = Lease(settler, "t", "g", 0, 1, self._numbers, list(spans), 0, 0)
        lease.until = self.now + SECONDS
        self.core.began(lease)
        return lease

    def send(self) -> list[Ask]:
        asks = self.core.to_send(connected=self.connected, closed=self.closed)
        self._take()
        return asks

    def again(self) -> list[Ask]:
        asks = self.core.again(connected=self.connected, closed=self.closed)
        self._take()
        return asks

    def lose(self) -> None:
        self.connected = False
        self.core.lost()

    def connect(self, *, resumed: bool = True) -> list[Ask]:
        self.connected = True
        self.core.opened(resumed=resumed)
        return self.again()

    def wait(self, seconds: float) -> list[Ask]:
        """Let time pass; return what is sent again meanwhile."""
        until, sent = self.now + seconds, []
        while (due := self.core.next_due()) <= until:
            self.now = max(self.now, due)
            self.core.rested(self.now)
            sent += self.again()
        self.now = until
        return sent

    def _take(self) -> None:
        self.ended += self.core.outcomes
        self.core.outcomes.clear()


def settled(ask: Ask, *refused: Span) -> None:
    """Answer a settle, as a broker that settled all rows but these."""
    ask.answered(bodies.pack_settled(0, refused))


def said(ask: Ask) -> tuple[int, list[Span]]:
    """Return outcome and rows of a settle, as the broker reads them."""
    body = bodies.unpack_settle(ask.body)
    return body.outcome, list(body.spans)


def test_acks_of_one_turn_are_one_settle_with_spans() -> None:
    client = Client()
    lease = client.lease((0, 10))
    for row in (3, 1, 2, 7):
        lease.ack(row)
    (ask,) = client.send()
    assert said(ask) == (Outcome.DONE, [(1, 4), (7, 8)])
    settled(ask)
    assert client.ended == [], "nobody waits for it"
    assert client.core.held() == [lease]
    assert not client.core.unfinished


def test_a_settle_of_a_whole_lease_names_no_rows_and_ends_it() -> None:
    client = Client()
    lease = client.lease((0, 3), (5, 6))
    lease.settle_spans(lease.spans, Outcome.DEAD)
    (ask,) = client.send()
    assert said(ask) == (Outcome.DEAD, [])
    assert client.core.held() == []


def test_rows_that_come_again_are_reported_last() -> None:
    client = Client()
    lease = client.lease((0, 4))
    lease.settle(0, 1, Outcome.RETRY)
    lease.settle(1, 2, Outcome.RELEASED)
    lease.settle(2, 3, Outcome.DEAD)
    lease.ack(3)
    assert [said(ask)[0] for ask in client.send()] == [
        Outcome.DEAD, Outcome.DONE, Outcome.RETRY, Outcome.RELEASED,
    ]  # fmt: skip


def test_a_lease_that_nobody_references_is_held_no_longer() -> None:
    client = Client()
    lease = client.lease((0, 1))
    assert client.core.held() == [lease]
    del lease
    gc.collect()
    assert client.core.held() == []


def test_a_lease_lives_on_while_its_settle_is_unfinished() -> None:
    client = Client()
    lease = client.lease((0, 1))
    key = (lease.epoch, lease.number)
    lease.ack(0)
    assert client.core.kept() == [key], "recorded"
    (ask,) = client.send()
    del lease
    client.lose()
    assert client.core.kept() == [key], "under way"
    assert client.connect() == [ask]
    settled(ask)
    assert client.core.kept() == []


def test_without_a_connection_settles_wait_for_one() -> None:
    client = Client()
    lease = client.lease((0, 2))
    client.lose()
    lease.ack(0)
    assert client.send() == []
    (ask,) = client.connect()
    assert not ask.uncertain
    settled(ask)


def test_a_settle_refused_for_now_is_sent_again_until_its_lease_ends() -> None:
    client = Client()
    lease = client.lease((0, 1))
    lease.ack(0)
    (ask,) = client.send()
    body, times = ask.body, 0
    while not client.ended:
        ask.refused(Busy("full"))
        for again in client.wait(0.3):
            assert (again, again.body) == (ask, body)
            times += 1
    assert isinstance(client.ended[0].error, LeaseExpired)
    assert client.now > lease.until
    assert times > SECONDS


def test_a_refusal_after_a_lost_answer_is_not_known() -> None:
    client = Client()
    lease = client.lease((0, 1))
    lease.ack(0)
    client.send()
    client.lose()
    (ask,) = client.connect()
    ask.refused(LeaseExpired("over"))
    assert isinstance(client.ended[0].error, ConnectionLost)
    assert lease.gone == {}, "it may be settled"


def test_an_answer_that_cannot_be_read_is_not_known() -> None:
    client = Client()
    lease = client.lease((0, 1))
    lease.ack(0)
    (ask,) = client.send()
    with pytest.raises(ProtocolError):
        ask.answered(b"?")
    client.lose()
    assert client.connect() == [ask]
    assert ask.uncertain


def test_a_delay_that_cannot_be_encoded_holds_no_other_up() -> None:
    client = Client()
    lease = client.lease((0, 2))
    lease.settle(0, 1, Outcome.DEAD, 1 << 64)
    lease.ack(1)
    (ask,) = client.send()
    assert said(ask)[1] == [(1, 2)]
    assert isinstance(client.ended[0].error, InvalidRequest)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_each_row_has_one_true_outcome(  # noqa: C901, PLR0912 - events
    seed: int,
) -> None:
    """Random settles, answers, refusals, losses and pauses, against a record of what is known."""
    rng = random.Random(seed)
    client = Client()
    leases: list[Lease] = []
    rows: dict[tuple[Lease, int], int] = {}  # what was recorded of each row
    bodies_of: dict[Ask, bytes] = {}
    due: list[Ask] = []  # sent over this connection, without an answer
    unsure: set[Ask] = set()  # an answer to it was lost
    answers: dict[Ask, list[Span]] = {}  # refused rows
    events = ("lease", "ack", "ack", "settle", "send", "send", "answer", "answer", "no", "lose",
              "lose", "wait", "anew")  # fmt: skip
    for _ in range(300):
        before = len(client.ended)
        refusal: TernMQError | None = None
        refused: Ask | None = None
        again: list[Ask] = []
        anew = False
        open_ = [lease for lease in leases if lease.left]
        match rng.choice(events):
            case "lease":
                first = len(leases) * 10
                leases.append(client.lease((first, first + rng.randint(1, 5))))
            case "ack" if open_:
                lease = rng.choice(open_)
                row = next(one for one in range(*lease.spans[0]) if one not in lease.settled)
                lease.waiters.append((row, row + 1, NOBODY))
                lease.ack(row)
                rows[lease, row] = Outcome.DONE
            case "settle" if open_:
                lease = rng.choice(open_)
                row = max(one for one in range(*lease.spans[0]) if one not in lease.settled)
                outcome = rng.choice([Outcome.RETRY, Outcome.DEAD, Outcome.RELEASED])
                lease.waiters.append((row, row + 1, NOBODY))
                lease.settle(row, row + 1, outcome)
                rows[lease, row] = outcome
            case "send":
                again = client.send()
            case "answer" if due:
                ask = due.pop(rng.randrange(len(due)))
                answers[ask] = rng.choice([[], ask.spans[:1]])
                settled(ask, *answers[ask])
            case "no" if due:
                refused = due.pop(rng.randrange(len(due)))
                refusal = rng.choice([Busy("full"), Forbidden("no"), LeaseExpired("over")])
                refused.refused(refusal)
            case "lose" if client.connected:
                unsure.update(due)
                due.clear()
                client.lose()
                assert not any(ask.asked for ask in bodies_of)
            case "lose":
                waiting = list(client.core._asks)
                again = client.connect()
                assert again == waiting, "all of them, in their order"
            case "anew" if not client.connected:  # another session
                anew = True
                assert client.connect(resumed=False) == []
                assert not client.core.unfinished
            case "wait":
                again = client.wait(rng.choice([0.01, 0.1, 1.0, 5.0]))
            case _:
                pass
        for ask in again:
            assert client.connected
            assert bodies_of.setdefault(ask, ask.body) == ask.body, "sent again with other bytes"
            assert ask not in due, "sent twice over one connection"
            due.append(ask)
        for ask, not_held, error in client.ended[before:]:
            gone = {row for span in ask.spans for row in range(*span)} & set(ask.lease.gone)
            if error is None:
                assert not_held == tuple(answers[ask]) or list(not_held) == answers[ask]
                lost = {row for span in not_held for row in range(*span)}
                assert gone == (set() if ask in unsure else lost)
            elif ask in unsure:
                assert isinstance(error, ConnectionLost), "it may be settled"
                assert not gone
            elif anew:
                assert isinstance(error, LeaseExpired)
            elif ask is refused and not isinstance(refusal, Busy):
                assert error is refusal
            else:
                assert ask is refused
                assert isinstance(error, LeaseExpired)
                assert client.now > ask.lease.until
    client.send()
    unsure.update(due)
    ending = len(client.ended)
    client.core.end()
    client._take()
    for ask, _, error in client.ended[ending:]:
        assert isinstance(error, ConnectionLost if ask in unsure or ask.asked else ClientClosed)
    found = Counter[tuple[Lease, int]]()
    for ask, _, _ in client.ended:
        for span in ask.spans:
            for row in range(*span):
                assert ask.verdict[0] == rows[ask.lease, row]
                found[ask.lease, row] += 1
    assert found == Counter(dict.fromkeys(rows, 1))
    assert not client.core.unfinished
    assert set(client.core.held()) == {lease for lease in leases if lease.left}


def waited(client: Client, lease: Lease, *rows: int) -> None:
    """Ack rows, each with a caller that waits."""
    for row in rows:
        lease.ack(row)
        lease.waiters.append((row, row + 1, NOBODY))


def test_a_connection_whose_loss_was_not_reported_took_what_was_under_way() -> None:
    client = Client()
    lease = client.lease((0, 2))
    waited(client, lease, 0)
    (ask,) = client.send()
    (again,) = client.connect()
    assert again is ask
    assert ask.uncertain
    waited(client, lease, 1)
    (other,) = client.send()
    client.connect(resumed=False)
    client._take()
    assert [type(one.error) for one in client.ended] == [ConnectionLost, ConnectionLost]
    assert {id(one.ask) for one in client.ended} == {id(ask), id(other)}
    assert not client.core.unfinished


def test_nothing_is_sent_by_a_client_that_is_closed() -> None:
    client = Client()
    lease = client.lease((0, 4))
    waited(client, lease, 0)
    client.closed = True
    assert client.send() == []
    assert [type(one.error) for one in client.ended] == [ClientClosed]
    assert lease.gone
    client.closed = False
    lease = client.lease((0, 4))
    waited(client, lease, 0)
    (ask,) = client.send()
    client.closed = True
    client.wants_again(ask, Busy("later"))
    assert [type(one.error) for one in client.ended[1:]] == [LeaseExpired]
    assert client.wait(SECONDS) == []


def test_what_rested_when_the_client_closed_is_sent_no_more() -> None:
    client = Client()
    lease = client.lease((0, 4))
    waited(client, lease, 0)
    (ask,) = client.send()
    client.wants_again(ask, Busy("later"))
    client.core.end()
    client._take()
    assert [type(one.error) for one in client.ended] == [ClientClosed]
    assert client.core.next_due() == math.inf


def test_all_are_given_up_when_no_connection_will_come() -> None:
    client = Client()
    lease, other = client.lease((0, 4)), client.lease((0, 4))
    waited(client, lease, 0)
    (under_way,) = client.send()
    client.lose()
    waited(client, other, 1)
    assert client.send() == []
    client.core.give_up_all(Forbidden("no"))
    client._take()
    by_ask = {id(one.ask): one.error for one in client.ended}
    assert isinstance(by_ask.pop(id(under_way)), ConnectionLost), "it may have counted"
    assert [type(one) for one in by_ask.values()] == [Forbidden]
    assert not client.core.unfinished


def test_a_caller_waits_for_the_settle_of_its_rows_alone() -> None:
    client = Client()
    lease = client.lease((0, 4))
    lease.ack(0)
    lease.settle_spans([(2, 3)], Outcome.DEAD)
    lease.waiters += [(0, 1, NOBODY), (2, 3, NOBODY)]
    waiting = {said(ask)[0]: [one[0] for one in ask.waiters] for ask in client.send()}
    assert waiting == {Outcome.DONE: [0], Outcome.DEAD: [2]}


@pytest.mark.parametrize(
    "error", [UnknownGroup("gone"), UnknownTopic("gone"), LeaseExpired("over")]
)
def test_rows_whose_group_is_gone_are_lost(error: TernMQError) -> None:
    client = Client()
    lease = client.lease((0, 4))
    waited(client, lease, 0)
    (ask,) = client.send()
    client.wants_again(ask, error)
    assert [one.error for one in client.ended] == [error]
    assert lease.gone == {0: ""}


def test_a_settle_has_so_many_spans_at_most() -> None:
    client = Client()
    lease = client.lease((0, 10_000))
    for row in range(0, 10_000, 2):
        lease.ack(row)
    spans = [said(ask)[1] for ask in client.send()]
    assert [len(one) for one in spans] == [4096, 904]
    assert [one for some in spans for one in some] == [(n, n + 1) for n in range(0, 10_000, 2)]
