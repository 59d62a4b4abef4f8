"""Who waited for messages when his right was taken away got the next ones all the same."""

from __future__ import annotations

import pytest

from ternmq.model.errors import Forbidden
from ternmq.model.specs import Mode
from ternmq.testing import broker
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient

_TOKEN = "a token that is long enough for tests"


def _grant(admin: RawClient, *grants: control.GrantInfo) -> str:
    asked = control.AppPut(app="shop", grants=list(grants))
    return admin.manage(Command.APP_PUT, asked, control.AppToken).token


def test_nothing_is_handed_out() -> None:
    settings = {"auth": True, "admin_token": _TOKEN}
    with (
        broker(settings=settings) as one,
        RawClient(one.port, app="admin", token=_TOKEN) as admin,
    ):
        admin.create("orders")
        token = _grant(admin, control.GrantInfo(right="consume"))
        with RawClient(one.port, app="shop", token=token) as shop:
            shop.join("orders", "billing")
            pull = shop.ask_pull("orders", "billing", wait_ms=60_000)
            read = shop.ask(
                Command.READ, bodies.pack_read(bodies.Read("orders", 0, 0, 10, 0, 60_000))
            )
            shop.call(Command.PING)
            _grant(admin)
            admin.send("orders", "secret")
            with pytest.raises(Forbidden):
                shop.wait(pull)
            with pytest.raises(Forbidden):
                shop.wait(read)
        assert admin.pull("orders", "billing").runs, "given back to others"


def test_queues_of_who_may_not_consume_any_more_go_to_other_members() -> None:
    """The session goes on, but each of its pulls is refused: its queues would wait for ever."""
    settings = {"auth": True, "admin_token": _TOKEN}
    with (
        broker(settings=settings) as one,
        RawClient(one.port, app="admin", token=_TOKEN) as admin,
    ):
        admin.create("orders")
        token = _grant(admin, control.GrantInfo(right="consume"))
        with RawClient(one.port, app="shop", token=token) as shop:
            exclusive = control.GroupJoin(topic="orders", group="billing", mode=Mode.EXCLUSIVE)
            shop.manage(Command.GROUP_JOIN, exclusive, control.GroupJoined)
            admin.manage(Command.GROUP_JOIN, exclusive, control.GroupJoined)
            admin.send("orders", "secret")
            pull = admin.ask_pull("orders", "billing", wait_ms=60_000)
            _grant(admin, control.GrantInfo(right="consume", topic="orders"))  # that still suffices
            held = shop.pull("orders", "billing")
            assert held.runs
            _grant(admin, control.GrantInfo(right="produce"))
            admin.call(Command.PING)
            one.clock.advance(seconds=45)  # the lease of the former owner ends
            assert bodies.unpack_delivery(admin.wait(pull)).runs
