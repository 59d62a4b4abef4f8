"""Whatever is typed wrong: one line that says what to do, and the right exit status."""

from __future__ import annotations

import socket
import threading

import pytest

from ternmq.cli.terminal import problems
from ternmq.cli.terminal.exits import ExitCode
from ternmq.model import errors
from tests.black_box.process import free_port
from tests.cli.conftest import CommandLine


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topc"], "did you mean topic?"),
        (["topic", "lst"], "did you mean list?"),
        (["xyzzy"], "there is no command 'xyzzy'"),
        (["topic", "create", "x", "--queus", "3"], "Did you mean '--queues'?"),
        (["topic", "create", "x", "--queues"], "requires an argument"),
        (["topic", "create", "x", "--queues", "three"], "not a valid whole number"),
        (["topic", "create", "x", "--queues", "0"], "x>=1"),
        (["topic", "create", "x", "--queues", "5000"], "queues must be 1 to 4096"),
        (["topic", "create", "x", "--retention", "10"], "a duration such as 10m"),
        (["topic", "create", "x", "--retention", "0"], "must be more than 0"),
        (["topic", "create", "x", "--durability", "very"], "'normal', 'strict', 'fast'"),
        (["topic", "create", "x", "y"], "unexpected extra argument"),
        (["topic", "create"], "Missing argument 'NAME'"),
        (["topic", "create", ""], "cannot be a name"),
        (["topic", "create", "a/b"], "A-Z a-z 0-9"),
        (["topic", "create", "x" * 200], "1 to 127"),
        (["tail", "x", "-n", "-1"], "is not in the range"),
        (["hold", "set", "h", "-50"], "-50 is below 0"),
        (["hold", "set", "h", "-n"], "No such option"),
        (["--url", "localhost:7117", "topic", "list"], "ternmq://"),
        (["topic", "list", "--url", "ternmq://"], "has no host"),
        (["topic", "list", "--url", "ternmq://x:99999999"], "out of range"),
        (["topic", "list", "--url", "ternmq://x:port"], "port"),
        (["topic", "list", "--timeout", "soon"], "a duration"),
        (["topic", "list", "--app", "a b"], "not a name"),
        (["bench", "send", "--size", "1KB"], "a size such as 64MiB"),
        (["bench", "send", "--size", "10GiB"], "16MiB"),
        (["topic", "create", "x", "--retention", "9999999999d"], "longer than any"),
        (["topic", "create", "x", "--retention", "50000d"], "a hundred years"),
        (["group", "lag", "--interval", "99999999999999d"], "longer than any"),
        (["group", "lag", "--interval", "5s"], "--interval is for --watch"),
        (["app", "create", "x", "--grant", "audit:orders"], "write audit:*"),
        (["app", "create", "x", "--grant", "consume:*orders"], "nor a prefix that ends in *"),
        (["app", "set", "x", "--grant", "consume:orders:*g"], "nor a prefix that ends in *"),
        (["tail", "x", "--since", "9999999999d"], "14:30"),
        (["tail", "x", "--since", "0001-01-01"], "14:30"),
        (["send", "x", "a", "--key", "\udcff"], "UTF-8"),
        (["send", "x", "a", "--key", "k" * 5000], "4096"),
        (["completion", "tcsh"], "'bash', 'zsh', 'fish'"),
        (["completion"], "SHELL"),
        (["worker", "nothing"], "MODULE:CLIENT"),
        (["worker", "consumers.py:client"], "name the module: consumers:client"),
        (["worker", "./shop/consumers.py:client"], "name the module: shop.consumers:client"),
        (["worker", "../shop/consumers.py:client"], "and name the module: consumers:client"),
        (["apply", "/srv/shop/consumers.py:client"], "and name the module: consumers:client"),
        (["worker", "no_such_module:client"], "no module 'no_such_module'"),
        (["worker", "os:nothing"], "has no 'nothing'"),
        (["worker", "os:sep"], "is of type str, not a client"),
        (["apply", "os:sep"], "is of type str, not a client"),
        (["doctor", "--data", "/nowhere"], "does not exist"),
        (["journal", "verify", "/nowhere"], "does not exist"),
    ],
)
def test_what_is_typed_wrong(cli: CommandLine, arguments: list[str], said: str) -> None:
    ended = cli(*arguments, code=2)
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""


def test_groups_of_commands_alone_show_their_help(
    cli: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    from ternmq.cli import main

    for arguments in ([], ["topic"], ["group"]):
        assert main.run(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("Usage: ternmq")
    assert cli("--help").out.startswith("Usage: ternmq")
    assert cli("topic", "-h").out.startswith("Usage: ternmq topic")
    assert cli("--version").out.startswith("ternmq, version")


def test_a_broker_that_is_away(cli: CommandLine, topic: str) -> None:
    url = f"ternmq://127.0.0.1:{free_port()}"
    for command in (
        ["topic", "list"], ["send", topic, "x"], ["tail", topic, "-f"], ["top"],
        ["consume", topic, "-g", "g"], ["bench", "send"], ["group", "lag", "-w"],
        ["broker", "status"], ["app", "list"], ["deadletter", "list", topic, "g"],
    ):  # fmt: skip
        said = cli(*command, "--url", url, code=3).err
        assert said == (
            f"ternmq: no broker at {url} (connection refused): `ternmq dev` starts one; --url, "
            "TERNMQ_URL or `ternmq context use` sets the address\n"
        )


def test_a_host_that_does_not_exist(cli: CommandLine) -> None:
    said = cli("topic", "list", "--url", "ternmq://no-such-host.invalid", code=3).err
    assert "host" in said
    assert "Errno" not in said


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 64, b""])
def test_something_else_at_that_address(cli: CommandLine, answer: bytes) -> None:
    """What answers is no broker: a web server, zeros, nothing at all."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        one, _ = listener.accept()
        with one:
            one.recv(10_000)
            one.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    port = listener.getsockname()[1]
    said = None
    from ternmq.cli import main

    try:
        code = main.run(["topic", "list", "--url", f"ternmq://127.0.0.1:{port}"])
    finally:
        thread.join(30)
        listener.close()
    said = cli.capture.readouterr().err
    assert code in {1, 3}, said
    assert said.startswith("ternmq: ")
    assert said.count("\n") == 1


def test_every_error_ends_with_a_documented_status_and_one_line() -> None:
    for kind in errors.table().values():
        error = kind("something\nhappened")
        assert problems.code_of(error) in set(ExitCode) - {ExitCode.DONE}
        text = problems.text_of(error)
        assert "\n" not in text
        assert "client.admin" not in text
    assert problems.code_of(errors.Busy("x")) is ExitCode.LATER
    assert problems.code_of(errors.SendTimeout("x")) is ExitCode.UNKNOWN
    assert problems.code_of(errors.TopicExists("x")) is ExitCode.FAILED
