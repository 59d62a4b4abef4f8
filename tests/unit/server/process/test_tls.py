"""A certificate or key that cannot be used: one line names setting and file, nothing is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ternmq.server.app import serve
from ternmq.server.process.tls import tls_context
from ternmq.settings import Mode, Settings, SettingsError, load

WORDS = "these are no PEM\n"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two certificates with their keys, one of them with a passphrase as well."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("one", "two"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
    subprocess.run(
        ["openssl", "pkey", "-in", folder / "one.key", "-aes256", "-passout", "pass:secret",
         "-out", folder / "locked.key"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "words").write_text(WORDS)
    (folder / "empty").write_bytes(b"")
    (folder / "folder").mkdir()
    return folder


def settings(folder: Path, cert: str, key: str) -> Settings:
    flags: dict[str, object] = {"tls_cert": str(folder / cert), "tls_key": str(folder / key)}
    return load(flags=flags, mode=Mode.TESTING)


WRONG = [
    ("none.pem", "one.key", "tls_cert", "none.pem", "cannot be read: No such file or directory"),
    ("one.pem", "none.key", "tls_key", "none.key", "cannot be read: No such file or directory"),
    ("folder", "one.key", "tls_cert", "folder", "cannot be read: Is a directory"),
    ("words", "one.key", "tls_cert", "words", "is not a PEM file of a certificate"),
    ("empty", "one.key", "tls_cert", "empty", "is not a PEM file of a certificate"),
    ("one.key", "one.key", "tls_cert", "one.key", "is not a PEM file of a certificate"),
    ("one.pem", "words", "tls_key", "words", "is not a PEM file of a private key"),
    ("one.pem", "empty", "tls_key", "empty", "is not a PEM file of a private key"),
    ("one.pem", "one.pem", "tls_key", "one.pem", "is not a PEM file of a private key"),
    ("one.pem", "two.key", "tls_key", "two.key", "is not the key of the certificate in tls_cert"),
    ("one.pem", "locked.key", "tls_key", "locked.key", "has a passphrase"),
]


@pytest.mark.parametrize(("cert", "key", "setting", "file", "why"), WRONG)
def test_the_setting_and_the_file_are_named(
    made: Path, cert: str, key: str, setting: str, file: str, why: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        tls_context(settings(made, cert, key))
    assert str(caught.value).startswith(f"{setting} = {str(made / file)!r} {why}")


def test_what_belongs_together_is_taken(made: Path) -> None:
    assert tls_context(settings(made, "one.pem", "one.key")) is not None
    assert tls_context(load(mode=Mode.TESTING)) is None


@pytest.mark.parametrize("command", ["serve", "dev"])
@pytest.mark.parametrize(
    ("cert", "key", "file"),
    [("none.pem", "one.key", "none.pem"), ("one.pem", "words", "words")],
)
def test_a_start_ends_with_2_and_makes_nothing(
    made: Path, tmp_path: Path, command: str, cert: str, key: str, file: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ternmq", command, "--data", str(tmp_path / "data"),
         "--listen", "127.0.0.1:0", "--http", "off"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={name: value for name, value in os.environ.items() if "TERNMQ" not in name}
        | {"TERNMQ_TLS_CERT": str(made / cert), "TERNMQ_TLS_KEY": str(made / key)},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("ternmq: tls_")
    assert str(made / file) in line
    assert list(tmp_path.iterdir()) == []


def test_the_start_reads_them_before_it_makes_anything(made: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    flags: dict[str, object] = {
        "data": str(data), "listen": "127.0.0.1:0", "http": "off",
        "tls_cert": str(made / "one.pem"), "tls_key": str(made / "two.key"),
    }  # fmt: skip
    with pytest.raises(SettingsError, match="tls_key"):
        serve(load(flags=flags))
    assert not data.exists()
