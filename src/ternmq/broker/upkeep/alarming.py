"""Raises alarms for what needs a person, and clears them when the reason has been gone for a while.

Looks once a second, at a bounded number of objects; what one look leaves out, a later one finds. An
alarm of which the reason is gone stays for ``CALM_US`` more, so that a reason that comes and goes
makes no alarm flap. One that an operator clears while its reason lasts is raised again.

Only alarms with a state behind them are here. An alarm about an event (rows that were set aside) is
raised where it happens, and stays until an operator clears it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from ternmq.broker.catalog.alarms import MOST_OPEN, AlarmKey
from ternmq.broker.checkback.asking import Asking
from ternmq.broker.clock.clock import GAP_US
from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.alarms import (
    CLOCK,
    DAMAGED,
    DEAD_LETTERS,
    DUE_NO_ROOM,
    HELD,
    NO_CHECKER,
    OF_GROUP,
    OWNER_IDLE,
    PARKED,
    UNOWNED,
    Alarms,
)
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.upkeep.fulfilling import Fulfilling
from ternmq.broker.upkeep.ownerwatch import OwnerWatch
from ternmq.model.errors import JournalFull
from ternmq.model.types import SECOND_US
from ternmq.model.words import counted, lasting, verb

CALM_US: Final = 10 * SECOND_US
"""How long a reason must be gone before its alarm is cleared."""
LOOKS: Final = 200
"""Group queues of a kind that one look examines."""
RESTATE_US: Final = 10 * SECOND_US
"""How often at most an open alarm about the broker group gets another text."""
CHANGES: Final = 50
"""Most alarms that one look raises, and most that it clears."""


class Alarming:
    """Compares the open alarms with their reasons.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        clock_gap_us: How far the wall clock is ahead of broker time; set by the shell, which knows
            the wall clock.
        of_group: Reasons of alarms about the broker group, with their texts; set by the shell,
            which knows the copies and the coordinator.
        of_disk: Reasons of alarms about damaged files, with their texts; set by the shell.
    """

    __slots__ = (
        "_alarms", "_asking", "_fulfilling", "_gone_since", "_ledger", "_stated", "_watch",
        "clock_gap_us", "of_disk", "of_group",
    )  # fmt: skip

    def __init__(self, ledger: Ledger, fulfilling: Fulfilling, asking: Asking) -> None:
        self._ledger = ledger
        self._asking = asking
        self._fulfilling = fulfilling
        self._alarms = Alarms(ledger)
        self._watch = OwnerWatch(ledger)
        self._gone_since: dict[AlarmKey, int] = {}
        """Open alarms whose reason is gone -> since when."""
        self._stated: dict[AlarmKey, int] = {}
        """Alarms about the broker group -> when this process gave them their text."""
        self.clock_gap_us = 0
        self.of_group: Mapping[AlarmKey, str] = {}
        self.of_disk: Mapping[AlarmKey, str] = {}

    def step(self, now_us: int) -> int:
        """Raise and clear alarms; return the number of records.

        If the journal has no room for one, a later call finds the same reasons again.
        """
        done = 0
        self._watch.step(now_us)
        try:
            for key in self._over(now_us):
                self._gone_since.pop(key, None)
                self._alarms.clear(now_us, key.name, key.subject)
                done += 1
                if done >= CHANGES:
                    break
            for key, text in self._reasons(now_us):
                # An alarm more would push out another one whose reason lasts as well.
                if len(self._alarms.open) >= MOST_OPEN or done >= 2 * CHANGES:
                    break
                if self._alarms.raise_(now_us, key.name, key.subject, text):
                    self._gone_since.pop(key, None)  # an operator had cleared it meanwhile
                    self._note(key, now_us)
                    done += 1
                elif self._may_be_outdated(key, now_us):
                    done += self._alarms.restate(now_us, key.name, key.subject, text)
                    self._note(key, now_us)
        except JournalFull:
            return done
        return done

    def _may_be_outdated(self, key: AlarmKey, now_us: int) -> bool:
        """Return whether an open alarm may have the text of another broker, or of long ago.

        An alarm about copies names brokers. It stays open when another broker takes over.
        """
        if key.name not in OF_GROUP:
            return False
        stated_us = self._stated.get(key)
        return stated_us is None or now_us - stated_us >= RESTATE_US

    def _note(self, key: AlarmKey, now_us: int) -> None:
        if key.name in OF_GROUP:
            self._stated = {one: us for one, us in self._stated.items() if one in self._alarms.open}
            self._stated[key] = now_us

    def _over(self, now_us: int) -> list[AlarmKey]:
        """Return the open alarms whose reason has been gone for long enough."""
        found: list[AlarmKey] = []
        for key in self._alarms.open:
            if self._lasts(now_us, key):
                self._gone_since.pop(key, None)
            elif now_us - self._gone_since.setdefault(key, now_us) >= CALM_US:
                found.append(key)
        if len(self._gone_since) > len(self._alarms.open):  # an operator has cleared some
            self._gone_since = {
                key: since for key, since in self._gone_since.items() if key in self._alarms.open
            }
        return found

    def _reasons(self, now_us: int) -> Iterator[tuple[AlarmKey, str]]:
        """Yield the reasons that there are, with the texts of their alarms."""
        gap_us = self.clock_gap_us
        if abs(gap_us) > GAP_US:
            side = "ahead of" if gap_us > 0 else "behind"
            text = f"the wall clock is {lasting(abs(gap_us))} {side} broker time"
            yield AlarmKey(CLOCK, ""), f"{text}, which does not follow it"
        if self._fulfilling.lacks_room(now_us):
            yield (
                AlarmKey(DUE_NO_ROOM, ""),
                "messages that are due are not delivered: the journal has no room for them",
            )
        yield from islice(self.of_group.items(), LOOKS)
        yield from islice(self.of_disk.items(), LOOKS)
        figures, most = self._ledger.views.figures, self._ledger.limits.failures
        for progress in _some(figures.many_dead):
            dead = progress.failures.dead_rows
            text = f"{dead:,} dead letters; at {most:,} the group gets no more messages"
            yield AlarmKey(DEAD_LETTERS, self._subject(progress)), text
        for progress in _some(figures.with_held):
            yield (
                AlarmKey(HELD, self._subject(progress)),
                (
                    "a message failed for good and is held: later messages of its ordering key, or "
                    "of its queue if the group locks queues, wait"
                ),
            )
        for subject, text in self._watch.idle.items():
            yield AlarmKey(OWNER_IDLE, subject), text
        for subject, text in self._watch.unowned.items():
            yield AlarmKey(UNOWNED, subject), text
        for group, count in islice(self._asking.unchecked(now_us), LOOKS):
            text = f"no checker of producer group {group} has been connected for an hour"
            yield (
                AlarmKey(NO_CHECKER, group),
                f"{text}: {counted(count, 'transaction')} {verb(count, 'waits', 'wait')} for it",
            )
        checked = self._ledger.views.checked
        for number in islice(checked.parked, LOOKS):
            one = checked.by_number[number]
            text = f"a transaction of producer group {one.group} is undecided, and nobody is asked"
            yield AlarmKey(PARKED, one.public_id), f"{text} (query id {one.query_id!r:.80})"

    def _subject(self, progress: Progress) -> str:
        subscription = self._ledger.views.catalog.consumer_of(progress)
        assert subscription is not None  # figures forget a group queue with its group
        return f"{subscription.topic.name}/{subscription.name}/{progress.queue}"

    def _find(self, subject: str) -> Progress | None:
        """Return the group queue that a subject names; None if it is gone."""
        topic, group, queue = subject.split("/")
        found = self._ledger.views.catalog.by_name.get(topic)
        subscription = found.by_group.get(group) if found is not None else None
        if subscription is None or int(queue) >= len(subscription.queues):
            return None
        return subscription.queues[int(queue)]

    def _lasts(self, now_us: int, key: AlarmKey) -> bool:
        """Return whether the reason of an alarm lasts; those of other alarms always do."""
        figures = self._ledger.views.figures
        if key.name == CLOCK:
            return abs(self.clock_gap_us) > GAP_US
        if key.name in OF_GROUP:
            return key in self.of_group
        if key.name == DAMAGED:
            return key in self.of_disk
        if key.name == DUE_NO_ROOM:
            return self._fulfilling.lacks_room(now_us)
        if key.name == DEAD_LETTERS:
            return self._find(key.subject) in figures.many_dead
        if key.name == HELD:
            return self._find(key.subject) in figures.with_held
        if key.name == OWNER_IDLE:
            return key.subject in self._watch.idle
        if key.name == UNOWNED:
            return key.subject in self._watch.unowned
        if key.name == NO_CHECKER:
            return self._asking.waits(now_us, key.subject)
        if key.name == PARKED:
            return self._ledger.views.checked.is_parked(key.subject)
        return True


def _some(found: dict[Progress, None]) -> list[Progress]:
    """Return some group queues, and move them behind the others, for the next look."""
    some = list(islice(found, LOOKS))
    if len(found) > LOOKS:
        for progress in some:
            found[progress] = found.pop(progress)
    return some
