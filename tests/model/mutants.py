"""Mutants: runs with a broken rule, which an exploration must find.

Each has small bounds that show it. With the rules intact, the same bounds are explored to the end
without a violation: by ``tests.model mutants``, or as one of the runs of ``tests.model explore``. A
rule that is a second line does no harm when it alone is broken: that, too, is explored to the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tests.model.invariants import HARM, Kind
from tests.model.run import Broken, Run


@dataclass(frozen=True, slots=True)
class Mutant:
    """A run with a broken rule, or two.

    Attributes:
        run: Its bounds, the rules broken.
        judged: The invariants that must show it.
        harmless: It must be explored to the end without a violation.
    """

    run: Run
    judged: tuple[Kind, ...] = HARM
    harmless: bool = False

    @property
    def name(self) -> str:
        """Return the names of the broken rules; and the invariants, if not the usual ones."""
        name = "+".join(self.run.broken.names())
        return name if self.judged == HARM else f"{name}:{','.join(self.judged)}"

    def control(self) -> Run:
        """Return the same run with the rules intact."""
        return replace(self.run, broken=Broken())


def _broken(bounds: Run, *names: str) -> Run:
    return replace(bounds, broken=replace(Broken(), **dict.fromkeys(names, True)))


def _pair(messages: int, crashes: int, changes: int) -> Run:
    return Run(brokers=2, messages=messages, crashes=crashes, changes=changes)


_NO_CRASH: Final = _pair(1, 0, 3)
_A_CRASH: Final = _pair(1, 1, 1)
_SYNCED: Final = replace(_A_CRASH, synced_acks=True)
_SWITCHES: Final = replace(_A_CRASH, switches=True)
_FORCES: Final = replace(_pair(1, 2, 3), marks=True, forces=True)
_THREE: Final = Run(brokers=3, messages=1, crashes=0, changes=3)
_THREE_CRASH: Final = Run(brokers=3, messages=1, crashes=1, changes=2)

MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(_broken(_A_CRASH, "answer_before_sync")),
    Mutant(_broken(_NO_CRASH, "answer_before_ack")),
    Mutant(_broken(_NO_CRASH, "shrink_at_once")),
    Mutant(_broken(_NO_CRASH, "unknown_is_failed")),
    Mutant(_broken(_A_CRASH, "stand_given_up")),
    Mutant(_broken(_NO_CRASH, "grow_late")),
    Mutant(_broken(_NO_CRASH, "joiner_not_checked")),
    Mutant(_broken(_pair(1, 2, 2), "joiner_without_epoch")),
    Mutant(_broken(_A_CRASH, "member_by_name")),
    Mutant(_broken(_pair(1, 1, 2), "ack_of_earlier_life")),
    Mutant(_broken(_pair(3, 1, 1), "ack_of_earlier_epoch")),
    Mutant(_broken(_NO_CRASH, "anyone_elected")),
    Mutant(_broken(_A_CRASH, "stand_without_stopping")),
    Mutant(_broken(_A_CRASH, "swap_before_sync")),
    Mutant(_broken(_pair(2, 1, 0), "reign_resumed")),
    Mutant(_broken(_A_CRASH, "lower_epoch_followed")),
    Mutant(_broken(_THREE, "promises_forgotten")),
    Mutant(_broken(_THREE_CRASH, "epoch_not_awaited", "promises_forgotten")),
    Mutant(_broken(_THREE_CRASH, "epoch_not_awaited", "followed_forgotten")),
    Mutant(_broken(_THREE_CRASH, "epoch_not_awaited"), harmless=True),
    Mutant(_broken(_THREE_CRASH, "followed_forgotten"), harmless=True),
    Mutant(_broken(_THREE, "old_primary_kept"), harmless=True),
    Mutant(_broken(_SYNCED, "ack_before_own_sync")),
    Mutant(_broken(replace(_THREE_CRASH, synced_acks=True), "promise_not_in_copy")),
    Mutant(_broken(_SWITCHES, "switch_not_synced")),
    Mutant(_broken(_SWITCHES, "switch_still_answers")),
    Mutant(
        _broken(replace(_pair(1, 1, 2), marks=True), "anyone_elected", "cut_below_mark"),
        judged=("gone",),
    ),
    Mutant(
        _broken(replace(_pair(1, 1, 2), marks=True), "anyone_elected"),
        judged=("gone",),
        harmless=True,
    ),
    Mutant(_broken(_FORCES, "force_keeps_its_end")),
    Mutant(_broken(_FORCES, "earlier_force_ignored")),
)
