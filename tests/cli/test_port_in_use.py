"""A port that another listens at is said before a broker makes files or greets anybody."""

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
