"""Asks checkers about undecided transactions: when, whom, how often, and what follows.

A question is a CHECKED record, which has the time of the next one; it leaves when the record is
durable. The session that opened the transaction is asked first, while it offers a checker, else
the sessions that offer the group take turns. If nobody does, nothing is recorded and no attempt is
counted: the transaction waits until somebody offers. After the last attempt, or the time to give
up, the policy of the group decides. Who offers what is not recorded: clients offer again whenever
they connect. So after a start, no transaction is given up by its age before clients could connect
and be asked once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from ternmq.broker.checkback.deciding import Deciding
from ternmq.broker.checkback.found import Found
from ternmq.broker.checkback.questions import Askers, Question
from ternmq.broker.clock.timers import FULL_RETRY_US, Timer
from ternmq.broker.containers.deadlines import Deadlines
from ternmq.broker.gate.replies import DoneReply
from ternmq.broker.ledger.factkinds import CHECKED, CONFIG
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.transaction.checked import CheckedTransaction
from ternmq.model.errors import Busy, DiskFull, JournalFull, UnknownSession
from ternmq.model.specs import ProducerGroupSpec, Unanswered, check_name
from ternmq.model.types import HOUR_US, SECOND_US
from ternmq.record.fact import control
from ternmq.record.fact.checked import Checked, What
from ternmq.record.fact.transactions import Why

UNDER_WAY: Final = 64
"""Most questions to one session that are not answered."""
A_SECOND: Final = 100
"""Most questions of a producer group in a second."""
_BUSY_US: Final = SECOND_US
"""Time after which a question that found all sessions busy is tried again."""
NOBODY_US: Final = HOUR_US
"""How long a transaction waits for a checker until there is an alarm."""
_WORK: Final = 8
"""Work units of a question."""
_AT_ONCE: Final = 256
"""Transactions whose times are set anew at once, when somebody offers or the settings change."""
_NEVER: Final = 1 << 63


class Asking:
    """Asks, counts, gives up.

    Not thread-safe: call it from the broker's loop. Transactions are decided much more often than
    asked about, so they have no timers of their own: their times are in `Deadlines`, which frees
    those of decided ones, and one timer is set for the earliest.

    Attributes:
        askers: Brings questions to clients; None: no question can leave, so nobody is asked.
        asked: Questions recorded since the start.
        unsent: Questions whose record is not durable yet: (end of the record, session, question).
    """

    __slots__ = (
        "_armed_us",
        "_asked",
        "_began_us",
        "_by_group",
        "_deadlines",
        "_deciding",
        "_found",
        "_free_us",
        "_ledger",
        "_offers",
        "_slots",
        "_times",
        "_to_arm",
        "_under_way",
        "_waiting",
        "_waits",
        "asked",
        "askers",
        "unsent",
    )

    def __init__(self, ledger: Ledger, found: Found, deciding: Deciding) -> None:
        self._ledger = ledger
        self._found = found
        self._deciding = deciding
        self.askers: Askers | None = None
        self.asked = 0
        self.unsent: deque[tuple[int, int, Question]] = deque()
        self._deadlines = Deadlines(ledger.views.checked.by_number)
        self._times: dict[int, int] = {}
        """Transaction -> when it is looked at next; its other deadlines are out of date."""
        self._armed_us = _NEVER
        """Time of the timer; a timer for any other time is out of date."""
        self._offers: dict[int, tuple[str, ...]] = {}
        """Session -> the groups that it offers."""
        self._by_group: dict[str, dict[int, None]] = {}
        """Group -> the sessions that offer it, those that were asked last at the end."""
        self._under_way: dict[int, set[int]] = {}
        """Session -> the transactions that it was asked about and has not answered."""
        self._asked: dict[int, int] = {}
        """Transaction -> the session that was asked about it and has not answered."""
        self._waiting: dict[str, dict[int, None]] = {}
        """Group -> transactions that are due, while nobody offers."""
        self._waits: dict[int, str] = {}
        """Such a transaction -> its group."""
        self._free_us: dict[str, int] = {}
        """Group -> when its next question may leave; of the groups that there are."""
        self._began_us = 0
        """Since when clients could connect, after the start."""
        self._slots: set[int] = set()
        """Transactions whose time is one at which a question of their group may leave."""
        self._to_arm: deque[Iterator[int]] = deque()
        """Transactions whose times are to be set anew; of thousands, a turn sets some."""

    def start(self, now_us: int) -> None:
        """Set the times of all undecided transactions."""
        self.begin_grace(now_us)
        for one in self._ledger.views.checked.by_number.values():
            self._arm_again(now_us, one)

    def begin_grace(self, now_us: int) -> None:
        """Note that from now on clients can connect: see ``_end_us``."""
        self._began_us = now_us

    def _end_us(self, opened: CheckedTransaction, spec: ProducerGroupSpec) -> int:
        """Return when the questions about a transaction end.

        The broker may have been down for most of the time, or all of it; so after a start, clients
        have time to connect, and to answer one question.
        """
        end_us = opened.since_us + spec.give_up_us
        if opened.since_us >= self._began_us:
            return end_us
        grace_us = self._ledger.limits.session_grace_us
        return max(end_us, self._began_us + grace_us + spec.first_us)

    def opened(self, number: int) -> None:
        """Set the time of a transaction that was opened."""
        self._arm_again(0, self._ledger.views.checked.by_number[number])

    def changed(self, now_us: int, group: str) -> None:
        """Set the times of a group's transactions anew: its settings were changed."""
        known = self._ledger.views.checked.by_number
        if group in self._ledger.views.checked.of_group:
            self._to_arm.append(iter([one.number for one in known.values() if one.group == group]))
        self._arm_some(now_us, _AT_ONCE)

    def deleted(self, group: str) -> None:
        """Forget a group that was deleted; it had no undecided transactions."""
        self._free_us.pop(group, None)

    # -- times ------------------------------------------------------------------------------------

    def _arm_again(self, now_us: int, opened: CheckedTransaction) -> None:
        """Set the time of the next question, or of the end of the questions if that is earlier."""
        if opened.parked:
            return
        end_us = self._end_us(opened, self._spec(opened))
        next_us = end_us if opened.number in self._waits else min(opened.next_us, end_us)
        self._arm(opened.number, max(now_us, next_us))

    def _arm(self, number: int, at_us: int) -> None:
        self._times[number] = at_us
        self._deadlines.add(at_us, number)
        self._set_timer(at_us)

    def _arm_some(self, now_us: int, budget: int) -> int:
        """Set times anew, within a budget; return how many. The timer does the rest."""
        known = self._ledger.views.checked.by_number
        done = 0
        while self._to_arm and done < budget:
            some = list(islice(self._to_arm[0], budget - done))
            if not some:
                self._to_arm.popleft()
            done += len(some)
            for number in some:
                opened = known.get(number)
                if opened is None:
                    continue
                if number in self._waits and self.offers(opened.group, opened.app):
                    self._wait_no_more(number)
                    self._arm(number, now_us)
                elif number not in self._slots:
                    self._arm_again(now_us, opened)
        if self._to_arm:
            self._set_timer(now_us)
        return done

    def _set_timer(self, at_us: int) -> None:
        if at_us < self._armed_us:
            self._armed_us = at_us
            self._ledger.timers.set(at_us, Timer.CHECK)

    def check(self, now_us: int, when_us: int, owner: None, budget: int) -> int:
        """Look at the transactions whose time has come (timer CHECK); return the work units."""
        del owner
        if when_us != self._armed_us:
            return 0  # armed again for an earlier time
        self._armed_us = _NEVER
        known = self._ledger.views.checked.by_number
        work = self._arm_some(now_us, min(budget, _AT_ONCE))
        try:
            while work < budget and (number := self._deadlines.pop(now_us)) is not None:
                work += 1
                if self._times.get(number, _NEVER) > now_us:
                    continue  # that deadline is out of date
                del self._times[number]
                try:
                    work += self._look(now_us, known[number])
                except JournalFull:
                    self._arm(number, now_us + FULL_RETRY_US)
                    break
        finally:  # whatever was wrong with one, the others go on
            first_us = self._deadlines.first_us()
            if first_us is not None:
                self._set_timer(max(first_us, now_us))
        return work

    def _spec(self, opened: CheckedTransaction) -> ProducerGroupSpec:
        return self._ledger.views.producer_groups.spec(opened.group)

    # -- who offers -------------------------------------------------------------------------------

    def offers(self, group: str, app: str) -> bool:
        """Return whether a session of an app offers a checker for a group.

        One of another app may have offered it before the group was deleted.
        """
        known = self._ledger.views.sessions.by_number
        return any(
            session in known and known[session].info.app == app
            for session in self._by_group.get(group, ())
        )

    def offered(self, now_us: int, app: str, session: int, groups: Sequence[str]) -> DoneReply:
        """See ``Checking.offered``."""
        if session not in self._ledger.views.sessions.by_number:
            raise UnknownSession(f"no session {session}")
        for group in groups:
            check_name(group, "a producer group's name")
            self._ledger.views.producer_groups.check_owner(group, app)
        known = self._ledger.views.producer_groups
        new = [group for group in dict.fromkeys(groups) if group not in known.by_name]
        if new:
            known.check_room(self._ledger.limits.producer_groups, app, len(new))
        for group in new:  # the name belongs to this app from now on
            self.claim(now_us, group, app)
        done = DoneReply(self._ledger.end if new else 0)
        self._forget(session)
        if not groups:
            return done
        self._offers[session] = tuple(dict.fromkeys(groups))
        for group in self._offers[session]:
            self._by_group.setdefault(group, {})[session] = None
            if group in self._waiting:
                self._to_arm.append(iter(list(self._waiting[group])))
        self._arm_some(now_us, _AT_ONCE)
        return done

    def claim(self, now_us: int, group: str, app: str) -> None:
        """Record that a new producer group belongs to an app, with the default settings.

        Raises:
            Busy: There are as many as may be; or the next segment is being made.
            DiskFull: There is no room for the record.
        """
        self._ledger.views.producer_groups.check_room(self._ledger.limits.producer_groups, app)
        put = control.ProducerGroupPut(ProducerGroupSpec(name=group), app)
        self._ledger.admit(now_us, CONFIG, put)

    def withdrawn(self, session: int) -> None:
        """See ``Checking.withdrawn``."""
        self._forget(session)
        for number in self._under_way.pop(session, ()):
            del self._asked[number]

    def _forget(self, session: int) -> None:
        for group in self._offers.pop(session, ()):
            sessions = self._by_group[group]
            del sessions[session]
            if not sessions:
                del self._by_group[group]

    def unknown(self, session: int, number: int) -> None:
        """See ``Checking.unknown``."""
        if self._asked.get(number) == session:
            self._answered(number)

    def decided(self, number: int) -> None:
        """Forget a transaction that was decided."""
        self._answered(number)
        self._wait_no_more(number)
        self._times.pop(number, None)
        self._slots.discard(number)

    def _answered(self, number: int) -> None:
        """Note that nobody needs to answer about a transaction any more."""
        session = self._asked.pop(number, None)
        if session is not None:
            under_way = self._under_way[session]
            under_way.discard(number)
            if not under_way:
                del self._under_way[session]

    def _wait_no_more(self, number: int) -> None:
        group = self._waits.pop(number, None)
        if group is not None:
            waiting = self._waiting[group]
            del waiting[number]
            if not waiting:
                del self._waiting[group]

    # -- questions --------------------------------------------------------------------------------

    def _look(self, now_us: int, opened: CheckedTransaction) -> int:
        """Ask about a transaction, or end the questions; return the work units.

        Raises:
            JournalFull: There is no room; nothing was recorded.
        """
        number, spec = opened.number, self._spec(opened)
        has_slot = number in self._slots
        self._slots.discard(number)
        end_us = self._end_us(opened, spec)
        if now_us >= end_us or (opened.attempt >= spec.attempts and now_us >= opened.next_us):
            self._give_up(now_us, opened, spec)
            return _WORK + len(opened.batches) + opened.settle_runs
        if now_us < opened.next_us:
            self._arm_again(now_us, opened)
            return 0
        if self.askers is None or not self.offers(opened.group, opened.app):
            # It waits until somebody offers; at the latest, it is given up.
            self._waits[number] = opened.group
            self._waiting.setdefault(opened.group, {})[number] = None
            self._arm(number, end_us)
            return 0
        if not has_slot and not self._may_ask(now_us, opened, end_us):
            return 0
        session = self._choose(opened)
        if session is None:
            self._arm(number, min(now_us + _BUSY_US, end_us))
            return 1
        self._ask(now_us, opened, spec, session)
        return _WORK

    def _may_ask(self, now_us: int, opened: CheckedTransaction, end_us: int) -> bool:
        """Return whether a question of the group may leave now; if not, its time is set.

        Each transaction that has to wait gets a time of its own, so that thousands that are due at
        once are not looked at again and again.
        """
        at_us = max(now_us, self._free_us.get(opened.group, 0))
        self._free_us[opened.group] = at_us + SECOND_US // A_SECOND
        if at_us == now_us:
            return True
        self._slots.add(opened.number)
        self._arm(opened.number, min(at_us, end_us))
        return False

    def _choose(self, opened: CheckedTransaction) -> int | None:
        """Return the session to ask; None: all are busy."""
        sessions = self._by_group[opened.group]
        order = list(sessions)
        # First who opened it; if it was asked already and is still silent, others.
        if opened.session in sessions and opened.asked != opened.session:
            order.insert(0, opened.session)
        known = self._ledger.views.sessions.by_number
        for session in order:
            joined = known.get(session)
            if (
                joined is not None
                and joined.info.app == opened.app
                and len(self._under_way.get(session, set()) - {opened.number}) < UNDER_WAY
            ):
                return session
        return None

    def _ask(
        self, now_us: int, opened: CheckedTransaction, spec: ProducerGroupSpec, session: int
    ) -> None:
        ledger, number = self._ledger, opened.number
        attempt = opened.attempt + 1
        next_us = now_us + self._pause_us(spec, attempt)
        ledger.record(now_us, CHECKED, Checked(number, attempt, session, next_us, What.ASKED))
        self._arm_again(now_us, opened)
        sessions = self._by_group[opened.group]
        sessions[session] = sessions.pop(session)  # behind the others
        self._answered(number)  # whoever was asked before: the answer still counts
        self._under_way.setdefault(session, set()).add(number)
        self._asked[number] = session
        self.asked += 1
        question = Question(
            number,
            opened.group,
            opened.query_id,
            attempt,
            opened.opened_us,
            ledger.views.catalog.names_of(opened.topics),
            opened.rows,
            opened.bytes,
        )
        self.unsent.append((ledger.end, session, question))

    def _pause_us(self, spec: ProducerGroupSpec, attempt: int) -> int:
        """Return the time from question number ``attempt`` to the next one."""
        pause = float(spec.first_us)
        for _ in range(attempt):
            pause *= spec.factor
            if pause >= spec.cap_us:
                break
        pause = min(pause, spec.cap_us)
        if spec.jitter:
            pause *= 1.0 + spec.jitter * (2.0 * self._ledger.chance.random() - 1.0)
        return max(1, int(pause))

    def committed(self) -> None:
        """Send the questions whose records are committed."""
        committed = self._ledger.journal.committed
        while self.unsent and self.unsent[0][0] <= committed:
            _, session, question = self.unsent.popleft()
            undecided = question.transaction in self._ledger.views.checked.by_number
            if self.askers is not None and undecided and session in self._offers:
                self.askers.ask(session, question)

    # -- without an answer ------------------------------------------------------------------------

    def _give_up(self, now_us: int, opened: CheckedTransaction, spec: ProducerGroupSpec) -> None:
        if spec.then is Unanswered.PARK:
            fact = Checked(opened.number, opened.attempt, 0, 0, What.PARKED)
            self._ledger.record(now_us, CHECKED, fact)
        else:
            commit = spec.then is Unanswered.COMMIT
            try:
                self._deciding.resolve(now_us, opened, Why.POLICY, commit=commit)
            except (Busy, DiskFull):
                self._arm(opened.number, now_us + FULL_RETRY_US)
                return
        self.decided(opened.number)

    def take_up(self, now_us: int, app: str, number: int, *, operator: bool) -> DoneReply:
        """See ``Checking.take_up``."""
        self._found.undecided(app, number, operator=operator)
        self._ledger.admit(now_us, CHECKED, Checked(number, 0, 0, now_us, What.TAKEN_UP))
        self._answered(number)
        self._wait_no_more(number)
        self._arm(number, now_us)
        return DoneReply(self._ledger.end)

    def unchecked(self, now_us: int) -> Iterator[tuple[str, int]]:
        """Yield the groups of which transactions have waited long for a checker; how many wait."""
        for group in self._waiting:
            if self.waits(now_us, group):
                yield group, len(self._waiting[group])

    def waits(self, now_us: int, group: str) -> bool:
        """Return whether a transaction of a group has waited long for a checker."""
        first = next(iter(self._waiting.get(group, ())), None)
        if first is None:
            return False
        return now_us - self._ledger.views.checked.by_number[first].next_us >= NOBODY_US
