"""The tree of errors: codes are stable and told apart, and every error says what to do."""

from __future__ import annotations

import inspect

from ternmq.model import errors
from ternmq.model.errors import RefusedError, TernMQError

ALL = [
    one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, TernMQError)
]

CODES = {
    0: "TernMQError", 100: "RefusedError", 101: "InvalidRequest", 102: "InvalidName",
    103: "InvalidBatch", 104: "OrderingKeyRequired", 105: "ModeNotAllowed", 110: "UnknownTopic",
    111: "UnknownQueue", 112: "UnknownGroup", 113: "UnknownSession", 114: "TopicExists",
    115: "GroupExists", 116: "GroupSettingsMismatch", 120: "LeaseExpired", 121: "OffsetExpired",
    122: "MessageNotFound", 130: "IdConflict", 131: "ResendTooOld", 132: "StrictNeedsReplica",
    140: "Busy", 141: "DiskFull", 142: "GroupPaused", 143: "MessageTooLarge", 200: "JournalError",
    201: "JournalFailed", 202: "JournalFull", 203: "CorruptJournal", 204: "RecordTooLarge",
    205: "AlreadyRunning", 210: "DiskError", 211: "DiskWriteError", 212: "DiskSyncError",
    213: "NoSpace", 214: "UnknownRecordKind", 215: "FileMissing", 216: "DiskReadError",
}  # fmt: skip
"""As they are; a code is never given to another error, so lines are only added here."""


def test_codes_are_stable_and_never_shared() -> None:
    assert len({one.code for one in ALL}) == len(ALL)
    known = {one.code: one.__name__ for one in ALL}
    assert {code: known.get(code) for code in CODES} == CODES


def test_an_error_says_what_happened_and_what_to_do() -> None:
    for one in ALL:
        text = str(one("what happened"))
        assert text.startswith("what happened")
        assert one.hint in text


def test_busy_errors_may_be_tried_again() -> None:
    again = {one.__name__ for one in ALL if one.retriable and issubclass(one, RefusedError)}
    assert again == {"Busy", "DiskFull", "GroupPaused", "StrictNeedsReplica"}
