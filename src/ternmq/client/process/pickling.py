"""Objects that cannot be handed to another process, and say so."""

from __future__ import annotations

from typing import ClassVar, Final, NoReturn

CLIENT: Final = "a client cannot be pickled or copied: make one in each process"
CONSUMER: Final = "a consumer cannot be pickled or copied: make a client in each process"
PART: Final = "client.{} cannot be pickled or copied: make a client in each process"
DELIVERY: Final = (
    "a delivery cannot be pickled or copied: it belongs to the client that received it, which "
    "settles it; pass its body, or its topic, queue and offset"
)
DELIVERIES: Final = (
    "deliveries cannot be pickled or copied: they belong to the client that received them, which "
    "settles them; pass their bodies, or topic, queues and offsets"
)


class NotPickled:
    """Base of objects that have a connection of this process; ``pickle`` and ``copy`` refuse them.

    Without it, Python would name whatever part of the object it fails on first.
    """

    __slots__ = ()

    _not_pickled: ClassVar[str]
    """Text of the refusal: what cannot be pickled, and what to do."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(self._not_pickled)
