"""The start and end of a read, computed from options and the broker's queues."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from ternmq.model.errors import DataLoss, OptionError, TernMQError
from ternmq.spark.broker.offsets import EARLIEST, LATEST, Offsets, TopicQueue, another
from ternmq.spark.broker.port import Budget, Port, QueueState
from ternmq.spark.topics.options import Bound, ReadOptions
from ternmq.spark.topics.table import Start

log: Final = logging.getLogger("ternmq.spark")

T = TypeVar("T")


class Planner:
    """Reads the state of queues from the broker, and applies options to it.

    Args:
        options: Options of the reader.
        port: The broker.
    """

    def __init__(self, options: ReadOptions, port: Port) -> None:
        self._options = options
        self._port = port

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function; after a retriable error, again (``fetchOffset.numRetries``)."""
        left = self._options.retries
        while True:
            try:
                return question()
            except TernMQError as error:
                if not error.retriable or not left:
                    raise
                log.warning("offsets are requested again: %s", error)
            left -= 1
            time.sleep(self._options.retry_interval_ms / 1000)

    def states(
        self,
        times_us: Mapping[TopicQueue, int] | int | None = None,
        budgets: Mapping[TopicQueue, Budget] | None = None,
        *,
        lenient: bool = False,
    ) -> dict[TopicQueue, QueueState]:
        """Return the state of every queue to read.

        Args:
            times_us: Also request the first row stored at or after this time.
            budgets: Also request the offset up to which the rows have this many bytes.
            lenient: Leave out named topics and queues that do not exist.

        Raises:
            OptionError: A topic or queue that an option names does not exist.
        """
        names = self._names()
        if isinstance(times_us, int):
            times_us = self._every(names, times_us)
        found = self.ask(lambda: self._port.ranges(names, times_us=times_us, budgets=budgets))
        states = {state.place: state for state in found}
        if not lenient:
            self._all_there(states)
        wanted = self._options.topics.places
        if wanted:
            states = {place: states[place] for place in wanted if place in states}
        return dict(sorted(states.items()))

    def numbers(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the present numbers of topics; those that do not exist are left out."""
        names = sorted(set(topics))
        return {one.place.topic: one.number for one in self.ask(lambda: self._port.ranges(names))}

    def _names(self) -> list[str]:
        topics = self._options.topics
        if topics.pattern:
            like = re.compile(topics.pattern)
            known = self.ask(lambda: self._port.topics(None))
            return sorted(one.name for one in known if like.fullmatch(one.name))
        return sorted({*topics.names, *(place.topic for place in topics.places)})

    def _every(self, names: list[str], time_us: int) -> dict[TopicQueue, int]:
        known = self.ask(lambda: self._port.topics(names))
        return {
            TopicQueue(one.name, queue): time_us for one in known for queue in range(one.queues)
        }

    def _all_there(self, states: Mapping[TopicQueue, QueueState]) -> None:
        topics = self._options.topics
        there = {place.topic for place in states}
        for name in topics.names:
            if name not in there:
                raise OptionError(
                    f"option subscribe: there is no topic {name!r} at "
                    f"{self._options.broker.shown()}, or this app may not read it"
                )
        for place in topics.places:
            if place not in states:
                raise OptionError(
                    f"option assign: there is no {place} at {self._options.broker.shown()}, "
                    f"or this app may not read it"
                )

    # -- the start

    def starts(self) -> tuple[dict[TopicQueue, int], dict[TopicQueue, QueueState]]:
        """Return where a new query begins in each queue, and the state of the queues.

        Raises:
            OptionError: An option names an offset or queue that does not exist.
            DataLoss: An option names rows that are gone.
        """
        bound = self._options.start
        states = self.states(_times(bound))
        if bound.where is Start.EARLIEST:
            return {place: one.first for place, one in states.items()}, states
        if bound.where is Start.LATEST:
            return {place: one.next for place, one in states.items()}, states
        if bound.where is Start.GROUP:
            return self._of_group(states), states
        if bound.offsets is not None:
            _same(bound, states, bound.offsets)
            return {
                place: self._start(bound, one, self._named(bound, bound.offsets, one, EARLIEST))
                for place, one in states.items()
            }, states
        if bound.times_us is not None:
            _same(bound, states, bound.times_us)
        return {place: self._since(bound, one) for place, one in states.items()}, states

    def _of_group(self, states: Mapping[TopicQueue, QueueState]) -> dict[TopicQueue, int]:
        """Return the group's offsets; queues unknown to it begin at the earliest."""
        topics = sorted({place.topic for place in states})
        group = self._options.group
        known = self.ask(lambda: self._port.group_offsets(group, topics))
        return {
            place: self._start(self._options.start, one, known.get(place, EARLIEST))
            for place, one in states.items()
        }

    def _named(self, bound: Bound, offsets: Offsets, state: QueueState, instead: int) -> int:
        """Return the offset that an option names; ``instead`` if it is one of another topic.

        Raises:
            DataLoss: It is one of another topic.
        """
        place = state.place
        number = bound.numbers.get(place.topic, state.number)
        if number == state.number:
            return offsets[place]
        what = f"option {bound.option}: {another(place.topic, number, state.number)}"
        if self._options.fail_on_data_loss:
            raise DataLoss(what)
        log.warning("%s: all of its rows are read", what)
        return instead

    def _start(self, bound: Bound, state: QueueState, offset: int) -> int:
        if offset == EARLIEST:
            return state.first
        if offset == LATEST:
            return state.next
        if offset > state.next:
            raise OptionError(
                f"option {bound.option}: {offset} is above the end of {state.place}, {state.next}"
            )
        if offset < state.first:
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"option {bound.option}: offset {offset} of {state.place} is no longer kept; "
                    f"the oldest offset that is kept is {state.first}"
                )
            log.warning("%s: offsets %d to %d are no longer kept", state.place, offset, state.first)
            return state.first
        return offset

    def _since(self, bound: Bound, state: QueueState) -> int:
        at = state.next if state.at is None else state.at
        if at >= state.next and self._options.strategy == "error":
            raise OptionError(
                f"option {bound.option}: {state.place} has no row since then; "
                f"startingOffsetsByTimestampStrategy=latest begins at its end"
            )
        return max(state.first, min(at, state.next))

    # -- the end

    def ends(
        self, starts: Offsets, states: Mapping[TopicQueue, QueueState]
    ) -> dict[TopicQueue, int]:
        """Return where a batch read ends in each queue.

        Args:
            starts: Where it begins.
            states: The states from which the starts were computed, so that all ends are of one
                moment.

        Raises:
            OptionError: An option names an offset that does not exist, or is before the start.
        """
        bound = self._options.end
        if bound.where is not None:
            return {place: max(starts[place], one.next) for place, one in states.items()}
        if bound.offsets is not None:
            _same(bound, states, bound.offsets)
            return {
                place: _end(
                    bound, one, self._named(bound, bound.offsets, one, LATEST), starts[place]
                )
                for place, one in states.items()
            }
        if bound.times_us is not None:
            _same(bound, states, bound.times_us)
        asked = self.states(_times(bound))
        found: dict[TopicQueue, int] = {}
        for place, one in states.items():
            later = asked.get(place, one)
            if later.number != one.number:  # made again meanwhile: a task finds out, and says so
                later = replace(one, at=None)
            at = later.next if later.at is None else later.at
            found[place] = max(starts[place], min(at, later.next))
        return found


def _times(bound: Bound) -> Mapping[TopicQueue, int] | int | None:
    return bound.times_us if bound.times_us is not None else bound.time_us


def _end(bound: Bound, state: QueueState, offset: int, start: int) -> int:
    if offset == LATEST:
        return max(start, state.next)
    if offset > state.next:
        raise OptionError(
            f"option {bound.option}: {offset} is above the end of {state.place}, {state.next}"
        )
    if offset < start:
        raise OptionError(
            f"option {bound.option}: {offset} is before the start of {state.place}, {start}"
        )
    return offset


def _same(
    bound: Bound, states: Mapping[TopicQueue, QueueState], named: Mapping[TopicQueue, object]
) -> None:
    """Check that an option names exactly the queues to read."""
    lacking = sorted(set(states) - set(named))
    if lacking:
        raise OptionError(f"option {bound.option}: it does not name {lacking[0]}")
    unknown = sorted(set(named) - set(states))
    if unknown:
        raise OptionError(f"option {bound.option}: it names {unknown[0]}, which is not read")
