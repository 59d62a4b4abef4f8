"""Many deliveries at once, for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from ternmq.client.consumer import deliveries as engine
from ternmq.client.handler.blocking import BlockingDelivery, Portal
from ternmq.client.process import pickling
from ternmq.model.errors import ClientClosed, ClientForked

if TYPE_CHECKING:
    import pyarrow as pa


class Deliveries(pickling.NotPickled, Sequence[BlockingDelivery]):
    """``ternmq.Deliveries`` with blocking methods; they are described there."""

    _not_pickled = pickling.DELIVERIES

    __slots__ = ("_deliveries", "_items", "_portal")

    def __init__(self, deliveries: engine.Deliveries, portal: Portal) -> None:
        self._deliveries = deliveries
        self._portal = portal
        self._items: list[BlockingDelivery] | None = None

    def __repr__(self) -> str:
        return repr(self._deliveries)

    def __len__(self) -> int:
        return len(self._deliveries)

    def __bool__(self) -> bool:
        return bool(self._deliveries)

    def _all(self) -> list[BlockingDelivery]:
        if self._items is None:
            self._items = [BlockingDelivery(one, self._portal) for one in self._deliveries[:]]
        return self._items

    def __iter__(self) -> Iterator[BlockingDelivery]:
        return engine.hand_out(self._deliveries, self._all(), self._in_loop)

    def _in_loop(self, call: Callable[[], None]) -> None:
        # After the client's close nothing is held; in the child of a fork, the parent holds it.
        with suppress(ClientClosed, ClientForked):
            self._portal.post(call)

    @overload
    def __getitem__(self, place: int) -> BlockingDelivery: ...

    @overload
    def __getitem__(self, place: slice) -> list[BlockingDelivery]: ...

    def __getitem__(self, place: int | slice) -> BlockingDelivery | list[BlockingDelivery]:
        return self._all()[place]

    @property
    def topic(self) -> str:
        """The topic."""
        return self._deliveries.topic

    @property
    def bodies(self) -> list[bytes]:
        """All bodies."""
        return self._deliveries.bodies

    @property
    def values(self) -> list[Any]:
        """All bodies, decoded."""
        return self._deliveries.values

    def to_arrow(self) -> pa.Table:
        """Return them as an Arrow table."""
        return self._deliveries.to_arrow()

    @property
    def unsettled(self) -> int:
        """Number of messages that are left to settle."""
        return self._deliveries.unsettled

    def ack(self, rows: Iterable[int] | None = None) -> None:
        """Report that they are processed."""
        self._portal.call(self._deliveries.ack(rows))

    def retry(
        self,
        rows: Iterable[int] | None = None,
        *,
        reason: object = "",
        delay: float | timedelta | None = None,
    ) -> None:
        """Report failures: they are delivered again."""
        self._portal.call(self._deliveries.retry(rows, reason=reason, delay=delay))

    def reject(self, rows: Iterable[int] | None = None, *, reason: object = "") -> None:
        """Make them dead letters at once."""
        self._portal.call(self._deliveries.reject(rows, reason=reason))

    def release(self, rows: Iterable[int] | None = None) -> None:
        """Give them back; no attempt is counted."""
        self._portal.call(self._deliveries.release(rows))

    def process(self, *, reraise: bool = False) -> BatchProcessing:
        """Return a context (``with``) in which they are processed."""
        return BatchProcessing(self._deliveries, self, self._portal, reraise=reraise)


class BatchProcessing:
    """The context that ``Deliveries.process`` returns."""

    __slots__ = ("_engine", "_given", "_portal", "_reraise")

    def __init__(
        self, deliveries: engine.Deliveries, given: Deliveries, portal: Portal, *, reraise: bool
    ) -> None:
        self._engine = deliveries
        self._given = given
        self._portal = portal
        self._reraise = reraise

    def __enter__(self) -> Deliveries:
        return self._given

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is not None and self._portal.forked:
            return False  # the parent must settle them; the child's error is raised
        deliveries, reraise = self._engine, self._reraise
        self._portal.post(lambda: engine.conclude_all(deliveries, error, reraise=reraise))
        return isinstance(error, Exception) and not reraise


def engine_of(deliveries: Deliveries) -> engine.Deliveries:
    """Return the deliveries in the client's loop behind those for threads."""
    return deliveries._deliveries  # noqa: SLF001 - of a class of this module
