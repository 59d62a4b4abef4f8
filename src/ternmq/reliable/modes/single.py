"""Blocks that are used once, in the process that made them; and properties of what they gather."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ternmq.model.errors import ClientForked, InvalidRequest, hinted


@dataclass(slots=True)
class Properties:
    """Properties of an item or step, in the form in which those of messages are checked."""

    key: str
    tag: str
    content_type: str
    headers: Mapping[str, str]
    application_id: str = ""
    ordering_key: str = ""


class Single:
    """A block that is entered once and left once."""

    what: ClassVar[str]
    """What errors call it."""
    recipe: ClassVar[str]
    """How it is entered."""

    def __init__(self) -> None:
        self._entered = False
        self._left = False
        self._pid = os.getpid()

    def _enter_once(self) -> None:
        """Note that it was entered.

        Raises:
            InvalidRequest: It was entered before.
        """
        if self._entered:
            raise InvalidRequest(
                f"the block of this {self.what} has begun before: make one for each use"
            )
        self._entered = True

    def _check_open(self) -> None:
        """Check that something may be added.

        Raises:
            InvalidRequest: The block has not begun, or has ended.
            ClientForked: This is a copy in a forked child: the parent sends what is in it.
        """
        if self._pid != os.getpid():
            raise hinted(
                ClientForked(
                    f"this {self.what} was made by the process that this one was forked from"
                ),
                "make one here",
            )
        if self._left:
            raise InvalidRequest(f"the block of this {self.what} has ended: nothing more is sent")
        if not self._entered:
            raise hinted(
                InvalidRequest(f"the block of this {self.what} has not begun"), self.recipe
            )
