"""The commands that a pipeline asks with: ranges, commits, holds, the journal. Loop only."""

from __future__ import annotations

from ternmq.access import Authoriser
from ternmq.broker.queries import Queries
from ternmq.model.errors import UnknownCommand
from ternmq.server.control_commands import ControlCommands
from ternmq.server.hub import Hub
from ternmq.server.peer import Peer
from ternmq.wire.commands import Command
from ternmq.wire.session import Request


class BulkCommands(ControlCommands):
    """Not carried out yet: only their forms are settled."""

    def __init__(self, hub: Hub, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(hub, authoriser, queries)
        self.handlers |= dict.fromkeys(
            (
                Command.JOURNAL_READ,
                Command.GROUP_COMMIT,
                Command.QUEUE_RANGES,
                Command.HOLD_PUT,
                Command.HOLD_DELETE,
                Command.HOLD_LIST,
                Command.JOURNAL_CATALOG,
            ),
            self.later,
        )

    def later(self, peer: Peer, request: Request) -> None:
        """Refuse."""
        raise UnknownCommand(f"{request.command.name} is not carried out yet")
