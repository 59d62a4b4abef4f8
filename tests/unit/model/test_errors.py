"""The tree of errors: codes are stable and told apart, and every error says what to do."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

from ternmq.cli.commands import TABLE
from ternmq.model import errors
from ternmq.model.errors import ClientError, RefusedError, TernMQError

ALL = [
    one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, TernMQError)
]

LEDGER = Path(__file__).parents[2] / "golden" / "errors.json"
"""Every code that was ever given, with its error. Lines are only added
(``python -m tests.unit.model.test_errors``): a code is never given to another error."""


def test_codes_are_stable_and_never_shared() -> None:
    assert len({one.code for one in ALL}) == len(ALL)
    known = {str(one.code): one.__name__ for one in ALL}
    ledger = json.loads(LEDGER.read_text(encoding="utf-8"))
    assert {code: known.get(code) for code in ledger} == ledger, "a code was changed or dropped"
    assert set(known) == set(ledger), "a new code: see LEDGER"


def test_the_table_has_every_error() -> None:
    assert set(errors.table().values()) >= set(ALL)


def test_a_kind_without_a_code_of_its_own_is_not_in_the_table() -> None:
    class Special(errors.InvalidHandler):
        """One of a package above."""

    assert errors.table()[Special.code] is errors.InvalidHandler
    assert type(errors.of_code(errors.InvalidHandler.code, "no")) is errors.InvalidHandler


def test_an_error_says_what_happened_and_what_to_do() -> None:
    for one in ALL:
        text = str(one("what happened"))
        assert text.startswith("what happened")
        assert one.hint in text


def test_hints_name_no_command_that_there_is_not() -> None:
    named = {word for one in ALL for word in re.findall(r"`ternmq ([a-z]+)", one.hint)}
    assert named
    assert named <= set(TABLE)


def test_busy_errors_may_be_tried_again() -> None:
    again = {one.__name__ for one in ALL if one.retriable and issubclass(one, RefusedError)}
    assert again == {
        "Busy", "DiskFull", "GroupPaused", "NotOwner", "NotPrimary", "ReadOnly", "ShuttingDown",
        "Unreadable",
    }  # fmt: skip


def test_a_client_may_try_again_what_had_no_room_or_no_answer() -> None:
    again = {one.__name__ for one in ALL if one.retriable and issubclass(one, ClientError)}
    assert again == {
        "BufferFull", "CannotConnect", "ClientStalled", "ConnectionLost", "ReadIncomplete",
        "SendTimeout", "TableConflict",
    }  # fmt: skip


if __name__ == "__main__":
    _known = json.loads(LEDGER.read_text(encoding="utf-8")) if LEDGER.exists() else {}
    for _one in ALL:
        _known.setdefault(str(_one.code), _one.__name__)
    _sorted = dict(sorted(_known.items(), key=lambda item: int(item[0])))
    LEDGER.write_text(json.dumps(_sorted, indent=1) + "\n", encoding="utf-8")
