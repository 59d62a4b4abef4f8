"""What a full run must have reached; one that did not is inconclusive, which fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.sim.group.nemesis import BLOCKING

REQUIRED: Final = (
    "a primary was killed", "a primary lost power", "a follower was killed",
    "a follower lost power", "power cut with writes pending", "two crashes within a second",
    "a process stopped and continued", "the primary stopped beyond the lease", "flapping",
    "the primary split off, with clients",
    "a primary stops", "a primary resigned", "deposed",
    "a primary began again", "a member was promoted", "a member joined", "a member was taken out",
    "stands", "may not stand", "a stand of unknown outcome", "the commit mark of a reign begins",
    "a crash: stands", "a crash: stand sent", "a crash: grow", "a crash: shrink",
    "a crash: served", "cut at an ack, then a kill", "power of the member, then the primary",
    "a partition", "a one-way cut", "the coordinator away", "a hint that is lost",
    "a request that is lost", "an answer that is lost", "a change that arrives late",
    "a change of unknown outcome", "a change that was never sent",
    "histories compared", "a stream begins before the copy's end", "a copy opened",
    "a copy is made anew", "a segment removed", "segments of a copy removed",
    "the copy waits for a spare", "a stream that cannot be followed",
    "a damaged byte on its way", "bytes of another history on their way",
    "an answer held back by the lease", "messages without an answer",
    "a follower came to another primary", "whole again", "handed over",
    "a broker leads with a loss", "what was answered is given up", "a cut below the commit mark",
    "views compared with a replay from nothing", "views thrown away after a cut",
    "a reign begins with the views of a follower",
    "a primary that was given up goes on", "an order to lead with a loss refused",
    "damaged bytes", "a damaged range", "a damaged range mended", "a donor's lie refused",
    "a power cut in a patch",
    "a primary asks for another lease", "the primary stopped after the lease was shortened",
    "the primary stopped after the lease was lengthened",
    *[f"died in: {name}" for name in BLOCKING],
)  # fmt: skip


def missing(reached: Mapping[str, int]) -> list[str]:
    """Return the paths that were not reached."""
    return [path for path in REQUIRED if not reached.get(path)]
