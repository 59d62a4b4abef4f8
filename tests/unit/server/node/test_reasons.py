"""What must last before it is an alarm of a broker group."""

from __future__ import annotations

from collections.abc import Mapping

from ternmq.broker.catalog.alarms import AlarmKey
from ternmq.server.node.reasons import BEHIND_BYTES, BEHIND_S, PATIENCE_S, Reasons
from ternmq.wire.control import FollowerInfo


class Looks:
    def __init__(self) -> None:
        self.reasons = Reasons("main")

    def __call__(
        self,
        now_s: float,
        *followers: FollowerInfo,
        copies: int = 2,
        missing: str = "",
        trouble: str = "",
        read_only: str = "",
    ) -> Mapping[AlarmKey, str]:
        return self.reasons.look(
            now_s,
            copies=copies,
            missing=missing,
            followers=followers,
            trouble=trouble,
            read_only=read_only,
        )


def behind(bytes_: int, **more: object) -> FollowerInfo:
    return FollowerInfo(broker="b", behind_bytes=bytes_, **more)  # type: ignore[arg-type]


def test_nothing_is_wrong() -> None:
    look = Looks()
    for now in range(100):
        assert look(now, behind(BEHIND_BYTES)) == {}


def test_one_copy_is_an_alarm_after_a_while_and_names_who_is_missing() -> None:
    look = Looks()
    assert look(0, copies=1, missing="b does not run") == {}
    assert look(PATIENCE_S - 0.1, copies=1, missing="b does not run") == {}
    found = look(PATIENCE_S, copies=1, missing="b does not run")
    assert found == {
        AlarmKey("one-copy", "main"): "the journal has one copy that counts: b does not run"
    }
    assert look(PATIENCE_S + 1) == {}
    assert look(PATIENCE_S + 2, copies=1) == {}  # the time begins anew


def test_a_follower_that_is_behind_for_long() -> None:
    look = Looks()
    far = behind(BEHIND_BYTES + 1, member=True)
    assert look(0, far) == {}
    assert look(BEHIND_S, far) == {
        AlarmKey("copy-behind", "b"): "b does not keep up: it is 1,048,577 bytes behind"
    }
    assert look(BEHIND_S + 1, behind(0)) == {}
    backup = behind(BEHIND_BYTES + 1, kind="backup")
    gone = behind(BEHIND_BYTES + 1, connected=False)
    for now in range(100):
        assert look(100 + now, backup, gone) == {}


def test_a_coordinator_that_is_silent_and_a_group_that_takes_no_messages() -> None:
    look = Looks()
    trouble, why = "the coordinator does not answer: gone", "one copy is left"
    assert look(0, trouble=trouble, read_only=why) == {}
    found = look(PATIENCE_S, trouble=trouble, read_only=why)
    assert found[AlarmKey("coordinator", "")].startswith("the coordinator does not answer: gone; ")
    assert found[AlarmKey("read-only", "main")] == "one copy is left"
