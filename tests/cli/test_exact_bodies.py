"""Bodies in ``--json`` are exact: what is exported and sent again is the same bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ternmq.sync
from ternmq.cli.terminal import output
from ternmq.client.content.codecs import JSON, Codecs
from ternmq.client.content.message import Message
from ternmq.client.forms.messages import Found, message_of, plain
from tests.cli.conftest import CommandLine

EXACT = b'{"amount": 12345678901234567.89, "rate": 0.1000000000000000055511, "a":1, "a":2}'
LINES = b'{\n  "rate": 0.10,\n  "a": "\xc3\xbc \\u00fc"\n}\n'

blank = st.text(" \t\n\r", max_size=2)
numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?", fullmatch=True
)
texts = st.builds(
    lambda text, ascii_only: json.dumps(text, ensure_ascii=ascii_only),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.booleans(),
)


def _padded(before: str, text: str, after: str) -> str:
    return before + text + after


def _several(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    rows = st.lists(inner, max_size=4).map(",".join)
    pairs = st.builds("{}{}:{}".format, blank, texts, inner)
    return st.one_of(
        st.builds("[{}{}]".format, blank, rows),
        st.builds("{{{}{}}}".format, blank, st.lists(pairs, max_size=4).map(",".join)),
    )


any_json = st.recursive(
    st.builds(_padded, blank, st.one_of(numbers, texts, st.sampled_from(["true", "null"])), blank),
    lambda inner: st.builds(_padded, blank, _several(inner), blank),
    max_leaves=12,
)  # fmt: skip


def found(body: bytes, content_type: str = JSON) -> Found:
    now = datetime(2026, 11, 23, tzinfo=UTC)
    return Found("id", "t", 0, 0, now, now, "", "", "", {}, "", content_type, body)


def sent_again(line: bytes) -> tuple[bytes, str]:
    message = message_of(line, Message(b""))
    return Codecs().encode(message.body, message.content_type)


@given(any_json)
@example('{"a":1,"a":2}')
@example("12345678901234567.89")
@example("1e999")
@example(' {"a": 1}')
@example("{}\n")
@example('"\u2028 \\u2028"')
def test_any_json_exported_and_sent_again_is_the_same_bytes(text: str) -> None:
    body = text.encode()
    told = plain(found(body))
    for line in (told, {"reason": "broken", "message": told}):
        written = output.encoded_plain(line)
        assert b"\n" not in written
        assert b"\r" not in written
        assert sent_again(written) == (body, JSON)


@given(any_json)
def test_a_body_is_sent_as_the_line_has_it(text: str) -> None:
    body = text.strip(" \t\n\r").encode()
    try:
        sent, kind = sent_again(b'{"key": "k", "body" :  %s , "tag": ""}' % body)
    except ValueError:
        with pytest.raises(ValueError, match="out of range"):
            msgspec.json.decode(body)
        return
    if kind == JSON:
        assert sent == body
    else:
        assert sent == json.loads(body).encode()


def test_the_last_of_doubled_fields_counts() -> None:
    assert sent_again(b'{"body": [1], "body": [2.0]}') == (b"[2.0]", JSON)
    assert sent_again(b'\xef\xbb\xbf{"body": [1.0]}') == (b"[1.0]", JSON)


def test_a_body_of_several_lines_can_be_read_and_is_exact() -> None:
    told = json.loads(output.encoded_plain(plain(found(LINES))))
    assert told["body"] == json.loads(LINES)
    assert sent_again(output.encoded_plain(plain(found(LINES)))) == (LINES, JSON)
    with pytest.raises(ValueError, match="differ"):
        sent_again(json.dumps({**told, "body": {"rate": 7}}).encode())
    del told["body_base64"]
    assert sent_again(json.dumps({**told, "body": {"rate": 7}}).encode()) == (b'{"rate": 7}', JSON)


def test_every_command_prints_bodies_as_they_are(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, tmp_path: Path
) -> None:
    client.send(topic, EXACT, key="k", content_type=JSON)
    client.send(topic, LINES, key="k", content_type=JSON)
    for one in client.pull(topic, group="g", max_messages=2):
        one.reject("broken")
    shown = '"body":' + EXACT.decode()
    assert shown in cli("tail", topic, "--json").out
    assert shown in cli("consume", topic, "-g", "other", "--wait", "0", "--json").out
    assert shown in cli("message", "find", topic, "--key", "k", "--json").out
    assert shown in cli("deadletter", "list", topic, "g", "--json").out
    assert shown in cli("deadletter", "export", topic, "g").out
    spread = shown.replace(":", ": ", 1)
    for document in (
        cli("message", "get", f"{topic}/0/0", "--json"),
        cli("deadletter", "show", topic, "g", "0/0", "--json"),
    ):
        assert spread in document.out
        assert "a" in (document.json.get("message") or document.json)["body"]
    file = tmp_path / "dead"
    cli("deadletter", "export", topic, "g", "-o", file)
    cli("send", f"{topic}-again", "--json-in", "--lines", file)
    assert [one.body for one in client.read(f"{topic}-again")] == [EXACT, LINES]
