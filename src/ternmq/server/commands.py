"""The commands of a broker, put together: what doors call, see ``wire.port``."""

from __future__ import annotations

from collections.abc import Callable

from ternmq.access import Authoriser
from ternmq.broker.queries import Queries
from ternmq.server.bulk_commands import BulkCommands
from ternmq.server.client_commands import ClientCommands
from ternmq.server.desk import Desk
from ternmq.server.dispatch import Dispatcher
from ternmq.server.lookup_commands import LookupCommands
from ternmq.server.messages import MessageCommands
from ternmq.server.metrics import Shows
from ternmq.server.replay_commands import ReplayCommands
from ternmq.server.return_commands import ReturnCommands
from ternmq.server.sessions import Sessions
from ternmq.server.topic_commands import TopicCommands
from ternmq.server.transaction_commands import TransactionCommands
from ternmq.wire import control
from ternmq.wire.port import Joined


def open_commands(
    desk: Desk,
    *,
    auth: bool,
    welcome: Callable[[Joined], control.Welcome],
    status: Callable[[Shows, dict[str, float]], control.Status],
) -> None:
    """Make the handlers of all commands; callers may come then.

    Args:
        desk: What the handlers share; ``desk.commands`` is set.
        auth: Clients must authenticate.
        welcome: Makes the answer to HELLO.
        status: Makes the answer to STATUS.
    """
    core = desk.core
    authoriser = Authoriser(core.broker.views.catalog.apps, required=auth)
    queries = Queries(core.broker.ledger)
    sessions = Sessions(core)
    messages = MessageCommands(desk, authoriser, queries)
    returns = ReturnCommands(desk, authoriser, sessions, messages.end_all)
    core.on_ticked = returns.answer
    handlers = {
        **messages.handlers,
        **TopicCommands(desk, authoriser, queries).handlers,
        **LookupCommands(desk, authoriser, queries).handlers,
        **BulkCommands(desk, authoriser, queries).handlers,
        **ReplayCommands(desk, authoriser, queries).handlers,
        **ClientCommands(desk, authoriser, queries, status).handlers,
        **TransactionCommands(desk, authoriser, queries).handlers,
        **returns.handlers,
    }
    desk.commands = Dispatcher(desk, sessions, authoriser, handlers, welcome, messages)
