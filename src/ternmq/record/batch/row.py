"""One message with its properties, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class Row:
    """One message. An empty text or a zero time means none."""

    body: bytes
    key: str = ""
    ordering_key: str = ""
    tag: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    due_us: int = 0
    expiry_us: int = 0
    priority: int = 0
    application_id: str = ""
