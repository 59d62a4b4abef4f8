"""Many deliveries at once, as ``pull`` and ``consume_batches`` return them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import operator
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from ternmq.client.connection.raising import own
from ternmq.client.consumer.chunk import Chunk
from ternmq.client.consumer.concluding import MAX_REASON, Rest, delay_us, tell_all, verdict_of
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.lease import Lease, Span
from ternmq.client.consumer.telling import last_attempt, over_by_time
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.reasons import reason_text
from ternmq.client.process import pickling
from ternmq.model.errors import AlreadySettled, ClientError, InvalidRequest, LeaseExpired
from ternmq.model.words import counted, verb
from ternmq.record.fact.facts import Outcome

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger("ternmq")

_Held = tuple[Lease, list[Span]]


class _Lost(Protocol):
    @property
    def lost(self) -> bool:
        """Whether this consumer lost it without settling it."""


One = TypeVar("One", bound=_Lost)


class Leased(NamedTuple):
    """The rows that one pull returned.

    Attributes:
        ordered: Whether the group keeps the order of each ordering key, or of the queue;
            ``ordering`` then owns the lease.
    """

    lease: Lease
    chunks: list[Chunk]
    ordered: bool = False


class Deliveries(pickling.NotPickled, Sequence[Delivery]):
    """Deliveries of one topic and group, in the order of their queues; false when empty.

    Process ``bodies``, or iterate over the deliveries; then settle all that is left with one call,
    or some by their indexes (``rows``). Iteration settles nothing.

    In a group that keeps an order, retrying or releasing a message also gives up the later messages
    of its ordering key (in a mode that locks queues: of its queue), because they must not be
    processed before it. These messages are ``lost`` and need no settle, and iteration leaves out
    those that are lost by then.

    Iteration ends before a message whose lease has ended, as after a time in which the process was
    frozen. Messages of other leases that it did not reach are given back.
    """

    _not_pickled = pickling.DELIVERIES

    __slots__ = (
        "_chunks", "_codecs", "_count", "_items", "_ordered", "_parts", "_starts", "_topic",
    )  # fmt: skip

    def __init__(self, topic: str, parts: list[Leased], codecs: Codecs) -> None:
        self._topic = topic
        self._parts = parts
        self._codecs = codecs
        self._chunks = [(part.lease, chunk) for part in parts for chunk in part.chunks]
        sizes = [chunk.count for _, chunk in self._chunks]
        self._starts = [0, *itertools.accumulate(sizes)]
        self._count = self._starts[-1]
        self._items: list[Delivery] | None = None
        self._ordered = any(part.ordered for part in parts)

    def __repr__(self) -> str:
        return f"<{len(self)} deliveries of {self._topic}>"

    # -- as a sequence

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def _all(self) -> list[Delivery]:
        if self._items is None:
            topic, codecs = self._topic, self._codecs
            self._items = [
                Delivery(topic, chunk, index, lease, codecs)
                for lease, chunk in self._chunks
                for index in range(chunk.count)
            ]
        return self._items

    def __iter__(self) -> Iterator[Delivery]:
        return hand_out(self, self._all(), self._in_loop)

    def _in_loop(self, call: Callable[[], None]) -> None:
        """Call a function in the client's loop: at once if this is it."""
        loop = self._parts[0].lease.loop
        if running_loop() is loop:
            call()
        else:
            with suppress(RuntimeError):  # the loop is closed: nothing is held any more
                loop.call_soon_threadsafe(call)

    def __getitem__(self, place: Any) -> Any:
        return self._all()[place]

    # -- contents

    @property
    def topic(self) -> str:
        """The topic."""
        return self._topic

    @property
    def bodies(self) -> list[bytes]:
        """All bodies. This is the fastest way to process many messages."""
        if len(self._chunks) == 1:
            return list(self._chunks[0][1].bodies())
        return [body for _, chunk in self._chunks for body in chunk.bodies()]

    @property
    def values(self) -> list[Any]:
        """All bodies, decoded according to their content types.

        Raises:
            DecodeError: A body cannot be decoded.
        """
        return [delivery.value for delivery in self._all()]

    def to_arrow(self) -> pa.Table:
        """Return them as an Arrow table. Needs ``ternmq[arrow]``.

        Its columns: topic, queue, offset, attempt, and those of ``record.arrow``, which share the
        memory of the received bytes.
        """
        import numpy as np
        import pyarrow as pa

        from ternmq.record.arrow import schema, to_arrow

        tables: list[pa.Table] = []
        for _, chunk in self._chunks:
            columns = to_arrow(chunk.batch, topic=self._topic).slice(chunk.row, chunk.count)
            table = pa.Table.from_batches([columns])
            count = chunk.count
            offsets = pa.array(np.arange(chunk.offset, chunk.offset + count, dtype=np.int64))
            table = table.add_column(1, "queue", pa.array(np.full(count, chunk.queue, np.int32)))
            table = table.add_column(2, "offset", offsets)
            attempts = pa.array(np.full(count, chunk.attempt, np.int32))
            tables.append(table.add_column(3, "attempt", attempts))
        if tables:
            return pa.concat_tables(tables)
        empty = schema(topic=True).empty_table()
        for place, (name, kind) in enumerate(
            [("queue", pa.int32()), ("offset", pa.int64()), ("attempt", pa.int32())], start=1
        ):
            empty = empty.add_column(place, name, pa.array([], kind))
        return empty

    # -- settling

    async def ack(self, rows: Iterable[int] | None = None) -> None:
        """Report that they are processed: all that are left, or those at some indexes.

        Returns when that is durable.

        Raises:
            AlreadySettled: One of ``rows`` was settled before.
            IndexError: There is no such index; nothing was settled.
            LeaseExpired: This consumer had lost some; they are delivered again.
            ConnectionLost: Whether the ack was stored is not known.
        """
        await self._settle(rows, Outcome.DONE)

    async def retry(
        self,
        rows: Iterable[int] | None = None,
        *,
        reason: object = "",
        delay: float | timedelta | None = None,
    ) -> None:
        """Report failures: they are delivered again after a delay, or as the retry policy says.

        See ``ack``.

        The reason is kept with each, as text; see ``Retry``.
        """
        await self._settle(rows, Outcome.RETRY, reason, delay)

    async def reject(self, rows: Iterable[int] | None = None, *, reason: object = "") -> None:
        """Make them dead letters at once. See ``retry``."""
        await self._settle(rows, Outcome.DEAD, reason)

    async def release(self, rows: Iterable[int] | None = None) -> None:
        """Give them back: they are delivered again at once.

        No attempt is counted. See ``ack``.
        """
        await self._settle(rows, Outcome.RELEASED)

    async def _settle(
        self,
        rows: Iterable[int] | None,
        outcome: Outcome,
        reason: object = "",
        delay: float | timedelta | None = None,
    ) -> None:
        delayed, text = delay_us(delay), reason_text(reason)[:MAX_REASON]
        waits: list[tuple[Lease, asyncio.Future[None]]] = []
        held, lost = self._held(rows)
        for lease, spans in held:
            waits += [(lease, lease.wait(start, stop)) for start, stop in spans]
            lease.settle_spans(spans, outcome, delayed, text)
        heard = [lease.settler.heard(told) for lease, told in waits]
        waits.clear()  # see ``raising``
        if len(heard) == 1 and not lost:
            await heard[0]
            return
        for told in await asyncio.gather(*heard, return_exceptions=True):
            if isinstance(told, BaseException):
                raise own(told)
        self._check_lost(lost)

    def here(self) -> None:
        """Check that this is the client's loop and process; raises as ``Session.here``."""
        for part in self._parts:
            part.lease.settler.here()

    def settle_soon(
        self,
        rows: Iterable[int] | None,
        outcome: Outcome,
        reason: object = "",
        delay: float | timedelta | None = None,
    ) -> None:
        """Settle without waiting for the broker; refusals are logged."""
        delayed, text = delay_us(delay), reason_text(reason)[:MAX_REASON]
        held, lost = self._held(rows)
        for lease, spans in held:
            lease.settle_spans(spans, outcome, delayed, text)
        self._check_lost(lost)

    def _check_lost(self, lost: int) -> None:
        if lost:
            what = counted(lost, "message")
            raise LeaseExpired(
                f"{what} of {self._topic!r} {verb(lost, 'is', 'are')} no longer held"
            )

    def _held(self, rows: Iterable[int] | None) -> tuple[list[_Held], int]:
        """Return the rows to settle, and the number of those that are lost."""
        named, lost = (self._left(), 0) if rows is None else self._named(rows)
        held: list[_Held] = []
        for lease, spans in named:
            if lease.lost:
                lost += sum([stop - start for start, stop in spans])
            else:
                held.append((lease, spans))
        return held, lost

    def _left(self) -> list[_Held]:
        held: list[_Held] = []
        for part in self._parts:
            settled = part.lease.settled
            spans: list[Span] = []
            for chunk in part.chunks:
                start, stop = chunk.offset, chunk.offset + chunk.count
                if settled:
                    spans += runs_of([one for one in range(start, stop) if one not in settled])
                elif spans and spans[-1][1] == start:
                    spans[-1] = (spans[-1][0], stop)
                else:
                    spans.append((start, stop))
            if spans:
                held.append((part.lease, spans))
        return held

    def _named(self, rows: Iterable[int]) -> tuple[list[_Held], int]:
        try:
            # A bool is a whole number for ``index``; None is not.
            named = sorted(
                {operator.index(row if row.__class__ is not bool else None) for row in rows}  # type: ignore[arg-type]
            )
        except TypeError:
            given: object = rows
            reason = f"; a reason is given as reason={rows!r:.80}" if isinstance(given, str) else ""
            raise InvalidRequest(
                f"rows={rows!r:.80}: name rows by their places, as rows=[0, 3]{reason}"
            ) from None
        items = self._all()
        by_lease: dict[Lease, list[int]] = {}
        lost = 0
        for row in named:
            if not 0 <= row < self._count:
                raise IndexError(f"there is no row {row}: the batch has {self._count}")
            delivery = items[row]
            if delivery.settled:
                raise AlreadySettled(f"row {row} was settled before")
            if delivery.offset in delivery.lease.gone:
                lost += 1
            else:
                by_lease.setdefault(delivery.lease, []).append(delivery.offset)
        return [(lease, runs_of(offsets)) for lease, offsets in by_lease.items()], lost

    @property
    def unsettled(self) -> int:
        """Number of messages that are left to settle."""
        return sum([part.lease.left for part in self._parts if not part.lease.lost])

    def process(self, *, reraise: bool = False) -> BatchProcessing:
        """Return a context in which they are processed.

        Leaving it acks what is left. After an exception, what is left is delivered again by the
        retry policy, with the exception as reason; see ``Delivery.process``.
        """
        return BatchProcessing(self, reraise=reraise)


class BatchProcessing:
    """The context that ``Deliveries.process`` returns."""

    __slots__ = ("_deliveries", "_reraise")

    def __init__(self, deliveries: Deliveries, *, reraise: bool) -> None:
        self._deliveries = deliveries
        self._reraise = reraise

    async def __aenter__(self) -> Deliveries:
        return self._deliveries

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            self._deliveries.here()
        except ClientError:
            if error is None:
                raise
            return False  # the block's own error is raised
        return conclude_all(self._deliveries, error, reraise=self._reraise)


def conclude_all(
    deliveries: Deliveries, error: BaseException | None, *, reraise: bool = False
) -> bool:
    """Settle what is left after processing; return whether the error goes no further.

    In that case it is logged here; otherwise logging is up to the code that catches it.
    """
    if error is None:
        try:
            deliveries.settle_soon(None, Outcome.DONE)
        except LeaseExpired as lost:
            log.warning("processed after their lease had ended: %s", lost)
        return True
    over = isinstance(error, Exception) and not reraise
    outcome, delay, reason = verdict_of(error)
    held, count = deliveries._held(None)  # noqa: SLF001 - of a class of this module
    tell_all(deliveries, _rest_of(deliveries, held, count), error, over=over)
    for lease, spans in held:
        lease.settle_spans(spans, outcome, delay_us(delay), reason[:MAX_REASON])
    return over


def _rest_of(deliveries: Deliveries, held: list[_Held], lost: int) -> Rest:
    left = [one for one in deliveries[:] if not (one.lost or one.settled)]
    return Rest(
        held=sum([stop - start for _, spans in held for start, stop in spans]),
        lost=lost,
        last=sum(last_attempt(one.lease.policy, one.attempt) for one in left),
        unsure=any(over_by_time(lease) for lease, _ in held),
        broadcast=any(lease.broadcast for lease, _ in held),
    )


def held_spans(deliveries: Deliveries) -> list[_Held]:
    """Return the rows that are left to settle, by lease.

    Raises:
        LeaseExpired: This consumer has lost some of them.
        AlreadySettled: None is left.
    """
    held, lost = deliveries._held(None)  # noqa: SLF001 - of a class of this module
    deliveries._check_lost(lost)  # noqa: SLF001
    if not held:
        raise AlreadySettled(f"all deliveries of {deliveries.topic!r} were settled before")
    return held


def hand_out(
    deliveries: Deliveries, items: Sequence[One], in_loop: Callable[[Callable[[], None]], None]
) -> Iterator[One]:
    """Iterate over deliveries that this client still holds; see ``Deliveries``.

    It ends at a lease that has ended, and does not continue with the next one: then the places of
    the messages in the iteration are their places in the batch, for ``rows``.

    Args:
        deliveries: The deliveries.
        items: What is returned for each; with ``lost``.
        in_loop: Calls a function in the client's loop, before any settle that this thread makes
            later: what the iteration did not reach must not be acked.
    """
    chunks, ordered = deliveries._chunks, deliveries._ordered  # noqa: SLF001 - of this module
    start = 0
    for lease, chunk in chunks:
        stop = start + chunk.count
        some = items if start == 0 and stop == len(items) else items[start:stop]
        start = stop
        for one in some:
            if monotonic() >= lease.until and lease.ended:
                in_loop(partial(_give_up, deliveries, lease))
                return
            if ordered and one.lost:
                continue
            yield one


def _give_up(deliveries: Deliveries, ended: Lease) -> None:
    """Lose a lease that has ended, and release what is left of the leases after it. In the loop."""
    if ended.left:
        ended.settler.lose(ended)
    leases = [part.lease for part in deliveries._parts]  # noqa: SLF001 - of this module
    for lease in leases[leases.index(ended) + 1 :]:
        if not lease.lost and lease.left:
            lease.settle_rest(Outcome.RELEASED)


def runs_of(offsets: list[int]) -> list[Span]:
    """Return sorted offsets as spans."""
    spans: list[Span] = []
    for offset in offsets:
        if spans and spans[-1][1] == offset:
            spans[-1] = (spans[-1][0], offset + 1)
        else:
            spans.append((offset, offset + 1))
    return spans
