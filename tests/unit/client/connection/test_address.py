"""Urls, and what is taken from the environment."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

import ternmq
from ternmq.client.connection.address import Address, parse
from ternmq.client.connection.connecting import none_in_time, refused, why_not_yet
from ternmq.model.errors import Busy, CannotConnect, InvalidName, InvalidRequest, InvalidUrl


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ternmq://localhost", Address("localhost", 7117)),
        ("ternmq://10.0.0.1:80/", Address("10.0.0.1", 80)),
        ("ternmq://[::1]:7", Address("::1", 7)),
        ("ternmqs://broker", Address("broker", 7117, tls=True)),
        ("ternmqs://b?ca=/x.pem", Address("b", 7117, tls=True, ca="/x.pem")),
        ("ternmq://shop:s%40x@b:1", Address("b", 1, app="shop", token="s@x")),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(
    "url",
    ["localhost:7117", "http://b", "ternmq://", "ternmq://b:99999", "ternmq://b:0", "ternmq://b:x", "ternmq://b/path",
     "ternmq://b?x=1", "ternmqs://b?cafile=x", "ternmq://b?ca=/x.pem",
     "ternmq://[::1", "", "ternmq://a..b", "ternmq://" + "a" * 64],
)  # fmt: skip
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(InvalidUrl):
        parse(url)


def test_a_file_to_trust_without_tls_is_refused_and_not_ignored() -> None:
    with pytest.raises(InvalidUrl, match=r"ca= is for TLS \(use ternmqs://"):
        parse("ternmq://b?ca=/x.pem")


def test_a_file_to_trust_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    missing, words = tmp_path / "none.pem", tmp_path / "words.pem"
    words.write_text("no certificate")
    with pytest.raises(InvalidUrl) as caught:
        parse(f"ternmqs://b?ca={missing}").ssl_context()
    assert caught.value.args[0] == f"ca={missing} cannot be read: No such file or directory"
    with pytest.raises(InvalidUrl) as caught:
        parse(f"ternmqs://b?ca={words}").ssl_context()
    assert caught.value.args[0] == f"ca={words} is not a PEM file of certificates"
    assert "ca= names a PEM file" in str(caught.value)
    with pytest.raises(InvalidUrl, match=r"cafile= is not an option \(the only one is \?ca=FILE\)"):
        parse("ternmqs://b?cafile=x")


@pytest.mark.parametrize(
    ("code", "word"),
    [(18, "?ca=FILE"), (19, "SSL_CERT_FILE"), (20, "?ca=FILE"), (10, "expired"), (62, "name")],
)
def test_an_untrusted_certificate_says_what_to_do(code: int, word: str) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "as OpenSSL has it"
    told = refused(parse("ternmqs://b"), error)
    assert isinstance(told, CannotConnect)
    assert "its certificate is not trusted: as OpenSSL has it" in str(told)
    assert word in told.hint
    assert ("?ca=FILE" in told.hint) == (code in {18, 19, 20}), "another file does not help"
    named = refused(parse("ternmqs://b?ca=own.pem"), error)
    assert ("no certificate in own.pem signed it" in named.hint) == (code in {18, 19, 20})


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(111, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (OSError(113, "Connect call failed ('10.0.0.1', 9)"), "no route to host"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 9, 0, 0), "
                    "[Errno 111] Connect call failed ('127.0.0.1', 9)"),
            "connection refused",
        ),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no host with this name"),
        (ssl.SSLError(1, "[SSL: ODD] odd"), "[SSL: ODD] odd"),
        (OSError("odd"), "odd"),
    ],
)  # fmt: skip
def test_a_connection_that_is_refused_says_so_once(error: OSError, words: str) -> None:
    if isinstance(error, ssl.SSLError):
        error.reason = "ODD"  # which those that Python makes have
    address = parse("ternmq://broker:9")
    told = refused(address, error)
    assert told.args[0].startswith("no broker at ternmq://broker:9 (")
    assert told.args[0].endswith(f"{words})")
    late = none_in_time([address], told)
    assert (late.args, late.hint) == (told.args, told.hint)
    told.__cause__ = error
    assert isinstance(told, CannotConnect)
    assert why_not_yet(told).endswith(words)


def test_what_names_no_address_gets_it() -> None:
    late = none_in_time([parse("ternmq://broker:9")], Busy("too many connections"))
    assert late.args[0] == "no connection to ternmq://broker:9: too many connections"


def test_secrets_are_not_shown() -> None:
    for url in ("ternmq://shop:secret@b/path", "shop:secret@b:7", "ternmq://a:secret@b/x://y@z"):
        with pytest.raises(InvalidUrl) as raised:
            parse(url)
        assert "secret" not in str(raised.value)
    client = ternmq.connect("ternmq://shop:secret@b")
    assert client.options.token == "secret"
    for one in (client, client.options, client.options.address):
        assert "secret" not in repr(one)
        assert "secret" not in str(one)


@pytest.mark.parametrize(
    "url",
    [
        "ternmq://shop:secret/x@b", "ternmq://shop:secret?x@b", "ternmq://shop:secret#x@b:7",
        "ternmq://shop:7?secret=x@b", "ternmq://shop:7/secret@b", "ternmq://shop:[secret/x@b",
    ],
)  # fmt: skip
def test_a_token_that_ends_the_host_is_not_shown(url: str) -> None:
    """As of base64: what stands before the stroke was taken for the port, and shown."""
    with pytest.raises(InvalidUrl, match=r"app or token contains .*%2F") as raised:
        parse(url)
    assert raised.value.__suppress_context__
    assert "secret" not in str(raised.value)
    assert parse("ternmq://shop:secret%2Fx@b").token == "secret/x"
    assert parse("ternmqs://b?ca=/a@b/ca.pem").ca == "/a@b/ca.pem"
    with pytest.raises(InvalidUrl) as raised:
        parse("shop:secret://x@b")
    assert "secret" not in str(raised.value)


def test_an_address_is_shown_as_it_is_written() -> None:
    assert str(parse("ternmqs://[::1]:7")) == "ternmqs://[::1]:7"


def test_what_is_stated_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERNMQ_URL", "ternmq://there:1")
    monkeypatch.setenv("TERNMQ_APP", "shop")
    monkeypatch.setenv("TERNMQ_TOKEN", "t1")
    options = ternmq.connect().options
    assert (options.address.host, options.app, options.token) == ("there", "shop", "t1")
    options = ternmq.connect("ternmq://here", app="other", token="t2").options
    assert (options.address.host, options.app, options.token) == ("here", "other", "t2")


def test_without_anything_it_is_the_broker_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TERNMQ_URL", "TERNMQ_APP", "TERNMQ_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    options = ternmq.connect().options
    assert (str(options.address), options.app, options.token) == ("ternmq://localhost:7117", "", "")


@pytest.mark.parametrize("url", ["", "  "])
def test_an_empty_url_is_not_the_broker_of_this_machine(url: str) -> None:
    with pytest.raises(InvalidUrl, match="url is empty"):
        ternmq.connect(url)


def test_an_empty_variable_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERNMQ_URL", "")
    assert str(ternmq.connect().options.address) == "ternmq://localhost:7117"


def test_a_drain_may_be_nothing_and_must_end() -> None:
    assert ternmq.connect(drain_timeout=0).options.drain_timeout == 0
    with pytest.raises(InvalidRequest, match="0 seconds or more, and finite"):
        ternmq.connect(drain_timeout=float("inf"))


def test_settings_are_checked_at_once() -> None:
    with pytest.raises(InvalidRequest):
        ternmq.connect(timeout=0)
    with pytest.raises(InvalidRequest):
        ternmq.connect(max_processing_time=-1)
    with pytest.raises(InvalidName):
        ternmq.connect(app="a b")
