"""Who was refused, and who changed something: records of the audit; connections of old tokens."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from ternmq.model.errors import (
    Forbidden,
    InvalidRequest,
    TernMQError,
    TransactionDecided,
    Unauthenticated,
    WriterTaken,
)
from ternmq.record.batch.batch import Row
from ternmq.server.telemetry import audit
from ternmq.server.telemetry.logs import JsonFormatter
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import bodies, control
from ternmq.wire.commands import TABLE, Command, Right
from tests.integration.raw import Closed, RawClient

TOKEN = "a token that is long enough for tests"


@pytest.fixture
def guarded() -> Iterator[InProcessBroker]:
    with broker(settings={"auth": True, "admin_token": TOKEN}) as one:
        yield one


@pytest.fixture
def admin(guarded: InProcessBroker) -> Iterator[RawClient]:
    with RawClient(guarded.port, app="admin", token=TOKEN) as client:
        yield client


def put(admin: RawClient, app: str, *grants: control.GrantInfo, new_token: bool = False) -> str:
    asked = control.AppPut(app=app, grants=list(grants), new_token=new_token)
    return admin.manage(Command.APP_PUT, asked, control.AppToken).token


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """Return what the audit said, as machines read it."""
    form = JsonFormatter()
    return [json.loads(form.format(one)) for one in caplog.records if one.name == "ternmq.audit"]


def test_refusals_name_who_and_what_and_no_secret(
    guarded: InProcessBroker, admin: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ternmq.audit")
    admin.create("orders")
    token = put(admin, "shop", control.GrantInfo(right="produce", topic="prices"))
    with pytest.raises(Unauthenticated):
        RawClient(guarded.port, app="shop", token="tmq_wrong-but-secret")
    with RawClient(guarded.port, app="shop", token=token) as shop:
        host, port = shop.socket.getsockname()
        for call in (
            lambda: shop.send("orders", "a"),
            lambda: shop.pull("orders", "billing"),
            lambda: shop.join("orders", "billing"),
            lambda: shop.manage(Command.APP_LIST, control.AppList(), control.Apps),
        ):
            with pytest.raises(Forbidden):
                call()
    found = [one for one in told(caplog) if one["outcome"] != "done"]
    fields = ("app", "command", "topic", "group", "outcome")
    assert [tuple(one[name] for name in fields) for one in found] == [
        ("shop", "HELLO", "", "", "Unauthenticated"),
        ("shop", "SEND", "orders", "", "Forbidden"),
        ("shop", "PULL", "orders", "billing", "Forbidden"),
        ("shop", "GROUP_JOIN", "orders", "billing", "Forbidden"),
        ("shop", "APP_LIST", "", "", "Forbidden"),
    ]
    assert {one["address"] for one in found[1:]} == {f"{host}:{port}"}
    assert {one["level"] for one in found} == {"warning"}
    for secret in ("wrong-but-secret", token, TOKEN):
        assert secret not in caplog.text


def test_changes_are_told_and_questions_are_not(
    admin: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ternmq.audit")
    admin.create("orders")
    admin.join("orders", "billing")
    admin.join("orders", "billing")
    admin.send("orders", "a")
    reset = control.GroupReset(topic="orders", group="billing", offset=0, queue=0, dry_run=True)
    admin.manage(Command.GROUP_RESET, reset, control.ResetDone)
    put(admin, "shop")
    put(
        admin,
        "shop",
        control.GrantInfo(right="produce", topic="orders", group="*"),
        control.GrantInfo(right="consume", topic="o*", group="billing", deny=True),
        new_token=True,
    )
    with pytest.raises(TernMQError):
        admin.create("orders")
    admin.manage(Command.APP_DELETE, control.AppDelete(app="shop"), control.Nothing)
    admin.manage(Command.TOPIC_DELETE, control.TopicDelete(topic="orders"), control.Nothing)
    grants = "produce:orders not:consume:o*:billing"
    fields = ("app", "command", "topic", "group", "target", "grants", "new_token", "outcome")
    assert [tuple(one.get(name) for name in fields) for one in told(caplog)] == [
        ("admin", "TOPIC_CREATE", "orders", "", None, None, None, "done"),
        ("admin", "GROUP_JOIN", "orders", "billing", None, None, None, "done"),
        ("admin", "APP_PUT", "", "", "shop", "", "no", "done"),
        ("admin", "APP_PUT", "", "", "shop", grants, "yes", "done"),
        ("admin", "APP_DELETE", "", "", "shop", None, None, "done"),
        ("admin", "TOPIC_DELETE", "orders", "", None, None, None, "done"),
    ]


def test_a_client_that_asks_and_asks_floods_no_log(
    guarded: InProcessBroker, admin: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ternmq.audit")
    token = put(admin, "shop")
    with RawClient(guarded.port, app="shop", token=token) as shop:
        for _ in range(300):
            with pytest.raises(Forbidden):
                shop.send("orders", "a")
    assert len([one for one in told(caplog) if one["command"] == "SEND"]) == 1
    status = admin.manage(Command.STATUS, control.StatusAsk(), control.Status)
    assert status.metrics["ternmq_audit_left_out_total"] == 299


def test_many_strangers_flood_no_log(caplog: pytest.LogCaptureFixture) -> None:
    from ternmq.server.telemetry.counters import Counters

    caplog.set_level(logging.INFO, logger="ternmq.audit")
    now = [100.0]
    one = audit.Audit(Counters(), lambda: now[0])
    for number in range(5000):
        one.denied(f"app-{number}", "10.0.0.1:7", Command.HELLO, Unauthenticated("no"))
    assert len(told(caplog)) == audit.A_SECOND
    now[0] += 1
    one.denied("late" * 100, "10.0.0.1:8", Command.HELLO, Unauthenticated("no"))
    last = told(caplog)[-1]
    assert last["left_out"] == 5000 - audit.A_SECOND
    assert len(str(last["app"])) < 140
    caplog.clear()
    now[0] += audit.AGAIN_S
    for _ in range(2):
        one.denied("late" * 100, "10.0.0.1:9", Command.HELLO, Unauthenticated("no"))
    assert len(told(caplog)) == 1


def test_no_command_that_changes_something_is_forgotten() -> None:
    asks = {Command.FAILED_LIST, Command.CLIENT_LIST, Command.APP_LIST, Command.HOLD_LIST}
    asks |= {Command.FAILED_QUERY, Command.ALARM_LIST, Command.PRODUCER_GROUP_LIST}
    asks.add(Command.OFFSET_AT)
    # Holds move on every few seconds: only one that is made or moves back is told, by its handler.
    asks.add(Command.HOLD_PUT)
    asks.add(Command.GROUP_JOIN)  # likewise where it makes a group
    asks.add(Command.GROUP_LEAVE)  # members come and go with their processes; nothing is stored
    manages = {one for one in TABLE if Right.MANAGE in TABLE[one].policy.rights}
    assert manages - asks == audit.CHANGES


def test_holds_that_are_made_or_move_back_are_told(
    admin: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ternmq.audit")

    def hold(position: int, *, back: bool = False) -> int:
        """Put it; return how often that was told."""
        caplog.clear()
        asked = control.HoldPut(name="archive", position=position, back=back)
        admin.manage(Command.HOLD_PUT, asked, control.HoldPlaced)
        return len([one for one in told(caplog) if one["command"] == "HOLD_PUT"])

    assert hold(8) == 1
    assert hold(96) == hold(16) == 0
    assert hold(16, back=True) == 1
    caplog.clear()
    admin.manage(Command.HOLD_DELETE, control.HoldDelete(name="archive"), control.Nothing)
    assert [one["target"] for one in told(caplog)] == ["archive"]


def test_who_came_with_the_token_of_before_is_closed(
    guarded: InProcessBroker, admin: RawClient
) -> None:
    token = put(admin, "shop")
    first = RawClient(guarded.port, app="shop", token=token)
    put(admin, "shop", control.GrantInfo(right="produce"))
    first.call(Command.PING)  # other grants leave it open
    fresh = put(admin, "shop", new_token=True)
    with pytest.raises((Closed, OSError)):
        first.call(Command.PING)
    with pytest.raises(Unauthenticated):
        RawClient(guarded.port, app="shop", token=token)
    with RawClient(guarded.port, app="shop", token=fresh) as second:
        second.call(Command.PING)
    admin.call(Command.PING)


@pytest.mark.parametrize("due", [False, True])
def test_other_apps_transactions_that_are_rolled_back_are_told(
    guarded: InProcessBroker, admin: RawClient, caplog: pytest.LogCaptureFixture, due: bool
) -> None:
    caplog.set_level(logging.INFO, logger="ternmq.audit")
    admin.create("orders")
    produce = control.GrantInfo(right="produce", topic="orders")
    shop = RawClient(guarded.port, app="shop", token=put(admin, "shop", produce))
    other = RawClient(guarded.port, app="other", token=put(admin, "other", produce))
    everywhere = control.GrantInfo(right="manage", topic="*")
    some = control.GrantInfo(right="manage", topic="orders")
    due_us = guarded.clock.now_us + 60_000_000 if due else 0
    operator = RawClient(guarded.port, app="op", token=put(admin, "op", everywhere))
    clerk = RawClient(guarded.port, app="clerk", token=put(admin, "clerk", some))

    def prepare() -> int:
        batch = shop.batch("orders", [Row(b"x", due_us=due_us)])
        asked = bodies.Prepare("orders", None, "w", 7, "", batch)
        return bodies.unpack_prepared(
            shop.call(Command.PREPARE, bodies.pack_prepare(asked))
        ).prepared

    def abort(client: RawClient) -> bool:
        """Roll back; return whether that had been done before."""
        asked = control.TransactionAbort(writer="w", batch_id=7)
        return client.manage(Command.TRANSACTION_ABORT, asked, control.TransactionDone).repeated

    def aborts() -> list[tuple[object, ...]]:
        found = [one for one in told(caplog) if one["command"] == "TRANSACTION_ABORT"]
        return [
            (one["app"], one["outcome"], one.get("target"), one.get("batch_id")) for one in found
        ]

    with shop, other, operator, clerk:
        prepare()
        with pytest.raises(WriterTaken):
            abort(other)
        with pytest.raises(Forbidden):
            abort(clerk)
        caplog.clear()
        assert not abort(shop)
        assert aborts() == []  # its own
        prepared = prepare()
        assert not abort(operator)
        assert abort(operator)  # repeated: nothing was done
        assert aborts() == [("op", "done", "w", "7")]
        asked = control.TransactionCommit(writer="w", batch_id=7, ids=[prepared], digest=1)
        for client, error in (
            (operator, Forbidden),
            (admin, WriterTaken),
            (shop, TransactionDecided),
        ):
            with pytest.raises(error):
                client.manage(Command.TRANSACTION_COMMIT, asked, control.TransactionDone)


def test_who_may_send_cancels_and_an_operator_is_on_record(
    guarded: InProcessBroker, admin: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ternmq.audit")
    admin.create("orders")
    grants = {
        "shop": [control.GrantInfo(right="produce", topic="orders")],
        "reader": [control.GrantInfo(right="consume", topic="orders")],
        "clerk": [control.GrantInfo(right="manage", topic="orders")],
        "op": [control.GrantInfo(right="manage")],
    }
    shop, reader, clerk, operator = (
        RawClient(guarded.port, app=app, token=put(admin, app, *given))
        for app, given in grants.items()
    )
    due_us = guarded.clock.now_us + 60_000_000

    def cancel(client: RawClient, name: str) -> None:
        asked = control.ScheduleCancel(topic="orders", application_id=name)
        client.manage(Command.SCHEDULE_CANCEL, asked, control.Nothing)

    with shop, reader, clerk, operator:
        for number in range(3):
            rows = [Row(b"x", application_id=f"id{number}", due_us=due_us)]
            body = bodies.pack_send("orders", None, shop.batch("orders", rows))
            receipt = bodies.unpack_receipt(shop.call(Command.SEND, body))
            assert (receipt.scheduled, receipt.first_offset) == (True, None)
        caplog.clear()
        for client in (reader, clerk):
            with pytest.raises(Forbidden):
                cancel(client, "id0")
        cancel(shop, "id0")
        cancel(operator, "id1")
        cancel(operator, "id1")  # repeated: nothing was done
        asked = control.ScheduleList(topic="orders")
        hours = control.ScheduleHours(topic="orders")
        for client in (shop, clerk, operator):
            with pytest.raises(Forbidden):
                client.manage(Command.SCHEDULE_LIST, asked, control.ScheduledPage)
            with pytest.raises(Forbidden):
                client.manage(Command.SCHEDULE_HOURS, hours, control.ScheduledHours)
        page = reader.manage(Command.SCHEDULE_LIST, asked, control.ScheduledPage)
        assert [one.application_id for one in page.messages] == ["id2"]
        found = [one for one in told(caplog) if one["command"] == "SCHEDULE_CANCEL"]
        assert [(one["app"], one["outcome"], one.get("target")) for one in found] == [
            ("reader", "Forbidden", None),
            ("clerk", "Forbidden", None),
            ("op", "done", "id1"),
        ]
        for wrong in ("x", "-1", "1" * 21, str(2**64)):
            with pytest.raises(InvalidRequest):
                reader.manage(
                    Command.SCHEDULE_LIST, replace(asked, after=wrong), control.ScheduledPage
                )
            with pytest.raises(InvalidRequest):
                reader.manage(
                    Command.SCHEDULE_HOURS, replace(hours, after=wrong), control.ScheduledHours
                )
        for both in ({}, {"id": "1:1", "application_id": "x"}, {"id": "no id"}):
            with pytest.raises(InvalidRequest):
                shop.manage(
                    Command.SCHEDULE_CANCEL,
                    control.ScheduleCancel(topic="orders", **both),
                    control.Nothing,
                )
