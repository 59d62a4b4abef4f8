"""What is under way, sent again and given up: without a loop, with a clock that the test sets."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import cast

import pytest

from ternmq.client.connection.address import parse
from ternmq.client.connection.options import Options
from ternmq.client.content.delays import Due
from ternmq.client.producer.core import SendCore
from ternmq.client.producer.lanes import TopicFacts
from ternmq.client.producer.load import Load
from ternmq.client.producer.many import Many
from ternmq.client.producer.outgoing import Outgoing
from ternmq.client.producer.singles import Singles
from ternmq.model.errors import (
    BufferFull,
    Busy,
    CannotConnect,
    ClientClosed,
    EncodeError,
    InvalidBatch,
    ProtocolError,
    SendTimeout,
    TernMQError,
)
from ternmq.record.batch.batch import Batch
from ternmq.wire import bodies

TIMEOUT = 10.0


class Client:
    """A core with a clock, a connection that can be lost, and the batches that went over it."""

    def __init__(self, *, ordered: bool = False, queues: int = 1) -> None:
        self.core = SendCore(Options(address=parse("ternmq://localhost"), batch_rows=2), self)
        self.core.id = 7
        self.now = 100.0
        self.connected = True
        self.sent: list[tuple[Load, bytes]] = []
        self.ended: list[tuple[Load, TernMQError | None]] = []
        self.topic = self.core.placing.topic("t")
        self.core.learned(self.topic, TopicFacts(ordered, queues))
        self.offset = 0

    def answered(self, load: Load, body: bytes) -> None:
        self.core.answered(load, body, self.now)
        self._take()

    def wants_again(self, load: Load, error: TernMQError) -> None:
        self.core.refused(load, error, self.now)
        self._take()

    def put(
        self, body: bytes, key: str = "", timeout: float = TIMEOUT, *, due: Due | None = None
    ) -> None:
        message = Outgoing(body, "", key, "", {}, "", "", None)
        message.due = due
        lane = self.topic.lane_of(message)
        self.core.put(lane, message, timeout, self.now)

    def send(self) -> list[Load]:
        """Send what may be sent; return it."""
        if not self.connected:
            self.core.hold()
            return []
        loads = self.core.to_send(self.now, int(self.now * 1e6), writable=True)
        self.sent += [(load, load.frame) for load in loads]
        self._take()
        return loads

    def store(self, load: Load) -> None:
        """Answer a load, as a broker that stored it."""
        receipt = bodies.Receipt(self.offset, 1, 0, load.count, False, False, ())
        self.offset += load.count
        load.answered(bodies.pack_receipt(receipt))

    def lose(self) -> None:
        self.connected = False
        self.core.lost()

    def connect(self) -> None:
        self.connected = True
        self.core.opened()

    def wait(self, seconds: float) -> None:
        """Let time pass, with a look at each deadline."""
        until = self.now + seconds
        while self.core.next_deadline() <= until:
            self.now = max(self.now, self.core.next_deadline())
            self.core.over(self.now, connected=self.connected)
            self._take()
        self.now = until

    def _take(self) -> None:
        self.ended += [(one.load, one.error) for one in self.core.outcomes]
        self.core.outcomes.clear()


def test_messages_of_one_turn_are_one_batch() -> None:
    client = Client()
    client.put(b"1")
    client.put(b"2")
    assert client.core.pending
    (load,) = client.send()
    assert (load.count, load.first_sequence, client.core.pending) == (2, 1, False)
    client.store(load)
    assert client.ended == [(load, None)]
    assert (client.core.open_loads, client.core.taken_bytes, client.core.stored_count) == (0, 0, 2)


def test_a_topic_that_is_not_known_is_requested_once() -> None:
    client = Client()
    client.topic.facts = None
    client.put(b"1")
    assert client.send() == []
    client.put(b"2")
    assert client.send() == []
    assert client.core.unknown == [client.topic]
    client.core.learned(client.topic, TopicFacts())
    assert [load.count for load in client.send()] == [2]


def test_a_message_does_not_overtake_one_of_send_many_when_the_queues_change() -> None:
    client = Client()
    many = Many([b"2"], [b"2"], cast("asyncio.Future[None]", None))
    client.put(b"1")
    (part,) = client.core.placing.parts(client.topic, many, range(1), TIMEOUT).good
    client.core.take(part, client.now)
    client.put(b"3")
    client.core.learned(client.topic, TopicFacts(queues=2))
    sent = [Batch(bodies.unpack_send(load.frame).batch).bodies() for load in client.send()]
    assert sent == [[b"1"], [b"2"], [b"3"]]


def batches(loads: list[Load]) -> list[tuple[list[bytes], list[int]]]:
    """Return bodies and due times of the batches of loads."""
    found = [Batch(bodies.unpack_send(load.frame).batch) for load in loads]
    return [(one.bodies(), list(one.due_times_us())) for one in found]


def test_messages_with_and_without_due_times_are_in_different_batches() -> None:
    client = Client()
    client.put(b"1")
    client.put(b"2", due=Due(9))
    client.put(b"3")
    client.put(b"4", due=Due(5))
    assert batches(client.send()) == [([b"1", b"3"], [0, 0]), ([b"2", b"4"], [9, 5])]


def test_they_are_placed_apart_when_the_topic_becomes_known() -> None:
    client = Client()
    client.topic = client.core.placing.topic("other")
    for number in range(4):
        client.put(b"%d" % number, due=Due(7) if number % 2 else None)
    assert client.send() == []
    client.core.learned(client.topic, TopicFacts())
    assert batches(client.send()) == [([b"0", b"2"], [0, 0]), ([b"1", b"3"], [7, 7])]


def test_due_messages_of_a_key_wait_for_one_another_and_not_for_others() -> None:
    client = Client(ordered=True, queues=2)
    for number in range(6):
        client.put(b"%d" % number, "k", due=Due(7) if number % 2 else None)
    first = client.send()
    assert batches(first) == [([b"0", b"2"], [0, 0]), ([b"1", b"3"], [7, 7])]
    assert client.send() == []
    client.store(first[1])
    assert batches(client.send()) == [([b"5"], [7])]


def test_a_load_without_a_known_clock_is_given_up() -> None:
    client = Client()
    client.put(b"1", due=Due(0, 5, 1))
    client.put(b"2")
    assert batches(client.send()) == [([b"2"], [0])]
    assert [type(error) for _, error in client.ended] == [EncodeError]


def test_a_due_load_is_sent_again_with_the_same_bytes() -> None:
    client = Client()
    client.core._broker_time.told(1_000_000, 0)
    client.put(b"1", due=Due(0, 5, 1))
    (load,) = client.send()
    assert batches([load]) == [([b"1"], [1_000_006])]
    client.lose()
    client.core._broker_time.told(9_000_000, 0)
    client.connect()
    (again,) = client.core.again()
    assert (again, batches([again])) == (load, [([b"1"], [1_000_006])])


def test_a_lost_connection_sends_the_same_bytes_again_in_order() -> None:
    client = Client()
    for number in range(3):
        client.put(b"%d" % number)
        client.send()
    first = list(client.sent)
    for _ in range(3):
        client.lose()
        client.put(b"meanwhile", timeout=1.0)
        assert client.send() == []
        client.wait(2.0)
        client.connect()
        client.sent.clear()
        client.send()
        assert client.sent[:3] == first
    assert {type(error) for _, error in client.ended} == {CannotConnect}
    assert client.core.resent_count == 9


def test_what_is_not_answered_in_time_is_not_known() -> None:
    client = Client()
    client.put(b"1")
    (load,) = client.send()
    client.wait(TIMEOUT)
    ((ended, error),) = client.ended
    assert ended is load
    assert isinstance(error, SendTimeout)
    assert client.core.window.taken_bytes == load.size_bytes, "its answer is still due"
    client.store(load)
    assert client.core.window.taken_bytes == 0
    assert len(client.ended) == 1


def test_what_was_given_up_counts_no_longer_when_its_connection_is_lost() -> None:
    client = Client()
    client.put(b"1")
    client.send()
    client.wait(TIMEOUT)
    client.lose()
    assert client.core.window.taken_bytes == 0
    client.connect()
    assert client.send() == []


def test_what_waits_behind_another_was_not_sent() -> None:
    client = Client(ordered=True)
    client.put(b"1", "k")
    client.send()
    client.wait(1.0)
    client.put(b"2", "k", timeout=2.0)
    assert client.send() == []
    client.wait(2.0)
    ((_, error),) = client.ended
    assert isinstance(error, BufferFull)


@pytest.mark.parametrize("behind", [True, False])
def test_only_behind_others_a_timeout_that_is_too_short_is_told_so(behind: bool) -> None:
    client = Client(queues=2)
    if behind:
        client.put(b"1")
        client.send()
    client.core.hold()
    client.put(b"2", timeout=1e-6)
    client.now += 1
    client.core.over(client.now, connected=True)
    client._take()
    ((_, error),) = client.ended
    assert isinstance(error, BufferFull)
    assert ("earlier requests are not answered" in str(error)) is behind
    assert "the timeout of 1 us " in str(error)


def test_what_is_refused_for_now_is_sent_again_after_a_pause_and_then_given_up() -> None:
    client = Client()
    client.put(b"1", timeout=1.0)
    (load,) = client.send()
    frame, busy = load.frame, Busy("full")
    load.refused(busy)
    assert client.send() == []
    times = 0
    while not client.ended:
        client.wait(0.05)
        for again in client.send():
            assert (again, again.frame) == (load, frame)
            times += 1
            again.refused(busy)
    assert client.ended == [(load, busy)]
    assert times == 4  # after 0.05, 0.1, 0.2 and 0.4 s; the next pause would end too late


def test_a_refusal_after_a_lost_answer_is_not_known() -> None:
    client = Client()
    client.put(b"1")
    client.send()
    client.lose()
    client.connect()
    (load,) = client.send()
    load.refused(InvalidBatch("no"))
    ((_, error),) = client.ended
    assert isinstance(error, SendTimeout)


def test_an_answer_that_cannot_be_read_is_not_known() -> None:
    client = Client()
    client.put(b"1")
    (load,) = client.send()
    with pytest.raises(ProtocolError):
        load.answered(b"short")
    assert client.ended == []
    client.lose()
    client.connect()
    assert client.send() == [load]
    load.refused(InvalidBatch("no"))
    assert isinstance(client.ended[0][1], SendTimeout)


def test_at_the_end_what_was_not_sent_is_told_from_what_is_not_known() -> None:
    client = Client(ordered=True)
    client.put(b"1", "k")
    client.send()
    client.put(b"2", "k")
    client.send()
    client.core.end()
    client._take()
    assert [type(error) for _, error in client.ended] == [SendTimeout, ClientClosed]
    assert client.core.next_deadline() == float("inf")


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_message_has_one_true_outcome(  # noqa: C901, PLR0912 - one per event
    seed: int, ordered: bool
) -> None:
    """Random sends, answers, refusals, losses and pauses, against a record of what is known."""
    rng = random.Random(seed)
    client = Client(ordered=ordered, queues=rng.choice([1, 3]))
    frames: dict[Load, bytes] = {}
    due: list[Load] = []  # sent over this connection, without an answer
    unsure: set[Load] = set()  # an answer to it was lost
    stored: set[Load] = set()
    put = 0
    for _ in range(300):
        before = len(client.ended)
        refusal: TernMQError | None = None
        refused: Load | None = None
        match rng.choice(("put", "put", "send", "send", "answer", "answer", "no", "lose", "wait")):
            case "put":
                key = rng.choice("abc") if ordered else ""
                client.put(b"%d" % put, key, rng.choice([0.5, 3.0]))
                put += 1
            case "answer" if due:
                load = due.pop(rng.randrange(len(due)))
                if not load.over:
                    stored.add(load)
                client.store(load)
            case "no" if due:
                refused = due.pop(rng.randrange(len(due)))
                refusal = rng.choice([Busy("full"), InvalidBatch("no")])
                refused.refused(refusal)
            case "lose":
                if client.connected:
                    unsure.update(due)
                    due.clear()
                    client.lose()
                    for load in frames:
                        assert not load.asked
                else:
                    waiting = [one for one in client.core.loads() if one.uncertain]
                    expected = [one for one in waiting if not one.resting]
                    client.connect()
                    again = client.send()
                    # In order, before anything else; one that rests is sent after its pause.
                    assert [one for one in again if one.uncertain][: len(expected)] == expected
                    due += again
            case "wait":
                client.wait(rng.choice([0.01, 0.1, 1.0]))
            case "send":
                due += client.send()
            case _:
                pass
        for load, frame in client.sent:
            assert frames.setdefault(load, frame) == frame, "sent again with other bytes"
        client.sent.clear()
        for load, error in client.ended[before:]:
            if error is None:
                assert load in stored
            elif load in unsure or (load in due and load in frames):
                assert isinstance(error, SendTimeout), "it may be stored"
            elif load is refused:
                assert error is refusal
            elif load in frames:
                assert isinstance(error, Busy), "each try was refused"
            else:
                assert isinstance(error, BufferFull | CannotConnect), "nothing of it was sent"
    client.core.end()
    client._take()
    assert sum(load.count for load, _ in client.ended) == put
    assert set(Counter(load for load, _ in client.ended).values()) == {1}
    assert (client.core.open_loads, client.core.taken_bytes) == (0, 0)
    assert client.core.stored_count + client.core.failed_count == put


def test_no_message_joins_a_load_that_is_over() -> None:
    client = Client()
    client.put(b"1")
    client.core.give_up_all(CannotConnect("refused for good"))
    client.put(b"2")
    client.core.give_up_all(CannotConnect("refused for good"))
    client._take()
    assert [type(error) for _, error in client.ended] == [CannotConnect, CannotConnect]
    assert (client.core.open_loads, client.core.taken_bytes) == (0, 0)


def test_a_load_under_way_is_unknown_when_no_connection_will_come() -> None:
    client = Client()
    client.put(b"1")
    client.send()
    client.core.give_up_all(CannotConnect("refused for good"))  # nobody told of the loss
    client._take()
    ((_, error),) = client.ended
    assert isinstance(error, SendTimeout)
    assert "is not known: refused for good" in str(error)


def test_a_load_that_cannot_be_encoded_holds_no_other_up(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    encode, calls = Singles.encode, []

    def fail_first(load: Singles, producer: int) -> bytes:
        calls.append(load)
        if len(calls) == 1:
            raise MemoryError("too large")
        return encode(load, producer)

    monkeypatch.setattr(Singles, "encode", fail_first)
    client.put(b"1", timeout=1.0)
    client.put(b"2", timeout=9.0)
    sent = client.send()
    assert [type(error) for _, error in client.ended] == [EncodeError]
    assert [load.count for load in sent] == [1]


def test_what_is_refused_for_now_is_not_looked_through_before_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    client.put(b"1")
    (load,) = client.send()
    client.wants_again(load, Busy("for now"))
    monkeypatch.setattr(client.core, "loads", lambda: pytest.fail("walked all loads"))
    client.wait(client.core.next_deadline() - client.now)
    monkeypatch.undo()
    assert client.send() == [load]
