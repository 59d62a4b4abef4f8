"""Bad requests to the HTTP server: each gets one definite answer, and others notice nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from tests.black_box.front import Front
from tests.black_box.process import DEADLINE, BrokerProcess

HOST = b"Host: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("bad")
    with BrokerProcess("dev", folder, segment="4MiB") as broker, Front(broker.url) as one:
        assert one.curl("/topics", data='{"topic": "orders"}').status == 201
        yield one


def told(front: Front, data: bytes) -> bytes:
    """Send bytes as they are; return everything until the server closes or is silent."""
    with socket.create_connection(("127.0.0.1", front.port), DEADLINE) as one:
        one.sendall(data)
        found = b""
        while piece := one.recv(65_536):
            found += piece
        return found


SEND = b"POST /v1/topics/orders/messages HTTP/1.1\r\n" + HOST


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # TLS
        b"GET /v1/topics HTTP/9.9\r\n" + HOST + b"\r\n",
        SEND + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        SEND + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        SEND + b"Content-Length: -1\r\n\r\n",
        SEND + b"Content-Length: +3\r\n\r\nabc",
        SEND + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        b"NONSENSE /v1/topics HTTP/1.1\r\n" + HOST + b"\r\n",
        SEND + b"Bad Header: x\r\n\r\n",
        SEND + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
    ],
    ids=lambda data: data[-20:].decode("latin-1"),
)
def test_what_is_no_request(front: Front, data: bytes) -> None:
    before = front.curl("/topics/orders").value["messages"]
    found = told(front, data)
    assert found.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 505")), found[:200]
    assert b"Traceback" not in found
    assert front.curl("/topics/orders").value["messages"] == before, "nothing was sent"


@pytest.mark.parametrize(
    ("path", "arguments", "body", "status", "title"),
    [
        ("/nix", (), None, 404, "NotFound"),
        ("/topics/orders/../../../etc/passwd", ("--path-as-is",), None, 404, "NotFound"),
        ("/topics/%2e%2e%2fx", (), None, 400, "InvalidName"),
        ("/topics/a%2Fb/messages", (), "x", 400, "InvalidName"),
        ("/topics", ("-X", "DELETE"), None, 405, "MethodNotAllowed"),
        ("/topics", ("-X", "PROPFIND"), None, 405, "MethodNotAllowed"),
        ("/topics?limit=0", (), None, 400, "InvalidRequest"),
        ("/topics?limt=1", (), None, 400, "InvalidRequest"),
        ("/topics?q=%ff", (), None, 400, "InvalidRequest"),
        ("/topics", (), "no json", 400, "InvalidRequest"),
        ("/topics", (), '{"topic": "x", "queus": 2}', 400, "InvalidRequest"),
        ("/topics", (), '{"topic": "no good"}', 400, "InvalidName"),
        ("/topics", (), "[" * 100_000, 400, "InvalidRequest"),
        ("/topics", ("-H", "Content-Type: text/xml"), "<x/>", 415, "UnsupportedType"),
        ("/topics", ("-H", "Content-Encoding: gzip"), "x", 415, "UnsupportedType"),
        ("/topics", ("-H", "Authorization: Digest x"), None, 401, "Unauthenticated"),
        ("/topics", ("-H", "Host: evil.example"), None, 421, "WrongHost"),
        ("/topics", ("-H", "Origin: http://evil.example"), None, 403, "OtherSite"),
        ("/topics", ("-H", "Origin: null"), None, 403, "OtherSite"),
        ("/topics", ("-H", "Sec-Fetch-Site: cross-site"), None, 403, "OtherSite"),
        (
            "/topics/orders/messages", ("-H", "Content-Type: application/json"), "{no", 400,
            "InvalidRequest",
        ),
        ("/topics", ("-H", "Host: evil.example:7119"), None, 421, "WrongHost"),
        ("/topics/orders/messages?queue=9", (), "x", 404, "UnknownQueue"),
        ("/topics/orders/messages?priority=9999", (), "x", 400, "InvalidRequest"),
        ("/topics/orders/messages?one_way=1&id=a", (), "x", 400, "InvalidRequest"),
        ("/topics/orders/messages", (), None, 400, "InvalidRequest"),
        ("/topics/orders/messages/nix", (), None, 404, "MessageNotFound"),
        ("/topics/orders/queues/-1/messages", (), None, 400, "InvalidRequest"),
        ("/topics/orders/queues/7/messages", (), None, 404, "UnknownQueue"),
        ("/topics/orders/groups/g/pull", (), '{"max": 101}', 400, "InvalidRequest"),
        ("/topics/orders/groups/g/pull", (), '{"wait": "2h"}', 400, "InvalidRequest"),
        ("/topics/orders/groups/g/pull", (), '{"wait": 10}', 400, "InvalidRequest"),
        ("/topics/orders/groups/g/pull", (), '{"lease": "1ms"}', 400, "InvalidRequest"),
        ("/topics/orders/groups/g/settle", (), "{}", 400, "InvalidRequest"),
        (
            "/topics/orders/groups/g/settle", (), '{"receipts": ["x"], "outcome": "ack"}', 400,
            "InvalidRequest",
        ),
        (
            "/topics/orders/groups/g/settle", (), '{"receipts": [], "outcome": "eat"}', 400,
            "InvalidRequest",
        ),
        ("/topics/none/groups", (), None, 404, "UnknownTopic"),
    ],
)  # fmt: skip
def test_what_is_refused(
    front: Front, path: str, arguments: tuple[str, ...], body: str | None, status: int, title: str
) -> None:
    found = front.curl(path, *arguments, data=body)
    assert (found.status, found.value["title"]) == (status, title), found.value
    assert found.headers["content-type"] == "application/problem+json"
    assert found.value["request_id"] == found.headers["request-id"]
    assert "Traceback" not in found.body.decode()


def test_an_upgrade_is_no_upgrade(front: Front) -> None:
    found = front.curl("/topics", "-H", "Upgrade: websocket", "-H", "Connection: Upgrade")
    assert found.status == 200


def test_hostile_text_comes_back_as_json(front: Front) -> None:
    """Markup and control characters in what a sender sets; a body is never shown as a page."""
    hostile = "<script>alert(1)</script>\u202e"
    sent = front.curl(
        "/topics/orders/batches",
        data=json.dumps(
            {"messages": [{"body": hostile, "key": "h", "headers": {"x": hostile},
                           "content_type": "text/html"}]}
        ),
    )  # fmt: skip
    assert sent.status == 201
    (one,) = front.curl("/topics/orders/messages?key=h").value["items"]
    assert one["headers"] == {"x": hostile}
    body = front.curl(f"/topics/orders/messages/{one['id']}/body")
    assert body.body.decode() == hostile
    assert body.headers["content-type"] == "application/octet-stream"
    assert body.headers["x-content-type-options"] == "nosniff"
    assert body.headers["content-disposition"] == "attachment"


def test_a_batch_in_which_one_is_wrong(front: Front) -> None:
    lines = '{"body": 1}\nnonsense\n{"body": 2, "nix": 3}\n{"body": 3}\n'
    found = front.curl(
        "/topics/orders/batches", "-H", "Content-Type: application/x-ndjson", data=lines
    )
    assert (found.status, found.value["failed"]) == (207, 2)
    assert ["error" in one for one in found.value["results"]] == [False, True, True, False]


def test_a_body_that_is_too_large(front: Front) -> None:
    before = front.curl("/topics/orders").value["messages"]
    found = front.curl("/topics/orders/messages", data=bytes((64 << 20) + 1))
    assert (found.status, found.value["title"]) == (413, "BodyTooLarge")
    found = front.curl("/topics/orders/messages", data=bytes(17 << 20))
    assert (found.status, found.value["title"]) == (413, "MessageTooLarge")
    assert front.curl("/topics/orders").value["messages"] == before


def test_its_own_pages_may_use_it(front: Front) -> None:
    own = ("-H", f"Origin: http://127.0.0.1:{front.port}", "-H", "Sec-Fetch-Site: same-origin")
    assert front.curl("/topics", *own).status == 200


def test_content_types(front: Front) -> None:
    """What curl states by itself says nothing; the parameters of JSON and text are left out."""
    for stated, stored in (
        ("application/x-www-form-urlencoded", ""), ("application/json; charset=utf-8",
        "application/json"), ("text/plain; charset=UTF-8", "text/plain"), ("text/csv", "text/csv"),
    ):  # fmt: skip
        sent = front.curl("/topics/orders/messages", "-H", f"Content-Type: {stated}", data='"x"')
        assert sent.status == 201
        found = front.curl(f"/topics/orders/messages/{sent.value['id']}")
        assert found.value["content_type"] == stored


def test_many_connections_that_say_nothing(front: Front) -> None:
    idle = [socket.create_connection(("127.0.0.1", front.port), DEADLINE) for _ in range(300)]
    try:
        for one in idle[::2]:
            one.sendall(b"GET /v1/topics HTTP/1.1\r\nX-Slow: ")
        assert front.curl("/topics").status == 200
    finally:
        for one in idle:
            one.close()
    assert front.curl("/topics").status == 200
