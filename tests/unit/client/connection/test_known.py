"""The addresses that a client learns: which are tried, in which order, and who is used there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.client.connection.address import Address, parse_all
from ternmq.client.connection.known import MOST_LEARNED, Known
from ternmq.model.errors import CannotConnect, NotPrimary, Unauthenticated
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push
from tests.unit.wire.examples import WELCOME

A, B, C = (Address(name, 7117) for name in ("host-a", "host-b", "host-c"))
JOURNAL = 77


def routes(
    primary: str = "a", *brokers: control.BrokerRoute, epoch: int = 1, version: int = 1
) -> control.Routes:
    route = control.BrokerGroupRoute(
        name="main",
        journal=JOURNAL,
        epoch=epoch,
        version=version,
        primary=primary,
        brokers=list(brokers) or [broker("a"), broker("b")],
    )
    return control.Routes(group="main", groups=[route])


def broker(name: str, *addresses: str, **fields: Any) -> control.BrokerRoute:
    places = list(addresses) or [f"host-{name}:7117"]
    return control.BrokerRoute(name=name, addresses=places, **fields)


def welcome(name: str, journal: int = JOURNAL) -> control.Welcome:
    return msgspec.structs.replace(WELCOME, broker=name, routes=True, journal=journal)


def connected(url: str = "ternmq://host-a") -> Known:
    """Return what a client knows that was served by ``a`` at the first address of its URL."""
    base = parse_all(url)
    known = Known(base)
    known.serves(base[0], welcome("a"))
    known.learn(routes(), base[0])
    return known


def test_without_routes_the_order_is_that_of_the_url() -> None:
    known = Known((A, B, C))
    assert known.in_order(A, stepped_down=False) == [A, B, C]
    assert known.in_order(B, stepped_down=False) == [B, A, C]
    assert known.in_order(A, stepped_down=True) == [B, C, A]


def test_what_the_url_does_not_name_is_tried_last() -> None:
    known = connected()
    assert known.learned == [B]
    assert known.in_order(A, stepped_down=False) == [A, B]


def test_another_primary_is_tried_first() -> None:
    known = connected("ternmq://host-a,host-c")
    known.learn(routes("b", epoch=2), A)
    assert known.in_order(A, stepped_down=True) == [B, C, A]
    assert known.in_order(A, stepped_down=False) == [B, A, C]
    known.serves(B, welcome("b"))
    assert known.in_order(B, stepped_down=False) == [B, A, C], "it has served: no news"


def test_a_primary_of_the_url_that_has_not_served_is_tried_first() -> None:
    known = Known((A, C, B))
    known.learn(routes("b"), A)
    assert known.in_order(A, stepped_down=False) == [B, A, C]


def test_a_broker_is_used_where_it_served_not_where_it_says_that_it_is() -> None:
    known = Known((Address("proxy", 1),))
    known.learn(routes(), Address("proxy", 1))
    assert known.learned == [A, B]
    known.serves(Address("proxy", 1), welcome("a"))
    assert known.learned == [B]
    known.serves(B, welcome("b"))
    known.learn(routes("a", epoch=3), B)
    assert known.in_order(B, stepped_down=False) == [Address("proxy", 1), B]


def test_older_routes_change_nothing_and_those_of_another_journal_replace() -> None:
    known = connected()
    known.learn(routes("b", broker("b"), broker("c"), epoch=2, version=5), A)
    known.learn(routes("a", epoch=2, version=4), A)
    known.learn(routes("a", epoch=1, version=9), A)
    assert known.learned == [B, C]
    (route,) = routes("a", broker("a")).groups
    other = msgspec.structs.replace(route, journal=1)
    known.learn(control.Routes(group="main", groups=[other]), A)
    assert known.learned == []


@pytest.mark.parametrize(
    "told",
    [
        control.Routes(),
        control.Routes(group="other", groups=routes().groups),
        control.Routes(
            group="main", groups=[msgspec.structs.replace(routes().groups[0], journal=0)]
        ),
    ],
    ids=["none", "of another group", "of a broker alone"],
)
def test_routes_of_no_use(told: control.Routes) -> None:
    known = Known((A,))
    known.learn(told, A)
    assert known.learned == []


@pytest.mark.parametrize(
    "address",
    ["", "b", "b:", "b:0", "b:70000", ":7117", "0.0.0.0:7117", "[::]:7117", "::1:7", "a b:7117",
     "b\n:7117", "b..c:7117", "x" * 64 + ":1", "\x00:7117", "127.0.0.1:7117", "localhost:7117",
     "[::1]:7117"],
)  # fmt: skip
def test_addresses_of_no_use(address: str) -> None:
    known = Known((A,))
    known.learn(routes("b", broker("a"), broker("b", address, "good:1")), A)
    assert known.learned == [Address("good", 1)]


def test_the_own_machine_is_learned_from_the_own_machine() -> None:
    here = Address("127.0.0.1", 1)
    known = Known((here,))
    known.learn(routes("b", broker("b", "127.0.0.1:2", "[::1]:3")), here)
    assert known.learned == [replace(here, port=2), Address("::1", 3)]


def test_app_token_and_tls_are_those_of_the_url() -> None:
    (base,) = parse_all("ternmqs://shop:secret@host-a?ca=/x.pem")
    known = Known((base,))
    known.learn(routes("b", broker("b", tls=True), broker("c", tls=False)), base)
    assert known.learned == [replace(base, host="host-b")]
    (learned,) = known.learned
    assert (learned.tls, learned.app, learned.token, learned.ca) == (
        True,
        "shop",
        "secret",
        "/x.pem",
    )
    plain = Known((A,))
    plain.learn(routes("b", broker("b", tls=True), broker("c")), A)
    assert plain.learned == [C]


def test_there_are_not_too_many() -> None:
    known = Known((A,))
    many = [
        broker(f"b{number}", *[f"h{number}:{port}" for port in range(1, 9)]) for number in range(9)
    ]
    known.learn(routes("a", *many), A)
    assert len(known.learned) == MOST_LEARNED


def test_a_stranger_at_a_learned_address_is_not_used() -> None:
    known = connected()
    known.check(A, welcome("a", journal=1))  # what the URL names is the user's choice
    known.check(B, welcome("b"))
    for journal in (0, 1):
        with pytest.raises(CannotConnect, match="not of the broker group"):
            known.check(B, welcome("b", journal))


def test_a_stranger_at_a_learned_address_names_nobody() -> None:
    known = connected()
    (route,) = routes("x", broker("x"), epoch=9).groups
    strange = control.Routes(group="main", groups=[msgspec.structs.replace(route, journal=1)])
    known.learn(strange, B)
    assert known.learned == [B]
    with pytest.raises(CannotConnect):
        known.check(B, welcome("x", journal=1))
    known.learn(strange, A)
    assert known.learned == [Address("host-x", 7117)]


def test_only_where_a_broker_has_served_is_a_refusal_final() -> None:
    known = connected()
    wrong = Unauthenticated("wrong token")
    assert known.refusal(A, wrong) is wrong
    soft = known.refusal(B, wrong)
    assert soft.retriable
    assert "ternmq://host-b:7117, which a broker named: wrong token" in str(soft)
    later = NotPrimary("b does not lead")
    assert known.refusal(B, later) is later
    known.serves(B, welcome("b"))
    assert known.refusal(B, wrong) is wrong


def test_before_a_broker_has_served_every_refusal_is_final() -> None:
    known = Known((A,))
    known.learn(routes("b", broker("a"), broker("b")), A)
    wrong = Unauthenticated("wrong token")
    assert known.refusal(B, wrong) is wrong
    known.serves(A, welcome("a"))
    assert known.refusal(B, wrong).retriable


def test_pushed_and_answered() -> None:
    known = Known((A,))
    known.pushed(A, Push(Command.ROUTES_CHANGED, control.encode(control.RoutesChanged())))
    known.pushed(A, Push(Command.DRAIN, control.encode(routes())))
    assert known.learned == []
    changed = control.RoutesChanged(routes=routes())
    known.pushed(A, Push(Command.ROUTES_CHANGED, control.encode(changed)))
    assert known.learned == [B]
    known.answered(A, control.encode(routes("c", broker("c"), epoch=2)))
    assert known.learned == [C]


@given(st.binary(max_size=200))
def test_what_cannot_be_read_changes_nothing(body: bytes) -> None:
    known = connected()
    known.answered(A, body)
    known.pushed(A, Push(Command.ROUTES_CHANGED, body))
    assert known.in_order(A, stepped_down=False)[0] == A


_texts = st.text(max_size=20)


@given(
    st.lists(
        st.builds(
            control.BrokerRoute,
            name=st.sampled_from(["a", "b", ""]),
            addresses=st.lists(
                _texts | st.builds("{}:{}".format, _texts, st.integers(-1, 70000)), max_size=5
            ),
            tls=st.booleans(),
        ),
        max_size=5,
    ),
    st.sampled_from(["", "a", "b", "x"]),
)
def test_any_routes_leave_the_addresses_of_the_url(
    brokers: list[control.BrokerRoute], primary: str
) -> None:
    known = connected("ternmq://host-a,host-c")
    (route,) = routes(primary, epoch=9).groups
    route = msgspec.structs.replace(route, brokers=brokers)
    known.learn(control.Routes(group="main", groups=[route]), A)
    for stepped_down in (False, True):
        order = known.in_order(A, stepped_down=stepped_down)
        assert {A, C} <= set(order)
        assert len(order) == len(set(order)) <= 2 + MOST_LEARNED


def of_roles(epoch: int = 1) -> control.Routes:
    """Return routes with each role; ``d`` states no address."""
    return routes(
        "a",
        broker("a", role="primary"),
        broker("b", role="member"),
        broker("c", role="follower"),
        control.BrokerRoute(name="d", role="member"),
        broker("e", role="member"),
        epoch=epoch,
    )


def test_a_replica_is_a_member_that_does_not_lead() -> None:
    known = Known((A,))
    assert known.replicas() == []
    assert not known.is_replica("b")
    known.learn(of_roles(), A)
    assert known.replicas() == [B, Address("host-e", 7117)]
    assert [name for name in "abcde" if known.is_replica(name)] == ["b", "d", "e"]


def test_a_primary_that_the_routes_call_a_member_is_no_replica() -> None:
    known = Known((A,))
    known.learn(routes("a", broker("a", role="member"), broker("b", role="member")), A)
    assert known.replicas() == [B]


def test_a_replica_is_asked_where_it_has_served() -> None:
    proxy = Address("proxy", 1)
    known = Known((A, proxy))
    known.learn(of_roles(), A)
    known.serves(proxy, welcome("b"))
    assert known.replicas()[0] == proxy


def test_what_is_shared_is_the_newer_route() -> None:
    main, other = Known((A,)), Known((A,))
    other.share(main)
    assert other.replicas() == []
    main.learn(of_roles(epoch=2), A)
    main.serves(A, welcome("a"))
    other.share(main)
    assert other.replicas() == main.replicas()
    assert other.learned == main.learned
    other.learn(routes("b", broker("a", role="member"), broker("b"), epoch=3), A)
    other.share(main)
    assert other.replicas() == [A]
