"""When a broker may stand for primary, and the record that it then asks for.

A follower that stands stops acknowledging and forgets its connection, writes back and syncs all
that it has, and only then swaps the record. So nothing can be answered later that it lacks, and a
crash right after the swap loses nothing. The recorded primary may stand again after a restart: its
disk has all that it answered.
"""

from __future__ import annotations

import msgspec

from ternmq.cluster.coordination.record import MAX_WHY, Leadership, Member, Writer, Writes
from ternmq.cluster.replication.settings import CopySettings
from ternmq.model.types import Epoch


class MayNotStand(Exception):
    """This process is not one that holds everything that was answered."""


class Loyalty:
    """Whom a process follows, and what it has promised. Not thread-safe; for the broker's loop.

    What it was told is forgotten at its end. That is enough, since a member is a process life; one
    that stays a member over its restarts stores ``told``, and the length of its promises, before it
    acknowledges.

    Args:
        settings: Of the broker group.
        told: The largest epoch in the journal, or stored before.
        now_us: When the process began; a former life of it may have made a promise just then.

    Attributes:
        told: The largest epoch that it followed, led, read of, or has in its journal.
        until_us: When the promise that lasts longest ends, unless its primary resigns before.
    """

    def __init__(self, settings: CopySettings, told: Epoch, now_us: int) -> None:
        self.told = told
        self._settings = settings
        self._began_us = now_us
        self.until_us = now_us + settings.lease_us
        self._free = False

    def heed(self, settings: CopySettings) -> None:
        """Go by other settings from now on; what was promised stays promised."""
        self._settings = settings

    def remembers(self, promise_us: int) -> None:
        """Note the longest promise that a former life of this process may have given.

        It may have given it when this life began.
        """
        self.until_us = max(self.until_us, self._began_us + promise_us)

    def hears_of(self, epoch: Epoch) -> None:
        """Note that there is, or was, this epoch."""
        self.told = max(self.told, epoch)

    def learns(self, epoch: Epoch, now_us: int) -> None:
        """Note the epoch of the leadership record; the primary of a new one is given a lease.

        Else every member that waited for the old primary would depose the new one, as soon as it
        read that another member was faster.
        """
        if epoch > self.told:
            self.told = epoch
            self.waits(now_us)

    def may_follow(self, epoch: Epoch) -> bool:
        """Return whether it may take bytes of an epoch, and acknowledge them.

        Never those of an epoch below one that it was told: cutting a journal may remove the EPOCH
        records by which it would know.
        """
        return epoch >= self.told

    def promises(self, now_us: int, promise_us: int) -> None:
        """Note an acknowledgement that is about to be sent: it will not stand for so long.

        A promise that lasts longer is kept, unless its primary has resigned.
        """
        until_us = now_us + promise_us
        self.until_us = until_us if self._free else max(self.until_us, until_us)
        self._free = False

    def waits(self, now_us: int) -> None:
        """Give a primary that may just have begun a lease's time to be heard of."""
        self.promises(now_us, self._settings.lease_us)

    def released(self, epoch: Epoch) -> None:
        """Note that the primary of an epoch has resigned: it does not rely on the promise any more.

        Another one may: word of an epoch below the largest that was told changes nothing.
        """
        if epoch >= self.told:
            self.hears_of(epoch)
            self._free = True

    def may_stand(self, now_us: int, *, ahead: int = 0) -> bool:
        """Return whether no promise holds any more.

        Args:
            now_us: The time.
            ahead: Number of other members that have more of the journal: each is given a little
                time to stand first. Safety does not depend on it.
        """
        if self._free:
            return True
        return now_us - self.until_us >= ahead * self._settings.stagger_us


def succession(
    record: Leadership, me: Member, writer: Writer, writes: Writes, why: str, at_us: int
) -> Leadership:
    """Return the record by which a process becomes primary of the next epoch.

    The old primary is no member of it, unless it is the one that stands.

    Args:
        record: The record as it was read after the process had stopped acknowledging.
        me: The process, as a member.
        writer: Who makes the change.
        writes: Whether the group is to take new messages.
        why: For people.
        at_us: The time of the wall clock, for people.

    Raises:
        MayNotStand: It is neither a recorded member in this life, nor the recorded primary.
    """
    if record.primary == me.broker:
        others = tuple(one for one in record.members if one.broker != me.broker)
    elif me in record.members:
        others = tuple(
            one for one in record.members if one.broker not in (me.broker, record.primary)
        )
    else:
        raise MayNotStand(
            f"{me.broker} is not one of the members of epoch {record.epoch} in this life"
        )
    return msgspec.structs.replace(
        record,
        version=record.version + 1,
        writer=writer,
        epoch=Epoch(record.epoch + 1),
        primary=me.broker,
        members=(me, *others),
        writes=writes,
        why=why[:MAX_WHY],
        at_us=at_us,
    )


def handover(record: Leadership, to: str, writer: Writer, why: str, at_us: int) -> Leadership:
    """Return the record by which the primary hands over to a member that holds everything.

    The old primary stays a member: it has stopped answering, and what it holds is what the new
    primary holds.

    Args:
        record: The record of the primary that hands over.
        to: The member that takes over. It has synced all that the primary has.
        writer: Who makes the change.
        why: For people.
        at_us: The time of the wall clock, for people.

    Raises:
        MayNotStand: It is no other member.
    """
    if to == record.primary or to not in [one.broker for one in record.members]:
        raise MayNotStand(f"{to} is not another member of epoch {record.epoch}")
    return msgspec.structs.replace(
        record,
        version=record.version + 1,
        writer=writer,
        epoch=Epoch(record.epoch + 1),
        primary=to,
        why=why[:MAX_WHY],
        at_us=at_us,
    )
