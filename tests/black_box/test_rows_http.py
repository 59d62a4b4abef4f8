"""Rows of MISSION, over HTTP: a producer and a consumer that have nothing but curl (Q2)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.black_box.front import Front
from tests.black_box.process import BrokerProcess, wait_until

ADMIN = "tmq_" + "a" * 43
JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("http")
    with BrokerProcess("serve", folder, segment="4MiB", admin_token=ADMIN) as one:
        yield one


@pytest.fixture(scope="module")
def front(broker: BrokerProcess) -> Iterator[Front]:
    with Front(broker.url) as one:
        yield one


@pytest.fixture(scope="module")
def tokens(front: Front) -> dict[str, str]:
    """Topic, group and apps, made over HTTP as well."""
    admin = ("-u", f"admin:{ADMIN}")
    assert front.curl("/topics", *admin, data='{"topic": "orders"}').status == 201
    found = {}
    for app, grants in (
        ("shop", ["produce:orders"]),
        ("billing", ["consume:orders:billing"]),
        ("other", ["consume:orders:other"]),
    ):
        made = front.curl("/apps", *admin, data=json.dumps({"app": app, "grants": grants}))
        assert made.status == 201, made.body
        found[app] = f"{app}:{made.value['token']}"
    return found


def pulled(front: Front, who: str, group: str = "billing", **asked: Any) -> list[dict[str, Any]]:
    found = front.curl(
        f"/topics/orders/groups/{group}/pull", "-u", who, "-H", JSON, data=json.dumps(asked)
    )
    assert found.status == 200, found.body
    messages: list[dict[str, Any]] = found.value["messages"]
    return messages


def settled(
    front: Front, who: str, receipts: list[str], outcome: str, **more: Any
) -> list[dict[str, Any]]:
    body = json.dumps({"receipts": receipts, "outcome": outcome, **more})
    found = front.curl("/topics/orders/groups/billing/settle", "-u", who, data=body)
    assert found.status == 200, found.body
    results: list[dict[str, Any]] = found.value["results"]
    return results


@pytest.mark.row("Q2")
def test_curl_sends_and_consumes(front: Front, tokens: dict[str, str]) -> None:
    """Sent, pulled, acked; what is not acked comes again; a rejected one is a dead letter."""
    sent = front.curl(
        "/topics/orders/messages?key=order-7&tag=paid", "-u", tokens["shop"], "-H", JSON,
        "-H", "Ternmq-Header-Region: eu", data='{"number": 7}',
    )  # fmt: skip
    assert sent.status == 201
    assert sent.value["durable"] is True
    text = front.curl("/topics/orders/messages", "-u", tokens["shop"], data="plain")
    (first,) = pulled(front, tokens["billing"], wait="10s", lease="2s")
    assert (first["body"], first["key"], first["tag"]) == ({"number": 7}, "order-7", "paid")
    assert (first["headers"], first["attempt"]) == ({"region": "eu"}, 1)
    assert first["id"] == sent.value["id"]
    (second,) = pulled(front, tokens["billing"], max=10, wait="10s", lease="1m")
    assert (second["body"], second["id"]) == ("plain", text.value["id"])
    assert settled(front, tokens["billing"], [second["receipt"]], "ack") == [
        {"receipt": second["receipt"], "done": True}
    ]
    (again,) = pulled(front, tokens["billing"], wait="30s", lease="1m")  # its ack is missing
    assert (again["id"], again["attempt"]) == (first["id"], 2)
    (late,) = settled(front, tokens["billing"], [first["receipt"]], "ack")
    assert (late["done"], late["error"]["title"]) == (False, "LeaseExpired")
    assert settled(
        front, tokens["billing"], [again["receipt"]], "retry", delay="1s", reason="try later"
    )[0]["done"]
    (third,) = pulled(front, tokens["billing"], wait="30s", lease="1m")
    assert (third["attempt"], third["last_reason"]) == (3, "try later")
    assert settled(front, tokens["billing"], [third["receipt"]], "reject", reason="no")[0]["done"]
    dead = front.curl("/topics/orders/groups/billing/dead-letters", "-u", tokens["billing"])
    (letter,) = dead.value["items"]
    assert (letter["reason"], letter["message"]["id"]) == ("no", first["id"])
    assert pulled(front, tokens["billing"], max=10) == []


@pytest.mark.row("Q2")
def test_an_id_is_stored_once(front: Front, tokens: dict[str, str]) -> None:
    ask = ("/topics/orders/messages", "-u", tokens["shop"], "-H", "Idempotency-Key: a-1")
    first, again, other = (front.curl(*ask, data=body) for body in ("one", "one", "two"))
    assert (first.status, again.status, other.status) == (201, 200, 409)
    assert (again.value["duplicate"], again.value["offset"]) == (True, first.value["offset"])
    assert other.value["title"] == "IdConflict"
    (one,) = pulled(front, tokens["billing"], wait="10s")
    assert one["application_id"] == "a-1"
    assert settled(front, tokens["billing"], [one["receipt"]], "ack")[0]["done"]


@pytest.mark.row("Q2")
def test_rights_are_those_of_the_caller(front: Front, tokens: dict[str, str]) -> None:
    send, pull = "/topics/orders/messages", "/topics/orders/groups/billing/pull"
    nobody = front.curl(send, data="x")
    assert (nobody.status, nobody.value["title"]) == (401, "Unauthenticated")
    assert nobody.headers["www-authenticate"].startswith("Basic ")
    assert front.curl(send, "-u", "shop:wrong", data="x").status == 401
    assert front.curl(send, "-u", tokens["billing"], data="x").status == 403
    assert front.curl(pull, "-u", tokens["shop"], data="{}").status == 403
    assert front.curl(pull, "-u", tokens["other"], data="{}").status == 403
    assert front.curl("/apps", "-u", tokens["shop"]).status == 403
    name, _, token = tokens["shop"].partition(":")
    bearer = ("-H", f"Authorization: Bearer {token}", "-H", f"Ternmq-App: {name}")
    assert front.curl(f"{send}?one_way=1", *bearer, data="x").status == 202
    (one,) = pulled(front, tokens["billing"], wait="10s")
    theirs = json.dumps({"receipts": [one["receipt"]], "outcome": "ack"})
    path = "/topics/orders/groups/other/settle"
    wrong = front.curl(path, "-u", tokens["other"], data=theirs)
    assert (wrong.status, wrong.value["title"]) == (400, "InvalidRequest")
    assert settled(front, tokens["billing"], [one["receipt"]], "ack")[0]["done"]


@pytest.mark.row("Q2")
def test_a_new_token_ends_the_old_one(front: Front, tokens: dict[str, str]) -> None:
    admin = ("-u", f"admin:{ADMIN}")
    made = front.curl("/apps", *admin, data='{"app": "brief", "grants": ["produce:orders"]}')
    old = f"brief:{made.value['token']}"
    send = "/topics/orders/messages?one_way=1"
    assert front.curl(send, "-u", old, data="x").status == 202
    body = '{"grants": ["produce:orders"], "new_token": true}'
    new = front.curl("/apps/brief", "-X", "PUT", *admin, data=body)
    assert new.status == 200
    wait_until(
        lambda: front.curl("/topics/orders/messages", "-u", old, data="x").status == 401,
        "the old token is refused",
    )
    fresh = f"brief:{new.value['token']}"
    assert front.curl("/topics/orders/messages", "-u", fresh, data="x").status == 201
    left = pulled(front, tokens["billing"], max=100, wait="10s")
    assert all(one["done"] for one in settled(
        front, tokens["billing"], [one["receipt"] for one in left], "ack"
    ))  # fmt: skip


@pytest.mark.row("Q2")
def test_killed_between_pull_and_ack(broker: BrokerProcess, tokens: dict[str, str]) -> None:
    """The lease outlives the server: nothing comes twice, and another server takes the ack."""
    with Front(broker.url) as first, Front(broker.url) as second:
        for number in range(3):
            sent = first.curl(
                "/topics/orders/messages", "-u", tokens["shop"], data=f"kill-{number}"
            )
            assert sent.status == 201
        held = pulled(first, tokens["billing"], max=2, wait="10s", lease="10m")
        first.kill()
        (rest,) = pulled(second, tokens["billing"], max=10, wait="10s", lease="10m")
        assert [one["body"] for one in [*held, rest]] == ["kill-0", "kill-1", "kill-2"]
        broker.restart(kill=True)
        wait_until(
            lambda: second.curl("/broker", "-u", tokens["billing"]).status == 200,
            "the server has found the broker again",
        )
        done = settled(second, tokens["billing"], [one["receipt"] for one in [*held, rest]], "ack")
        assert [one["done"] for one in done] == [True, True, True]
        assert pulled(second, tokens["billing"], max=10, wait="1s") == []


@pytest.mark.row("Q2")
def test_a_longer_lease(front: Front, tokens: dict[str, str]) -> None:
    assert front.curl("/topics/orders/messages", "-u", tokens["shop"], data="slow").status == 201
    (one,) = pulled(front, tokens["billing"], wait="10s", lease="2s")
    body = json.dumps({"receipts": [one["receipt"]], "lease": "10m"})
    longer = front.curl("/topics/orders/groups/billing/extend", "-u", tokens["billing"], data=body)
    assert longer.value["failed"] == 0
    assert pulled(front, tokens["billing"], wait="3s") == []
    assert settled(front, tokens["billing"], [one["receipt"]], "ack")[0]["done"]


@pytest.mark.row("Q2")
def test_a_pull_that_waits_ends_with_the_server(broker: BrokerProcess, tokens: Any) -> None:
    """And what comes for a caller that is gone is given back: no attempt is counted."""
    with Front(broker.url) as front:
        waiting = subprocess.Popen(
            ["curl", "--silent", "-u", tokens["billing"], "-d", '{"wait": "60s"}',
             f"http://127.0.0.1:{front.port}/v1/topics/orders/groups/billing/pull"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        admin = ("-u", f"admin:{ADMIN}")

        def waits() -> bool:
            found = front.curl("/topics/orders/groups/billing", *admin)
            return bool(found.value["members"])

        wait_until(waits, "the pull waits at the broker")
        assert front.stop() == 0
        assert waiting.wait(30) == 0
        assert waiting.stdout is not None
        assert json.loads(waiting.stdout.read()) == {"messages": []}
        waiting.stdout.close()
    with Front(broker.url) as front:
        gone = subprocess.Popen(
            ["curl", "--silent", "-u", tokens["billing"], "-d", '{"wait": "60s"}',
             f"http://127.0.0.1:{front.port}/v1/topics/orders/groups/billing/pull"],
        )  # fmt: skip
        wait_until(waits, "the pull waits at the broker")
        gone.kill()
        gone.wait()
        wait_until(lambda: not waits(), "the pull was withdrawn")
        assert front.curl("/topics/orders/messages", "-u", tokens["shop"], data="x").status == 201
        (one,) = pulled(front, tokens["billing"], wait="10s")
        assert one["attempt"] == 1
        assert settled(front, tokens["billing"], [one["receipt"]], "ack")[0]["done"]


@pytest.mark.row("Q2")
def test_the_broker_is_away(tmp_path: Path) -> None:
    with BrokerProcess("dev", tmp_path / "broker", segment="4MiB") as broker, \
            Front(broker.url, "--timeout", "1s") as front:  # fmt: skip
        assert front.curl("/topics/orders/messages", data="1").status == 201
        broker.kill()
        away = front.curl("/topics/orders/messages", data="2")
        assert away.status in {503, 504}
        assert away.value["retriable"] is True
        assert away.headers["retry-after"] == "1"
        assert away.headers["content-type"] == "application/problem+json"
        broker.start()
        wait_until(
            lambda: front.curl("/topics/orders/messages", data="3").status == 201,
            "it is stored again",
        )
