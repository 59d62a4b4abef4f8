"""Whatever a start finds of the file and the app, somebody gets in, or is told how to."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from ternmq.access.tokens import admin_app, is_whole, matches, new_token
from ternmq.model.secret import Secret
from ternmq.record.fact.control import App
from ternmq.server.process.admin_token import FILE, AdminToken

ANEW = "ternmq serve --new-admin-token"


class Broker:
    """What a broker has of all this: its apps, as the journal holds them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE
        self.apps: dict[str, App] = {}
        self.in_file_when_put: str | None = None

    def start(self, *, given: str | None = None, anew: bool = False) -> bool:
        return AdminToken(self.file.parent).see_to(
            self.apps, given=Secret(given) if given else None, anew=anew, put=self._put
        )

    def _put(self, token: Secret) -> None:
        self.in_file_when_put = self.file.read_text() if self.file.exists() else None
        self.apps["admin"] = admin_app(token, 0)

    def lets_in(self, token: str) -> bool:
        return matches(self.apps["admin"], token)

    @property
    def token(self) -> str:
        return self.file.read_text().strip()


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_the_file_is_there_before_the_app(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    assert broker.start()
    assert is_whole(broker.token)
    assert broker.in_file_when_put == broker.token + "\n"
    assert broker.lets_in(broker.token)
    assert stat.S_IMODE(broker.file.stat().st_mode) == 0o600
    assert f"created the app 'admin'; its token is in {broker.file}" in caplog.text
    assert broker.token not in caplog.text


def test_a_later_start_changes_nothing(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.start()
    token = broker.token
    caplog.clear()
    caplog.set_level(logging.INFO, "ternmq.server")
    assert not broker.start()
    assert broker.token == token
    assert broker.lets_in(token)
    assert not caplog.records


def test_a_start_that_was_cut_short_is_gone_on_with(broker: Broker) -> None:
    """Its token was durable, its app was not: the token may have been read by then."""
    token = new_token().reveal()
    broker.file.write_text(token + "\n")
    assert broker.start()
    assert broker.token == token
    assert broker.lets_in(token)


@pytest.mark.parametrize("found", ["", "tmq_half", "\xff\n"])
def test_a_file_that_is_not_whole_is_written_anew(found: str, broker: Broker) -> None:
    broker.file.write_text(found)
    assert broker.start()
    assert is_whole(broker.token)
    assert broker.lets_in(broker.token)


def test_what_a_killed_writer_left_is_removed(broker: Broker) -> None:
    left = broker.file.with_name(f".{FILE}.01234567.new")
    left.write_text("tmq_")
    broker.start()
    assert not left.exists()


@pytest.mark.parametrize(
    ("found", "level", "says"),
    [
        (None, logging.DEBUG, "is not in"),
        ("", logging.WARNING, "is empty"),
        ("\n", logging.WARNING, "is empty"),
        ("tmq_half", logging.WARNING, "does not contain a complete token"),
        (new_token(bytes(32)).reveal(), logging.WARNING, "is no longer, the token of 'admin'"),
    ],
)
def test_a_file_that_lets_nobody_in(
    found: str | None, level: int, says: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """As earlier versions left it after a power cut: the start says what to do, and does it."""
    broker.start()
    lost = broker.token
    broker.file.unlink()
    if found is not None:
        broker.file.write_text(found)
    caplog.clear()
    caplog.set_level(logging.DEBUG, "ternmq.server")
    assert not broker.start()
    (record,) = caplog.records
    assert record.levelno == level
    assert says in record.getMessage()
    assert ANEW in record.getMessage()
    assert broker.lets_in(lost)

    caplog.clear()
    assert broker.start(anew=True)
    assert "another token" in caplog.text
    assert broker.lets_in(broker.token)
    assert not broker.lets_in(lost)


def test_an_app_that_was_deleted_comes_again_when_asked(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.apps["shop"] = admin_app(new_token(), 0)
    caplog.set_level(logging.INFO, "ternmq.server")
    assert not broker.start()
    assert ANEW in caplog.text
    assert not broker.file.exists()
    assert broker.start(anew=True)
    assert broker.lets_in(broker.token)
    assert "created the app 'admin'" in caplog.text


def test_a_new_token_is_never_the_one_in_the_file(broker: Broker) -> None:
    broker.start()
    before = broker.token
    assert broker.start(anew=True)
    assert broker.token != before
    assert broker.in_file_when_put == broker.token + "\n"


def test_the_settings_say_which_and_no_file_is_written(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ternmq.server")
    one, other = "chosen-and-long-enough", "another-one-as-long"
    assert broker.start(given=one)
    assert broker.lets_in(one)
    assert not broker.start(given=one)
    assert broker.start(given=other)
    assert broker.lets_in(other)
    assert not broker.file.exists()
    assert not caplog.records


def test_a_token_that_can_be_guessed_is_warned_of(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    assert broker.start(given="fifteen-letters")
    assert "fewer than 16 characters" in caplog.text
    assert "fifteen-letters" not in caplog.text


def test_a_file_that_cannot_be_written_stops_before_the_app(broker: Broker) -> None:
    broker.file.mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        broker.start()
    assert not broker.apps
