"""Every command against every kind of app, on a real broker (SEC-1): what docs/protocol promises.

The commands and the rights they need are read from the table of docs/protocol/index.md; a command
whose *who* this file does not understand fails. Each refusal is in the audit log, or counted there.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.black_box.process import BrokerProcess
from tests.black_box.requests import OF_THE_CONNECTION, Listed, listed, sound_requests
from tests.black_box.stranger import (
    APP_PUT,
    CHECKER_OFFER,
    GROUP_JOIN,
    TOPIC_CREATE,
    TRANSACTION_ABORT,
    TRANSACTION_COMMIT,
    TRANSACTION_DECIDE,
    TRANSACTION_PREPARE,
    TRANSACTION_READ,
    TRANSACTION_SHOW,
    Ended,
    Refused,
    Stranger,
    make_batch,
    pack,
    transaction_body,
)

TOKEN = "the-token-of-the-admin-of-this-test"
APP_DELETE, STATUS = 71, 61
PROTOCOL, UNAUTHENTICATED, FORBIDDEN, UNKNOWN_COMMAND = 300, 150, 151, 153
RIGHTS: Final = ("produce", "consume", "manage", "audit")
TOPIC, GROUP = "orders.eu", "billing.a"
OPERATORS: Final = "; or manage on every topic and group"
TRANSACTIONS: Final = {TRANSACTION_COMMIT, TRANSACTION_ABORT}
CHECKED: Final = {TRANSACTION_DECIDE, TRANSACTION_SHOW, TRANSACTION_READ}

Grant = dict[str, Any]
COMMANDS: Final = [one for one in listed() if one.name not in OF_THE_CONNECTION]
RESTRICTED: Final = [one for one in COMMANDS if one.who != "every app"]
FREE: Final = [one for one in COMMANDS if one.who == "every app"]
commands = pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one.name)
restricted = pytest.mark.parametrize("command", RESTRICTED, ids=lambda one: one.name)


def rights_of(command: Listed) -> list[str]:
    """Return the rights of which one is enough, by the page's words."""
    found = re.match(r"(\w+)(?: or (\w+))? on (every|each|the|any) (topics?)", command.who)
    assert found, command
    rights = [right for right in found.groups()[:2] if right]
    assert set(rights) <= set(RIGHTS), command
    return rights


def place_of(command: Listed) -> tuple[str, str]:
    """Return the topic and the group that the least grant names, by the page's words."""
    gone = ".gone"  # what is deleted has a name of its own
    topic = TOPIC + gone * (command.name == "TOPIC_DELETE")
    who = command.who.removesuffix(OPERATORS)
    if who.endswith("on the topic and group"):
        return topic, GROUP + gone * (command.name == "GROUP_DELETE")
    if who.endswith("on every topic and group"):
        return "*", "*"
    assert re.search(r"on (the|each|every|any) topic( of the transaction;.*)?$", who), command
    return topic, "*"


def grants_of(*rights: str, topic: str = "*", group: str = "*", deny: bool = False) -> list[Grant]:
    """Return grants of these rights: none to audit a part, and to produce knows no groups."""
    return [
        {
            "right": right,
            "topic": topic,
            "group": "*" if right == "produce" else group,
            "deny": deny,
        }
        for right in rights
        if right != "audit" or (topic, group) == ("*", "*")
    ]


def not_enough(command: Listed) -> Iterator[list[Grant]]:
    """Yield grants that come near and are not enough."""
    rights = rights_of(command)
    topic, group = place_of(command)
    others = [right for right in RIGHTS if right not in rights]
    if command.who.endswith(OPERATORS):
        others.remove("manage")
    yield []
    yield grants_of(*others)
    near = [("*", "billing.*"), ("orders.*", "*")]
    if command.who.endswith("on any topic"):  # a grant for another topic is enough
        yield [*grants_of(*RIGHTS), *grants_of(*RIGHTS, deny=True)]
        return
    if topic != "*":
        near = [(one, group) for one in (topic.replace(".", "-"), "orders", f"{topic}.*")]
    if group != "*":
        near += [(topic, one) for one in (group.replace(".", "-"), "billing", f"{group}.*")]
    for one, whose in near:
        yield grants_of(*rights, topic=one, group=whose)
    yield [*grants_of(*RIGHTS), *grants_of(*RIGHTS, topic=topic, group=group, deny=True)]


class House:
    """A broker with a topic, its neighbours, an operator, and apps whose refusals are counted."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.refusals = 0
        """Refused for want of a right or a token, so far."""
        self.admin = self.stranger()
        self.admin.hello(app="admin", token=TOKEN, client=os.urandom(16).hex())
        for topic in (TOPIC, "orders-eu", "orders", f"{TOPIC}.more", f"{TOPIC}.gone"):
            self.admin.control(TOPIC_CREATE, topic=topic, spec={"name": topic})
        for group in (GROUP, "billing", "billing-a", f"{GROUP}.gone"):
            self.admin.control(GROUP_JOIN, topic=TOPIC, group=group)

    def stranger(self) -> Stranger:
        return Stranger(("127.0.0.1", self.broker.port))

    def put(self, app: str, grants: list[Grant]) -> str:
        """Give an app these grants and no others; return its token if it is new."""
        answer = self.admin.control(APP_PUT, app=app, grants=grants)
        return str(answer.get("token", ""))

    def enter(self, app: str, grants: list[Grant]) -> Stranger:
        """Make an app and connect as it."""
        one = self.stranger()
        one.hello(app=app, token=self.put(app, grants), client=os.urandom(16).hex())
        return one

    def code(self, ask: Callable[..., object], *given: object, **named: object) -> int:
        """Return the code that a request is refused with; 0 if it is not."""
        try:
            ask(*given, **named)
        except Refused as error:
            self.refusals += error.code in {UNAUTHENTICATED, FORBIDDEN}
            return error.code
        return 0


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("matrix")
    with BrokerProcess(
        "serve", folder, admin_token=TOKEN, segment="4MiB", log_format="json"
    ) as broker:
        one = House(broker)
        yield one
        told = audited(folder / "log")
        left_out = one.admin.control(STATUS)["metrics"]["ternmq_audit_left_out_total"]
        assert len(told) + left_out == one.refusals
        assert TOKEN not in (folder / "log").read_text(encoding="utf-8")
        one.admin.socket.close()


def audited(log: Path) -> list[dict[str, object]]:
    """Return the refusals that the audit told."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line]
    return [
        line
        for line in lines
        if line["logger"] == "ternmq.audit"
        and line.get("outcome") in {"Unauthenticated", "Forbidden"}
    ]


def requests_of(command: Listed) -> list[bytes]:
    return [body for number, body in sound_requests(TOPIC, GROUP) if number == command.number]


def test_the_page_names_commands_of_both_kinds() -> None:
    assert len(FREE) > 5
    assert len(RESTRICTED) > 30
    assert {rights_of(one)[0] for one in RESTRICTED} == set(RIGHTS)


@commands
def test_nobody_without_hello(house: House, command: Listed) -> None:
    for body in requests_of(command):
        with house.stranger() as one:
            assert house.code(one.ask, command.number, body) == PROTOCOL
            with pytest.raises(Ended):
                one.next()


@restricted
def test_grants_that_come_near_are_refused_and_the_least_is_enough(
    house: House, command: Listed
) -> None:
    app = f"app-of-{command.name}"
    topic, group = place_of(command)
    enough = [grants_of(right, topic=topic, group=group) for right in rights_of(command)]
    with house.enter(app, grants_of("produce", topic=TOPIC)) as one:
        bodies = requests_of(command)
        if command.number == TRANSACTION_PREPARE:
            bodies = bodies[:1]  # the other one names no topic: a right on any is enough
        if command.number in TRANSACTIONS:
            prepared, _ = one.prepare(TOPIC, [b"x"], 1000 + command.number, 0, app, 1)
            asked = {"writer": app, "batch_id": 1}
            more = {"ids": [prepared], "digest": 7} if command.number == TRANSACTION_COMMIT else {}
            bodies = [pack(asked | more)]
        if command.number in CHECKED:
            one.control(CHECKER_OFFER, groups=[app])
            batch = make_batch(TOPIC, [b"x"], 1000 + command.number, 0)
            opened = one.ask(
                TRANSACTION_PREPARE, transaction_body(TOPIC, app, command.number, batch)
            )
            (number,) = struct.unpack_from("<Q", opened)
            read = command.number == TRANSACTION_READ
            named = pack({"transaction": number, "commit": True})
            bodies = [struct.pack("<QQII", number, 0, 0, 0) if read else named]
        for grants in not_enough(command):
            house.put(app, grants)
            for body in bodies:
                code = house.code(one.ask, command.number, body)
                assert code == FORBIDDEN, grants
        for least in enough:
            house.put(app, least)
            for body in bodies:
                code = house.code(one.ask, command.number, body)
                assert code not in {UNAUTHENTICATED, FORBIDDEN}, least
                assert code < PROTOCOL


@commands
def test_the_admin_may_and_so_may_every_app_where_the_page_says_so(
    house: House, command: Listed
) -> None:
    who = house.enter(f"nothing-for-{command.name}", []) if command in FREE else house.stranger()
    with who:
        if command not in FREE:
            who.hello(app="admin", token=TOKEN, client=os.urandom(16).hex())
        for body in requests_of(command):
            if command.name == "CANCEL":  # nothing is answered to it
                who.begin(command.number, body, flags=4)
                continue
            code = house.code(who.ask, command.number, body)
            assert code not in {UNAUTHENTICATED, FORBIDDEN}
            assert code < PROTOCOL
        who.ask(2)  # it is not closed


def test_who_was_deleted_or_has_another_token_is_not_let_in(house: House) -> None:
    token = house.put("leaver", grants_of(*RIGHTS))
    one = house.stranger()
    one.hello(app="leaver", token=token, client="c" * 32)
    house.admin.control(APP_DELETE, app="leaver")
    with one, pytest.raises(Ended):
        one.next()
    for app, given in (("leaver", token), ("admin", token), ("admin", ""), ("", "")):
        with house.stranger() as late:
            asked = {"app": app, "token": given, "client": "c" * 32}
            code = house.code(late.hello, **asked)
            assert code == UNAUTHENTICATED
            with pytest.raises(Ended):
                late.next()


def test_a_number_that_the_page_does_not_list_is_no_command(house: House) -> None:
    known = {one.number for one in listed()}
    with house.enter("curious", grants_of(*RIGHTS)) as one:
        for number in sorted(set(range(1, 256)) - known):
            assert house.code(one.ask, number) == UNKNOWN_COMMAND, number
