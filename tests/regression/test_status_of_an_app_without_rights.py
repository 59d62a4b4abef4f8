"""STATUS told every app the names of all topics and groups, in the labels of its numbers."""

from __future__ import annotations

from ternmq.testing import broker
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient

_TOKEN = "a token that is long enough for tests"


def _labels(client: RawClient) -> str:
    status = client.manage(Command.STATUS, control.StatusAsk(), control.Status)
    return "\n".join(status.metrics)


def test_it_names_what_the_app_may_see() -> None:
    settings = {"auth": True, "admin_token": _TOKEN}
    with (
        broker(settings=settings) as one,
        RawClient(one.port, app="admin", token=_TOKEN) as admin,
    ):
        admin.create("secret-plans")
        admin.join("secret-plans", "hidden-group")
        admin.send("secret-plans", "x")
        admin.pull("secret-plans", "hidden-group")
        asked = control.AppPut(app="shop", grants=[])
        token = admin.manage(Command.APP_PUT, asked, control.AppToken).token
        assert "secret-plans" in _labels(admin)
        with RawClient(one.port, app="shop", token=token) as shop:
            assert "secret-plans" not in _labels(shop)
            assert "hidden-group" not in _labels(shop)
            assert "ternmq_uptime_seconds" in _labels(shop)
