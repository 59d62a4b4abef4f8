"""The items of a batch session while it fills. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from ternmq.client.content.items import pack, packed_bytes
from ternmq.model.errors import MessageTooLarge, hinted


@dataclass(slots=True, frozen=True)
class Packed:
    """A session that is ready to be sent, or that was sent.

    Attributes:
        name: Name of the session.
        size: Number of its items.
        body: Body of its message.
    """

    name: str
    size: int
    body: bytes


class Filling:
    """Items that are not sent yet, and the names of the sessions that they are sent in.

    A session that was sealed stays the same until it is sent: what is sent again has the same name
    and the same bytes. Not thread-safe.

    Args:
        name: Name of the holder; its sessions are ``<name>.0``, ``<name>.1`` and so on.
        size: Number of items of a full session.
    """

    __slots__ = ("_bytes", "_items", "_name", "_number", "_sealed", "_size")

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._number = 0
        self._items: list[bytes] = []
        self._bytes = 0
        self._sealed: Packed | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def session(self) -> str:
        """Name of the session that fills."""
        return f"{self._name}.{self._number}"

    @property
    def full(self) -> bool:
        """Whether it has as many items as a session."""
        return len(self._items) >= self._size

    @property
    def sealed(self) -> bool:
        """Whether it takes no items until it is sent."""
        return self._sealed is not None

    def add(self, item: bytes, most: int) -> None:
        """Add an item; it is not sealed and not full.

        Args:
            item: Its bytes.
            most: Bytes that the body of a message may have.

        Raises:
            MessageTooLarge: The session does not fit into a message with it. It was not added.
        """
        size = packed_bytes(self.session, len(self._items) + 1, self._bytes + len(item))
        if size > most:
            raise hinted(
                MessageTooLarge(
                    f"the session would have {size} bytes with this item; the broker accepts {most}"
                ),
                "flush() sends the items before it in a session of their own; or use a smaller size"
                if self._items
                else "the item alone is too large: make it smaller, or store it elsewhere and send "
                "its location",
            )
        self._items.append(item)
        self._bytes += len(item)

    def seal(self) -> Packed | None:
        """Return the session to be sent, the same until ``sent``; None: there are no items."""
        if self._sealed is None and self._items:
            body = pack(self.session, self._items)
            self._sealed = Packed(self.session, len(self._items), body)
        return self._sealed

    def sent(self) -> None:
        """Begin the next session: the sealed one is stored."""
        self._number += 1
        self._items = []
        self._bytes = 0
        self._sealed = None
