"""What does not go together: above all, no door that stands open to others by mistake."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from ternmq.settings import Mode, SettingsError, load

TLS: dict[str, Any] = {"tls_cert": "cert.pem", "tls_key": "key.pem"}


def line(mode: Mode = Mode.SERVE, **flags: Any) -> str:
    """Return the error, empty if there is none."""
    try:
        load(flags={"data": "d", **flags}, mode=mode)
    except SettingsError as error:
        text = str(error)
    else:
        return ""
    assert "\n" not in text
    return text


OUTSIDE = ["0.0.0.0:1", ":1", "[::]:1", "10.0.0.1:1", "broker.example:1", "[fe80::1]:1"]


@pytest.mark.parametrize("listen", OUTSIDE)
@pytest.mark.parametrize("mode", [Mode.SERVE, Mode.TESTING])
def test_listening_where_others_reach_it_takes_tokens_and_tls(listen: str, mode: Mode) -> None:
    for auth, tls in itertools.product((True, False), (False, True)):
        text = line(mode, listen=listen, auth=auth, **(TLS if tls else {}))
        if auth and tls:
            assert text == ""
            continue
        assert "accepts connections from other machines, and needs" in text
        assert ("auth = true" in text) == (not auth)
        assert ("tls_cert and tls_key" in text) == (not tls)
        assert "or listen on 127.0.0.1" in text


@pytest.mark.parametrize("listen", OUTSIDE)
@pytest.mark.parametrize("auth", [True, False])
def test_a_broker_for_trying_out_takes_a_token_where_others_reach_it(
    listen: str, auth: bool
) -> None:
    assert "a token (set TERNMQ_ADMIN_TOKEN)" in line(Mode.DEV, listen=listen, auth=auth)
    flags = {"data": "d", "listen": listen, "auth": auth, "admin_token": "chosen"}
    assert load(flags=flags, mode=Mode.DEV).auth
    assert not load(flags=flags | {"listen": "127.0.0.1:1", "auth": False}, mode=Mode.DEV).auth


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_on_loopback_a_broker_for_trying_out_needs_neither(listen: str) -> None:
    assert line(Mode.DEV, listen=listen, auth=False) == ""
    assert line(Mode.TESTING, listen=listen, auth=False) == ""
    assert "ternmq dev" in line(Mode.SERVE, listen=listen, auth=False)
    assert line(Mode.SERVE, listen=listen) == ""


@pytest.mark.parametrize("http", OUTSIDE)
def test_metrics_are_for_this_machine(http: str) -> None:
    assert "listen on 127.0.0.1" in line(http=http, **TLS)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"tls_cert": "c"}, "set both"),
        ({"tls_key": "k"}, "set both"),
        ({"segment": "2MiB"}, "must be at least 2MiB larger than body"),
        ({"body": "16MiB", "segment": "17MiB"}, "must be at least 2MiB larger than body"),
        ({"limits.batch": "1KiB"}, "limits.batch"),
        (
            {"memory": "1MiB", "body": "1025KiB"},
            "memory = 1MiB in the command line must be at least body",
        ),
        ({"limits.dedup_window": "19s"}, "limits.dedup_window"),
        ({"name": "a b"}, "name"),
        ({"name": "../x"}, "name"),
        ({"log_level": "loud"}, "debug, info, warning, error"),
    ],
)
def test_what_does_not_go_together(flags: dict[str, Any], part: str) -> None:
    assert part in line(**flags)


@pytest.mark.parametrize(
    ("file", "environ", "flags", "says"),
    [
        (
            '[limits]\ndedup_window = "15s"\n', {}, {},
            ("limits.dedup_window = 15s in f must be at least twice limits.send_timeout = 10s by"
            " default, or resends are stored twice"),
        ),
        (
            "", {"TERNMQ_LIMITS_SEND_TIMEOUT": "10m"}, {},
            ("limits.dedup_window = 10m by default must be at least twice limits.send_timeout = 10m"
            " in TERNMQ_LIMITS_SEND_TIMEOUT,"),
        ),
        ('body = "16MiB"\n', {}, {"segment": "17MiB"},
         "segment = 17MiB in the command line must be at least 2MiB larger than body = 16MiB in f"),
        ("", {"TERNMQ_LIMITS_BATCH": "1KiB"}, {},
         "limits.batch = 1KiB in TERNMQ_LIMITS_BATCH must be at least body = 1MiB by default,"),
        ('memory = "1MiB"\n', {"TERNMQ_BODY": "16MiB"}, {},
         "memory = 1MiB in f must be at least body = 16MiB in TERNMQ_BODY, or a client that sends"),
        ('[limits]\nwriter_idle = "1s"\n', {}, {}, "limits.writer_idle = 1s in f must be"),
        ("", {"TERNMQ_TLS_KEY": "k"}, {}, "there is only tls_key = k in TERNMQ_TLS_KEY"),
        ("", {"TERNMQ_NAME": "a b"}, {}, "name = a b in TERNMQ_NAME: "),
        ("", {"TERNMQ_LOG_LEVEL": "loud"}, {},
         "log_level = loud in TERNMQ_LOG_LEVEL is not one of debug,"),
        ("", {"TERNMQ_AUTH": "off"}, {}, "auth = false in TERNMQ_AUTH is only for `ternmq dev`"),
        ('listen = "127.0.0.1:18455"\n', {"TERNMQ_HTTP": "localhost:18455"}, {},
         ("listen = 127.0.0.1:18455 in f and http = localhost:18455 in TERNMQ_HTTP are one address"
          " for two purposes: give one of them another port, or set http to off")),
        ("", {}, {"listen": "127.0.0.1:7118"}, "and http = 127.0.0.1:7118 by default are one"),
        ("", {"TERNMQ_HTTP": ":1"}, {}, "http = 0.0.0.0:1 in TERNMQ_HTTP would show"),
        (
            'listen = ":1"\n', {}, {},
            "listen = 0.0.0.0:1 in f accepts connections from other machines, and needs",
        ),
    ],
)  # fmt: skip
def test_both_values_are_said_and_where_each_was_set(
    file: str, environ: dict[str, str], flags: dict[str, Any], says: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text(file)
    with pytest.raises(SettingsError) as caught:
        load("f", environ=environ, flags={"data": "d", **flags})
    assert says in str(caught.value)


def test_memory_may_be_as_much_as_one_body() -> None:
    assert line(memory="1MiB") == ""
    assert line(memory="16MiB", body="16MiB") == ""


def test_serve_needs_a_folder() -> None:
    with pytest.raises(SettingsError, match="--data DIR, TERNMQ_DATA or data = in a settings file"):
        load()


CLUSTER: dict[str, Any] = {"cluster": "sqlite:////c.db", "cluster_token": "0" * 16, "name": "b1"}


def test_a_broker_of_a_cluster_has_a_name_and_the_secret_of_the_cluster() -> None:
    assert line(**CLUSTER) == ""
    for key in ("cluster_token", "name"):
        assert key in line(**{**CLUSTER, key: None})
    assert "at least 16 characters" in line(**{**CLUSTER, "cluster_token": "0" * 15})
    assert "for `ternmq serve`" in line(Mode.DEV, **CLUSTER)
    assert "broker_group" in line(**CLUSTER, broker_group="a b")


def test_only_the_stream_of_a_backup_is_compressed() -> None:
    assert line(**CLUSTER, follower="backup", compress_stream=True) == ""
    for kind in ("member", "synced"):
        assert "follower = backup" in line(**CLUSTER, follower=kind, compress_stream=True)


def test_what_is_for_a_cluster_needs_one() -> None:
    for key, value in (
        ("cluster_token", "0" * 16),
        ("broker_group", "b"),
        ("advertise", "a:1"),
        ("compress_stream", True),
    ):
        given: dict[str, Any] = {key: value}
        assert "needs cluster, the URL" in line(**given)


@pytest.mark.parametrize("listen", [":1", "0.0.0.0:1", "[::]:1"])
def test_a_broker_that_listens_everywhere_says_where_others_reach_it(listen: str) -> None:
    assert "set advertise" in line(**CLUSTER, **TLS, listen=listen)
    assert line(**CLUSTER, **TLS, listen=listen, advertise="10.0.0.1:7117") == ""


def test_no_error_shows_the_secret_or_the_password_of_the_coordinator() -> None:
    secret: dict[str, Any] = {"cluster": "mysql://u:hidden@h/db", "cluster_token": "hidden"}
    assert "hidden" not in line(**secret)
    assert "hidden" not in line(Mode.DEV, **secret, name="b1")
