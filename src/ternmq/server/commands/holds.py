"""The commands of pipelines: commits, holds, names.

JOURNAL_READ is in ``journal_reads``, QUEUE_RANGES in ``range_reads``.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from ternmq.access import Authoriser
from ternmq.broker.catalog.gone import Sort
from ternmq.broker.operation.groups import NextOffset
from ternmq.broker.query.messages import Queries
from ternmq.broker.query.names import Name, names
from ternmq.model.errors import InvalidRequest, UnknownTopic
from ternmq.model.specs import check_name
from ternmq.server.commands.control import Answer, BrokerCommands
from ternmq.server.commands.range_reads import RangeReads
from ternmq.server.desk.desk import Desk
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller

PAGE_NAMES: Final = 500
"""Most names of a page, even if its limit is higher: a turn takes a millisecond for them."""
_SECTIONS: Final = "tgsa"
"""Sections of a catalog, in this order: topics, groups, sessions, apps. The place of the next page
is a section's letter and the last number, or name, of the page before."""
_SECTIONS_SORTS: Final = {"t": Sort.TOPIC, "g": Sort.GROUP, "s": Sort.SESSION}


class BulkCommands(BrokerCommands):
    """Handlers of the pipelines' commands. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self.handlers |= {
            Command.GROUP_COMMIT: self.control(
                Command.GROUP_COMMIT, control.GroupCommit, self.commit
            ),
            Command.QUEUE_RANGES: RangeReads(desk, authoriser, queries).ranges,
            Command.HOLD_PUT: self.control(Command.HOLD_PUT, control.HoldPut, self.put_hold),
            Command.HOLD_DELETE: self.control(
                Command.HOLD_DELETE, control.HoldDelete, self.delete_hold
            ),
            Command.HOLD_LIST: self.control(Command.HOLD_LIST, control.HoldList, self.list_holds),
            Command.JOURNAL_CATALOG: self.control(
                Command.JOURNAL_CATALOG, control.JournalCatalog, self.catalog
            ),
        }

    # -- queues -----------------------------------------------------------------------------------

    def commit(self, caller: Caller, asked: control.GroupCommit) -> Answer:
        """GROUP_COMMIT: store the progress of a group that commits its places itself."""
        places = [NextOffset(one.queue, one.offset) for one in asked.places]
        if len({one.queue for one in places}) < len(places):
            raise InvalidRequest("a queue is named twice")
        check_name(asked.group)
        catalog = self._broker.views.catalog
        if asked.topic not in catalog.by_name:
            raise UnknownTopic(f"there is no topic {asked.topic!r}")
        created = asked.group not in catalog.topic(asked.topic).by_group
        reply = self._broker.operating.commit(self._core.now_us(), asked.topic, asked.group, places)
        if created:
            self._desk.audit.changed(
                caller.app, caller.address, Command.GROUP_COMMIT, asked.topic, asked.group
            )
        stands = catalog.subscription(asked.topic, asked.group).queues
        now = [control.GroupPlace(queue=q, offset=stands[q].cursor) for q, _ in places]
        return control.GroupCommitted(places=now, created=created), reply.position

    # -- holds ------------------------------------------------------------------------------------

    def put_hold(self, caller: Caller, asked: control.HoldPut) -> Answer:
        """HOLD_PUT: keep the journal from a position on."""
        broker = self._broker
        known = broker.views.holds.get(asked.name)
        reply = broker.holding.put(
            self._core.now_us(),
            asked.name,
            asked.position,
            note=asked.note,
            app=caller.app,
            back=asked.back,
        )
        now = broker.views.holds[asked.name]
        if known is None or now.position < known.position:
            self._desk.audit.changed(
                caller.app, caller.address, Command.HOLD_PUT, target=asked.name
            )
        placed = control.HoldPlaced(position=now.position, oldest=broker.journal.first)
        return placed, reply.position

    def delete_hold(self, caller: Caller, asked: control.HoldDelete) -> Answer:
        """HOLD_DELETE: remove a hold."""
        reply = self._broker.holding.delete(self._core.now_us(), asked.name)
        return control.Nothing(), reply.position

    def list_holds(self, caller: Caller, asked: control.HoldList) -> Answer:
        """HOLD_LIST: list the holds by name."""
        journal = self._broker.journal
        listed = control.Holds(
            holds=holds_of(self._desk),
            oldest=journal.first,
            durable=journal.committed,
            now_us=self._core.now_us(),
        )
        return listed, journal.end

    # -- the journal ------------------------------------------------------------------------------

    def catalog(self, caller: Caller, asked: control.JournalCatalog) -> Answer:
        """JOURNAL_CATALOG: return a page of the names that numbers stand for."""
        broker = self._broker
        if asked.position > broker.journal.end:
            raise InvalidRequest(f"the journal ends at {broker.journal.end}")
        room = min(asked.limit, PAGE_NAMES)
        found: dict[str, list[Name]] = {letter: [] for letter in _SECTIONS}
        following = ""
        begin = _SECTIONS.index(asked.after[:1]) if asked.after else 0
        for letter in _SECTIONS[begin:]:
            place = asked.after[1:] if letter == asked.after[:1] else ""
            if letter == "a":
                apps = list(islice(broker.views.catalog.app_names.behind(place), room + 1))
                found["a"] = [Name(0, name) for name in apps[:room]]
                next_ = (apps[room - 1] if room else place) if len(apps) > room else None
            else:
                above = int(place or 0)
                sort = _SECTIONS_SORTS[letter]
                # The last counts of a topic may come after its end.
                since = 0 if sort is Sort.TOPIC else asked.position
                page = names(broker.ledger, sort, since, above, room)
                found[letter] = page.found
                next_ = None if page.next is None else str(page.next)
            if next_ is not None:
                following = f"{letter}{next_}"
                break
            room -= len(found[letter])
        return _names(broker.journal.end, broker.journal.first, found, following)


def _names(as_of: int, oldest: int, found: dict[str, list[Name]], following: str) -> Answer:
    page = control.JournalNames(
        as_of=as_of,
        oldest=oldest,
        topics=[
            control.TopicName(number=one.number, name=one.name, gone=one.gone) for one in found["t"]
        ],
        groups=[
            control.GroupName(number=one.number, topic=one.topic, name=one.name, gone=one.gone)
            for one in found["g"]
        ],
        sessions=[
            control.SessionName(
                number=one.number,
                app=one.name,
                client=one.client,
                address=one.address,
                gone=one.gone,
            )
            for one in found["s"]
        ],
        apps=[one.name for one in found["a"]],
        next=following,
    )
    return page, as_of


def holds_of(desk: Desk) -> list[control.HoldInfo]:
    """Return every hold as answers describe it, by name."""
    broker = desk.core.broker
    journal = broker.journal
    blocking = broker.ledger.room.blocked and desk.core.upkeep.moving.judging.blocked_by_hold
    oldest_end = journal.first + journal.segment_size
    return [
        control.HoldInfo(
            name=one.name,
            position=one.position,
            note=one.note,
            app=one.app,
            created_us=one.created_us,
            moved_us=one.moved_us,
            lag_bytes=max(0, journal.committed - one.position),
            blocking=blocking and one.position < oldest_end,
        )
        for _, one in sorted(broker.views.holds.items())
    ]
