"""The commands about clients, apps, the broker itself and its group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ternmq.access import Authoriser, Secret, new_token, regrant, seal
from ternmq.broker.query.listings import MAX_LISTED
from ternmq.broker.query.messages import Queries
from ternmq.model.errors import Forbidden, InvalidRequest
from ternmq.model.specs import check_name
from ternmq.record.fact.control import Count, Grant, SequenceRange
from ternmq.server.commands.control import Answer, BrokerCommands
from ternmq.server.desk.desk import Desk
from ternmq.server.desk.routing import Routing
from ternmq.server.desk.telling import Telling
from ternmq.server.metrics.groups import series_of
from ternmq.server.metrics.metrics import Shows
from ternmq.wire import bodies, control
from ternmq.wire.commands import TABLE, Command, Right, Scope
from ternmq.wire.control.connection import short_name
from ternmq.wire.port import Caller
from ternmq.wire.session import Request

STATUS_GROUPS: Final = 32
"""Most groups whose series STATUS contains: it is requested often, so it is kept to some 10 kB."""
_RIGHTS: Final = frozenset(one.value for one in Right)
_CHECKED: Final = frozenset(
    command
    for command, entry in TABLE.items()
    if entry.policy.scope not in {Scope.NOTHING, Scope.TRANSACTION}
)
"""Commands whose rights depend only on the topic and group that a request names."""


class ClientCommands(BrokerCommands):
    """Handlers about clients, apps and status. Not thread-safe: call it from the broker's loop."""

    def __init__(
        self,
        desk: Desk,
        authoriser: Authoriser,
        queries: Queries,
        status: Callable[[Shows, dict[str, float]], control.Status],
        routing: Routing,
    ) -> None:
        super().__init__(desk, authoriser, queries)
        self._status = status
        self._routing = routing
        self._telling = Telling(desk)
        self.handlers |= {
            Command.PING: self.ping,
            Command.REPORT: self.control(Command.REPORT, control.Report, self.report),
            Command.CLIENT_LIST: self.listing(
                Command.CLIENT_LIST, control.ClientList, "clients", self.list_clients
            ),
            Command.STATUS: self.control(Command.STATUS, control.StatusAsk, self.status),
            Command.ROUTES: self.control(Command.ROUTES, control.RoutesAsk, self.routes),
            Command.CLOCK_ACCEPT: self.control(
                Command.CLOCK_ACCEPT, control.ClockAccept, self.accept_clock
            ),
            Command.ALARM_LIST: self.control(
                Command.ALARM_LIST, control.AlarmList, self.list_alarms
            ),
            Command.ALARM_CLEAR: self.control(
                Command.ALARM_CLEAR, control.AlarmClear, self.clear_alarm
            ),
            Command.APP_PUT: self.control(Command.APP_PUT, control.AppPut, self.put_app),
            Command.APP_DELETE: self.control(
                Command.APP_DELETE, control.AppDelete, self.delete_app
            ),
            Command.APP_LIST: self.listing(
                Command.APP_LIST, control.AppList, "apps", self.list_apps
            ),
            Command.RIGHTS_CHECK: self.control(
                Command.RIGHTS_CHECK, control.RightsCheck, self.check_rights
            ),
        }

    def ping(self, caller: Caller, request: Request) -> None:
        """PING: answer with broker time."""
        bodies.unpack_nothing(request.body)
        caller.answer(request, bodies.pack_pong(self._core.now_us()))

    def report(self, caller: Caller, asked: control.Report) -> Answer:
        """REPORT: record the counts that a producer reports."""
        entries = [
            Count(
                one.bucket_us,
                one.sent,
                one.given_up,
                one.first,
                one.stop,
                one.closed,
                tuple(SequenceRange(run.first, run.stop) for run in one.runs),
                one.left_out,
            )
            for one in asked.entries
        ]
        reply = self._broker.clients.report(
            self._core.now_us(),
            caller.session,
            asked.topic,
            asked.producer,
            entries,
            topic_number=asked.topic_number,
        )
        return control.Nothing(), reply.position

    def list_clients(self, caller: Caller, asked: control.ClientList) -> Answer:
        """CLIENT_LIST: list a page of sessions."""
        page = self._listings.sessions(asked.after, min(asked.limit or MAX_LISTED, MAX_LISTED))
        languages: dict[int, str] = {}
        topics: dict[int, set[str]] = {one.session: set() for one in page.sessions}
        for other in self._desk.callers:
            if other.session not in topics:
                continue
            languages[other.session] = languages.get(other.session) or other.language
            topics[other.session].update(other.topics)
        clients = [
            control.ClientInfo(
                session=one.session,
                app=one.app,
                client=short_name(one.client),
                address=one.address,
                library=one.version,
                pid=one.pid,
                connected=one.connected,
                since_us=one.since_us,
                away_since_us=one.away_us,
                language=languages.get(one.session, ""),
                topics=sorted(topics[one.session]),
                consumes=[
                    control.ConsumedGroup(topic=of.topic, group=of.group, offline=of.offline)
                    for of in one.consumes
                ],
            )
            for one in page.sessions
        ]
        return control.Clients(clients=clients, next=page.next), page.position

    def status(self, caller: Caller, asked: control.StatusAsk) -> Answer:
        """STATUS: return metrics of the broker, and of the first groups that the app may see."""

        def shows(labels: Mapping[str, str]) -> bool:
            topic, group, app = labels.get("topic"), labels.get("group"), labels.get("app")
            if app is not None:
                return app == caller.app or self._authoriser.may(caller.app, Command.CLIENT_LIST)
            if "name" in labels:  # of a hold or a writer
                return self._authoriser.may(caller.app, Command.HOLD_LIST)
            if topic is None:
                return True
            if group is None:
                return self._authoriser.sees_topic(caller.app, topic)
            return self._authoriser.sees_group(caller.app, topic, group)

        page = self._listings.places(STATUS_GROUPS, self._authoriser.sight(caller.app))
        series: dict[str, float] = {}
        for one in page.groups:
            series |= series_of(self._queries, one)
        return self._status(shows, series), 0

    def routes(self, caller: Caller, asked: control.RoutesAsk) -> Answer:
        """ROUTES: return the brokers, and who is the primary.

        No topic is spread over several broker groups, so none has an entry of its own.
        """
        return self._routing.ask(caller), 0

    def accept_clock(self, caller: Caller, asked: control.ClockAccept) -> Answer:
        """CLOCK_ACCEPT: let broker time follow the wall clock."""
        before_us = self._core.now_us()
        reply = self._core.accept_clock(caller.app)
        now_us = self._core.now_us()
        moved = control.encode(control.ClockMoved(now_us=now_us))
        # Before the answer: the delays that this client sends next begin at the new time.
        caller.push(Command.CLOCK_MOVED, moved)
        self._telling.tell(Command.CLOCK_MOVED, moved, lambda _: True)
        return control.ClockAccepted(before_us=before_us, now_us=now_us), reply.position

    def list_alarms(self, caller: Caller, asked: control.AlarmList) -> Answer:
        """ALARM_LIST: list the open alarms."""
        alarms = [
            control.AlarmInfo(
                name=one.name, subject=one.subject, text=one.text, since_us=one.since_us
            )
            for one in self._broker.alarms.open.values()
        ]
        listed = control.Alarms(alarms=alarms, now_us=self._core.now_us())
        return listed, self._broker.journal.end

    def clear_alarm(self, caller: Caller, asked: control.AlarmClear) -> Answer:
        """ALARM_CLEAR: clear an alarm."""
        cleared = self._broker.alarms.clear(self._core.now_us(), asked.name, asked.subject)
        return control.AlarmCleared(cleared=cleared), self._broker.journal.end

    def put_app(self, caller: Caller, asked: control.AppPut) -> Answer:
        """APP_PUT: make an app, change its grants, give it another token.

        With another token, the app's connections are closed, except the one that gets the answer.
        """
        check_name(asked.app)
        grants = [_grant(one) for one in asked.grants]
        self._authoriser.check_left(asked.app, grants)
        known = self._broker.views.catalog.apps.get(asked.app)
        token = Secret("")
        if known is None or asked.new_token:
            token = new_token()
            made_us = self._core.now_us() if known is None else known.created_us
            app = seal(asked.app, token, owner=asked.owner, grants=grants, now_us=made_us)
        else:
            app = regrant(known, asked.owner, grants)
        now = self._core.now_us()
        reply = self._broker.administration.put_app(now, app)
        self._broker.membership.check_rights(now, asked.app, partial(self._may_pull, asked.app))
        if known is not None and asked.new_token:
            self._close_all(asked.app, caller, "its app has another token")
        return control.AppToken(token=token.reveal()), reply.position

    def _may_pull(self, app: str, topic: str, group: str) -> bool:
        try:
            self._authoriser.check(app, Command.PULL, topic, group)
        except Forbidden:
            return False
        return True

    def delete_app(self, caller: Caller, asked: control.AppDelete) -> Answer:
        """APP_DELETE: remove an app and close its connections."""
        self._authoriser.check_left(asked.app)
        reply = self._broker.administration.delete_app(self._core.now_us(), asked.app)
        self._authoriser.forget(asked.app)
        self._close_all(asked.app, caller, "its app was removed")
        return control.Nothing(), reply.position

    def _close_all(self, app: str, asker: Caller, why: str) -> None:
        """Close the connections of an app, except the one that the answer goes to."""
        for other in list(self._desk.callers):
            if other.app == app and other is not asker and other.session:
                other.abandon(why)

    def list_apps(self, caller: Caller, asked: control.AppList) -> Answer:
        """APP_LIST: list a page of apps."""
        page = self._listings.apps(asked.after, min(asked.limit or MAX_LISTED, MAX_LISTED))
        apps = [
            control.AppInfo(
                app=one.name,
                owner=one.owner,
                grants=[
                    control.GrantInfo(
                        right=grant.right, topic=grant.topic, group=grant.group, deny=grant.deny
                    )
                    for grant in one.grants
                ],
            )
            for one in page.apps
        ]
        return control.Apps(apps=apps, next=page.next), page.position

    def check_rights(self, caller: Caller, asked: control.RightsCheck) -> Answer:
        """RIGHTS_CHECK: return what this app would be refused. The audit logs no refusal for it."""
        refusals = [self._refusal(caller.app, one) for one in asked.questions]
        return control.RightsChecked(refusals=refusals), 0

    def _refusal(self, app: str, asked: control.RightsQuestion) -> str:
        if asked.command not in _CHECKED:
            raise InvalidRequest(f"no rights are known for command {asked.command} by its number")
        try:
            self._authoriser.check(app, Command(asked.command), asked.topic, asked.group)
        except Forbidden as error:
            return str(error.args[0])
        return ""


def _grant(told: control.GrantInfo) -> Grant:
    if told.right not in _RIGHTS:
        raise InvalidRequest(
            f"right {told.right[:20]!r} is not one of {', '.join(sorted(_RIGHTS))}"
        )
    return Grant(told.right, told.topic, told.group, told.deny)
