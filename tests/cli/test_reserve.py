"""A reserve that no disk has room for, and a data folder that is a file, are refused at once."""

from __future__ import annotations

import pytest

from tests.black_box.process import BrokerProcess
from tests.cli.conftest import Processes

START = ("--listen", "127.0.0.1:0", "--http", "off", "--data", "data")


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_a_new_folder(processes: Processes, command: str) -> None:
    processes.environment |= {"TERNMQ_RESERVE": "1000000000GiB"}
    ended = processes.run(command, *START, code=2)
    last = ended.err.splitlines()[-1]
    assert last.startswith("ternmq: reserve = 1000000000GiB is too much for this disk: ")
    assert "MiB free; set reserve to less" in last
    assert not (processes.folder / "data" / "journal").exists()


@pytest.mark.parametrize("data", ["settings.toml", "settings.toml/data"])
def test_a_folder_that_is_a_file(processes: Processes, data: str) -> None:
    (processes.folder / "settings.toml").write_text("not a folder")
    processes.environment |= {"TERNMQ_DATA": data}
    ended = processes.run("serve", *START[:-2], code=2)
    last = ended.err.splitlines()[-1]
    assert last == f"ternmq: data = {data!r} cannot be a folder: settings.toml is a file"


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_a_folder_in_a_file(processes: Processes, command: str) -> None:
    (processes.folder / "settings.toml").write_text("not a folder")
    ended = processes.run(command, *START[:-1], "settings.toml/data", code=2)
    assert ended.err.endswith("cannot be a folder: settings.toml is a file\n")


def test_a_folder_that_is_there(processes: Processes) -> None:
    with BrokerProcess("serve", processes.folder, segment="4MiB") as one:
        data = one.data
    processes.environment |= {"TERNMQ_RESERVE": "1000000000GiB"}
    before = sorted((data / "journal").iterdir())
    ended = processes.run("serve", *START[:-1], data, code=2)
    assert "is too much for this disk: the broker can use " in ended.err
    assert sorted((data / "journal").iterdir()) == before
