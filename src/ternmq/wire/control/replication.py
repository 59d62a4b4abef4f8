"""Control: how a follower begins to copy a journal, and how the primary's stream ends.

Also how a broker asks another one for records that are damaged in its own copy. They travel between
the brokers of a broker group only (``commands.STREAM``). What comes from another broker is bounded
and checked as a client's request is.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ternmq.model.errors import InvalidName
from ternmq.model.specs import check_name
from ternmq.model.types import NO_POSITION
from ternmq.wire.control.coding import PRINTABLE, Body, Line, Number, Time
from ternmq.wire.control.connection import NAME

STREAM_VERSION: Final = 2
"""Version of the stream between brokers. Raise it when FOLLOW's answer, the layouts of BYTES, MARKS
or ACK, or their meaning change; keep reading the version before it for two releases, so that the
brokers of a group can be updated one after the other. 2: MARKS state the lease that is asked for,
ACK what is promised."""
STREAM_VERSIONS: Final = (1, STREAM_VERSION)
"""Versions that this software understands."""
MAX_CHECKPOINTS: Final = 100
"""They fit the 4 KiB of a first frame."""
MAX_SEGMENT_BYTES: Final = 4 << 30
"""Largest segment of a journal, as the settings allow it."""

Kind = Literal["member", "synced", "backup"]
FOLLOWER_KINDS: Final[tuple[Kind, ...]] = ("member", "synced", "backup")

_Codecs = Annotated[tuple[Annotated[str, Meta(max_length=20)], ...], Meta(max_length=8)]
_BrokerName = Annotated[str, Meta(min_length=1, max_length=127)]
_Place = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Epoch = Annotated[int, Meta(ge=1, le=2**32 - 1)]
_Incarnation = Annotated[int, Meta(ge=1)]
_Duration = Annotated[int, Meta(ge=1, le=3_600_000_000)]


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """A record of the follower's journal. It is sent as an array of its fields, in this order.

    An epoch has one writer, which never goes back. So two journals of a broker group that have the
    same record at the same position are equal up to its end.
    """

    position: _Place
    """Where the record begins."""
    epoch: Number
    """Epoch in its header."""
    crc: Number
    """CRC32C in its header."""


class Follow(Body, frozen=True, kw_only=True, omit_defaults=False):
    """First frame of a follower's connection, in the place of HELLO; at most 4 KiB."""

    name: str = NAME
    """Name of the protocol: always `TernMQ`."""
    versions: Annotated[tuple[int, ...], Meta(max_length=64)] = STREAM_VERSIONS
    """Versions of the stream that the follower understands."""
    token: Annotated[str, Meta(max_length=300)]
    """The token of the cluster."""
    group: _BrokerName
    """The broker group."""
    journal: Annotated[int, Meta(ge=0)]
    """Number of the journal in the follower's folder, 0 to 2^64 - 1. 0: the folder is empty."""
    broker: _BrokerName
    """Name of the follower."""
    incarnation: _Incarnation
    """Random number of the follower's process, 1 to 2^64 - 1."""
    kind: Kind = "member"
    """`member`: it can become a member, and acknowledges what its file has. `synced`: likewise, but
    it acknowledges what its disk has, and so stays a member when it restarts. `backup`: it never
    becomes a member."""
    told: Number
    """Largest epoch that the follower knows of. A primary of a lower epoch is not the primary any
    more."""
    end: _Place
    """End of the follower's journal: the position of its next record."""
    checkpoints: Annotated[list[Checkpoint], Meta(max_length=MAX_CHECKPOINTS)] = msgspec.field(
        default_factory=list
    )
    """Records of the follower's journal, the newest first."""
    lacking: Number = 0
    """Epoch of a primary whose journal lacks records that the follower was told to be committed.
    A primary of this epoch to which a member says so is not the primary any more. 0: none."""
    software: Line = ""
    """Name and version of the follower's software, such as ``ternmq 0.1``; for display only."""
    compress: _Codecs | UnsetType = UNSET
    """Ways to compress BYTES that the follower asks for, such as `zstd`; since version 2. A primary
    heeds it only for a follower of kind `backup`."""

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ValueError: One is not allowed.
        """
        _check_names(self.group, self.broker)

    def __repr__(self) -> str:
        """Show no token."""
        return (
            f"Follow(broker={self.broker!r}, incarnation={self.incarnation}, kind={self.kind!r}, "
            f"group={self.group!r}, journal={self.journal}, told={self.told}, end={self.end}, "
            f"checkpoints={len(self.checkpoints)}, token=***)"
        )


class Followed(Body, frozen=True, kw_only=True, omit_defaults=False):
    """Answer to FOLLOW: the stream begins."""

    version: Annotated[int, Meta(ge=0, le=255)]
    """Version of the stream: the highest that both sides understand."""
    broker: _BrokerName
    """Name of the primary."""
    journal: Annotated[int, Meta(ge=1)]
    """Number of the broker group's journal, 1 to 2^64 - 1. An empty folder takes it."""
    epoch: _Epoch
    """Epoch of the primary's reign."""
    record_version: Annotated[int, Meta(ge=0, le=65_535)]
    """Version of the format of its newest records."""
    segment_bytes: Annotated[int, Meta(ge=1, le=MAX_SEGMENT_BYTES)]
    """Size of every segment file of the journal."""
    first: _Place
    """Begin of the primary's oldest segment."""
    end: _Place
    """End of the primary's journal when FOLLOW came."""
    matched: Annotated[int, Meta(ge=0)]
    """Position of the newest checkpoint that the primary has too; 2^64 - 1: it has none of them."""
    start: _Place
    """Where the stream begins: right behind the matched record, or at `first`."""
    lease_us: _Duration
    """Time for which the follower is asked to promise, with every ACK, not to stand for primary.
    In version 1 every ACK promises it; since version 2 an ACK states what it promises."""
    silent_us: _Duration
    """A member that acknowledges nothing new for so long is taken out of the members."""
    now_us: Time
    """Time of the primary's clock, the one of `sent_at` in MARKS. The follower returns it in its
    acknowledgements until the first MARKS has come."""
    software: Line = ""
    """Name and version of the primary's software; for display only."""
    compress: Literal["zstd"] | UnsetType = UNSET
    """How BYTES may be compressed; left out: they are not."""

    def __post_init__(self) -> None:
        """Check what no primary says.

        Raises:
            ValueError: A name is not allowed, or the positions contradict each other.
        """
        _check_names(self.broker)
        if self.matched == NO_POSITION:
            if self.start != self.first:
                raise ValueError("no checkpoint matches, and the stream does not begin at first")
        elif not self.first <= self.matched < self.start <= self.end:
            raise ValueError("the positions of the journal and of the stream contradict each other")
        if not self.first <= self.start <= self.end or self.first % self.segment_bytes:
            raise ValueError("the stream does not begin in the journal")


class Resign(Body, frozen=True, kw_only=True, omit_defaults=False):
    """Push: the primary's reign is over, and no promise that was made to it holds any more.

    The primary answers no client after that, and closes the connection.
    """

    epoch: _Epoch
    """Epoch of the reign."""
    why: Annotated[str, Meta(max_length=500, pattern=PRINTABLE)] = ""
    """For people."""
    to: Annotated[str, Meta(max_length=127)] = ""
    """The broker that is to take over; empty: whichever member stands first."""

    def __post_init__(self) -> None:
        """Check the name.

        Raises:
            ValueError: It is not allowed.
        """
        if self.to:
            _check_names(self.to)


class SegmentRead(Body, frozen=True, kw_only=True, omit_defaults=False):
    """First frame of a connection, in the place of HELLO; at most 4 KiB.

    A broker asks another one of its group for records that are damaged in its own journal.
    """

    name: str = NAME
    """Name of the protocol: always `TernMQ`."""
    token: Annotated[str, Meta(max_length=300)]
    """The token of the cluster."""
    group: _BrokerName
    """The broker group."""
    journal: Annotated[int, Meta(ge=1)]
    """Number of the broker group's journal, 1 to 2^64 - 1."""
    broker: _BrokerName
    """Name of the broker that asks."""
    position: _Place
    """Where the first record begins."""
    most_bytes: Annotated[int, Meta(ge=1, le=1 << 20)] = 1 << 20
    """Most bytes of records in the answer, unless the first record is larger: then it alone is in
    the answer."""

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ValueError: One is not allowed.
        """
        _check_names(self.group, self.broker)

    def __repr__(self) -> str:
        """Show no token."""
        return (
            f"SegmentRead(broker={self.broker!r}, group={self.group!r}, journal={self.journal}, "
            f"position={self.position}, most_bytes={self.most_bytes}, token=***)"
        )


def _check_names(*names: str) -> None:
    try:
        for name in names:
            check_name(name, "the name of a broker or a broker group")
    except InvalidName as error:
        raise ValueError(str(error)) from error
