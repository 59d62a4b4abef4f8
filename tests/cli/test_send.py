from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import ternmq.sync
from ternmq.cli.topics.send import Results, kind_of
from tests.cli.conftest import CommandLine, Processes


def bodies(client: ternmq.sync.Client, topic: str) -> list[bytes]:
    return [one.body for one in client.read(topic)]


def test_arguments(cli: CommandLine, topic: str, client: ternmq.sync.Client) -> None:
    sent = cli("send", topic, '{"n": 1}', "two", "-k", "k1", "-t", "paid", "-H", "a=b", "-H", "c=",
               )  # fmt: skip
    first, second = client.read(topic)
    assert [first.id, second.id] == [line.split()[1] for line in sent.out.splitlines()]
    assert sent.out.startswith(f"{topic}/0/0  ")
    assert (first.value, second.value) == ({"n": 1}, "two")
    for one in (first, second):
        assert (one.key, one.tag, dict(one.headers)) == ("k1", "paid", {"a": "b", "c": ""})


def test_a_header_is_given_once(cli: CommandLine, topic: str) -> None:
    ended = cli("send", topic, "x", "-H", "a=1", "-H", "b=1", "-H", "a=2", code=2)
    assert "header 'a' is given twice" in ended.err


def test_a_request_that_was_sent_again_counts_as_stored(
    capsys: pytest.CaptureFixture[str], cli: CommandLine, topic: str, client: ternmq.sync.Client
) -> None:
    """Without an id, nobody else can have sent the message before: the connection was lost."""
    plain = client.send(topic, b"1")
    named = client.send(topic, b"2", id="order-7")
    results = Results(topic, each=False, quiet=False, as_json=False)
    results.stored_one(replace(plain, duplicate=True))
    results.stored_one(replace(named, duplicate=True))
    results.end()
    assert capsys.readouterr().err == (
        f"stored 1 message in {topic}; not stored again: 1 message with an id that was stored "
        "before\n"
    )


def test_receipts_as_json(cli: CommandLine, topic: str) -> None:
    told = cli("send", topic, "a", "--id", "order-7-paid", "--json").lines
    again = cli("send", topic, "a", "--id", "order-7-paid", "--json").lines
    assert [one["duplicate"] for one in told + again] == [False, True]
    assert told[0]["offset"] == again[0]["offset"] == 0
    assert told[0]["application_id"] == "order-7-paid"
    assert "duplicate" in cli("send", topic, "a", "--id", "order-7-paid").out
    assert cli("send", topic, "a", "-q").out == ""


def test_files_are_one_message_each(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"two\nlines\n")
    (tmp_path / "b").write_bytes(bytes(range(256)))
    cli("send", topic, "--file", tmp_path / "a", "-f", tmp_path / "b")
    assert bodies(client, topic) == [b"two\nlines\n", bytes(range(256))]
    assert cli("send", topic, "-f", tmp_path / "none", code=2).out == ""
    assert cli("send", topic, "-f", tmp_path, code=2).out == ""


def test_standard_input_is_one_message(
    cli: CommandLine,
    topic: str,
    client: ternmq.sync.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"two\nlines\n")))
    (tmp_path / "a").write_bytes(b"file")
    cli("send", topic, "-f", "-", "-f", tmp_path / "a")
    assert bodies(client, topic) == [b"two\nlines\n", b"file"]
    for more in (("-f", "-"), ("--lines", "-")):
        said = cli("send", topic, "-f", "-", *more, code=2).err
        assert "standard input (-) can be read only once" in said
    assert len(bodies(client, topic)) == 2


def test_lines_of_a_file(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, tmp_path: Path
) -> None:
    lines = [f"line {n}" for n in range(2500)] + ["", "last without an end"]
    (tmp_path / "lines").write_text("\r\n".join(lines), encoding="utf-8")
    said = cli("send", topic, "--lines", tmp_path / "lines")
    assert said.out == ""
    assert said.err == f"stored 2,502 messages in {topic}\n"
    assert bodies(client, topic) == [line.encode() for line in lines]


def test_lines_from_standard_input_leave_as_they_come(
    processes: Processes, topic: str, client: ternmq.sync.Client
) -> None:
    client.admin.create_topic(topic)
    process = processes.start("send", topic, "--json")
    assert process.stdin is not None
    assert process.stdout is not None
    for n in range(3):
        process.stdin.write(f"line {n}\n".encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["offset"] == n
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert processes.run("send", topic, "-q", data=b"more").code == 0
    assert bodies(client, topic)[-1] == b"more"
    assert processes.run("send", topic).err == f"stored 0 messages in {topic}\n"


def test_what_tail_prints_can_be_sent_again(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, tmp_path: Path
) -> None:
    bodies_sent = [b"text", "grün".encode(), bytes(range(256)), b"", b"[1, 2]", b"\xff",
                   b'{"a": 1, "b": "\xc3\xbc"}', b"no json {", b"123456789012345678901234567890",
                   b"NaN", b'{"n":1e999}', b'{"a":1.10,"a":2}', b'{\n "a": 1\n}\n']  # fmt: skip
    kinds = ["", "text/plain", "application/json", "image/png"]
    for body in bodies_sent:
        for kind in kinds:
            client.send(topic, body, key="k", tag="t", headers={"h": "v"}, content_type=kind)
    client.send(topic, b"mine", id="my-own")
    out = cli("tail", topic, "-n", 1000, "--json").out
    (tmp_path / "all").write_text(out, encoding="utf-8")
    cli("send", f"{topic}-again", "--json-in", "--lines", tmp_path / "all")
    first, second = list(client.read(topic)), list(client.read(f"{topic}-again"))
    assert len(first) == len(second) == len(bodies_sent) * len(kinds) + 1
    for one, two in zip(first, second, strict=True):
        assert (one.key, one.tag, one.headers, one.content_type, one.application_id) == (
            two.key, two.tag, two.headers, two.content_type, two.application_id
        )  # fmt: skip
        assert one.body == two.body


def test_messages_as_json(cli: CommandLine, topic: str, client: ternmq.sync.Client) -> None:
    told = [
        {"body": {"n": 7}, "key": "k", "headers": {"a": "b"}, "id": "mine"},
        {"body": "text"},
        {"body": "raw", "content_type": ""},
        {"body_base64": base64.b64encode(b"\x00\xff").decode()},
        {"body": None, "tag": "own"},
    ]
    cli("send", topic, "--json-in", "--tag", "all", *map(json.dumps, told))
    found = list(client.read(topic))
    assert [one.body for one in found] == [b'{"n": 7}', b"text", b"raw", b"\x00\xff", b"null"]
    assert [one.tag for one in found] == ["all"] * 4 + ["own"]
    assert found[0].application_id == "mine"
    assert [one.content_type for one in found] == [
        "application/json", "text/plain", "", "", "application/json"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "needs a body or a body_base64"),
        ('{"body": 1, "body_base64": "eA=="}', "differ: leave one of them out"),
        ('{"body": {"n": 1}, "body_base64": "eyJuIjp0cnVlfQ=="}', "differ: leave one"),
        ('{"body_base64": "%%"}', "not base64"),
        ('{"body_base64": 7}', "not base64"),
        ('{"body": [NaN]}', "NaN is not JSON"),
        ('{"body": -Infinity}', "-Infinity is not JSON"),
        ('{"body": 1e999}', "has a body that is not JSON"),
        ('{"body": ["\\ud800"]}', "is not JSON"),
        ('{"body": 1, "keys": "x"}', "'keys'"),
        ('{"body": 1, "key": 7}', "key"),
        ('{"body": 1, "headers": []}', "headers"),
        ('{"body": 1, "headers": {"a": 7}}', "has a header 'a' whose value is not text"),
        ("[" * 100_000, "is JSON that is nested too deeply"),
    ],
)
def test_lines_that_are_no_message(cli: CommandLine, topic: str, text: str, said: str) -> None:
    ended = cli("send", topic, "--json-in", text, code=2)
    assert said in ended.err
    assert "message 1" in ended.err


def test_lines_before_one_that_is_no_message_are_stored(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    good = [json.dumps({"body": f"line {number}"}) for number in range(1, 6)]
    file.write_text("\n".join([*good, "not json", *good]))
    ended = cli("send", topic, "--json-in", "--lines", file, code=2)
    assert "stored 5 messages" in ended.err
    assert "line 6 is not JSON" in ended.err
    assert "it and the lines after it were not sent" in ended.err
    assert bodies(client, topic) == [f"line {number}".encode() for number in range(1, 6)]
    ended = cli("send", topic, "--json-in", good[0], "not json", code=2)
    assert ended.err.endswith("nothing was sent\n")
    assert len(bodies(client, topic)) == 5


def test_lines_that_cannot_be_read_are_no_end_of_the_file(cli: CommandLine, topic: str) -> None:
    ended = cli("send", topic, "--lines", "/proc/self/mem", code=2)  # it opens, and reading fails
    assert ended.err == (
        "ternmq: /proc/self/mem cannot be read: Input/output error; stored 0 messages\n"
    )


def test_lines_before_one_that_is_too_long_are_stored(
    cli: CommandLine, topic: str, client: ternmq.sync.Client, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\nb\n" + bytes(17 << 20))
    ended = cli("send", topic, "--lines", file, code=2)
    assert "stored 2 messages" in ended.err
    assert "line 3 has more than 16 MiB" in ended.err
    assert bodies(client, topic) == [b"a", b"b"]


def test_where_none_of_many_can_be_stored_they_are_counted(
    cli: CommandLine, topic: str, client: ternmq.sync.Client
) -> None:
    client.admin.create_topic(topic, ordered=True)
    said = cli("send", topic, "--json-in", *['{"body": "x"}'] * 143, code=2).err
    assert "none of the first 143 messages was stored: no more are sent" in said
    assert said.count(" was not stored:") == 10


def test_what_is_not_clear(cli: CommandLine, topic: str) -> None:
    assert "--id is for one" in cli("send", topic, "a", "b", "--id", "x", code=2).err
    assert "NAME=VALUE" in cli("send", topic, "a", "-H", "novalue", code=2).err
    cli("send", topic, "a", "--queue", "first", code=2)
    assert cli("send", "a b", "x", code=2).out == ""
    assert cli("send", "$sys", "x", code=2).out == ""
    cli("topic", "create", topic)
    assert cli("send", topic, "a", "--queue", 5, code=4).out == ""
    cli("topic", "create", f"{topic}-ordered", "--ordered")
    assert "--ordering-key" in cli("send", f"{topic}-ordered", "a", code=2).err
    cli("send", f"{topic}-ordered", "a", "-o", "user-7")


def test_a_body_that_is_too_large_is_named_and_the_others_are_stored(
    cli: CommandLine, topic: str, tmp_path: Path, client: ternmq.sync.Client
) -> None:
    (tmp_path / "lines").write_bytes(b"small\n" + b"x" * (2 << 20) + b"\nsmall too\n")
    said = cli("send", topic, "--lines", tmp_path / "lines", code=1).err
    assert "message 2 was not stored" in said
    assert "1 of 3 messages was not stored" in said
    assert bodies(client, topic) == [b"small", b"small too"]
    (tmp_path / "large").write_bytes(b"x" * (2 << 20))
    cli("send", topic, "-f", tmp_path / "large", code=2)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{}", "application/json"), (b' [1, "a"]', "application/json"), (b"7", "text/plain"),
        (b"{", "text/plain"), (b"text", "text/plain"), (b"", "text/plain"), (b"\xff", ""),
        (b"[" * 100_000, "text/plain"),
    ],
)  # fmt: skip
def test_the_kind_of_a_body(body: bytes, kind: str) -> None:
    assert kind_of(body) == kind


def test_of_a_long_value_an_error_shows_the_beginning(cli: CommandLine) -> None:
    said = cli("send", "x" * 100_000, "hello", code=2).err
    assert "... (100000 characters) cannot be a name" in said.replace("\n", " ")
    assert len(said) < 1000
