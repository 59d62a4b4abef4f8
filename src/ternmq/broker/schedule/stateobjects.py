"""The STATE objects of scheduled rows: SCHEDULE, SCHEDULED_ROWS."""

from __future__ import annotations

from collections.abc import Iterator

from ternmq.broker.containers.stateobject import LOADED, StateType
from ternmq.broker.schedule.pending import Schedule
from ternmq.journal.state.sets import StateKey
from ternmq.model.types import Position
from ternmq.record.fact import state


class ScheduleObjects(StateType):
    """SCHEDULE: for each topic, the last scheduled row that became a message."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for page in self._schedule.topic_pages():
            yield StateKey(state.SCHEDULE, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._schedule.load_topics(key.a, payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        return self._schedule.encode_topics(key.a)

    def changed(self, key: StateKey) -> int:
        return self._schedule.topics_changed.get(key.a, LOADED)


class ScheduledRowsObjects(StateType):
    """SCHEDULED_ROWS: pages of pending rows."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for page in self._schedule.pages.numbers():
            yield StateKey(state.SCHEDULED_ROWS, 0, 0, 0, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._schedule.pages.load(key.d, payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        return self._schedule.pages.encode(key.d)

    def changed(self, key: StateKey) -> int:
        return self._schedule.pages.changed.get(key.d, LOADED)
