"""What a full run must have reached; one that did not is inconclusive, which fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REQUIRED: Final = (
    "record SEGMENT", "record PAD", "record STATE", "record MOVED", "record MESSAGES",
    "record PULLED", "record EXTENDED", "record ENDED", "record SETTLED", "record CURSOR",
    "record CONFIG", "record COUNTS", "record JOINED", "record LEFT", "record EPOCH", "record MARK",
    "two rolls, two STATE sets, a MOVED and a dead letter",
    "a full disk, drained, takes sends again",
    "segment removed", "crash right after a segment's removal", "others take the volume",
    "segment removed first after a kill at a removal",
    "pulled out of a segment that is being emptied",
    "moved row", "moved row again", "moved failure", "delivered from a MOVED record",
    "dead letter", "held", "retried", "released and again", "extended",
    "lease ended by time", "lease ended by session", "lease ended by drain",
    "given back behind the end of its session", "given back after a start",
    "released behind a failed row of its key",
    "cursor reset", "cursor skip", "filter skip",
    "dedup hit", "dedup hit of an unanswered batch", "given id left out", "given id conflict",
    "marked duplicate", "settle of an earlier reign's lease",
    "settle of an earlier reign's lease after a reset", "settle of a lost hand-out",
    "settle refused LeaseExpired",
    "fast send", "parked pull woken", "would block", "session not resumed",
    "record REPLAY", "operator replay", "operator redrive", "a replay told beforehand",
    "replayed: was done", "replayed: was leased", "replayed: was ready", "replayed: was waiting",
    "replayed: was dead",
    "a replay's rows are not for the group", "a replay in pieces",
    "released behind a replayed row of its key", "replayed out of a segment that is being emptied",
    "operator retry_now", "operator delete_failures", "operator pause",
    "operator unsubscribe", "operator delete topic", "operator grow topic",
    "operator put app", "operator delete app", "operator report", "operator commit",
    "operator put hold", "operator delete hold",
    "tail cut", "end beyond the durable mark", "clean start", "fresh start",
    "loaded a STATE set", "fault: CRC", "fault: magic",
    "incomplete STATE set at the end", "index file not believed",
    "restart after a kill", "restart after a power cut", "kill, then power cut in recovery",
    "wall clock jumped", "sync failed", "write failed", "no room for a segment",
    "damage: cut", "damage: refused", "damage: stale record", "damage: stale index file",
    "compressed batch", "calm after a full disk", "an earlier reign's lease settled as such",
    "crash in recovery", "second crash in recovery",
    "record PREPARED", "record RESOLVED", "transaction committed", "empty transaction committed",
    "prepared batch dropped", "prepared again", "commit repeated", "commit with another digest",
    "abort", "abort after a commit", "transaction run again",
    "transaction rolled back: WRITER", "transaction rolled back: EXPIRED",
    "prepared rows in an older segment", "deep prepare again", "deep commit repeated",
    "deep resend", "deep drain round", "clean stop",
)  # fmt: skip


def missing(paths: Mapping[str, int]) -> list[str]:
    """Return the required paths that were not reached."""
    return [path for path in REQUIRED if not paths.get(path)]
