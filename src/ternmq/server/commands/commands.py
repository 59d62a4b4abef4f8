"""The commands of a broker, put together: what doors call, see ``wire.port``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ternmq.access import Authoriser
from ternmq.broker.query.messages import Queries
from ternmq.server.commands.checked import CheckedCommands
from ternmq.server.commands.clients import ClientCommands
from ternmq.server.commands.dispatch import Dispatcher
from ternmq.server.commands.failed import FailedCommands, FailedLists
from ternmq.server.commands.holds import BulkCommands, holds_of
from ternmq.server.commands.lookup import LookupCommands
from ternmq.server.commands.replays import ReplayCommands
from ternmq.server.commands.returns import ReturnCommands
from ternmq.server.commands.scheduled import ScheduleCommands, ScheduleLists
from ternmq.server.commands.sends import MessageCommands
from ternmq.server.commands.topics import TopicCommands, TopicLists
from ternmq.server.commands.transactions import TransactionCommands
from ternmq.server.desk.assigned import AssignedQueues
from ternmq.server.desk.desk import Desk
from ternmq.server.desk.routing import Routing
from ternmq.server.desk.sessions import Sessions
from ternmq.server.metrics.metrics import Shows
from ternmq.wire import control
from ternmq.wire.port import Joined


def open_commands(
    desk: Desk,
    *,
    auth: bool,
    welcome: Callable[[Joined], control.Welcome],
    status: Callable[[Shows, dict[str, float]], control.Status],
    routing: Routing,
) -> None:
    """Make the handlers of all commands; callers may come then.

    Args:
        desk: What the handlers share; ``desk.commands`` is set.
        auth: Clients must authenticate.
        welcome: Makes the answer to HELLO.
        status: Makes the answer to STATUS.
        routing: Has the answer to ROUTES.
    """
    core = desk.core
    authoriser = Authoriser(core.broker.views.catalog.apps, required=auth)
    queries = Queries(core.broker)
    sessions = Sessions(core)
    messages = MessageCommands(desk, authoriser, queries)
    returns = ReturnCommands(desk, authoriser, sessions, messages.end_all)
    core.on_ticked = returns.answer
    core.broker.membership.tell = AssignedQueues(sessions).tell
    handlers = {
        **messages.handlers,
        **TopicCommands(desk, authoriser, queries).handlers,
        **TopicLists(desk, authoriser, queries, partial(holds_of, desk)).handlers,
        **LookupCommands(desk, authoriser, queries).handlers,
        **FailedCommands(desk, authoriser, queries).handlers,
        **FailedLists(desk, authoriser, queries).handlers,
        **BulkCommands(desk, authoriser, queries).handlers,
        **ReplayCommands(desk, authoriser, queries).handlers,
        **ScheduleCommands(desk, authoriser, queries).handlers,
        **ScheduleLists(desk, authoriser, queries).handlers,
        **ClientCommands(desk, authoriser, queries, status, routing).handlers,
        **TransactionCommands(desk, authoriser, queries).handlers,
        **CheckedCommands(desk, authoriser, queries).handlers,
        **returns.handlers,
    }
    desk.commands = Dispatcher(desk, sessions, authoriser, handlers, welcome, messages)
