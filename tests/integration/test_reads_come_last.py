"""Reads that are asked for in one breath with other things: the others do not wait for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ternmq.record.batch.batch import Row
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.integration.raw import Closed, RawClient

READS = 60
BODY = bytes(200_000)
MINUTE_MS = 60_000


@pytest.fixture
def one() -> Iterator[InProcessBroker]:
    with broker(settings={"stall_timeout": "1s"}) as started:
        yield started


@pytest.fixture
def client(one: InProcessBroker) -> Iterator[RawClient]:
    with RawClient(one.port) as connected:
        for _ in range(2):
            connected.call(Command.SEND, a_send(connected, BODY)[1])
        yield connected


def a_send(client: RawClient, body: bytes) -> tuple[Command, bytes]:
    return Command.SEND, bodies.pack_send("t", 0, client.batch("t", [Row(body)]))


def a_read(offset: int = 0, wait_ms: int = 0) -> tuple[Command, bytes]:
    return Command.READ, bodies.pack_read(bodies.Read("t", 0, offset, 100, 1 << 20, wait_ms))


def in_one_breath(client: RawClient, *asked: tuple[Command, bytes]) -> list[int]:
    """Ask several things in one write; return their ids."""
    some = [client.session.ask(command, body) for command, body in asked]
    client.socket.sendall(b"".join([frame for _, frame in some]))
    return [id_ for id_, _ in some]


def test_a_send_behind_many_reads_is_answered_before_most_of_them(client: RawClient) -> None:
    *reads, sent = in_one_breath(client, *[a_read()] * READS, a_send(client, b"live"))
    client.wait(sent)
    before = sum(id_ in client.answers for id_ in reads)
    assert before < READS // 2, "the send waited for the reads"
    for id_ in reads:
        rows = bodies.unpack_rows(client.wait(id_))
        assert rows.start == 0
        assert rows.stop in (2, 3)
        assert len(rows.records) > 2 * len(BODY)


def test_a_read_that_has_not_begun_can_be_cancelled(client: RawClient) -> None:
    waiting, frame = client.session.ask(*a_read(2, MINUTE_MS))
    cancel, other = client.session.ask(Command.CANCEL, waiting.to_bytes(8, "little"))
    client.socket.sendall(frame + other)
    client.wait(cancel)
    assert bodies.unpack_rows(client.wait(waiting)).stop == 2


def test_reads_that_have_not_begun_end_with_the_session(client: RawClient) -> None:
    *reads, bye = in_one_breath(client, *[a_read(2, MINUTE_MS)] * 3, (Command.BYE, b""))
    client.wait(bye)
    assert [bodies.unpack_rows(client.wait(id_)).stop for id_ in reads] == [2, 2, 2]


async def test_who_goes_away_leaves_nothing_behind(one: InProcessBroker, client: RawClient) -> None:
    in_one_breath(client, *[a_read()] * READS)
    client.close()
    with RawClient(one.port) as other:
        assert other.read("t", 1).start == 1
        hub = one._server.hub
        await until(lambda: hub.counters.connections == 1, "the broker noticed")
        await until(lambda: hub.accounts.pending.held == 0)
        await until(lambda: hub.accounts.unwritten.held == 0, "cooled down", 30)


def test_a_stop_answers_reads_that_have_not_begun(one: InProcessBroker, client: RawClient) -> None:
    reads = in_one_breath(client, *[a_read(2, MINUTE_MS)] * 3)
    client.call(Command.PING)
    one.stop()
    assert [bodies.unpack_rows(client.wait(id_)).stop for id_ in reads] == [2, 2, 2]
    one.start()


def test_an_id_twice_at_a_time_harms_nobody_else(one: InProcessBroker, client: RawClient) -> None:
    _, frame = client.session.ask(*a_read())
    client.socket.sendall(frame * 3)
    with RawClient(one.port) as other:
        assert other.read("t", 1).start == 1
    client.socket.settimeout(20)
    taken = 0
    while taken < 3 * 2 * len(BODY):  # each is answered
        taken += len(client.socket.recv(1 << 20))


def test_a_read_that_breaks_ends_its_connection_and_no_other(
    one: InProcessBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    with RawClient(one.port) as other, monkeypatch.context() as patched:
        patched.setattr(one._server.hub.commands, "read", breaks)
        with pytest.raises((Closed, OSError)):
            client.read("t", 0)
        patched.undo()
        assert other.read("t", 1).start == 1


def test_while_others_ask_for_little_a_read_is_answered_in_pieces(one: InProcessBroker) -> None:
    def all_of(client: RawClient, topic: str) -> list[tuple[int, int]]:
        """Read a topic whole; return how many rows and bytes each answer had."""
        answers: list[tuple[int, int]] = []
        offset = 0
        while (rows := client.read(topic, offset, most=10_000)).stop > rows.start:
            assert rows.start == offset
            answers.append((rows.stop - rows.start, len(rows.records)))
            offset = rows.stop
        return answers

    with RawClient(one.port, app="large") as large:
        for _ in range(3):
            large.send("many", *["x"] * 1000)
            large.send("long", *["x" * 100_000] * 8)
        one.clock.advance(seconds=3)
        with RawClient(one.port, app="little") as little:
            little.call(Command.PING)
            large.call(Command.PING)  # both ask in the same second
            for topic, rows in (("many", 3000), ("long", 24)):
                answers = all_of(large, topic)
                assert sum(count for count, _ in answers) == rows
                assert len(answers) > 1
                assert all(count <= 1024 and size <= 1 << 20 for count, size in answers)
