"""Whoever fills the disk, has everything consumed, and then expects that sends are taken again."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from tests.sim.producers import Producer
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

EVERY_US: Final = 5_000
PATIENCE: Final = 300
"""Turns of its own, with a look each; two STATE sets of a few objects a turn take some fifty."""
OVERDUE_US: Final = 60_000_000
"""How long rows that have come due may wait on a full disk."""
_REFUSED: Final = "send refused DiskFull"


class Phase(enum.Enum):
    """What is going on."""

    FILL = "fill"
    DRAIN = "drain"
    EXPECT = "expect"


class Filling:
    """Tells a producer when to send, and counts the turns until a drained disk takes sends.

    Args:
        world: Its disk is small.
        producer: The only one.
    """

    def __init__(self, world: World, producer: Producer) -> None:
        self.world = world
        self.producer = producer
        self.phase = Phase.FILL
        self.waited = 0
        self._refused = 0
        world.restart_hooks.append(self.restarted)

    def restarted(self) -> None:
        """The broker is back: whatever it was about to do for room, it has to begin anew."""
        self.waited = 0
        self._again()

    def _again(self) -> None:
        self.world.after(EVERY_US, self._act)

    def _act(self) -> None:
        self._again()
        refusals = self.world.paths.get(_REFUSED, 0)
        if self.phase is Phase.FILL and refusals > self._refused:
            self.phase = Phase.DRAIN
            self.producer.left = 0
        elif self.phase is Phase.DRAIN:
            self._drain()
        elif self.phase is Phase.EXPECT:
            self._expect()

    def _drain(self) -> None:
        world = self.world
        if self._drained():
            self.phase = Phase.EXPECT
            self.waited = 0
        for number in world.reference.topics:
            row = world.reference.scheduled.first_due(number)
            since_us = world.now_us() if row is None else max(row.due_us, world.began_us)
            if since_us < world.now_us() - OVERDUE_US:
                moving = world.started.upkeep.moving
                raise Violation(
                    f"a full disk: a row that came due {world.now_us() - since_us} us ago is "
                    f"pending; the oldest segment is kept by {moving.judging.pinned.pin.value}"
                )

    def _expect(self) -> None:
        world = self.world
        if not self._drained():  # a crash took settles that were not answered
            self.phase = Phase.DRAIN
            return
        before = world.paths.get(_REFUSED, 0)
        self.producer.send_one()
        if world.paths.get(_REFUSED, 0) == before:
            world.reached("a full disk, drained, takes sends again")
            self.phase = Phase.FILL
            self._refused = before
            self.producer.left = 1 << 30
            return
        self.waited += 1
        if self.waited > PATIENCE:
            moving = world.started.upkeep.moving
            raise Violation(
                f"nothing is owed to anybody, and sends were refused for {self.waited} turns; "
                f"the oldest segment is kept by {moving.judging.pinned.pin.value}"
            )

    def _drained(self) -> bool:
        reference = self.world.reference
        return not reference.scheduled.pending and all(
            not group.rows
            and not group.ahead
            and group.cursor >= len(reference.topics[key[1]].queues[key[2]])
            for key, group in reference.groups.items()
        )
