"""What a broker that cannot start says: one line, and what to do."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ternmq.server.app import EXIT_FAILED, serve
from ternmq.settings.load import load


def test_the_address_is_taken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = load(flags={"data": str(tmp_path), "listen": address, "http": "127.0.0.1:0"})
        assert serve(settings) == EXIT_FAILED
    said = capfd.readouterr().err
    assert f"ternmq: {address} is in use; is another broker running?" in said
    assert "127.0.0.1:0" not in said


def test_the_folder_is_somebody_elses(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a folder of root's that is given to a container whose user is another."""
    opened = os.open

    def refuse(path: str | Path, flags: int, mode: int = 0o777, **given: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and str(path).startswith(str(tmp_path)):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, mode, **given)

    monkeypatch.setattr(os, "open", refuse)  # root, who runs these tests in CI, may write anywhere
    settings = load(flags={"data": str(tmp_path), "listen": "127.0.0.1:0", "http": "127.0.0.1:0"})
    assert serve(settings) == EXIT_FAILED
    said = capfd.readouterr().err
    assert f"{tmp_path}/LOCK: Permission denied; the data folder must belong to the user" in said
    assert f"number {os.geteuid()}" in said
