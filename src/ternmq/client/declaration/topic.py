"""A topic as applications declare it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ternmq.client.content.validation import check_topic, choose, flag, length_us, limit_us, whole
from ternmq.model.specs import Durability, TopicSpec


@dataclass(frozen=True, init=False)
class Topic:
    """A topic that an application requires; None leaves a setting unchanged.

    Attributes:
        name: Its name.
        queues: Number of queues; can grow on topics that are not ordered.
        ordered: Messages have ordering keys, and groups keep the order of each key.
        durability: When sends are answered.
        retention: How long messages are kept.
        keep_until_consumed: Keep them longer, until every group has finished them.
        ignore_ordering_keys: Of a topic that is not ordered: take messages with an ordering key.
        levels: Number of levels of priority, 1 to 8; ``queues`` is the number of each level. It
            never changes, and ordered topics have one level.
        expires_after: Time after which a message expires, counted from when it was stored: from
            then on, it is neither delivered for the first time nor retried. 0: it never expires.
        broadcast: Its consumers are broadcast instances, which name no group; each of them gets
            every message. It never changes.
    """

    name: str
    queues: int | None
    ordered: bool | None
    durability: Durability | None
    retention: timedelta | None
    keep_until_consumed: bool | None
    ignore_ordering_keys: bool | None
    levels: int | None
    expires_after: timedelta | None
    broadcast: bool | None

    def __init__(
        self,
        name: str,
        *,
        queues: int | None = None,
        ordered: bool | None = None,
        durability: Durability | str | None = None,
        retention: float | timedelta | None = None,
        keep_until_consumed: bool | None = None,
        ignore_ordering_keys: bool | None = None,
        levels: int | None = None,
        expires_after: float | timedelta | None = None,
        broadcast: bool | None = None,
    ) -> None:
        """``retention`` and ``expires_after`` are in seconds, or timedeltas.

        Raises:
            InvalidName, InvalidRequest: A value is not valid; the text names the argument.
        """
        if queues is not None:
            whole("queues", queues)
        if levels is not None:
            whole("levels", levels)
        for what, value in (
            ("ordered", ordered),
            ("keep_until_consumed", keep_until_consumed),
            ("ignore_ordering_keys", ignore_ordering_keys),
            ("broadcast", broadcast),
        ):
            if value is not None:
                flag(what, value)
        kept = None if retention is None else length_us("retention", retention)
        put = object.__setattr__
        put(self, "name", check_topic(name))
        put(self, "queues", queues)
        put(self, "ordered", ordered)
        chosen = None if durability is None else choose("durability", Durability, durability)
        put(self, "durability", chosen)
        put(self, "retention", None if kept is None else timedelta(microseconds=kept))
        put(self, "keep_until_consumed", keep_until_consumed)
        put(self, "ignore_ordering_keys", ignore_ordering_keys)
        put(self, "levels", levels)
        lives = None if expires_after is None else limit_us("expires_after", expires_after)
        put(self, "expires_after", None if lives is None else timedelta(microseconds=lives))
        put(self, "broadcast", broadcast)
        spec_of(self)


def name_of(topic: str | Topic) -> str:
    """Return the name of a topic given by name or as a ``Topic``.

    Raises:
        InvalidName, InvalidRequest: It is not a valid name.
    """
    return topic.name if isinstance(topic, Topic) else check_topic(topic)


def spec_of(topic: Topic) -> TopicSpec:
    """Return the settings of a topic made as declared, with defaults for those not stated.

    Raises:
        InvalidName, InvalidRequest: A setting is not valid.
    """
    default = TopicSpec(name=topic.name)
    kept, keep = topic.retention, topic.keep_until_consumed
    return TopicSpec(
        name=topic.name,
        queues=default.queues if topic.queues is None else topic.queues,
        ordered=bool(topic.ordered),
        durability=topic.durability or default.durability,
        retention_us=default.retention_us if kept is None else length_us("retention", kept),
        keep_until_consumed=default.keep_until_consumed if keep is None else keep,
        ignore_ordering_keys=bool(topic.ignore_ordering_keys),
        levels=default.levels if topic.levels is None else topic.levels,
        expires_us=limit_us("expires_after", topic.expires_after or 0),
        broadcast=bool(topic.broadcast),
    ).check()
