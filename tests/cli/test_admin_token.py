"""``serve --new-admin-token``: the way in for who has lost the token, without a settings file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.black_box.process import BrokerProcess
from tests.cli.conftest import CommandLine

ANEW = "ternmq serve --new-admin-token"


def test_the_token_file_is_lost_and_a_new_one_is_made(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerProcess("serve", tmp_path / "broker", segment="4MiB") as broker:
        monkeypatch.setenv("TERNMQ_URL", broker.url)
        file = broker.data / "admin.token"
        old = file.read_text().strip()
        as_old = ("--app", "admin", "--token", old)
        cli("topic", "create", "orders", *as_old)
        shop = cli("app", "create", "shop", "--grant", "produce:orders", *as_old).out.strip()
        broker.kill()
        file.write_bytes(b"")  # as a power cut left it

        broker.start()
        assert f"{file} is empty" in broker.log
        assert ANEW in broker.log
        said = cli("topic", "list", "--app", "admin", "--token", "lost", code=5).err
        assert ANEW in said
        assert ANEW in cli("topic", "list", "--app", "admin", code=5).err
        assert ANEW not in cli("topic", "list", "--app", "shop", "--token", "no", code=5).err
        cli("topic", "list", *as_old)

        broker.arguments = ["--new-admin-token"]
        broker.restart(kill=True)
        new = file.read_text().strip()
        assert new != old
        assert file.stat().st_mode & 0o777 == 0o600
        assert new not in broker.log
        cli("topic", "list", *as_old, code=5)
        assert "orders" in cli("topic", "list", "--app", "admin", "--token", new).out
        cli("send", "orders", "x", "--app", "shop", "--token", shop)

        broker.arguments = []
        broker.restart(kill=True)
        cli("app", "list", "--app", "admin", "--token", new)


def test_a_folder_in_use_is_left_alone(tmp_path: Path, cli: CommandLine) -> None:
    with BrokerProcess("serve", tmp_path / "broker", segment="4MiB") as broker:
        file = broker.data / "admin.token"
        before = file.read_text()
        other = BrokerProcess("serve", broker.folder)
        other.arguments = ["--new-admin-token"]
        with pytest.raises(AssertionError, match="another process owns"):
            other.start()
        assert file.read_text() == before
        cli("app", "list", "--url", broker.url, "--app", "admin", "--token", before.strip())


def test_the_settings_say_which(tmp_path: Path, cli: CommandLine) -> None:
    broker = BrokerProcess("serve", tmp_path / "broker", admin_token="chosen")
    broker.arguments = ["--new-admin-token"]
    with pytest.raises(AssertionError, match="the settings contain an admin_token"):
        broker.start()
    assert not broker.data.exists()
    broker.settings["admin_token"] = "off"
    with broker:
        assert (broker.data / "admin.token").exists()
