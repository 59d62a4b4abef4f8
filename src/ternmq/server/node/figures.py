"""The metrics of a broker in a broker group, in each of its roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq.broker.ledger.copies import REASONS
from ternmq.server.scrub.figures import ScrubFigures
from ternmq.server.telemetry.families import Numbers, counter, gauge, gauge_by
from ternmq.wire.control import FollowerInfo

PRIMARY: Final = "primary"
FOLLOWER: Final = "follower"
BACKUP: Final = "backup"
ROLES: Final = (PRIMARY, FOLLOWER, BACKUP)


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What every broker of a group knows of the group.

    Attributes:
        group: Name of the broker group.
        role: One of ``ROLES``, or empty while none is known.
        epoch: Of the newest leadership record; 0: it was not read yet.
        copies: Number of recorded members.
        member: Whether this process is one of them.
        writes_open: Whether the group takes new messages.
        silent_s: How long the coordinator has not answered, or has not been believed.
    """

    group: str
    role: str
    epoch: int
    copies: int
    member: bool
    writes_open: bool
    silent_s: float


@dataclass(frozen=True, slots=True)
class CopyFigures:
    """What a follower has.

    Attributes:
        written: Position up to which its file has the journal.
        synced: Position up to which its disk has it.
        committed: Position up to which it was told that the journal is committed.
        behind_bytes: How far it is behind the end of the primary's journal, as that was told last.
        heard_s: Time since the primary was heard; None: it was not heard yet.
        connected: Whether it follows now.
        syncs: Syncs of the copy since this process began to follow.
        scrub: What the search for damaged bytes has done.
        applied: Position up to which its state has the journal; 0: the state is not loaded.
        saved_bytes: Bytes that compression has saved on the way here since then.
        behind_s: How far answers to readers are behind; None: the state is not loaded.
        readers: Connections of readers.
    """

    written: int = 0
    synced: int = 0
    committed: int = 0
    behind_bytes: int = 0
    heard_s: float | None = None
    connected: bool = False
    syncs: int = 0
    scrub: ScrubFigures = field(default_factory=ScrubFigures)
    applied: int = 0
    saved_bytes: int = 0
    behind_s: float | None = None
    readers: int = 0


def group_families(figures: GroupFigures) -> Iterator[Numbers]:
    """Yield the families that a broker has in every role."""
    yield gauge_by(
        "cluster_role",
        "1 for the role of the broker in its broker group; else 0.",
        ("broker_group", "role"),
        [((figures.group, role), int(role == figures.role)) for role in ROLES],
    )
    yield gauge("cluster_epoch", "Epoch of the leadership record.", figures.epoch)
    yield gauge(
        "cluster_copies",
        "Recorded copies of the journal, that of the primary included.",
        figures.copies,
    )
    yield gauge(
        "cluster_member",
        "1: the copy of this broker counts: answers wait for it, and it may lead; 0: it does not.",
        int(figures.member),
    )
    yield gauge(
        "cluster_writes_open",
        "1: the broker group takes new messages; 0: it refuses them as ReadOnly.",
        int(figures.writes_open),
    )
    yield gauge(
        "cluster_coordinator_silent_seconds",
        "Seconds for which the coordinator has not answered, or has returned a leadership record "
        "that is not valid; 0: it answers.",
        figures.silent_s,
    )


def primary_families(
    takes_strict: bool, reason: str, followers: Sequence[FollowerInfo]
) -> Iterator[Numbers]:
    """Yield the families of a broker that leads.

    Args:
        takes_strict: Whether strict topics take messages.
        reason: Why no topic does, a word of ``REASONS``; empty: they do.
        followers: Those that are known.
    """
    yield gauge(
        "cluster_takes_strict",
        "1: topics of durability `strict` take messages, because two copies are recorded; else 0.",
        int(takes_strict),
    )
    yield gauge_by(
        "cluster_writes_closed",
        "1 for the reason why the broker group refuses new messages as ReadOnly; else 0.",
        ("reason",),
        [((one,), int(one == reason)) for one in REASONS],
    )
    for name, text, numbers in (
        (
            "connected",
            (
                "1: the follower is connected to this broker; 0: it was connected or was a member "
                "before, and is not connected now."
            ),
            [int(one.connected) for one in followers],
        ),
        (
            "member",
            "1: answers wait for the acknowledgement of this follower; else 0.",
            [int(one.member) for one in followers],
        ),
        (
            "behind_bytes",
            "Bytes of the journal that a connected follower has not acknowledged.",
            [one.behind_bytes for one in followers],
        ),
        (
            "heard_seconds",
            "Seconds since the last acknowledgement of a connected follower.",
            [one.heard_us / 1e6 for one in followers],
        ),
    ):
        series = [
            ((one.broker, one.kind), number)
            for one, number in zip(followers, numbers, strict=True)
            if one.connected or name in {"connected", "member"}
        ]
        yield gauge_by(f"follower_{name}", text, ("follower", "kind"), series)


def follower_families(figures: CopyFigures) -> Iterator[Numbers]:
    """Yield the families of a broker that follows."""
    yield gauge(
        "copy_connected", "1: this broker follows the primary; else 0.", int(figures.connected)
    )
    yield gauge(
        "copy_written",
        "Position up to which the file of this copy has the journal.",
        figures.written,
    )
    yield gauge(
        "copy_applied",
        "Position up to which the state of this follower has the journal; 0: it is not loaded.",
        figures.applied,
    )
    behind = [] if figures.behind_s is None else [((), figures.behind_s)]
    yield gauge_by(
        "copy_behind_seconds",
        "How far answers to readers are behind; absent while the state is not loaded.",
        (),
        behind,
    )
    yield gauge("copy_readers", "Connections of clients that read from this copy.", figures.readers)
    yield gauge(
        "copy_synced",
        "Position up to which the disk of this copy has the journal.",
        figures.synced,
    )
    yield gauge(
        "copy_committed",
        "Position up to which this copy was told that the journal is committed.",
        figures.committed,
    )
    yield gauge(
        "copy_behind_bytes",
        "Bytes of the journal that this copy does not have yet, compared with the end that the "
        "primary reported last.",
        figures.behind_bytes,
    )
    heard = [] if figures.heard_s is None else [((), figures.heard_s)]
    yield gauge_by("copy_heard_seconds", "Seconds since the primary was heard.", (), heard)
    yield counter("copy_syncs", "Syncs of this copy since the broker follows.", figures.syncs)
    yield counter(
        "copy_saved_bytes",
        "Bytes that compression has saved on the way from the primary since the broker follows.",
        figures.saved_bytes,
    )
