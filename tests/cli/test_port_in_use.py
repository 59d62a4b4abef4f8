"""An address that cannot be listened at is said before a broker makes files or greets anybody."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Processes


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_dev_says_it_before_its_welcome(
    processes: Processes, tmp_path: Path, option: str, *, kept: bool
) -> None:
    data, temporary = tmp_path / "data", tmp_path / "temporary"
    temporary.mkdir()
    processes.environment |= {"TMPDIR": str(temporary)}
    other = "--http" if option == "--listen" else "--listen"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        where = ("--data", data) if kept else ()
        ended = processes.run("dev", *where, option, address, other, "127.0.0.1:0", code=1)
    assert f"{address} is in use; is another broker running?" in ended.err
    assert "127.0.0.1:0 " not in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not data.exists()
    assert not list(temporary.iterdir())


def test_serve_says_it_before_it_makes_a_journal(processes: Processes, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = processes.run("serve", "--data", data, "--listen", address, code=1)
    assert f"ternmq: {address} is in use" in ended.err
    assert " or " not in ended.err
    assert not data.exists()


def test_one_address_for_two_purposes_makes_nothing(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "ternmq.toml").write_text(
        'data = "d"\nlisten = "127.0.0.1:18455"\nhttp = "127.0.0.1:18455"\n'
    )
    ended = processes.run("serve", code=2)
    assert "listen = 127.0.0.1:18455 in ternmq.toml and http = 127.0.0.1:18455 in" in ended.err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        # A block of addresses that are for documents; `dev`, which asks for no certificate there.
        ("192.0.2.1:7117", "listen = 192.0.2.1:7117: this machine has no such address"),
        ("[2001:db8::1]:7117", "listen = [2001:db8::1]:7117: "),
    ],
)
def test_an_address_of_another_machine(
    processes: Processes, tmp_path: Path, listen: str, said: str
) -> None:
    processes.environment |= {"TERNMQ_ADMIN_TOKEN": "0123456789abcdef0123456789abcdef"}
    data = tmp_path / "data"
    ended = processes.run("dev", "--data", data, "--listen", listen, "--http", "off", code=1)
    assert len(ended.err.splitlines()) == 1
    assert said in ended.err
    assert "--listen names another" in ended.err
    assert not data.exists()
