"""Lists in a single answer, for clients from before there were pages.

Such an answer is built from pages, each queued behind the reads of others (``LateReads``), so that
it delays no other request; its size is limited, since it has to be encoded in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import CorruptJournal, DiskReadError, InvalidRequest, RefusedError
from ternmq.server.desk.desk import ReadingDesk
from ternmq.wire import control
from ternmq.wire.port import Caller
from ternmq.wire.session import Request

MOST: Final = 1000
"""Entries beyond which an answer takes no further page: a longer list is refused."""

Page = Callable[[msgspec.Struct], "tuple[msgspec.Struct, int]"]
"""Takes a request for a page; returns the page and the position that it depends on."""


class WholeList:
    """A request for a whole list. Not thread-safe: call it from the broker's loop.

    Args:
        desk: State shared by all callers.
        caller: The caller that requests it.
        request: The request.
        asked: Its decoded body; it has the fields ``after`` and ``limit``.
        entries: Name of the list field of the answer, which also has a field ``next``.
        page: Makes a page.
    """

    def __init__(
        self,
        desk: ReadingDesk,
        caller: Caller,
        request: Request,
        asked: msgspec.Struct,
        entries: str,
        page: Page,
    ) -> None:
        self._desk = desk
        self._caller = caller
        self._request = request
        self._asked = msgspec.structs.replace(asked, limit=MOST)
        self._entries = entries
        self._page = page
        self._first: msgspec.Struct | None = None
        self._found: list[Any] = []

    def go_on(self) -> None:
        """Make a page and queue the next one; answer after the last.

        Raises:
            RefusedError, WouldBlock, DiskReadError, CorruptJournal: As ``page``.
        """
        page, position = self._page(self._asked)
        self._found += getattr(page, self._entries)
        if self._first is None:
            self._first = page
        next_ = page.next  # type: ignore[attr-defined]
        if next_ and len(self._found) > MOST:
            raise InvalidRequest(
                f"there are more {self._entries} than the {MOST} that one answer contains: "
                f"request pages with limit and after"
            )
        if next_:
            self._asked = msgspec.structs.replace(self._asked, after=next_)
            self._desk.late.put(self._caller, self._request, self._again)
            return
        whole = {self._entries: self._found, "next": type(next_)()}
        answer = msgspec.structs.replace(self._first, **whole)
        self._caller.answer(self._request, control.encode(answer), position)

    def _again(self) -> None:
        caller, core = self._caller, self._desk.core
        if caller.closed:
            return
        core.touch()
        if not caller.roomy:
            caller.put_back(self._request)  # it begins anew when there is room
            return
        try:
            self.go_on()
        except WouldBlock as blocked:
            core.cold_reads.read(blocked, self._again, caller)
        except RefusedError as error:
            caller.refuse(self._request, error, core.broker.refusal_rests_on(error))
        except (DiskReadError, CorruptJournal) as error:
            caller.refuse(self._request, core.unreadable(error))
