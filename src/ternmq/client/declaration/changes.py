"""Differences between declarations and a broker, and advice about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TOPIC_MISSING: Final = "topic"
"""The setting of a conflict where a group's topic is neither declared nor existing."""


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between the declared and the existing state.

    Attributes:
        action: ``create``, ``change``, or ``conflict``: it cannot be changed.
        topic: The topic.
        group: The group on it; empty: the topic itself.
        setting: The setting that differs; empty for what is created; ``topic`` if a group's topic
            is neither declared nor existing.
        has: The existing value.
        wants: The declared value; for what is created, all stated settings.
        why: Why it is impossible, if the declaration contradicts itself or the topic; else empty.
        remedy: What to declare instead, in that case.
    """

    action: str
    topic: str
    group: str
    setting: str
    has: str
    wants: str
    why: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        """Return a line about what was done, or cannot be."""
        return self.told("created")

    def told(self, created: str) -> str:
        """Return a line for people.

        Args:
            created: Words for something that is missing, such as ``would be created``.
        """
        what = f"group {self.group} on {self.topic}" if self.group else f"topic {self.topic}"
        if self.action == "create":
            return f"{what}: {created}" + (f" with {self.wants}" if self.wants else "")
        if self.setting == TOPIC_MISSING:
            return f"{what}: there is no topic {self.topic}, and none is declared"
        if self.why:
            return f"{what}: {self.setting} {self.wants} is not possible: {self.why}"
        told = f"{what}: {self.setting} {self.has} -> {self.wants}"
        return told + (" cannot be changed" if self.action == "conflict" else "")


def advice(changes: Sequence[Change]) -> str:
    """Return advice about the changes that cannot be made; empty if there are none."""
    said = list(dict.fromkeys(one.remedy for one in changes if one.remedy))
    missing = dict.fromkeys(one.topic for one in changes if one.setting == TOPIC_MISSING)
    if missing:
        made = ", ".join(f"`ternmq topic create {topic}`" for topic in missing)
        said.append(
            f"declare the topic with client.declare(ternmq.Topic(...)), or create it: {made}"
        )
    gone = dict.fromkeys(
        f"`ternmq group delete {one.topic} {one.group}`"
        if one.group
        else f"`ternmq topic delete {one.topic}`, with its messages"
        for one in changes
        if one.action == "conflict" and one.setting != TOPIC_MISSING and not one.remedy
    )
    if gone:
        said.append(
            f"declare the settings that exist, or delete what has them: {'; '.join(gone)}; "
            "if the broker is `ternmq dev` without a folder, you can restart it instead"
        )
    return ". ".join(said)
