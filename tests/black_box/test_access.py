"""Apps, tokens and grants, as a stranger over the socket finds them (SEC-2, of tokens)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.black_box.conftest import TOKEN, start, stop
from tests.black_box.stranger import (
    APP_PUT,
    GROUP_JOIN,
    TOPIC_CREATE,
    TOPIC_LIST,
    Ended,
    Refused,
    Stranger,
    pull_body,
    read_body,
)

PULL, READ, TOPIC_DELETE, APP_DELETE, APP_LIST, CLIENT_LIST = 11, 14, 32, 71, 72, 60
UNAUTHENTICATED, FORBIDDEN = 150, 151
_numbers = count(1)

Connect = Callable[..., Stranger]


@pytest.fixture
def admin(connect: Connect) -> Stranger:
    return connect()


@pytest.fixture
def topic(admin: Stranger) -> str:
    name = f"access-{next(_numbers)}"
    admin.control(TOPIC_CREATE, topic=name, spec={"name": name})
    return name


def put(admin: Stranger, app: str, *grants: dict[str, Any], **more: Any) -> str:
    answer = admin.control(APP_PUT, app=app, grants=list(grants), owner="a team", **more)
    return str(answer.get("token", ""))


def grant(right: str, topic: str = "*", group: str = "*", **more: Any) -> dict[str, Any]:
    return {"right": right, "topic": topic, "group": group, **more}


def refused(call: Callable[..., object], *args: Any, **named: Any) -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        call(*args, **named)
    return caught.value.code, caught.value.text


@pytest.mark.row("O2")
@pytest.mark.parametrize(
    ("app", "token"),
    [
        ("admin", ""), ("", TOKEN), ("", ""), ("admin", TOKEN + "x"), ("admin", TOKEN[:-1]),
        ("Admin", TOKEN), ("nobody", TOKEN), ("admin", "x" * 3000), ("admin", "tmq_short"),
    ],
)  # fmt: skip
def test_a_wrong_token_is_refused_with_its_code_and_the_connection_ends(
    connect: Connect, app: str, token: str
) -> None:
    stranger = connect(hello=False)
    code, text = refused(stranger.hello, app=app, token=token, client="c" * 32)
    assert code == UNAUTHENTICATED
    assert "token" in text
    assert not token or token not in text
    with pytest.raises(Ended):
        stranger.next()


@pytest.mark.row("O2")
def test_an_app_is_made_told_its_token_once_and_comes_in_with_it(
    connect: Connect, admin: Stranger
) -> None:
    token = put(admin, "once", grant("produce"))
    assert token.startswith("tmq_")
    assert put(admin, "once", grant("consume")) == ""  # other grants, the same token
    connect(app="once", token=token)
    listed = {one["app"]: one for one in admin.control(APP_LIST)["apps"]}
    assert listed["once"]["owner"] == "a team"
    assert [one["right"] for one in listed["once"]["grants"]] == ["consume"]
    assert token not in str(listed)
    other = put(admin, "once", grant("consume"), new_token=True)
    assert other not in ("", token)
    stranger = connect(hello=False)
    assert refused(stranger.hello, app="once", token=token, client="c")[0] == UNAUTHENTICATED
    connect(app="once", token=other)


def test_who_may_not_is_told_what_is_missing(connect: Connect, admin: Stranger, topic: str) -> None:
    token = put(admin, "shop", grant("produce", f"{topic}.*"), grant("consume", topic, "billing"))
    shop = connect(app="shop", token=token)
    code, text = refused(shop.send, topic, [b"x"], 1, 0)  # only the neighbours were granted
    assert code == FORBIDDEN
    assert "shop" in text
    assert "produce" in text
    assert topic in text
    shop.control(GROUP_JOIN, topic=topic, group="billing")
    assert refused(shop.control, GROUP_JOIN, topic=topic, group="audit")[0] == FORBIDDEN
    assert refused(shop.ask, PULL, pull_body(topic, "audit"))[0] == FORBIDDEN
    assert refused(shop.ask, READ, read_body(topic, 0, 0))[0] == FORBIDDEN
    assert refused(shop.control, TOPIC_DELETE, topic=topic)[0] == FORBIDDEN
    for command, fields in (
        (APP_LIST, {}), (CLIENT_LIST, {}), (APP_DELETE, {"app": "admin"}),
        (APP_PUT, {"app": "shop", "grants": [grant("manage")]}),
    ):  # fmt: skip
        assert refused(shop.control, command, **fields)[0] == FORBIDDEN
    shop.pull(topic, "billing")  # the connection goes on


def test_a_deny_wins_and_a_change_counts_from_the_next_request(
    connect: Connect, admin: Stranger, topic: str
) -> None:
    token = put(admin, "sender", grant("produce"))
    sender = connect(app="sender", token=token)
    assert sender.send(topic, [b"1"], 5, 0) == 0
    put(admin, "sender", grant("produce"), grant("produce", topic, deny=True))
    code, text = refused(sender.send, topic, [b"2"], 5, 1)
    assert code == FORBIDDEN
    assert "denied" in text
    put(admin, "sender", grant("produce", topic))
    assert sender.send(topic, [b"3"], 5, 2) == 1


def test_lists_show_what_the_app_has_a_right_on(
    connect: Connect, admin: Stranger, topic: str
) -> None:
    hidden = f"{topic}-hidden"
    admin.control(TOPIC_CREATE, topic=hidden, spec={"name": hidden})
    token = put(admin, "looker", grant("consume", topic))
    looker = connect(app="looker", token=token)
    names = [one["spec"]["name"] for one in looker.control(TOPIC_LIST)["topics"]]
    assert names == [topic]
    everything = {one["spec"]["name"] for one in admin.control(TOPIC_LIST)["topics"]}
    assert {topic, hidden} <= everything


def test_a_deleted_app_is_thrown_out(connect: Connect, admin: Stranger) -> None:
    token = put(admin, "leaver", grant("produce"))
    leaver = connect(app="leaver", token=token)
    admin.control(APP_DELETE, app="leaver")
    with pytest.raises(Ended):
        leaver.next()
    late = connect(hello=False)
    assert refused(late.hello, app="leaver", token=token, client="c")[0] == UNAUTHENTICATED


def test_a_session_is_its_own_clients_only(connect: Connect, admin: Stranger) -> None:
    token = put(admin, "thief", grant("consume"))
    with Stranger(connect().socket.getpeername()) as mine:
        session = mine.hello(app="admin", token=TOKEN, client="a" * 32)["session"]
    for app, secret, client in (("thief", token, "a" * 32), ("admin", TOKEN, "b" * 32)):
        other = connect(hello=False)
        told = other.hello(app=app, token=secret, client=client, session=session)
        assert told["resumed"] is False
        assert told["session"] != session
    back = connect(hello=False)
    told = back.hello(app="admin", token=TOKEN, client="a" * 32, session=session)
    assert (told["resumed"], told["session"]) == (True, session)


@pytest.mark.row("O2")
def test_apps_outlive_the_broker_and_no_token_stands_anywhere(tmp_path: Path) -> None:
    broker = start(tmp_path)
    with Stranger(broker.address) as admin:
        admin.hello(app="admin", token=TOKEN, client=os.urandom(16).hex())
        token = put(admin, "shop", grant("produce"))
    broker.process.kill()
    stop(broker)
    broker = start(tmp_path)
    try:
        with Stranger(broker.address) as shop:
            shop.hello(app="shop", token=token, client="c" * 32)
    finally:
        stop(broker)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert token.encode() not in data, path
            assert TOKEN.encode() not in data, path


def test_who_lost_the_token_comes_in_again_by_a_setting(tmp_path: Path) -> None:
    broker = start(tmp_path)
    with Stranger(broker.address) as admin:
        admin.hello(app="admin", token=TOKEN, client="c" * 32)
        put(admin, "other", grant("manage"))  # the last one with manage:* cannot be deleted
        admin.control(APP_DELETE, app="admin")
    stop(broker)
    broker = start(tmp_path, admin_token="another-token")
    try:
        with Stranger(broker.address) as admin:
            assert refused(admin.hello, app="admin", token=TOKEN, client="c")[0] == UNAUTHENTICATED
        with Stranger(broker.address) as admin:
            admin.hello(app="admin", token="another-token", client="c")
            assert {one["app"] for one in admin.control(APP_LIST)["apps"]} == {"admin", "other"}
    finally:
        stop(broker)


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--listen", "0.0.0.0:0"], {}, "tls_cert and tls_key"),
        (["--listen", ":0"], {"TERNMQ_AUTH": "off"}, "auth = true and tls_cert and tls_key"),
        (["--listen", "127.0.0.1:0"], {"TERNMQ_AUTH": "off"}, "ternmq dev"),
        (["--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"], {}, "127.0.0.1"),
    ],
)
def test_a_door_that_stands_open_is_not_opened(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], says: str
) -> None:
    """One line that says what to do, and nothing made on the disk."""
    done = subprocess.run(
        [sys.executable, "-m", "ternmq", "serve", "--data", str(tmp_path / "data"), *arguments],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if "TERNMQ" not in name}
        | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []
