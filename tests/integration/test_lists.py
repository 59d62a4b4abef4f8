"""Lists that are longer than a page: what the client makes whole, and what one answer holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ternmq.sync
from ternmq.broker.query import listings
from ternmq.model.errors import InvalidRequest, UnknownTopic
from ternmq.server.commands import clients, holds
from ternmq.server.desk import whole_lists
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control import GrantInfo
from tests.integration.raw import RawClient

TOKEN = "a token that is long enough for tests"
NAMES = [f"t{number:02}" for number in range(12)]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessBroker]:
    """A broker with more of everything than fits on a page."""
    monkeypatch.setattr(listings, "PAGE_WORK", 12)
    with broker(settings={"auth": True, "admin_token": TOKEN}) as one:
        with RawClient(one.port, app="admin", token=TOKEN) as admin:
            for name in NAMES:
                admin.create(name)
                admin.join(name, "g")
                admin.join(name, "h")
        yield one


def test_the_client_makes_pages_whole(full: InProcessBroker) -> None:
    with ternmq.sync.connect(full.url, app="admin", token=TOKEN) as client:
        admin = client.admin
        assert [one.spec.name for one in admin.topics()] == NAMES
        assert [one.spec.name for one in admin.topics(reversed(NAMES))] == NAMES
        both = [(name, group) for name in NAMES for group in "gh"]
        assert [(one.topic, one.group) for one in admin.groups()] == both
        assert [(one.topic, one.group) for one in admin.groups(group="h")] == both[1::2]
        assert [one.group for one in admin.groups("t03")] == ["g", "h"]
        assert [one.topic for one in admin.standing("g").groups] == NAMES
        for number in range(12):
            admin.put_app(f"app-{number:02}", [GrantInfo(right="produce", topic="t*")])
        assert len(admin.apps()) == 13
        some = [RawClient(full.port, app="admin", token=TOKEN) for _ in range(12)]
        sessions = [one.session for one in admin.clients()]
        assert sorted(one.number for one in some) == [
            number for number in sessions if number in {one.number for one in some}
        ]
        for one in some:
            one.close()


def test_an_app_is_shown_what_its_grants_cover(full: InProcessBroker) -> None:
    with ternmq.sync.connect(full.url, app="admin", token=TOKEN) as client:
        grants = [
            GrantInfo(right="consume", topic="t1*", group="h"),
            GrantInfo(right="produce", topic="t05"),
            GrantInfo(right="manage", topic="t03"),
            GrantInfo(right="consume", topic="t10", deny=True),
        ]
        token = client.admin.put_app("shop", grants)
    with ternmq.sync.connect(full.url, app="shop", token=token) as client:
        assert [one.spec.name for one in client.admin.topics()] == ["t03", "t05", "t11"]
        assert [(one.topic, one.group) for one in client.admin.groups()] == [
            ("t03", "g"), ("t03", "h"), ("t11", "h"),
        ]  # fmt: skip
        named = [key for key in client.admin.status().metrics if "group_lag" in key]
        assert named == [
            'ternmq_group_lag{group="g",topic="t03"}',
            'ternmq_group_lag{group="h",topic="t03"}',
            'ternmq_group_lag{group="h",topic="t11"}',
        ]


def test_without_a_limit_all_come_in_one_answer(full: InProcessBroker) -> None:
    with RawClient(full.port, app="admin", token=TOKEN) as admin:
        whole = admin.manage(Command.GROUP_LIST, control.GroupList(), control.Groups)
        both = [(name, group) for name in NAMES for group in "gh"]
        assert [(one.topic, one.group) for one in whole.groups] == both
        assert not whole.next
        for number in range(12):
            made = control.AppPut(app=f"app-{number:02}", grants=[])
            admin.manage(Command.APP_PUT, made, control.AppToken)
        apps = admin.manage(Command.APP_LIST, control.AppList(), control.Apps)
        assert (len(apps.apps), apps.next) == (13, "")
        some = [RawClient(full.port, app="admin", token=TOKEN) for _ in range(8)]
        sessions = admin.manage(Command.CLIENT_LIST, control.ClientList(), control.Clients)
        assert {one.number for one in some} < {one.session for one in sessions.clients}
        assert sessions.next == 0
        for each in some:
            each.close()
        one = control.GroupList(topic="t03", group="h")
        assert len(admin.manage(Command.GROUP_LIST, one, control.Groups).groups) == 1
        page = control.GroupList(limit=2)
        answer = admin.manage(Command.GROUP_LIST, page, control.Groups)
        assert [(one.topic, one.group) for one in answer.groups] == both[:2]
        assert answer.next


def test_one_answer_for_all_is_refused_when_it_is_too_large(
    full: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_lists, "MOST", 5)
    with RawClient(full.port, app="admin", token=TOKEN) as admin:
        with pytest.raises(InvalidRequest, match="more groups than the 5"):
            admin.manage(Command.GROUP_LIST, control.GroupList(), control.Groups)
        assert admin.call(Command.PING), "and the connection goes on"


def test_one_answer_for_all_while_the_topic_goes(full: InProcessBroker) -> None:
    with (
        RawClient(full.port, app="admin", token=TOKEN) as admin,
        RawClient(full.port, app="admin", token=TOKEN) as other,
    ):
        for number in range(30):
            admin.join("t05", f"x{number}")
        asked = control.encode(control.GroupList(topic="t05"))
        many = [admin.ask(Command.GROUP_LIST, asked) for _ in range(30)]
        gone = control.TopicDelete(topic="t05")
        other.manage(Command.TOPIC_DELETE, gone, control.Nothing)
        for id_ in many:  # as it was then, or not there: never half of it, never no answer
            try:
                answer = control.decode_answer(admin.wait(id_), control.Groups)
            except UnknownTopic:
                continue
            assert len(answer.groups) == 32


def test_the_status_stays_small(full: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "STATUS_GROUPS", 3)
    with RawClient(full.port, app="admin", token=TOKEN) as admin:
        status = admin.manage(Command.STATUS, control.StatusAsk(), control.Status)
    lags = [key for key in status.metrics if key.startswith("ternmq_group_lag")]
    assert len(lags) == 3
    assert status.metrics["ternmq_groups"] == 24
    assert status.metrics["ternmq_topics"] == 12


def test_names_of_the_journal_come_in_pages(
    full: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "PAGE_NAMES", 5)
    with RawClient(full.port, app="admin", token=TOKEN) as admin:
        gone = control.TopicDelete(topic="t03")
        admin.manage(Command.TOPIC_DELETE, gone, control.Nothing)
        found: dict[str, list[str]] = {"topics": [], "groups": [], "sessions": [], "apps": []}
        after = ""
        while True:
            asked = control.JournalCatalog(position=0, after=after)
            page = admin.manage(Command.JOURNAL_CATALOG, asked, control.JournalNames)
            found["topics"] += [one.name for one in page.topics]
            found["groups"] += [one.name for one in page.groups]
            found["sessions"] += [one.app for one in page.sessions]
            found["apps"] += page.apps
            names = len(page.topics) + len(page.groups) + len(page.sessions) + len(page.apps)
            assert names <= 5
            after = page.next
            if not after:
                break
        assert found["topics"] == NAMES
        assert found["groups"] == ["g", "h"] * 12
        assert set(found["sessions"]) == {"admin"}
        assert found["apps"] == ["admin"]


def test_a_place_that_is_none_is_refused(full: InProcessBroker) -> None:
    with RawClient(full.port, app="admin", token=TOKEN) as admin:
        for after in ("x/y", "/", "9" * 40, "²/w"):
            asked = control.TransactionList(after=after)
            with pytest.raises(InvalidRequest):
                admin.manage(Command.TRANSACTION_LIST, asked, control.Transactions)
        for after in ("/", "none/none", "t03", "t03/", "\x00/\x00"):
            page = control.GroupList(after=after, limit=1)
            admin.manage(Command.GROUP_LIST, page, control.Groups)
