"""Which of several brokers is tried when, and the error if none serves. No loop, no clock."""

from __future__ import annotations

import math
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.client.connection.address import Address
from ternmq.client.connection.backoff import Backoff
from ternmq.client.connection.choosing import STAGGER_S, Choice, Failure, verdict
from ternmq.client.connection.connecting import closed_at_once, refused, silent
from ternmq.model.errors import (
    Busy,
    CannotConnect,
    NotABroker,
    NotPrimary,
    ShuttingDown,
    TernMQError,
    Unauthenticated,
)

A, B, C = (Address(name, 7117) for name in "abc")
BACKOFF = Backoff(0.05, 2.0)
DEAD = CannotConnect("no broker")
REPLICA = NotPrimary("a replica")


def test_each_begins_250_ms_after_the_one_before() -> None:
    choice = Choice([A, B, C], BACKOFF)
    assert choice.begin(10.0) == [A]
    assert choice.next_at() == 10.0 + STAGGER_S == 10.25
    assert choice.begin(10.24) == []
    assert choice.begin(10.25) == [B]
    assert choice.begin(10.49) == []
    assert choice.begin(10.5) == [C]
    assert choice.next_at() == math.inf
    assert not choice.over


@pytest.mark.parametrize("error", [DEAD, REPLICA, ShuttingDown("stops"), Unauthenticated("who?")])
def test_the_next_begins_at_once_when_one_fails(error: TernMQError) -> None:
    choice = Choice([A, B, C], BACKOFF)
    choice.begin(10.0)
    choice.failed(A, error, 10.01)
    assert choice.next_at() <= 10.01
    assert choice.begin(10.01) == [B]
    assert choice.begin(10.02) == []


def test_it_is_over_when_each_has_failed() -> None:
    choice = Choice([A, B], BACKOFF)
    for address in (A, B):
        assert not choice.over
        assert choice.begin(1.0) == [address]
        choice.failed(address, DEAD, 1.0)
    assert choice.over
    assert choice.next_at() == math.inf
    assert choice.begin(99.0) == []
    assert choice.failures() == [Failure(A, DEAD), Failure(B, DEAD)]


def test_while_one_is_silent_the_others_are_tried_again_with_a_backoff() -> None:
    choice = Choice([A, B, C], BACKOFF)
    choice.begin(0.0)
    choice.begin(0.25)
    choice.failed(B, REPLICA, 0.25)
    assert choice.begin(0.25) == [C]
    choice.failed(C, Unauthenticated("final"), 0.26)
    assert choice.next_at() == pytest.approx(0.30)
    assert choice.begin(0.29) == []
    assert choice.begin(0.31) == [B]
    choice.failed(B, DEAD, 0.31)
    assert choice.next_at() == pytest.approx(0.41)
    assert choice.failures()[0].error is DEAD, "the last error counts"
    choice.failed(A, DEAD, 0.35)
    assert choice.over, "no further try: the attempt ends"
    assert choice.begin(9.0) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60))
def test_whatever_happens_it_ends_and_leaves_nobody_out(steps: list[tuple[int, bool]]) -> None:
    addresses = [Address(f"b{number}", 1) for number in range(5)]
    choice, now = Choice(addresses, BACKOFF), 0.0
    pending: list[Address] = []
    begun: list[Address] = []
    for which, waits in [*steps, *[(0, False)] * 40]:
        if waits and choice.next_at() < math.inf:
            now = max(now, choice.next_at())
        new = choice.begin(now)
        assert not set(new) & set(pending)
        pending += new
        begun += new
        if pending and not waits:
            choice.failed(pending.pop(which % len(pending)), DEAD, now)
    assert choice.over
    assert list(dict.fromkeys(begun)) == addresses, "in order, each at least once"


def test_of_one_address_the_error_is_its_own() -> None:
    assert verdict([Failure(A, REPLICA)]) is REPLICA


NONE = "no broker at any of these addresses: "
NOBODY_LEADS = "none of the brokers leads now: "
SHUT = "connected, but the other side closed the connection without an answer"


@pytest.mark.parametrize(
    ("errors", "kind", "before", "of_a", "of_b"),
    [
        ((silent(A, accepted=True), silent(B, accepted=False)), CannotConnect, NONE,
         "connected, but got no answer in time", "no connection in time"),
        ((refused(A, OSError(111, "x")), closed_at_once(B, None)), CannotConnect, NONE,
         "connection refused", SHUT),
        ((REPLICA, DEAD), NotPrimary, NOBODY_LEADS, "a replica", "no broker"),
        ((ShuttingDown("stops"), REPLICA), NotPrimary, NOBODY_LEADS, "stops", "a replica"),
        ((ShuttingDown("stops"), DEAD), ShuttingDown, NOBODY_LEADS, "stops", "no broker"),
        ((REPLICA, Unauthenticated("who?")), Unauthenticated,
         "ternmq://b:7117 refuses this client: ", "a replica", "who?"),
        ((DEAD, Busy("full")), Busy, "no broker accepts this client now: ", "no broker", "full"),
        ((NotABroker("HTTP"), DEAD), CannotConnect, NONE, "HTTP", "no broker"),
        ((NotABroker("HTTP"), NotABroker("SSH")), NotABroker, NONE, "HTTP", "SSH"),
    ],
)  # fmt: skip
def test_the_most_telling_error_names_each_address(
    errors: tuple[TernMQError, TernMQError],
    kind: type[TernMQError],
    before: str,
    of_a: str,
    of_b: str,
) -> None:
    told = verdict([Failure(A, errors[0]), Failure(B, errors[1])])
    assert type(told) is kind
    assert told.args[0] == f"{before}ternmq://a:7117: {of_a}; ternmq://b:7117: {of_b}"
    assert told.retriable == kind.retriable
    assert told not in errors


def of_tls(address: Address, reason: str) -> TernMQError:
    """Return the error of a TLS handshake that failed, as a session keeps it."""
    cause = ssl.SSLError(1, f"[SSL: {reason}] and so on (_ssl.c:1006)")
    cause.reason = reason
    error = refused(address, cause)
    error.__cause__ = cause
    return error


def test_a_mistake_about_tls_is_said_in_words_and_with_its_remedy() -> None:
    a, b = (Address(name, 7117, tls=True) for name in "ab")
    told = verdict([Failure(a, of_tls(a, "WRONG_VERSION_NUMBER")), Failure(b, DEAD)])
    assert "ternmqs://a:7117: this port does not use TLS" in str(told)
    assert "_ssl.c" not in str(told)
    assert "connect to ternmq://a:7117" in told.hint


def test_addresses_that_refuse_have_the_hint_of_the_class() -> None:
    """So the command line can have a hint of its own."""
    told = verdict([Failure(one, refused(one, OSError(111, "x"))) for one in (A, B)])
    assert "hint" not in vars(told)
    assert told.hint == CannotConnect.hint
