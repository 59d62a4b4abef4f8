"""Producer groups: whose transactions are checked how.

A group belongs to the app that used its name first. It is created with the default settings then,
so that its owner is on record.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from ternmq.broker.catalog.catalog import app_page
from ternmq.broker.transaction.shares import refuses
from ternmq.model.errors import Busy, ProducerGroupTaken
from ternmq.model.specs import ProducerGroupSpec
from ternmq.record.fact.control import ProducerGroupDeleted, ProducerGroupPut

_decode: Final = msgspec.msgpack.Decoder(list[ProducerGroupPut])


class ProducerGroups:
    """All producer groups. Deterministic.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        by_name: Name -> settings and owner.
        changed: Page of names -> position of the newest record that changed it.
        of_app: App -> number of its groups.
    """

    __slots__ = ("_pages", "by_name", "changed", "of_app")

    def __init__(self) -> None:
        self.by_name: dict[str, ProducerGroupPut] = {}
        self.changed: dict[int, int] = {}
        self.of_app: Counter[str] = Counter()
        self._pages: dict[int, dict[str, None]] = {}

    def spec(self, name: str) -> ProducerGroupSpec:
        """Return the settings of a group; the defaults if there is none of that name."""
        found = self.by_name.get(name)
        return ProducerGroupSpec(name=name) if found is None else found.spec

    def check_owner(self, name: str, app: str) -> None:
        """Refuse a group of another app.

        Raises:
            ProducerGroupTaken: It belongs to another app.
        """
        found = self.by_name.get(name)
        if found is not None and found.app != app:
            raise ProducerGroupTaken(
                f"producer group {name!r} belongs to app {found.app!r}, not {app!r}"
            )

    def check_room(self, cap: int, app: str, more: int = 1) -> None:
        """Refuse new groups of an app if there would be too many.

        Args:
            cap: Most that there may be.
            app: Whose groups they are.
            more: Number of new groups, one at least.

        Raises:
            Busy: There would be more than may be; or this app would have more than its share.
        """
        total = len(self.by_name)
        if refuses(cap, self.of_app, total, app, more):
            new = f", and {more:,} would be new" if more > 1 else ""
            raise Busy(
                f"there are {total:,} producer groups, {self.of_app[app]:,} of them of this app"
                f"{new}; the limit producer_groups is {cap:,}"
            )

    def apply_put(self, position: int, change: ProducerGroupPut) -> None:
        """Create a group, or replace its settings."""
        self._put(change)
        self.changed[app_page(change.spec.name)] = position

    def apply_deleted(self, position: int, change: ProducerGroupDeleted) -> None:
        """Remove a group."""
        page = app_page(change.name)
        self.changed[page] = position
        if change.name in self.by_name:
            self._count_off(change.name)
            del self.by_name[change.name], self._pages[page][change.name]

    def _put(self, change: ProducerGroupPut) -> None:
        name = change.spec.name
        if name in self.by_name:
            self._count_off(name)
        self.of_app[change.app] += 1
        self.by_name[name] = change
        self._pages.setdefault(app_page(name), {})[name] = None

    def _count_off(self, name: str) -> None:
        app = self.by_name[name].app
        self.of_app[app] -= 1
        if not self.of_app[app]:
            del self.of_app[app]

    # -- STATE ------------------------------------------------------------------------------------

    def encode(self, page: int) -> bytes:
        """Return a page for STATE; empty if it has no groups."""
        names = sorted(self._pages.get(page, ()))
        return msgspec.msgpack.encode([self.by_name[name] for name in names]) if names else b""

    def load(self, page: int, payload: bytes, stamp: int) -> None:
        """Load a page as it was at ``stamp``."""
        for one in _decode.decode(payload) if payload else ():
            self._put(one)
        self.changed[page] = stamp
