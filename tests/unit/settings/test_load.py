"""Where settings come from, which place wins, and what is refused with which line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ternmq.model.secret import Secret
from ternmq.model.specs import Durability, Limits
from ternmq.model.types import SECOND_US
from ternmq.settings import Address, LogFormat, Mode, Settings, SettingsError, load
from ternmq.settings.fields import ALL_FIELDS, FIELDS, Field
from ternmq.settings.load import CONFIG
from ternmq.settings.settings import Follower

DATA = {"data": "/somewhere"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(**how: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**how)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_defaults_of_each_mode() -> None:
    serve = load(flags=DATA)
    assert (serve.auth, serve.create_topics, serve.segment_bytes) == (True, False, 0)
    assert (serve.listen, serve.http) == (Address("127.0.0.1", 7117), Address("127.0.0.1", 7118))
    dev = load(mode=Mode.DEV)
    assert (dev.auth, dev.create_topics, dev.segment_bytes) == (False, True, 16 << 20)
    testing = load(mode=Mode.TESTING)
    assert (testing.listen.port, testing.http, testing.segment_bytes) == (0, None, 4 << 20)
    assert serve.limits == dev.limits == Limits()
    assert (serve.body_bytes, serve.frame_bytes) == (1 << 20, 2 << 20)
    assert (serve.handshake_timeout_us, serve.heartbeat_us) == (5 * SECOND_US, 15 * SECOND_US)


def test_flags_win_over_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('name = "file"\nheartbeat = "1s"\nbody = "2MiB"\ncreate_topics = true\n')
    settings = load(
        str(file),
        environ={"TERNMQ_HEARTBEAT": "2s", "TERNMQ_BODY": "3MiB", "HOME": "/", "ternmq_x": "y"},
        flags={**DATA, "body": "4MiB", "connections": None, "log_format": "json"},
    )
    assert settings.name == "file"
    assert settings.create_topics
    assert settings.heartbeat_us == 2 * SECOND_US
    assert settings.body_bytes == 4 << 20
    assert settings.connections == Settings().connections
    assert settings.log_format is LogFormat.JSON


def test_the_file_is_named_by_the_call_or_the_environment_or_lies_here(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f'name = "{name}"\n')
    (tmp_path / "ternmq.toml").write_text('name = "here"\n')
    environ = {"TERNMQ_CONFIG": "b"}
    assert load("a", environ=environ, flags=DATA).name == "a"
    assert load(environ=environ, flags=DATA).name == "b"
    assert load(flags=DATA).name == "here"
    assert load(mode=Mode.DEV).name == "here"
    assert load(mode=Mode.TESTING).name == "ternmq"


def test_limits_have_a_table_and_names_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text('[limits]\nsession_grace = "30s"\nsessions = 7\nwaiters = 9\n')
    settings = load(
        str(file), environ={"TERNMQ_LIMITS_SESSIONS": "8"}, flags={**DATA, "limits.waiters": 10}
    )
    limits = settings.limits
    assert (limits.session_grace_us, limits.sessions, limits.waiters) == (30 * SECOND_US, 8, 10)
    assert settings.options().limits is limits


EXAMPLES: dict[str, tuple[str, object]] = {
    "listen": ("127.0.0.1:1", Address("127.0.0.1", 1)),
    "http": ("127.0.0.1:2", Address("127.0.0.1", 2)),
    "admin_token": ("tmq_x", Secret("tmq_x")),
    "topic_durability": ("strict", Durability.STRICT),
    "log_format": ("json", LogFormat.JSON),
    "log_level": ("debug", "debug"),
    "auth": ("true", True),
    "create_topics": ("true", True),
    "retention_watermark": ("0.5", 0.5),
    "cluster": ("sqlite:////c.db", Secret("sqlite:////c.db")),
    "cluster_token": ("0" * 32, Secret("0" * 32)),
    "follower": ("synced", Follower.SYNCED),
    "advertise": ("broker.example:7117", Address("broker.example", 7117)),
}
TLS = {"tls_cert": "c", "tls_key": "k"}
CLUSTER = {"cluster": "sqlite:////c.db", "cluster_token": "0" * 32, "name": "b1"}
TOGETHER: dict[str, dict[str, str]] = {
    "tls_cert": TLS,
    "tls_key": TLS,
    "cluster": CLUSTER,
    "cluster_token": CLUSTER,
    "cluster_ca": CLUSTER,
    "broker_group": CLUSTER,
    "follower": CLUSTER,
    "compress_stream": CLUSTER,
    "advertise": CLUSTER,
}
"""Settings that need others."""


def example(field: Field) -> tuple[str, object]:
    if field.key in EXAMPLES:
        return EXAMPLES[field.key]
    if isinstance(field.default, int):
        return field.write(field.default), field.default
    return "text", "text"


@pytest.mark.parametrize("field", ALL_FIELDS.values(), ids=lambda field: field.key)
def test_every_setting_can_be_given_in_every_place(field: Field, tmp_path: Path) -> None:
    text, value = example(field)
    more = TOGETHER.get(field.key, {})

    def got(settings: Settings) -> object:
        return getattr(settings.limits if "." in field.key else settings, field.name)

    base: dict[str, object] = {**DATA, **more}
    base.pop(field.key, None)
    assert got(load(environ={field.variable: text}, flags=base)) == value
    assert got(load(flags={**base, field.key: text})) == value
    table, _, key = field.key.rpartition(".")
    written = f"{key} = {text}" if isinstance(value, bool) else f'{key} = "{text}"'
    (tmp_path / "f").write_text(f"[{table}]\n{written}\n" if table else f"{written}\n")
    assert got(load("f", flags=base)) == value


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.key)
def test_every_setting_has_a_sentence_and_a_default_within_its_bounds(field: Field) -> None:
    assert field.about.text.endswith(".")
    if field.default not in (None, ""):
        assert field.read(field.write(field.default)) == field.default


def test_unknown_keys_are_errors_that_name_the_nearest(tmp_path: Path) -> None:
    assert "did you mean listen?" in refused(flags={**DATA, "lisen": ":1"})
    assert "did you mean TERNMQ_HEARTBEAT?" in refused(environ={"TERNMQ_HEARTBEATS": "1s"})
    (tmp_path / "f").write_text('heart_beat = "1s"\n')
    text = refused(path="f")
    assert "'heart_beat' in f" in text
    assert "did you mean heartbeat?" in text
    (tmp_path / "f").write_text("[limits]\nsession = 1\n")
    assert "did you mean limits.sessions?" in refused(path="f")
    (tmp_path / "f").write_text("[limits]\nbody = 1\n")
    assert "write 'body' above all tables" in refused(path="f")
    (tmp_path / "f").write_text("[limit]\nsessions = 1\n")
    assert refused(path="f") == "'limit' in f is not a setting; did you mean [limits]?"
    (tmp_path / "f").write_text("[broker]\nsessions = 1\n")
    assert refused(path="f") == "'broker' in f is not a setting; the only table is [limits]"
    (tmp_path / "f").write_text("limits = 1\n")
    assert "'limits' in f is a table: write [limits]" in refused(path="f")
    (tmp_path / "f").write_text('[tls]\ncert = "a"\nkey = "b"\n')
    said = "'tls' in f is not a setting; write tls_cert and tls_key above all tables"
    assert refused(path="f") == said
    nested = {**DATA, "limits": {"session_grace": "1s", "topics": 1}}
    said = 'is not a setting; write "limits.session_grace" and "limits.topics"'
    assert refused(flags=nested).endswith(said)
    assert refused(flags={**DATA, "tls": {"cert": "a"}}).endswith(
        "is not a setting; write tls_cert"
    )
    assert "did you mean" in refused(flags={**DATA, "limits": {"nothing": 1}})
    (tmp_path / "f").write_text("[listen]\nport = 1\n")
    assert "is not HOST:PORT" in refused(path="f")
    assert "reference/settings" in refused(flags={"zzzzzz": 1})
    for key in ("mode", "limits", "frame_bytes", "heartbeat_us"):
        assert "is not a setting" in refused(flags={**DATA, key: "x"})


def test_what_clients_read_is_no_error() -> None:
    environ = {"TERNMQ_URL": "x", "TERNMQ_APP": "y", "TERNMQ_TOKEN": "z"}
    assert load(environ=environ, flags=DATA) == load(flags=DATA)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("heartbeat", 15, 'needs a unit, such as "15s"'),
        ("heartbeat", "15", "is not a duration"),
        ("heartbeat", "2h", "must be 10ms to 1h"),
        ("body", "17MiB", "must be 1B to 16MiB"),
        ("body", 1024, 'needs a unit, such as "1MiB"'),
        ("connections", 0, "must be 1 or more"),
        ("connections", "many", "is not a whole number"),
        ("connections", True, "is not a whole number"),
        ("connections", 1.5, "is not a whole number"),
        ("auth", 1, "is not true or false"),
        ("auth", "maybe", "is not true or false"),
        ("listen", "here", "is not HOST:PORT"),
        ("listen", 7117, "is not HOST:PORT"),
        ("listen", "127.0.0.1:99999", "has port 99999: a port is 0 to 65535"),
        ("listen", ":" + "9" * 5000, "a port is 0 to 65535"),
        ("name", "", "is empty"),
        ("name", 1, "is not text"),
        ("data", "a\nb", "cannot be printed"),
        ("log_format", "xml", "`text` or `json`"),
        ("log_format", 1, "`text` or `json`"),
        ("retention_watermark", "most", "is not a number"),
        ("retention_watermark", "nan", "must be 0.05 to 1"),
        ("connections", "1_000", "is not a whole number"),
        ("connections", "\u0661", "is not a whole number"),
        ("connections", "-1", "must be 1 or more"),
        ("retention_watermark", 80, "must be 0.05 to 1"),
        ("topic_queues", 5000, "must be 1 to 4096"),
        ("limits.sessions", 0, "must be 1 or more"),
    ],
)
def test_values_that_are_refused(key: str, value: object, line: str) -> None:
    text = refused(flags={**DATA, key: value})
    assert text.startswith(f"{key} = ")
    assert "in the command line" in text
    assert f" {line}" in text


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "none cannot be read: No such file" in refused(path="none", flags=DATA)
    (tmp_path / "f").write_text("name = ")
    assert "f is not valid TOML" in refused(path="f", flags=DATA)
    (tmp_path / "f").write_bytes(b"name = '\xff'")
    assert "f is not valid TOML" in refused(path="f", flags=DATA)


def test_secrets_are_never_shown() -> None:
    settings = load(flags=DATA, environ={"TERNMQ_ADMIN_TOKEN": "tmq_hunter2"})
    assert settings.admin_token == Secret("tmq_hunter2")
    assert "hunter2" not in repr(settings)
    assert FIELDS["admin_token"].write(settings.admin_token) == "***"
    for value in ("hunter2\n", 5):
        assert "hunter2" not in refused(flags={**DATA, "admin_token": value})


def test_off_takes_away_what_may_be_missing() -> None:
    assert load(flags={**DATA, "http": "off"}).http is None
    assert "is not HOST:PORT" in refused(flags={**DATA, "listen": "off"})


def test_what_the_core_and_topics_made_by_use_are_given() -> None:
    settings = load(
        flags={
            **DATA, "segment": "8MiB", "reserve": "1MiB", "state": "2MiB", "retention_max": "1GiB",
            "retention_watermark": 0.5, "topic_queues": 3, "topic_durability": "fast",
            "topic_retention": "1h",
        }
    )  # fmt: skip
    options = settings.options()
    assert (options.segment_bytes, options.reserve_bytes) == (8 << 20, 1 << 20)
    assert options.state_bytes == 2 << 20
    assert (options.retention.max_bytes, options.retention.watermark) == (1 << 30, 0.5)
    assert load(flags=DATA).options().reserve_bytes is None
    spec = settings.topic_spec("t").check()
    assert (spec.queues, spec.durability, spec.retention_us) == (
        3,
        Durability.FAST,
        3600 * SECOND_US,
    )


def test_what_the_documents_name_keeps_no_broker_from_starting() -> None:
    """A variable of clients or commands is no mistake in the environment of a broker."""
    root = Path(__file__).parents[3]
    pages = [root / "README.md", *(root / "docs").rglob("*")]
    named = {
        name
        for page in pages if page.is_file() and page.suffix not in {".png", ".svg"}
        for name in re.findall(r"\bTERNMQ_[A-Z_]*[A-Z]\b", page.read_text(encoding="utf-8"))
    }  # fmt: skip
    settings = {field.variable for field in ALL_FIELDS.values()}
    others = named - settings
    assert {"TERNMQ_URL", "TERNMQ_TABLES"} <= others
    for name in sorted(others - {CONFIG}):
        load(environ={name: "x"}, flags=DATA)


def test_what_kubernetes_says_of_a_service_is_no_setting() -> None:
    pod = {
        "TERNMQ_SERVICE_HOST": "10.0.0.1",
        "TERNMQ_SERVICE_PORT": "7117",
        "TERNMQ_SERVICE_PORT_CLIENTS": "7117",
        "TERNMQ_PORT": "tcp://10.0.0.1:7117",
        "TERNMQ_PORT_7117_TCP": "tcp://10.0.0.1:7117",
        "TERNMQ_PORT_7117_TCP_PROTO": "tcp",
        "TERNMQ_PORT_7117_TCP_PORT": "7117",
        "TERNMQ_PORT_7117_TCP_ADDR": "10.0.0.1",
        # and of services beside it, such as `ternmq-http` and `ternmq-eu-1`
        "TERNMQ_HTTP_SERVICE_HOST": "10.0.0.2",
        "TERNMQ_HTTP_SERVICE_PORT": "8080",
        "TERNMQ_HTTP_PORT": "tcp://10.0.0.2:8080",
        "TERNMQ_HTTP_PORT_8080_TCP_ADDR": "10.0.0.2",
        "TERNMQ_HTTP_PORT_8080_TCP_PORT": "8080",
        "TERNMQ_EU_1_SERVICE_PORT_CLIENTS": "7117",
        "TERNMQ_EU_1_PORT_7117_UDP": "udp://10.0.0.3:7117",
    }
    assert load(flags=DATA, environ=pod) == load(flags=DATA)
    assert "TERNMQ_PORT in the environment is not a setting" in refused(
        flags=DATA, environ={"TERNMQ_PORT": "7117"}
    )
    assert "TERNMQ_HTTP_PORT in the environment is not a setting" in refused(
        flags=DATA, environ={"TERNMQ_HTTP_PORT": "8080"}
    )


@pytest.mark.parametrize("token", [" a token that is long enough", "a token that is long enough "])
def test_a_token_has_no_white_space_around_it(token: str) -> None:
    """Clients ignore it around theirs: nobody could log in with such a token."""
    said = refused(flags={**DATA, "admin_token": token})
    assert "begins or ends with white space" in said
    assert "long enough" not in said, "a secret is not printed"
