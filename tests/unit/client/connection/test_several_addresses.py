"""Urls of several brokers: what they name, what is refused, and what is shown of them."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ternmq
from ternmq.client.connection.address import MOST_HOSTS, Address, parse, parse_all, url_of
from ternmq.client.connection.connecting import none_in_time, options_of
from ternmq.client.connection.line import BulkOptions
from ternmq.client.connection.options import Options
from ternmq.model.errors import InvalidRequest, InvalidUrl

A, B, C = (Address(name, 7117) for name in "abc")


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("ternmq://a,b", (A, B)),
        ("ternmq://a:7117, b:7117 ,c/", (A, B, C)),
        ("ternmq://a:1,b,[::1]:2,[::1]",
         (Address("a", 1), B, Address("::1", 2), Address("::1", 7117))),
        ("ternmqs://a,b:1?ca=/x,y.pem",
         (Address("a", 7117, tls=True, ca="/x,y.pem"), Address("b", 1, tls=True, ca="/x,y.pem"))),
        ("ternmq://shop:s%40,x@a,b",
         (Address("a", 7117, app="shop", token="s@,x"),
          Address("b", 7117, app="shop", token="s@,x"))),
        ("ternmq://shop:t,oken@a", (Address("a", 7117, app="shop", token="t,oken"),)),
    ],
)  # fmt: skip
def test_urls(url: str, addresses: tuple[Address, ...]) -> None:
    assert parse_all(url) == addresses


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ternmq://a,,b", "'ternmq://a,,b': host 2 of 3 is empty"),
        ("ternmq://a,", "'ternmq://a,': host 2 of 2 is empty"),
        ("ternmq://,a", "'ternmq://,a': host 1 of 2 is empty"),
        ("ternmq://a:7117,b,A", "'ternmq://a:7117,b,A' names ternmq://a:7117 twice"),
        ("ternmq://a,b:0", "'ternmq://b:0': port 0 is no broker's"),
        ("ternmq://a,b..c", "'ternmq://b..c': 'b..c' is not a valid host"),
        ("ternmq://a,b/path", "nothing may follow the port"),
        ("ternmq://a,b?ca=/x", "ca= is for TLS"),
        ("http://a,b", "begins with neither ternmq:// nor ternmqs://"),
        ("a,b", "begins with neither ternmq:// nor ternmqs://"),
        ("ternmq://shop:secret@a,shop:secret@b",
         "'ternmq://b': app and token are given for several hosts (app and token precede"),
        ("ternmq://a:1,ternmq://b:2", "has its scheme more than once (write it once: ternmq://"),
        ("ternmqs://shop:secret@a, ternmqs://shop:secret@b", "has its scheme more than once"),
        ("ternmq://shop:secret/x@a,b", "app or token contains a '/', '?' or '#'"),
        ("ternmq://shop:1,secret/x@a,b", "app or token contains a '/', '?' or '#'"),
    ],
)  # fmt: skip
def test_what_is_no_url(url: str, text: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        parse_all(url)
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


def test_too_many_hosts_are_refused() -> None:
    hosts = [f"broker{number}" for number in range(MOST_HOSTS + 1)]
    assert len(parse_all(f"ternmq://{','.join(hosts[:-1])}")) == MOST_HOSTS
    with pytest.raises(InvalidUrl, match=r"has 17 hosts, at most 16 are allowed \(leave out"):
        parse_all(f"ternmq://{','.join(hosts)}")


def test_one_address_is_one() -> None:
    with pytest.raises(InvalidUrl, match="'ternmq://a,b' names 2 brokers"):
        parse("ternmq://shop:secret@a,b")


names = st.from_regex(r"\A[a-z][a-z0-9-]{0,8}[a-z0-9]\Z")
hosts = st.one_of(names, st.just("::1"), st.ip_addresses(v=4).map(str))
places = st.tuples(hosts, st.integers(1, 65535))


@given(
    st.lists(places, min_size=1, max_size=MOST_HOSTS, unique=True),
    st.booleans(),
    st.sampled_from(["", "/own ca,1.pem", "x@y.pem"]),
)
def test_a_url_of_addresses_names_them(found: list[tuple[str, int]], tls: bool, ca: str) -> None:
    addresses = tuple(Address(host, port, tls, "", "", ca if tls else "") for host, port in found)
    assert parse_all(url_of(addresses, ca=True)) == addresses
    assert url_of(addresses).count(",") == len(addresses) - 1


@given(st.text(max_size=40))
def test_any_text_is_a_url_or_refused_without_its_secret(text: str) -> None:
    for url in (text, f"ternmq://{text}", f"ternmq://app:SECRET@{text}", f"ternmq://a,{text}"):
        shown = ""
        try:
            found = parse_all(url)
        except InvalidUrl as error:
            shown = str(error)
        else:
            assert 1 <= len(found) <= MOST_HOSTS
            assert len(set(found)) == len(found)
        assert "SECRET" not in shown or "SECRET" in text


def test_options_show_all_addresses_and_no_secret() -> None:
    url = "ternmq://shop:secret@a,b:1"
    made = options_of(url, None, None, 1.0, 1.0)
    assert made.address == made.addresses[0]
    assert (made.url, made.app, made.token) == ("ternmq://a:7117,b:1", "shop", "secret")
    assert repr(made) == "Options(ternmq://a:7117,b:1, app='shop', token='***')"
    assert pickle.loads(pickle.dumps(made)) == made
    client = ternmq.connect(url)
    assert repr(client) == "<Client of ternmq://a:7117,b:1, app 'shop'>"
    assert "secret" not in repr(BulkOptions(url=url))
    assert BulkOptions(url=url).resolved().addresses == made.addresses
    error = none_in_time(made.addresses, None)
    assert error.args[0] == "no connection to ternmq://a:7117,b:1"


def test_the_environment_may_name_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERNMQ_URL", "ternmq://a,b")
    assert options_of(None, None, None, 1.0, 1.0).addresses == (A, B)


def test_another_address_is_the_only_one() -> None:
    made = Options(address=A, addresses=[A, B])
    assert made.addresses == (A, B)
    assert replace(made, timeout=1.0).addresses == (A, B)
    assert replace(made, address=C).addresses == (C,)
    assert Options(address=A).addresses == (A,)
    for wrong in (["ternmq://a"], "ternmq://a", 3):
        with pytest.raises(InvalidRequest, match="addresses must be those of another client"):
            Options(address=A, addresses=wrong)  # type: ignore[arg-type]
