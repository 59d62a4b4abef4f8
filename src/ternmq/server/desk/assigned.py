"""Tells members of groups which queues they own: QUEUES_ASSIGNED."""

from __future__ import annotations

from ternmq.broker.operation.membership import Assigned
from ternmq.server.desk.sessions import Sessions
from ternmq.wire import control
from ternmq.wire.commands import Command


class AssignedQueues:
    """Pushes to the working connections of members. Not thread-safe: broker's loop only.

    A member without a connection is told when it is back and joins again.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def tell(self, assigned: Assigned) -> None:
        """Push the queues of a member, if it has a connection."""
        caller = self._sessions.working(assigned.session)
        if caller is None or caller.closed or not caller.session:
            return
        told = control.QueuesAssigned(
            topic=assigned.topic, group=assigned.group, queues=list(assigned.queues)
        )
        caller.push(Command.QUEUES_ASSIGNED, control.encode(told))
