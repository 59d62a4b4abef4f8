"""The server over a real socket: what each command does, sessions, waiting, stopping."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ternmq.model.errors import (
    Busy,
    Forbidden,
    GroupSettingsMismatch,
    InvalidFilter,
    InvalidRequest,
    LeaseExpired,
    MessageNotFound,
    MessageTooLarge,
    OffsetExpired,
    ProtocolError,
    TopicExists,
    Unauthenticated,
    UnknownCommand,
    UnknownGroup,
    UnknownSession,
    UnknownTopic,
)
from ternmq.model.specs import Start
from ternmq.record.batch.batch import Batch, Compression, Row
from ternmq.record.fact.facts import Outcome
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import Command
from tests.black_box.process import wait_until
from tests.integration.raw import Closed, RawClient, records, texts


@pytest.fixture
def one() -> Iterator[InProcessBroker]:
    with broker() as started:
        yield started


@pytest.fixture
def client(one: InProcessBroker) -> Iterator[RawClient]:
    with RawClient(one.port) as connected:
        yield connected


def until_closed(client: RawClient) -> None:
    """Take what comes until the broker has closed the connection."""
    try:
        for _ in range(1000):
            client.receive()
    except (Closed, OSError):
        return
    pytest.fail("the broker goes on and on")


# ------------------------------------------------------------------------------------ send and pull


def test_a_message_goes_in_and_out_and_is_done(client: RawClient) -> None:
    receipt = client.send("orders", "a", "b")
    assert (receipt.first_offset, receipt.queue, receipt.stored) == (0, 0, 2)
    assert client.join("orders", "billing").created
    assert not client.join("orders", "billing").created
    delivery = client.pull("orders", "billing")
    assert texts(delivery) == {0: "a", 1: "b"}
    assert [run.attempt for run in delivery.runs] == [1]
    assert client.settle("orders", "billing", delivery) == (2, ())
    assert client.pull("orders", "billing").lease == 0
    assert client.settle("orders", "billing", delivery) == (2, ()), "asked again, told again"
    with pytest.raises(LeaseExpired):
        client.settle("orders", "billing", delivery, spans=((0, 1),))


def test_the_same_bytes_again_get_the_first_receipt(client: RawClient) -> None:
    batch = client.batch("t", [Row(b"x")])
    body = bodies.pack_send("t", None, batch)
    first = bodies.unpack_receipt(client.call(Command.SEND, body))
    again = bodies.unpack_receipt(client.call(Command.SEND, body))
    assert not first.duplicate
    assert again == first._replace(duplicate=True)


def test_many_requests_are_in_flight_and_each_gets_its_own_answer(client: RawClient) -> None:
    ids = [
        client.ask(Command.SEND, bodies.pack_send("t", None, client.batch("t", [Row(b"%d" % n)])))
        for n in range(200)
    ]
    offsets = [bodies.unpack_receipt(client.wait(id_)).first_offset for id_ in reversed(ids)]
    assert offsets == list(reversed(range(200)))


def test_a_one_way_send_is_not_answered_but_stored(client: RawClient) -> None:
    frame = client.session.tell(
        Command.SEND, bodies.pack_send("t", None, client.batch("t", [Row(b"quiet")]))
    )
    client.socket.sendall(frame)
    client.socket.sendall(
        client.session.tell(Command.SEND, bodies.pack_send("t", None, b"nonsense"))
    )
    assert client.send("t", "loud").first_offset == 1
    assert not client.answers
    assert [record.first_offset for record in records(client.read("t", 0).records)] == [0, 1]


def test_rows_of_a_large_batch_that_others_hold_do_not_travel(client: RawClient) -> None:
    rows = [Row(b"%06d" % n * 100) for n in range(100)]
    client.call(Command.SEND, bodies.pack_send("t", None, client.batch("t", rows)))
    client.join("t", "g")
    first = client.pull("t", "g", 10)
    assert len(first.records) < 10_000
    assert texts(first) == {n: f"{n:06d}" * 100 for n in range(10)}
    rest = client.pull("t", "g", 1000)
    assert texts(rest) == {n: f"{n:06d}" * 100 for n in range(10, 100)}
    client.settle("t", "g", first, Outcome.RELEASED, ((2, 3), (5, 7)))
    again = client.pull("t", "g", 1000)
    assert list(texts(again)) == [2, 5, 6]
    assert {(run.attempt, run.deliveries) for run in again.runs} == {(1, 2)}


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_compressed_batches_travel_whole(client: RawClient, compression: Compression) -> None:
    rows = [Row(b"%06d" % n * 100) for n in range(100)]
    client.call(Command.SEND, bodies.pack_send("t", None, client.batch("t", rows, compression)))
    client.join("t", "g")
    part = client.pull("t", "g", 3)
    assert texts(part) == {n: f"{n:06d}" * 100 for n in range(3)}
    assert Batch(records(part.records)[0].batch).compression is compression


def test_a_pull_waits_and_a_message_wakes_it(one: InProcessBroker, client: RawClient) -> None:
    client.create("t")
    client.join("t", "g")
    waiting = client.ask_pull("t", "g", wait_ms=60_000)
    with RawClient(one.port) as other:
        other.send("t", "now")
    assert texts(bodies.unpack_delivery(client.wait(waiting))) == {0: "now"}


def test_a_wait_ends_empty_when_its_time_is_over(one: InProcessBroker, client: RawClient) -> None:
    client.create("t")
    client.join("t", "g")
    waiting = client.ask_pull("t", "g", wait_ms=5_000)
    client.call(Command.PING)  # answered: the pull before it is parked
    one.clock.advance(seconds=6)
    assert bodies.unpack_delivery(client.wait(waiting)).lease == 0


def test_a_waiting_pull_can_be_cancelled(client: RawClient) -> None:
    client.create("t")
    client.join("t", "g")
    waiting = client.ask_pull("t", "g", wait_ms=60_000)
    client.call(Command.CANCEL, waiting.to_bytes(8, "little"))
    assert bodies.unpack_delivery(client.wait(waiting)).lease == 0
    client.call(Command.CANCEL, waiting.to_bytes(8, "little"))  # nothing waits: no harm


def test_a_retry_comes_when_it_is_due(one: InProcessBroker, client: RawClient) -> None:
    client.send("t", "a")
    client.join("t", "g")
    delivery = client.pull("t", "g")
    client.settle("t", "g", delivery, Outcome.RETRY, delay_us=7_200_000_000, reason="later")
    assert client.pull("t", "g").lease == 0
    waiting = client.ask_pull("t", "g", wait_ms=300_000)
    client.call(Command.PING)
    one.clock.advance(minutes=4)
    one.clock.advance(hours=1, minutes=55)
    assert bodies.unpack_delivery(client.wait(waiting)).lease == 0
    waiting = client.ask_pull("t", "g", wait_ms=300_000)
    client.call(Command.PING)
    one.clock.advance(minutes=2)
    again = bodies.unpack_delivery(client.wait(waiting))
    assert [run.attempt for run in again.runs] == [2]


def test_an_extended_lease_lasts(one: InProcessBroker, client: RawClient) -> None:
    client.send("t", "a")
    client.join("t", "g")
    held = client.pull("t", "g")
    asked = bodies.Extend("t", "g", held.queue, held.epoch, held.lease, 120_000_000)
    until, now = bodies.unpack_extended(client.call(Command.EXTEND, bodies.pack_extend(asked)))
    assert until - now == 120_000_000
    one.clock.advance(seconds=100)
    assert client.settle("t", "g", held).rows == 1


def test_reading_without_a_group_and_waiting_for_more(
    one: InProcessBroker, client: RawClient
) -> None:
    client.send("t", "a", "b")
    rows = client.read("t", 1)
    assert (rows.start, rows.stop, rows.first, rows.next) == (1, 2, 0, 2)
    asked = bodies.pack_read(bodies.Read("t", 0, 2, 10, 0, 60_000))
    waiting = client.ask(Command.READ, asked)
    with RawClient(one.port) as other:
        other.send("t", "c")
    found = bodies.unpack_rows(client.wait(waiting))
    assert (found.start, found.stop) == (2, 3)
    assert Batch(records(found.records)[0].batch).bodies() == [b"c"]
    waiting = client.ask(Command.READ, bodies.pack_read(bodies.Read("t", 0, 3, 10, 0, 60_000)))
    client.call(Command.CANCEL, waiting.to_bytes(8, "little"))
    assert bodies.unpack_rows(client.wait(waiting)).stop == 3


# ----------------------------------------------------------------------------------------- sessions


def test_a_session_outlives_its_connection(one: InProcessBroker) -> None:
    first = RawClient(one.port)
    first.send("t", "a")
    first.join("t", "g")
    held = first.pull("t", "g")
    first.close()
    with RawClient(one.port, client=first.client, session=first.number) as back:
        assert back.welcome.resumed
        assert back.settle("t", "g", held).rows == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_session_outlives_a_restart_of_the_broker(one: InProcessBroker, clean: bool) -> None:
    first = RawClient(one.port)
    first.send("t", "a")
    first.join("t", "g")
    held = first.pull("t", "g")
    one.restart(clean=clean)
    with RawClient(one.port, client=first.client, session=first.number) as back:
        assert back.welcome.resumed
        assert back.welcome.epoch == first.welcome.epoch + 1
        assert back.settle("t", "g", held).rows == 1
        assert back.pull("t", "g").lease == 0


def test_after_the_grace_a_session_is_gone_and_its_rows_come_again(one: InProcessBroker) -> None:
    first = RawClient(one.port)
    first.send("t", "a")
    first.join("t", "g")
    first.pull("t", "g")
    first.close()
    with RawClient(one.port) as other:
        waiting = other.ask_pull("t", "g", wait_ms=60_000)
        other.call(Command.PING)
        one.clock.advance(seconds=11)
        again = bodies.unpack_delivery(other.wait(waiting))
        assert [run.attempt for run in again.runs] == [2]
        with RawClient(one.port, client=first.client, session=first.number) as late:
            assert not late.welcome.resumed
            assert late.number != first.number


def test_nobody_takes_a_session_who_does_not_know_its_client(one: InProcessBroker) -> None:
    with RawClient(one.port) as first, RawClient(one.port, session=first.number) as thief:
        assert not thief.welcome.resumed
        assert thief.number != first.number
        with pytest.raises(UnknownSession):
            RawClient(one.port, session=first.number, auxiliary=True)


def test_coming_back_ends_the_connection_that_seemed_alive(one: InProcessBroker) -> None:
    with (
        RawClient(one.port) as first,
        RawClient(one.port, client=first.client, session=first.number) as second,
    ):
        assert second.welcome.resumed
        with pytest.raises((Closed, OSError)):
            first.call(Command.PING)
        second.call(Command.PING)


def test_an_auxiliary_connection_keeps_the_session(one: InProcessBroker) -> None:
    first = RawClient(one.port)
    first.send("t", "a")
    first.join("t", "g")
    held = first.pull("t", "g")
    with RawClient(one.port, client=first.client, session=first.number, auxiliary=True) as keeper:
        first.close()
        asked = bodies.Extend("t", "g", held.queue, held.epoch, held.lease, 100_000_000)
        keeper.call(Command.EXTEND, bodies.pack_extend(asked))
        one.clock.advance(seconds=60)  # far beyond the grace
        assert keeper.settle("t", "g", held).rows == 1


def test_leaving_gives_back_what_was_held_uncounted(one: InProcessBroker) -> None:
    first = RawClient(one.port)
    first.send("t", "a")
    first.join("t", "g")
    first.pull("t", "g")
    first.bye()
    with RawClient(one.port) as other:
        again = other.pull("t", "g")
        assert [(run.attempt, run.deliveries) for run in again.runs] == [(1, 2)]


def test_what_a_lost_connection_was_handed_goes_to_others(one: InProcessBroker) -> None:
    first = RawClient(one.port)
    first.send("t", "a", "b")
    first.join("t", "g")
    reached = first.pull("t", "g", 1)
    first.pull("t", "g", 1)  # this answer is lost
    first.close()
    with RawClient(one.port, client=first.client, session=first.number) as back:
        kept = control.Keep(leases=[control.KeptLease(epoch=reached.epoch, lease=reached.lease)])
        back.manage(Command.KEEP, kept, control.Nothing)
        again = back.pull("t", "g")
        assert texts(again) == {1: "b"}
        assert [run.attempt for run in again.runs] == [1]
        assert back.settle("t", "g", reached).rows == 1


# ----------------------------------------------------------------------------------------- stopping


def test_a_stop_tells_clients_and_answers_waiting_pulls(one: InProcessBroker) -> None:
    client = RawClient(one.port)
    client.create("t")
    client.join("t", "g")
    waiting = client.ask_pull("t", "g", wait_ms=60_000)
    reading = client.ask(Command.READ, bodies.pack_read(bodies.Read("t", 0, 0, 10, 0, 60_000)))
    client.call(Command.PING)
    one.stop()
    assert bodies.unpack_delivery(client.wait(waiting)).lease == 0
    assert bodies.unpack_rows(client.wait(reading)) == (1, 0, 0, 0, 0, 0, b"")
    until_closed(client)
    assert [push.command for push in client.pushes] == [Command.DRAIN]
    one.start()


def test_what_was_answered_is_there_after_a_kill(one: InProcessBroker) -> None:
    with RawClient(one.port) as client:
        client.send("t", "a")
        client.join("t", "g")
        delivery = client.pull("t", "g")
        client.settle("t", "g", delivery)
        client.send("t", "b")
    one.restart(clean=False)
    with RawClient(one.port) as again:
        assert texts(again.pull("t", "g")) == {1: "b"}


# ----------------------------------------------------------------------------------- administration


def test_topics_are_made_changed_listed_and_removed(client: RawClient) -> None:
    client.create("t", queues=2)
    with pytest.raises(TopicExists):
        client.create("t")
    client.send("t", "a", queue=1)
    client.join("t", "g")
    listed = client.manage(Command.TOPIC_LIST, control.TopicList(), control.Topics)
    (topic,) = listed.topics
    assert [(ends.first, ends.next) for ends in topic.queues] == [(0, 0), (0, 1)]
    assert topic.groups == ["g"]
    client.manage(Command.TOPIC_DELETE, control.TopicDelete(topic="t"), control.Nothing)
    assert [push.command for push in client.pushes] == [Command.TOPIC_CHANGED]
    with pytest.raises(UnknownTopic):
        client.read("t", 0)


def test_a_group_says_when_it_is_asked_to_be_another(client: RawClient) -> None:
    client.create("t")
    client.join("t", "g", tags="paid", start="latest")
    assert not client.join("t", "g", tags="paid").created
    for stated in ({"tags": "other"}, {"mode": "ordered"}, {"start": "earliest"}):
        with pytest.raises(GroupSettingsMismatch):
            client.join("t", "g", **stated)
    with pytest.raises(UnknownGroup):
        client.pull("t", "h")


def test_groups_show_lag_and_members_and_can_be_reset(client: RawClient) -> None:
    client.send("t", "a", "b", "c")
    client.join("t", "g")
    held = client.pull("t", "g", 2)
    listed = client.manage(Command.GROUP_LIST, control.GroupList(topic="t"), control.Groups)
    (group,) = listed.groups
    (queue,) = group.queues
    assert (queue.cursor, queue.end, queue.leased, queue.lag) == (2, 3, 2, 1)
    assert len(group.members) == 1
    client.settle("t", "g", held)
    asked = control.GroupReset(topic="t", group="g", to=Start.EARLIEST, dry_run=True)
    told = client.manage(Command.GROUP_RESET, asked, control.ResetDone)
    assert [(one.offset, one.unread) for one in told.queues] == [(0, 3)]
    assert texts(client.pull("t", "g")) == {2: "c"}
    asked = control.GroupReset(topic="t", group="g", offset=1, queue=0)
    client.manage(Command.GROUP_RESET, asked, control.ResetDone)
    assert list(texts(client.pull("t", "g"))) == [1, 2]
    with pytest.raises(InvalidRequest):
        client.manage(
            Command.GROUP_RESET, control.GroupReset(topic="t", group="g"), control.ResetDone
        )


def test_messages_are_found_by_id_key_offset_and_the_applications_id(client: RawClient) -> None:
    client.send("t", "a", key="order-7", application_id="mine")
    client.send("t", "b", key="order-7")

    def find(**asked: object) -> list[int]:
        page = client.manage(Command.FIND, control.Find(topic="t", **asked), control.FoundPage)  # type: ignore[arg-type]
        return [one.offset for one in page.found]

    assert find(key="order-7") == [1, 0]
    assert find(id=f"{client.producer:016x}:1") == [1]
    assert find(application_id="mine") == [0]
    assert find(offset=1) == [1]
    with pytest.raises(MessageNotFound):
        find(offset=2)
    for wrong in ("-1:0", "0x1f:0", " 1:0", "1_0:0", "1:", "xyz"):
        with pytest.raises(InvalidRequest):
            find(id=wrong)
    page = client.manage(
        Command.FIND, control.Find(topic="t", key="order-7", limit=1), control.FoundPage
    )
    more = client.manage(
        Command.FIND,
        control.Find(topic="t", key="order-7", limit=1, after=page.next),
        control.FoundPage,
    )
    assert [one.offset for one in (*page.found, *more.found)] == [1, 0]


def test_dead_letters_tell_their_reasons(one: InProcessBroker, client: RawClient) -> None:
    client.send("t", "a", "b")
    client.join("t", "g")
    client.settle("t", "g", client.pull("t", "g"), Outcome.RETRY, ((0, 1),), 0, "no answer")
    one.clock.advance(seconds=1)
    again = client.pull("t", "g")
    client.settle("t", "g", again, Outcome.DEAD, ((0, 1),), reason="never")
    asked = control.FailedList(topic="t", group="g", dead=True)
    (row,) = client.manage(Command.FAILED_LIST, asked, control.FailedPage).rows
    assert (row.offset, row.attempts) == (0, 2)
    assert [failure.reason for failure in row.failures] == ["no answer", "never"]
    assert row.message is not None
    assert Batch(row.message.batch).row(row.message.row).body == b"a"
    gone = control.FailedDelete(topic="t", group="g", queue=0, offsets=[0, 1])
    done = client.manage(Command.FAILED_DELETE, gone, control.FailedDone)
    assert (done.done, done.missing) == (1, [1])


@pytest.mark.parametrize("kind", [control.FailedDelete, control.FailedRetry])
def test_a_command_names_no_more_failures_than_fit_in_a_turn(
    client: RawClient, kind: type[control.FailedDelete | control.FailedRetry]
) -> None:
    client.send("t", "a")
    client.join("t", "g")
    client.settle("t", "g", client.pull("t", "g"), Outcome.DEAD, ((0, 1),), reason="never")
    command = Command.FAILED_DELETE if kind is control.FailedDelete else Command.FAILED_RETRY
    asked = kind(topic="t", group="g", queue=0, offsets=list(range(control.MAX_FAILED + 1)))
    with pytest.raises(InvalidRequest):
        client.manage(command, asked, control.FailedDone)
    asked = control.FailedDelete(
        topic="t", group="g", queue=0, offsets=list(range(control.MAX_FAILED))
    )
    done = client.manage(Command.FAILED_DELETE, asked, control.FailedDone)
    assert (done.done, len(done.missing)) == (1, control.MAX_FAILED - 1)


def test_status_and_clients(client: RawClient) -> None:
    client.send("t", "a")
    status = client.manage(Command.STATUS, control.StatusAsk(), control.Status)
    assert status.metrics["ternmq_messages_sent_total"] == 1
    assert status.role == "primary"
    assert 0 < status.disk_free_bytes <= status.disk_total_bytes
    assert 0 < status.journal_durable <= status.journal_end
    clients = client.manage(Command.CLIENT_LIST, control.ClientList(), control.Clients)
    (told,) = clients.clients
    assert (told.session, told.connected, told.topics) == (client.number, True, ["t"])
    for number in range(100):
        client.send(f"t-{number}", "a")
    clients = client.manage(Command.CLIENT_LIST, control.ClientList(), control.Clients)
    assert set(clients.clients[0].topics) == {f"t-{number}" for number in range(68, 100)}
    assert client.client not in told.client  # it is a secret: who knows it has the session


# ------------------------------------------------------------------------------------------- access


def test_without_a_token_nobody_gets_in_and_with_one_only_as_far_as_granted() -> None:
    settings = {"auth": True, "admin_token": "tmq_admin-token-of-this-test"}
    with broker(settings=settings) as one:
        for app, token in (("", ""), ("admin", ""), ("admin", "wrong"), ("nobody", "x")):
            with pytest.raises(Unauthenticated):
                RawClient(one.port, app=app, token=token)
        admin = RawClient(one.port, app="admin", token="tmq_admin-token-of-this-test")
        admin.create("orders.new")
        admin.create("stock")
        grants = [
            control.GrantInfo(right="produce", topic="orders.*"),
            control.GrantInfo(right="consume", topic="orders.*", group="shop.*"),
            control.GrantInfo(right="consume", topic="orders.*", group="shop.secret", deny=True),
        ]
        made = admin.manage(
            Command.APP_PUT, control.AppPut(app="shop", grants=grants), control.AppToken
        )
        shop = RawClient(one.port, app="shop", token=made.token)
        shop.send("orders.new", "a")
        shop.join("orders.new", "shop.billing")
        assert texts(shop.pull("orders.new", "shop.billing")) == {0: "a"}
        for refused in (
            lambda: shop.send("stock", "a"),
            lambda: shop.join("orders.new", "other"),
            lambda: shop.join("orders.new", "shop.secret"),
            lambda: shop.create("orders.more"),
            lambda: shop.manage(Command.APP_LIST, control.AppList(), control.Apps),
        ):
            with pytest.raises(Forbidden):
                refused()
        listed = shop.manage(Command.TOPIC_LIST, control.TopicList(), control.Topics)
        assert [topic.spec.name for topic in listed.topics] == ["orders.new"]
        admin.manage(Command.APP_DELETE, control.AppDelete(app="shop"), control.Nothing)
        with pytest.raises((Closed, OSError)):
            shop.call(Command.PING)
        with pytest.raises(Unauthenticated):
            RawClient(one.port, app="shop", token=made.token)


def test_a_stop_says_for_what_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ternmq.server"):
        with broker(settings={"drain_timeout": "50ms"}, manual=False) as one:
            client = RawClient(one.port)
            client.create("t")
            client.join("t", "g")
            client.send("t", "a")
            assert texts(client.pull("t", "g")) == {0: "a"}
        client.close()
    assert "waiting up to 50ms for 1 message that consumers hold" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "ternmq.server"), broker(manual=False) as one:
        client = RawClient(one.port)
    client.close()
    assert "that consumers hold" not in caplog.text


def test_a_stop_does_not_wait_for_a_consumer_that_cannot_come_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its connection is lost, and a broker that stops accepts no other."""
    with (
        caplog.at_level(logging.INFO, "ternmq.server"),
        broker(settings={"drain_timeout": "1h"}, manual=False) as one,
    ):
        client, other = RawClient(one.port), RawClient(one.port)
        client.create("t")
        client.join("t", "g")
        client.send("t", "a")
        assert texts(client.pull("t", "g")) == {0: "a"}
        client.socket.close()
        sessions = one._server.core.broker.views.sessions.by_number.values()
        wait_until(
            lambda: sum([session.connected for session in list(sessions)]) == 1, "it is gone"
        )
        assert one._server.leased_rows() == 1, "its session lives on for a grace"
    other.close()
    assert "that consumers hold" not in caplog.text


def test_an_app_asks_which_rights_it_has() -> None:
    settings = {"auth": True, "admin_token": "tmq_admin-token-of-this-test"}
    with broker(settings=settings) as one:
        admin = RawClient(one.port, app="admin", token="tmq_admin-token-of-this-test")
        grants = [
            control.GrantInfo(right="manage", topic="orders"),
            control.GrantInfo(right="consume", topic="stock", group="shop"),
        ]
        made = admin.manage(
            Command.APP_PUT, control.AppPut(app="shop", grants=grants), control.AppToken
        )
        shop = RawClient(one.port, app="shop", token=made.token)

        def ask(*questions: tuple[int, str, str]) -> list[str]:
            check = control.RightsCheck(
                questions=[
                    control.RightsQuestion(command=command, topic=topic, group=group)
                    for command, topic, group in questions
                ]
            )
            return shop.manage(Command.RIGHTS_CHECK, check, control.RightsChecked).refusals

        # What is asked for need not be there.
        told = ask(
            (Command.TOPIC_CREATE, "orders", ""),
            (Command.GROUP_JOIN, "orders", "new"),
            (Command.PULL, "orders", "new"),
            (Command.GROUP_JOIN, "stock", "shop"),
            (Command.GROUP_CHANGE, "stock", "shop"),
            (Command.APP_LIST, "", ""),
        )
        assert [bool(one) for one in told] == [False, False, True, False, True, True]
        assert told[2] == (
            "app 'shop' has no grant to consume topic 'orders' for group 'new'; "
            "`ternmq app set shop --grant consume:orders:new` gives it"
        )
        assert told[5].endswith("`ternmq app set shop --grant manage:'*'` gives it")
        # Names that cannot be stand in no command that somebody may paste.
        (told_of,) = ask((Command.GROUP_JOIN, "orders; reboot", "g"))
        assert "`" not in told_of
        for command in (0, Command.PING, Command.TRANSACTION_COMMIT, 250, Command.TOPIC_CHANGED):
            with pytest.raises(InvalidRequest):
                ask((command, "orders", "g"))
        with pytest.raises(InvalidRequest):
            ask(*[(Command.TOPIC_CREATE, "orders", "")] * 33)


def test_topics_are_not_made_by_use_unless_the_settings_say_so() -> None:
    with broker(settings={"create_topics": False}) as one, RawClient(one.port) as client:
        assert not client.welcome.create_topics
        with pytest.raises(UnknownTopic):
            client.send("t", "a")
        with pytest.raises(UnknownTopic):
            client.join("t", "g")


# ---------------------------------------------------------------------------------------- bad input


def test_a_broken_frame_ends_its_connection_and_no_other(
    one: InProcessBroker, client: RawClient
) -> None:
    with RawClient(one.port) as bad:
        bad.socket.sendall(b"\xff" * 64)
        with pytest.raises(ProtocolError):
            bad.call(Command.PING)
    client.call(Command.PING)


def test_an_unknown_command_is_refused_and_the_connection_goes_on(client: RawClient) -> None:
    client.session._asked[999] = 250  # type: ignore[assignment]
    client.socket.sendall(frames.pack(250, 0, 999, b""))
    with pytest.raises(UnknownCommand):
        client.wait(999)
    client.call(Command.PING)


def test_a_body_above_the_limit_is_refused(client: RawClient) -> None:
    most = client.welcome.body_bytes
    client.send("t", "x" * most)
    with pytest.raises(MessageTooLarge):
        client.send("t", "x" * (most + 1))
    assert client.send("t", "y").first_offset == 1


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_the_limit_of_a_body_counts_what_was_compressed(
    client: RawClient, compression: Compression
) -> None:
    most = client.welcome.body_bytes
    good, bad = (
        client.batch("t", [Row(b"x"), Row(b"y" * size)], compression) for size in (most, most + 1)
    )
    assert len(bad) < most
    with pytest.raises(MessageTooLarge):
        client.call(Command.SEND, bodies.pack_send("t", None, bad))
    asked = bodies.Prepare("t", None, "writer", 1, "0", bad)
    with pytest.raises(MessageTooLarge):
        client.call(Command.PREPARE, bodies.pack_prepare(asked))
    assert client.call(Command.SEND, bodies.pack_send("t", None, good))


def test_an_offset_that_was_never_there_is_no_reason_to_wait(client: RawClient) -> None:
    client.send("t", "a")
    assert client.read("t", 5).stop == 5
    with pytest.raises((InvalidRequest, OffsetExpired)):
        client.call(Command.READ, bodies.pack_read(bodies.Read("t", 0, 0, 0, 0, 10**9)))


def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    with broker(settings={"connections": 3}) as one:
        good = [RawClient(one.port) for _ in range(3)]
        with pytest.raises((Closed, OSError)):
            RawClient(one.port)
        for client in good:
            client.call(Command.PING)
        good[0].close()

        def again() -> RawClient | None:
            try:
                return RawClient(one.port)
            except (Closed, OSError):
                return None

        for _ in range(1000):
            fourth = again()
            if fourth is not None:
                fourth.close()
                break
        else:
            pytest.fail("the place of a closed connection was not given to another")


def test_a_stop_closes_idle_connections(one: InProcessBroker) -> None:
    with RawClient(one.port) as client:
        one.stop()
        until_closed(client)
    one.start()


@pytest.mark.parametrize(
    ("stated", "error"),
    [
        ({"mode": "ordered", "tags": "paid"}, "takes no tag filter"),
        ({"tags": "a|b"}, "tag"),
        ({"lease_us": 1}, "lease"),
    ],
)
def test_a_refused_join_leaves_no_topic_behind(stated: dict[str, object], error: str) -> None:
    with broker() as one, RawClient(one.port) as client:
        with pytest.raises(InvalidRequest, match=error):
            client.join("orders", "billing", **stated)
        told = client.manage(Command.TOPIC_LIST, control.TopicList(), control.Topics)
        assert [topic.spec.name for topic in told.topics] == []
        assert client.join("orders", "billing", mode="ordered").created


@pytest.mark.parametrize(
    ("stated", "error"), [({"filter": "region ="}, "filter"), ({"lease_us": 1}, "lease")]
)
def test_a_refused_broadcast_instance_leaves_no_topic_behind(
    stated: dict[str, object], error: str
) -> None:
    with broker(settings={"limits.instances": 1}) as one, RawClient(one.port) as client:
        with pytest.raises((InvalidRequest, InvalidFilter), match=error):
            client.join("orders", "$broadcast", instance="a", **stated)
        told = client.manage(Command.TOPIC_LIST, control.TopicList(), control.Topics)
        assert [topic.spec.name for topic in told.topics] == []
        assert client.join("orders", "$broadcast", instance="a").created
        with pytest.raises(Busy, match=r"limits\.instances"):
            client.join("bills", "$broadcast", instance="a")
        told = client.manage(Command.TOPIC_LIST, control.TopicList(), control.Topics)
        assert [topic.spec.name for topic in told.topics] == ["orders"]


def test_a_join_beyond_the_limit_of_groups_leaves_no_topic_behind() -> None:
    with (
        broker(settings={"limits.group_queues": 1, "topic_queues": 2}) as one,
        RawClient(one.port) as client,
    ):
        with pytest.raises(Busy, match=r"limits\.group_queues"):
            client.join("orders", "billing")
        told = client.manage(Command.TOPIC_LIST, control.TopicList(), control.Topics)
        assert [topic.spec.name for topic in told.topics] == []
