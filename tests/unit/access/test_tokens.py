"""Tokens: their form, what is kept of them, and that only the right one fits."""

from __future__ import annotations

import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.access import ADMIN, admin_app, new_token, regrant, seal
from ternmq.access.tokens import digest, is_whole, matches
from ternmq.broker.catalog.apps import check_app
from ternmq.model.secret import Secret
from ternmq.record.fact.control import Grant


def test_a_token_has_a_prefix_random_bytes_and_a_checksum() -> None:
    token = new_token(bytes(range(32))).reveal()
    assert re.fullmatch(r"tmq_[A-Za-z0-9_-]{49}", token)
    assert is_whole(token)
    assert token == new_token(bytes(range(32))).reveal()
    assert len({new_token().reveal() for _ in range(100)}) == 100
    with pytest.raises(ValueError, match="32 bytes"):
        new_token(b"short")


@given(st.binary(min_size=32, max_size=32), st.data())
def test_a_token_that_was_copied_in_part_is_told(random: bytes, data: st.DataObject) -> None:
    token = new_token(random).reveal()
    cut = data.draw(st.integers(1, len(token) - 1))
    assert not is_whole(token[:cut])
    assert not is_whole(token[cut:])
    assert not is_whole(token + token[:cut])


@pytest.mark.parametrize("text", ["", "tmq_", "x", "tmq_" + "ä" * 49, "tmq_" + "A" * 49, "\0" * 53])
def test_other_texts_are_no_tokens(text: str) -> None:
    assert not is_whole(text)


def test_what_is_kept_is_a_salted_hash_and_not_the_token() -> None:
    token = new_token()
    app = seal("shop", token, owner="team", grants=[Grant("produce")], now_us=7)
    check_app(app)
    assert app.hash == hmac.new(app.salt, token.reveal().encode(), hashlib.sha256).digest()
    assert app.salt != seal("shop", token, now_us=7).salt
    assert (app.name, app.owner, app.grants, app.created_us) == (
        "shop",
        "team",
        (Grant("produce"),),
        7,
    )
    assert token.reveal() not in repr(app)


@given(st.text(max_size=80))
def test_only_the_token_itself_fits(text: str) -> None:
    app = seal("shop", new_token(bytes(32)), now_us=0, salt=bytes(16))
    assert matches(app, text) == (text == new_token(bytes(32)).reveal())


def test_texts_that_are_no_unicode_are_just_wrong() -> None:
    assert not matches(seal("shop", new_token(), now_us=0), "\ud800")
    assert len(digest("\ud800", bytes(16))) == 32


def test_other_grants_leave_the_token_as_it_is() -> None:
    token = new_token()
    app = seal("shop", token, now_us=7)
    other = regrant(app, "others", [Grant("consume", "a*")])
    assert matches(other, token.reveal())
    assert (other.owner, other.grants, other.created_us) == ("others", (Grant("consume", "a*"),), 7)


def test_the_first_app_may_do_everything() -> None:
    app = admin_app(Secret("chosen by somebody"), 9)
    check_app(app)
    assert app.name == ADMIN
    assert matches(app, "chosen by somebody")
    assert {(one.right, one.topic, one.group, one.deny) for one in app.grants} == {
        (right, "*", "*", False) for right in ("produce", "consume", "manage", "audit")
    }
