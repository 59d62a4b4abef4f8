"""Settings of replication, one set for a broker group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ternmq.cluster.coordination.wishes import MOST_LEASE_US

_MIB: Final = 1 << 20
_SECOND_US: Final = 1_000_000
FIRST_LEASE_US: Final = 3 * _SECOND_US
"""The lease of a broker group that has set none. In version 1 of the stream it is the only one, and
an acknowledgement does not state it."""
LONGEST_LEASE_US: Final = MOST_LEASE_US
"""No process promises more, whatever a primary asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """How a primary judges its followers.

    Attributes:
        lease_us: Time for which a member is asked to promise, with every acknowledgement, not to
            stand for primary. How long it has promised, the acknowledgement says.
        silent_us: A member that acknowledges nothing new for so long is taken out.
        near_bytes: A follower that is closer than this to the end of the journal may become a
            member.
        far_bytes: A member that is further behind than this ...
        far_us: ... for so long is taken out.
        stagger_us: How much longer a member waits before it stands, for each that has more.
        window_bytes: Most bytes that are sent to a follower and not acknowledged.
        tail_bytes: Bytes of the newest records that the primary keeps in memory for followers.
    """

    lease_us: int = FIRST_LEASE_US
    silent_us: int = 2 * _SECOND_US
    near_bytes: int = _MIB
    far_bytes: int = 64 * _MIB
    far_us: int = 10 * _SECOND_US
    stagger_us: int = _SECOND_US // 5
    window_bytes: int = 16 * _MIB
    tail_bytes: int = 32 * _MIB

    def __post_init__(self) -> None:
        """Check that a silent member is taken out before it may stand.

        Raises:
            ValueError: It is not.
        """
        if not 0 < self.silent_us < self.lease_us:
            raise ValueError(
                f"silent must be more than 0 and less than the lease of {self.lease_us} us, not "
                f"{self.silent_us}"
            )


def trusted_us(promise_us: int) -> int:
    """Return how long a primary relies on a promise: the clocks of two machines differ in rate."""
    return promise_us * 9 // 10
