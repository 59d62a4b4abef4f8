"""The decorator of handlers whose messages have their effect once."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

from ternmq.client.consumer.concluding import Retry
from ternmq.client.consumer.delivery import Delivery, first_since_replay
from ternmq.client.content.codecs import MSGPACK, Codecs
from ternmq.client.content.validation import flag, length_of
from ternmq.client.handler.blocking import BlockingDelivery, engine_of
from ternmq.client.handler.handlers import check_result
from ternmq.client.handler.signature import name_of
from ternmq.client.handler.unawaited import raise_found, watch_begins
from ternmq.model.errors import EncodeError, InvalidHandler, InvalidRequest
from ternmq.model.words import article
from ternmq.reliable.inbox.bound import bound_to
from ternmq.reliable.inbox.entry import Entry, entry_of
from ternmq.reliable.inbox.handlers import Call, Shape, call_of, check_order, shape_of
from ternmq.reliable.inbox.inbox import Inbox
from ternmq.reliable.inbox.store import Asked, InProgress, Store, Visit

log: Final = logging.getLogger("ternmq.reliable")

T = TypeVar("T")

KEEP: Final = timedelta(days=7)
AGAIN: Final = 3
"""How often a transaction is run again at once."""
MAX_RESULT: Final = 64 * 1024
"""Largest result, in bytes."""
LONGEST_RETRY_S: Final = 60.0
IN_PROGRESS: Final = "in progress elsewhere"
"""Reason of the retry."""
_CODECS: Final = Codecs()


def idempotent(
    inbox: Inbox,
    *,
    by: Callable[[Any], object] | None = None,
    result: bool = False,
    replay: Literal["suppress", "run"] = "suppress",
    keep: float | timedelta = KEEP,
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator: a message that comes twice has the effect of the handler once.

    ::

        @client.handler("orders", group="billing")
        @idempotent(inbox)
        async def bill(order: Order, session: AsyncSession) -> None:
            session.add(Invoice(order=order.id))
            await client.send("invoices", {"order": order.id})

    The id of the message is inserted first; then the handler runs in the same transaction, and it
    is committed when the handler returns. A message whose id is there is acked, and the handler
    does not run. If the handler raises, everything is rolled back, the id too.

    The handler receives the transaction by annotation: a ``Session``, ``AsyncSession``,
    ``Connection`` or ``AsyncConnection`` of SQLAlchemy, or the driver's connection (``sqlite3``,
    psycopg, PyMySQL and those that are awaited). It must not commit or roll back. What it sends is
    written to the outbox of the same database, if the client has one.

    If another handler has the same id at work, this one waits for its end, as long as the inbox
    says (5 s); then the message is retried, with the reason ``in progress elsewhere``. After a
    deadlock or a serialization failure the handler runs again at once, in a new transaction, up to
    three times.

    Args:
        inbox: Where messages are remembered.
        by: Returns the id, from the body (of a handler without body: from the delivery): a text of
            at most 128 bytes, a whole number or a UUID. None: the id that the sender gave the
            message (``id=``), else the message's own. Ids count within topic and group.
        result: Keep what the handler returns, at most 64 KiB as MessagePack; for a known message
            the decorated function returns it again, for decorators around this one: as MessagePack
            gives it back, a tuple as a list and an object as a dict.
        replay: What to do with messages that were handled, and come again by a replay or a reset:
            suppress them, or run the handler again.
        keep: How long a message is remembered. At least as long as it may come again.

    Raises:
        InvalidHandler: The handler cannot be called so; or it is declared as a handler already:
            ``@idempotent`` stands below ``@client.handler``.
        InvalidRequest: A value is not valid.
    """
    _check_inbox(inbox)
    if by is not None and not callable(by):
        raise InvalidRequest("by= is a function that returns the id of a body")
    if replay not in ("suppress", "run"):
        raise InvalidRequest(f'replay= is "suppress" or "run", not {replay!r}')
    keep_ms = round(length_of("keep", keep) * 1000)
    with_result = flag("result", result)

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        shape = shape_of(function)
        check_order(function, shape.name)
        inbox.store.check(shape.name, shape.wanted, awaited=shape.is_async)
        asked = Asked(shape.wanted, keep_ms, with_result)
        once = _Once(inbox, function, shape, asked, by, again=replay == "run")

        async def awaited(*given: object, **named: object) -> object:
            return await once.run_awaited(call_of(shape, given, named))

        def blocking(*given: object, **named: object) -> object:
            return once.run(call_of(shape, given, named))

        made: Any = functools.update_wrapper(awaited if shape.is_async else blocking, function)
        made.__name__ = shape.name
        made.__signature__ = shape.signature
        decorated: Callable[..., T] = made
        return decorated

    return decorate


class _Once:
    """A handler with its inbox."""

    def __init__(
        self,
        inbox: Inbox,
        function: Callable[..., Any],
        shape: Shape,
        asked: Asked,
        by: Callable[[Any], object] | None,
        *,
        again: bool,
    ) -> None:
        self._store: Store = inbox.store
        self._stats = inbox.stats()
        self._function = function
        self._shape = shape
        self._asked = asked
        self._by = by
        self._again = again

    # -- handlers in threads ----------------------------------------------------------------------

    def run(self, call: Call) -> object:
        """Handle a message, unless it is known."""
        entry = self._entry(call)
        self._store.begin()
        if self._is_replayed(call.delivery):
            self._store.forget([entry])
        tries = 0
        while True:
            try:
                return self._visit(entry, call)
            except InProgress as error:
                raise self._later(call, error) from error
            except Exception as error:
                tries += 1
                if tries > AGAIN or not self._store.asks_again(error):
                    raise
                self._note(entry, error)

    def _visit(self, entry: Entry, call: Call) -> object:
        with self._store.visit(entry, self._asked) as visit:
            if visit.known:
                return self._known(visit)
            with _bound(visit):
                result = self._function(*call.placed, **call.named, **visit.given)
            # The client looks at these after the commit: what fails there would be known by then.
            check_result(result)
            raise_found()
            watch_begins()
            self._keep(visit, result)
        self._stats.count("handled")
        return result

    # -- handlers that are awaited ----------------------------------------------------------------

    async def run_awaited(self, call: Call) -> object:
        """Handle a message, unless it is known."""
        entry = self._entry(call)
        self._store.begin()
        if self._is_replayed(call.delivery):
            await asyncio.to_thread(self._store.forget, [entry])
        tries = 0
        while True:
            try:
                return await self._visit_awaited(entry, call)
            except InProgress as error:
                raise self._later(call, error) from error
            except Exception as error:
                tries += 1
                if tries > AGAIN or not self._store.asks_again(error):
                    raise
                self._note(entry, error)

    async def _visit_awaited(self, entry: Entry, call: Call) -> object:
        async with self._store.visit_awaited(entry, self._asked) as visit:
            if visit.known:
                return self._known(visit)
            with _bound(visit):
                result = await self._function(*call.placed, **call.named, **visit.given)
            check_result(result)
            self._keep(visit, result)
        self._stats.count("handled")
        return result

    # -- both -------------------------------------------------------------------------------------

    def _entry(self, call: Call) -> Entry:
        if self._by is None:
            return entry_of(call.delivery)
        found = self._by(call.subject)
        if inspect.iscoroutine(found):
            found.close()
        if found is None:
            raise InvalidRequest("by= returned None: this message has no id")
        return entry_of(call.delivery, found)

    def _is_replayed(self, delivery: Delivery | BlockingDelivery) -> bool:
        """Return whether the message comes by a replay or a reset, and is to be handled again.

        Its row goes before the handler runs: the next attempt, if this one fails, is no first one.
        """
        if not self._again:
            return False
        own = engine_of(delivery) if isinstance(delivery, BlockingDelivery) else delivery
        return first_since_replay(own)

    def _known(self, visit: Visit) -> object:
        self._stats.count("suppressed")
        if visit.result is None:
            return None
        [result] = _CODECS.decode(visit.result, MSGPACK)
        return result

    def _keep(self, visit: Visit, result: object) -> None:
        """Have a result kept.

        Raises:
            EncodeError: It cannot be encoded.
            InvalidRequest: It is too large.
        """
        if not self._asked.result or result is None:
            return
        try:
            encoded, _ = _CODECS.encode([result], MSGPACK)
        except EncodeError as error:
            raise EncodeError(
                f"the result of handler {self._shape.name}, {article(type(result).__name__)}, "
                "cannot be kept: MessagePack has no form for it"
            ) from error
        if len(encoded) > MAX_RESULT:
            raise InvalidRequest(
                f"the result of handler {self._shape.name} has {len(encoded):,} bytes, and an "
                f"inbox keeps {MAX_RESULT:,}"
            )
        visit.result = encoded

    def _later(self, call: Call, error: InProgress) -> Retry:
        """Return the retry of a message that another handler has; later with each attempt."""
        self._stats.count("waited")
        log.info("%r: %s: %s", call.delivery, IN_PROGRESS, error)
        after = min(LONGEST_RETRY_S, 2.0 ** min(call.delivery.attempt, 6))
        return Retry(IN_PROGRESS, after=after)

    def _note(self, entry: Entry, error: Exception) -> None:
        self._stats.count("retried")
        log.info("%s %s: run again: %s", entry.consumer, entry.id.decode(), error)


def _check_inbox(given: object) -> None:
    """Check what ``idempotent`` was called with.

    Raises:
        InvalidHandler: It is the handler itself.
        InvalidRequest: It is no inbox.
    """
    if isinstance(given, Inbox):
        return
    if inspect.isroutine(given):
        raise InvalidHandler(
            f"@idempotent stands above {name_of(given)} without an inbox: write @idempotent(inbox)"
        )
    raise InvalidRequest(
        f"idempotent takes an Inbox, not {article(type(given).__name__)}: "
        "idempotent(Inbox(engine)), with an inbox that all handlers of the program may share"
    )


def _bound(visit: Visit) -> AbstractContextManager[None]:
    """Bind what the handler sends to its transaction."""
    if visit.within is None or visit.database is None:
        return nullcontext()
    return bound_to(visit.within, visit.database)
