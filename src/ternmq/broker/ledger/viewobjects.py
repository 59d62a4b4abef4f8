"""The STATE objects of what stands in ``Views`` itself: GLOBAL, HOLDS and ALARMS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ternmq.broker.containers.stateobject import ALWAYS, StateType
from ternmq.broker.ledger.views import Views
from ternmq.journal.state.sets import StateKey
from ternmq.model.types import Position
from ternmq.record.fact import control, state

_decode_global: Final = msgspec.msgpack.Decoder(state.Global)
_decode_alarms: Final = msgspec.msgpack.Decoder(list[control.Alarm])
_decode_holds: Final = msgspec.msgpack.Decoder(list[control.Hold])


class GlobalObject(StateType):
    """GLOBAL: one object, the next numbers and positions."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        yield StateKey(state.GLOBAL)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key, stamp
        views = self._views
        known = _decode_global.decode(payload)
        views.catalog.next_topic = known.next_topic
        views.catalog.next_group = known.next_group
        views.sessions.next_number = known.next_session
        views.suspect_below = known.suspect_below
        views.dedup.cut_horizon = known.dedup_horizon
        views.writers.next_number = known.next_writer
        views.undecided.next_number = known.next_transaction
        views.schedule.next_entry = known.next_entry
        views.numbers.next_reserve = known.next_reserve

    def encode(self, key: StateKey) -> bytes:
        del key
        views = self._views
        return msgspec.msgpack.encode(
            state.Global(
                views.catalog.next_topic,
                views.catalog.next_group,
                views.sessions.next_number,
                views.suspect_below,
                views.dedup.cut_horizon,
                views.writers.next_number,
                views.undecided.next_number,
                views.schedule.next_entry,
                views.numbers.next_reserve,
            )
        )

    def changed(self, key: StateKey) -> int:
        del key
        return ALWAYS


class HoldsObject(StateType):
    """HOLDS: one object, all holds."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        if self._views.holds_changed:
            yield StateKey(state.HOLDS)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key
        self._views.holds_changed = stamp
        self._views.holds = {one.name: one for one in _decode_holds.decode(payload)}

    def encode(self, key: StateKey) -> bytes:
        del key
        return msgspec.msgpack.encode([one for _, one in sorted(self._views.holds.items())])

    def changed(self, key: StateKey) -> int:
        del key
        return self._views.holds_changed


class AlarmsObject(StateType):
    """ALARMS: one object, all open alarms, those raised first in front."""

    def __init__(self, views: Views) -> None:
        self._alarms = views.alarms

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        if self._alarms.changed:
            yield StateKey(state.ALARMS)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key
        self._alarms.load(stamp, _decode_alarms.decode(payload))

    def encode(self, key: StateKey) -> bytes:
        del key
        return msgspec.msgpack.encode(list(self._alarms.open.values()))

    def changed(self, key: StateKey) -> int:
        del key
        return self._alarms.changed
