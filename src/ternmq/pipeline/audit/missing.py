"""Which messages are lost: counted by a producer, but neither stored nor given up.

A producer may send to many topics in turn. Its sequences show which messages are missing, its
counts how many of each topic. If only one topic lacks messages, all missing ones are its own. If
several do, the certain cases are reported first; each of the rest is reported with all topics that
it may belong to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ternmq.pipeline.audit.policy import Row, expanded
from ternmq.pipeline.audit.spans import Bools, Spans, spans, within, without
from ternmq.pipeline.audit.stored import Part, Stored


class _Case(NamedTuple):
    """A producer that lacks messages on a topic.

    Attributes:
        key: Index of the (topic, producer) pair.
        lost: Number of lost messages.
        unnamed: How many of the missing may have been given up without being named.
        left: The sequences that may be the missing ones.
    """

    key: int
    lost: int
    unnamed: int
    left: Spans


class Missing:
    """Names the lost messages of some topics.

    Attributes:
        lost: Number of lost messages of each topic.
        unsure: For each topic, whether that number cannot be determined.
        findings: The names.
    """

    def __init__(self, of: Stored, chosen: Bools) -> None:
        self._of = of
        self.lost = np.zeros(len(of.topics), np.int64)
        self.unsure = np.zeros(len(of.topics), np.bool_)
        self.findings: list[Row] = []
        missing = of.sent - of.distinct - of.left
        cases: dict[int, list[_Case]] = {}
        for key in (of.told & (missing > 0) & chosen[of.topics.index]).nonzero()[0].tolist():
            case = self._case(key, int(missing[key]))
            if case is not None:
                cases.setdefault(int(of.producers[key]), []).append(case)
        for of_one_producer in cases.values():
            self._name(of_one_producer)

    def _case(self, key: int, missing: int) -> _Case | None:
        """Return the lost messages; None if there are none, or if that cannot be determined."""
        of = self._of
        topic = int(of.topics.index[key])
        producer = of.producers[key]
        gave = _sequences(of.given_up, of.given_up.key == key)
        candidates = without(
            self._reach(key),
            *(
                _sequences(part, of.producers[part.key] == producer)
                for part in (of.stored, of.left_out)
            ),
            _sequences(
                of.given_up, (of.producers[of.given_up.key] == producer) & (of.given_up.key != key)
            ),
        )
        excused = int(of.gave[key] + of.told_left[key])
        unnamed = max(0, excused - int(gave.lengths.sum()))
        lost = missing - int(within(candidates, gave).lengths.sum())
        if lost <= 0:
            return None
        if lost <= unnamed:
            self.unsure[topic] = True
            detail = f"it gave up {excused} messages, and named too few of them"
            self.findings.append(of.finding("unverified", key, count=lost, detail=detail))
            return None
        self.lost[topic] += lost
        return _Case(key, lost, unnamed, without(candidates, gave))

    def _reach(self, key: int) -> Spans:
        """Return the sequences that a producer's messages to a topic can have."""
        of = self._of
        if of.high[key]:
            return spans([0], [of.low[key]], [of.high[key]])
        mine = of.stored.key == key
        if not mine.any():
            return spans([], [], [])
        return spans([0], [of.stored.first[mine].min()], [of.stored.stop[mine].max()])

    def _name(self, cases: list[_Case]) -> None:
        """Name the lost messages of a producer."""
        of = self._of
        known = spans([], [], [])
        while sure := self._sure(cases, known):
            case, left = sure
            cases = [one for one in cases if one is not case]
            self._tell(case, left)
            known = spans(*(np.concatenate(both) for both in zip(known, left, strict=True)))
        shared: dict[int, tuple[int, set[str]]] = {}
        for case in cases:
            topic = int(of.topics.index[case.key])
            name = of.topics.names[topic] or str(of.topics.numbers[topic])
            for sequence in expanded(without(case.left, known), of.policy.most_named).tolist():
                shared.setdefault(sequence, (case.key, set()))[1].add(name)
        for sequence, (key, names) in sorted(shared.items()):
            detail = f"sent to {' or '.join(sorted(names))}"
            if len(names) == 1:
                detail += "; not all of these are lost: some may have been sent to another topic"
            whose = {"topic": None, "topic_number": None} if len(names) > 1 else {}
            self.findings += of.named("lost", key, np.array([sequence]), detail=detail, **whose)

    @staticmethod
    def _sure(cases: list[_Case], known: Spans) -> tuple[_Case, Spans] | None:
        """Return a case whose remaining sequences are all missing, with those sequences."""
        for case in cases:
            left = without(case.left, known)
            if int(left.lengths.sum()) <= case.lost + case.unnamed:
                return case, left
        return None

    def _tell(self, case: _Case, left: Spans) -> None:
        of, most = self._of, self._of.policy.most_named
        count = int(left.lengths.sum())
        detail = f"{count - case.lost} of {count} were given up" if count > case.lost else None
        self.findings += of.named("lost", case.key, expanded(left, most), detail=detail)
        for rest, why in ((count - most, "not named"), (case.lost - count, "of unknown sequence")):
            if rest > 0:
                self.findings.append(
                    of.finding("lost", case.key, count=rest, detail=f"{rest} more, {why}")
                )


def _sequences(part: Part, chosen: Bools) -> Spans:
    return Spans(np.zeros(int(chosen.sum()), np.int64), part.first[chosen], part.stop[chosen])
