"""The table: numbers are kept, every command has a policy, no msgpack where messages move."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from ternmq.wire import bodies, commands, control
from ternmq.wire.commands import (
    ONE_WAY_COMMANDS,
    PUSHES,
    STREAM,
    TABLE,
    Command,
    Policy,
    Right,
    Scope,
    Sender,
)
from tests.unit.wire import examples

NUMBERS = {
    0: "FAREWELL",  # of the session, not in the table
    1: "HELLO", 2: "PING", 3: "BYE", 4: "CANCEL", 5: "KEEP",
    10: "SEND", 11: "PULL", 12: "SETTLE", 13: "EXTEND", 14: "READ",
    15: "PREPARE", 16: "JOURNAL_READ",
    17: "TRANSACTION_PREPARE", 18: "TRANSACTION_READ", 19: "TRANSACTION_SETTLE",
    20: "REPORT", 21: "NUMBERS_TAKE",
    30: "TOPIC_CREATE", 31: "TOPIC_CHANGE", 32: "TOPIC_DELETE", 33: "TOPIC_LIST",
    40: "GROUP_JOIN", 41: "GROUP_CHANGE", 42: "GROUP_DELETE", 43: "GROUP_LIST", 44: "GROUP_RESET",
    45: "GROUP_SKIP", 46: "GROUP_COMMIT", 47: "GROUP_REPLAY", 48: "TRANSACTION_MOVE",
    49: "GROUP_LEAVE",
    50: "FIND", 51: "OFFSET_AT", 52: "FAILED_LIST", 53: "FAILED_RETRY", 54: "FAILED_DELETE",
    55: "FAILED_REDRIVE", 56: "FAILED_QUERY",
    60: "CLIENT_LIST", 61: "STATUS", 62: "CLOCK_ACCEPT",
    70: "APP_PUT", 71: "APP_DELETE", 72: "APP_LIST",
    73: "RIGHTS_CHECK",
    80: "TRANSACTION_COMMIT", 81: "TRANSACTION_ABORT", 82: "TRANSACTION_LIST",
    83: "TRANSACTION_DECIDE", 84: "TRANSACTION_SHOW", 85: "CHECKER_OFFER",
    86: "PRODUCER_GROUP_PUT", 87: "PRODUCER_GROUP_LIST", 88: "PRODUCER_GROUP_DELETE",
    89: "TRANSACTION_CHECK_AGAIN",
    90: "QUEUE_RANGES", 91: "HOLD_PUT", 92: "HOLD_DELETE", 93: "HOLD_LIST",
    94: "JOURNAL_CATALOG",
    95: "SCHEDULE_CANCEL", 96: "SCHEDULE_LIST", 97: "SCHEDULE_HOURS",
    98: "ALARM_LIST", 99: "ALARM_CLEAR",
    100: "DRAIN", 101: "TOPIC_CHANGED", 102: "GROUP_CHANGED",
    103: "TRANSACTION_CHECK", 104: "CLOCK_MOVED",
    105: "QUEUES_ASSIGNED",
    120: "ROUTES", 121: "ROUTES_CHANGED", 122: "BEHIND",
    110: "FOLLOW", 112: "BYTES", 113: "MARKS", 114: "ACK", 116: "RESIGN",
    117: "SEGMENT_READ",
}  # fmt: skip
"""As they are; a number is never given to another command, so lines are only added here."""
BY_HAND = {
    Command.PING, Command.BYE, Command.CANCEL,
    Command.SEND, Command.PULL, Command.SETTLE, Command.EXTEND, Command.READ,
    Command.PREPARE, Command.JOURNAL_READ,
    Command.TRANSACTION_PREPARE, Command.TRANSACTION_READ, Command.TRANSACTION_SETTLE,
}  # fmt: skip


def test_numbers_are_never_reused():
    now = {int(command): command.name for command in Command}
    assert now == {number: name for number, name in NUMBERS.items() if number}
    assert len(set(NUMBERS.values())) == len(NUMBERS)
    assert all(number < 256 for number in NUMBERS)


def test_every_command_has_a_policy_or_is_a_push_or_is_between_brokers():
    assert set(TABLE) | set(PUSHES) | set(STREAM) == set(Command)
    assert len(TABLE) + len(PUSHES) + len(STREAM) == len(Command)
    for entry in TABLE.values():
        assert isinstance(entry.policy, Policy)


@pytest.mark.parametrize("command", TABLE)
def test_the_policy_can_be_judged_by_the_request(command):
    """The fields that the scope names are in the request, so that none can be forgotten."""
    entry = TABLE[command]
    if entry.policy.scope is Scope.NOTHING:
        assert not entry.policy.rights
        return
    assert entry.policy.rights
    fields: tuple[str, ...]
    if entry.request is not None:
        fields = entry.request.__struct_fields__
    else:
        fields = getattr(bodies, command.name.title().replace("_", ""))._fields
    if entry.policy.scope in {Scope.TOPIC, Scope.GROUP}:
        assert "topic" in fields
    if entry.policy.scope is Scope.TOPICS:
        assert "topics" in fields
    if entry.policy.scope is Scope.GROUP:
        assert "group" in fields


def test_who_may_what():
    """Written out once more, so that a right is not given away by a slip."""
    anybody = {
        Command.HELLO, Command.PING, Command.BYE, Command.CANCEL, Command.KEEP,
        Command.TOPIC_LIST, Command.GROUP_LIST, Command.STATUS, Command.TRANSACTION_LIST,
        Command.RIGHTS_CHECK, Command.ROUTES,
    }  # fmt: skip
    of_both = {
        Command.FAILED_LIST: Scope.GROUP, Command.FAILED_QUERY: Scope.GROUP,
        Command.GROUP_JOIN: Scope.GROUP, Command.GROUP_LEAVE: Scope.GROUP,
        Command.OFFSET_AT: Scope.TOPIC,
    }  # fmt: skip
    for command, entry in TABLE.items():
        name = command.name
        rights = set(entry.policy.rights)
        if command in anybody:
            assert entry.policy.scope is Scope.NOTHING
        elif command in {
            Command.SEND, Command.REPORT, Command.PREPARE, Command.TRANSACTION_PREPARE,
            Command.NUMBERS_TAKE,
        }:  # fmt: skip
            assert entry.policy == Policy(Scope.TOPIC, (Right.PRODUCE,))
        elif command is Command.CHECKER_OFFER:
            assert entry.policy == Policy(Scope.ANY_TOPIC, (Right.PRODUCE,))
        elif command is Command.SCHEDULE_CANCEL:
            assert entry.policy == Policy(Scope.TOPIC, (Right.PRODUCE,), operators=True)
        elif command in {
            Command.TRANSACTION_COMMIT, Command.TRANSACTION_ABORT, Command.TRANSACTION_DECIDE,
            Command.TRANSACTION_SHOW, Command.TRANSACTION_READ,
        }:  # fmt: skip
            operators = command not in {Command.TRANSACTION_COMMIT, Command.TRANSACTION_READ}
            wanted = Policy(Scope.TRANSACTION, (Right.PRODUCE,), operators=operators)
            assert entry.policy == wanted
        elif name.startswith("JOURNAL_"):
            assert entry.policy == Policy(Scope.BROKER, (Right.AUDIT,))
        elif name.startswith("HOLD_"):
            assert entry.policy == Policy(Scope.BROKER, (Right.AUDIT, Right.MANAGE))
        elif name.startswith(
            ("APP_", "CLIENT_", "CLOCK_", "ALARM_", "PRODUCER_GROUP_", "TRANSACTION_CHECK_AGAIN")
        ):
            assert entry.policy == Policy(Scope.BROKER, (Right.MANAGE,))
        elif name.startswith("TOPIC_"):
            assert entry.policy == Policy(Scope.TOPIC, (Right.MANAGE,))
        elif re.fullmatch(
            "GROUP_(CHANGE|DELETE|RESET|SKIP|REPLAY)|FAILED_(RETRY|DELETE|REDRIVE)", name
        ):
            assert entry.policy == Policy(Scope.GROUP, (Right.MANAGE,))
        elif command in of_both:
            assert entry.policy.scope is of_both[command]
            assert rights == {Right.CONSUME, Right.MANAGE}
        elif command in {Command.TRANSACTION_SETTLE, Command.TRANSACTION_MOVE}:
            assert entry.policy == Policy(Scope.GROUP, (Right.CONSUME,))
        else:
            assert rights == {Right.CONSUME}


@pytest.mark.parametrize(
    ("scope", "rights"), [(Scope.NOTHING, (Right.MANAGE,)), (Scope.TOPIC, ()), (Scope.BROKER, ())]
)
def test_a_policy_without_rights_cannot_be_written_down(scope, rights):
    with pytest.raises(ValueError, match="policy"):
        Policy(scope, rights)


def test_a_command_without_policy_cannot_be_written_down():
    with pytest.raises(TypeError):
        commands.Entry()  # type: ignore[call-arg]


def test_no_msgpack_where_messages_move():
    assert {command for command, entry in TABLE.items() if entry.request is None} == BY_HAND
    assert {command for command, entry in TABLE.items() if entry.answer is None} == BY_HAND
    folder = Path(inspect.getfile(bodies)).parent
    for file in folder.glob("*.py"):
        imported = {
            alias.name
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        } | {
            node.module or ""
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
        }
        assert not {name for name in imported if re.search("msgspec|msgpack|json|control", name)}


def test_no_msgpack_runs_where_messages_move(monkeypatch):
    def fail(*_args: object) -> None:
        raise AssertionError("msgpack")

    monkeypatch.setattr(control.coding, "_encode", fail)
    monkeypatch.setattr(control.coding, "_decode", fail)
    with pytest.raises(AssertionError):
        control.encode(control.Nothing())
    bodies.unpack_send(bodies.pack_send(*examples.SEND))
    bodies.unpack_receipt(bodies.pack_receipt(examples.RECEIPT))
    bodies.unpack_pull(bodies.pack_pull(examples.PULL))
    bodies.unpack_delivery(examples.pack_delivery(examples.DELIVERY))
    bodies.unpack_settle(bodies.pack_settle(examples.SETTLE))
    bodies.unpack_settled(bodies.pack_settled(*examples.SETTLED))
    bodies.unpack_extend(bodies.pack_extend(examples.EXTEND))
    bodies.unpack_read(bodies.pack_read(examples.READ))
    bodies.unpack_transaction_prepare(bodies.pack_transaction_prepare(examples.TRANSACTION_PREPARE))
    bodies.unpack_transaction_settle(bodies.pack_transaction_settle(examples.TRANSACTION_SETTLE))
    bodies.unpack_transaction_rows(examples.pack_transaction_rows(examples.TRANSACTION_ROWS))
    bodies.unpack_journal_read(bodies.pack_journal_read(examples.JOURNAL_READ))
    bodies.unpack_records(examples.pack_records(examples.RECORDS_READ))
    bodies.unpack_bytes(examples.pack_bytes(examples.BYTES))
    bodies.unpack_marks(bodies.pack_marks(examples.MARKS))
    bodies.unpack_ack(bodies.pack_ack(examples.ACK))


def test_what_may_be_one_way():
    assert set(TABLE) > ONE_WAY_COMMANDS
    for command in (Command.PULL, Command.READ, Command.HELLO, Command.PING):
        assert command not in ONE_WAY_COMMANDS


def test_what_a_follower_may_say_to_a_primary():
    said = {command for command, entry in STREAM.items() if entry.sender is Sender.FOLLOWER}
    assert said == {Command.FOLLOW, Command.ACK}
    either = {command for command, entry in STREAM.items() if entry.sender is Sender.EITHER}
    assert either == {Command.SEGMENT_READ}
    assert {command for command, entry in STREAM.items() if entry.answer} == {Command.FOLLOW}


def test_every_command_has_an_example():
    assert set(examples.EXAMPLES) == set(TABLE)
    assert set(examples.PUSHES) == set(PUSHES)
    assert set(examples.STREAM) == set(STREAM)
