"""Decides changes of what operators set: topics, the groups that consume them, and apps.

Each command is checked against the catalog and becomes a CONFIG record, which the views apply.
"""

from __future__ import annotations

from msgspec.structs import replace

from ternmq.broker.catalog.apps import check_app
from ternmq.broker.catalog.catalog import Subscription, Topic
from ternmq.broker.catalog.filter import check as check_filter
from ternmq.broker.catalog.filter import filter_of
from ternmq.broker.delivery.parking import Parking
from ternmq.broker.gate.replies import DoneReply, ValueReply
from ternmq.broker.group.mode import GroupMode
from ternmq.broker.ledger.factkinds import CONFIG
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.operation.membership import Membership
from ternmq.model.errors import (
    Busy,
    GroupBusy,
    GroupExists,
    InvalidRequest,
    ModeNotAllowed,
    TopicExists,
    UnknownApp,
)
from ternmq.model.printing import quoted
from ternmq.model.specs import (
    Expired,
    Mode,
    Start,
    SubscriptionSpec,
    TopicSpec,
    check_name,
)
from ternmq.model.words import counted
from ternmq.record.fact import control


class Administration:
    """Decides changes of settings.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger", "_limits", "_membership", "_parking", "_views")

    def __init__(self, ledger: Ledger, parking: Parking, membership: Membership) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._limits = ledger.limits
        self._parking = parking
        self._membership = membership

    def record(self, now_us: int, change: control.Config) -> DoneReply:
        """Record a decided change."""
        self._ledger.record(now_us, CONFIG, change)
        return DoneReply(self._ledger.end)

    # -- topics -----------------------------------------------------------------------------------

    def create_topic(self, now_us: int, spec: TopicSpec) -> ValueReply[int]:
        """Create a topic; the reply's value is its number.

        Raises:
            InvalidRequest, TopicExists, Busy.
        """
        spec.check()
        catalog = self._views.catalog
        if spec.name in catalog.by_name:
            raise TopicExists(f"topic {spec.name!r} exists already")
        if len(catalog.topics) >= self._limits.topics:
            raise Busy(f"there are {self._limits.topics} topics")
        number = catalog.next_topic
        reply = self.record(now_us, control.TopicCreated(number, spec))
        return ValueReply(reply.position, value=number)

    def change_topic(self, now_us: int, spec: TopicSpec) -> DoneReply:
        """Change a topic's settings. It cannot lose queues or its order, and keeps its levels.

        Raises:
            InvalidRequest, UnknownTopic, Busy.
        """
        spec.check()
        topic = self._views.catalog.topic(spec.name)
        if spec.levels != topic.spec.levels:
            raise InvalidRequest(
                f"topic {spec.name!r} has {counted(topic.spec.levels, 'level')}, which cannot be "
                "changed: create a new topic, and move producers and consumers to it"
            )
        if spec.queue_count < len(topic.queues):
            raise InvalidRequest(
                f"topic {spec.name!r} has {counted(topic.spec.queues, 'queue')}, and cannot have "
                "fewer"
            )
        if spec.ordered != topic.spec.ordered:
            raise InvalidRequest("whether a topic is ordered cannot be changed")
        if spec.broadcast != topic.spec.broadcast:
            raise InvalidRequest("whether a topic is a broadcast topic cannot be changed")
        if spec.ordered and spec.queues != len(topic.queues):
            raise InvalidRequest(
                f"ordered topic {spec.name!r} keeps its {counted(len(topic.queues), 'queue')}, "
                "since an ordering key stays in its queue: create a new ordered topic with "
                f"{counted(spec.queues, 'queue')}, and move producers and consumers to it"
            )
        if spec.queue_count > len(topic.queues):
            self.check_places(len(topic.subscriptions), spec.queue_count)
        self._ledger.judge_again()
        reply = self.record(now_us, control.TopicChanged(topic.number, spec))
        if any(one.waiters for one in topic.subscriptions.values()):
            for queue in topic.queues:
                queue.watched = True
        for one in topic.subscriptions.values():
            if one.owners is not None and len(one.owners.of) != len(one.queues):
                self._membership.group_changed(one)
        return reply

    def delete_topic(self, now_us: int, name: str) -> DoneReply:
        """Delete a topic with its messages and subscriptions.

        Raises:
            UnknownTopic.
        """
        topic = self._views.catalog.topic(name)
        for subscription in topic.subscriptions.values():
            if subscription.waiters:
                self._parking.dismiss(subscription)
        self._parking.gone(topic)
        return self.record(now_us, control.TopicDeleted(topic.number))

    # -- groups -----------------------------------------------------------------------------------

    def subscribe(
        self, now_us: int, topic_name: str, group: str, spec: SubscriptionSpec | None = None
    ) -> ValueReply[int]:
        """Let a group consume a topic; the default mode is the topic's: ordered, or shared.

        Raises:
            InvalidRequest, InvalidFilter, ModeNotAllowed, UnknownTopic, GroupExists, Busy.
        """
        check_name(group)
        topic = self._views.catalog.topic(topic_name)
        if spec is None:
            spec = SubscriptionSpec(mode=default_mode(topic.spec))
        self.check_new_group(topic.spec, group, spec)
        if group in topic.by_group:
            raise GroupExists(f"group {group!r} consumes {topic_name!r} already")
        return self.make_group(now_us, topic, group, spec)

    def make_group(
        self, now_us: int, topic: Topic, group: str, spec: SubscriptionSpec
    ) -> ValueReply[int]:
        """Make a group of any kind, which does not exist; the reply's value is its number.

        Raises:
            InvalidRequest, InvalidFilter, ModeNotAllowed, Busy.
        """
        if spec.instance is not None:
            self.check_new_group(topic.spec, group, spec)
        if len(topic.subscriptions) >= self._limits.groups:
            raise Busy(f"there are {self._limits.groups} groups")
        self.check_places(len(topic.subscriptions) + 1, len(topic.queues))
        cursors = [
            queue.next if spec.start is Start.LATEST else queue.first for queue in topic.queues
        ]
        if self._views.catalog.modes[spec.mode].keeps_journal:
            self._ledger.judge_again()
        number = self._views.catalog.next_group
        reply = self.record(now_us, control.Subscribed(number, group, topic.number, spec, cursors))
        return ValueReply(reply.position, value=number)

    def change_subscription(
        self, now_us: int, topic_name: str, group: str, spec: SubscriptionSpec
    ) -> DoneReply:
        """Change a group's settings on a topic, also its mode. Pausing is a setting.

        A change of the mode applies from the next pull on. Open leases stay valid, and all rows
        stay what they are; parked rows are ready.

        Raises:
            InvalidRequest, InvalidFilter, ModeNotAllowed, UnknownTopic, UnknownGroup.
            GroupBusy: The new mode is ordered, and the group is owed rows.
        """
        subscription = self._views.catalog.subscription(topic_name, group)
        _check_instance_retry(group, subscription.spec, spec)
        # Which client an instance is, only joins decide.
        spec = replace(spec, instance=subscription.spec.instance)
        _check_stays_unfiltered(self._views.catalog.modes[spec.mode], subscription, spec)
        self._check_subscription(subscription.topic.spec, group, spec)
        filter_of(spec)
        if spec.tags != subscription.spec.tags:
            check_filter(spec.tags)
        switched = spec.mode is not subscription.spec.mode
        if switched:
            self._check_switch(subscription, spec.mode)
        reply = self.record(
            now_us,
            control.SubscriptionChanged(subscription.group, subscription.topic.number, spec),
        )
        if switched:
            for progress in subscription.queues:
                self._ledger.timers.arm_again(progress)
        self._ledger.wakes.wake(subscription)
        self._membership.group_changed(subscription)
        return reply

    def _check_switch(self, subscription: Subscription, mode: Mode) -> None:
        """Refuse a mode whose order must know the ordering key of each row that is owed.

        The record of the change does not contain these keys: the group must be owed nothing.

        Raises:
            GroupBusy.
        """
        if not self._views.catalog.modes[mode].keyed:
            return
        owed = [
            one.leased_rows + one.ready.rows + one.failures.waiting_rows
            for one in subscription.queues
        ]
        if sum(owed):
            raise GroupBusy(
                f"group {subscription.name!r} cannot become {mode.value} now: it is owed "
                f"{counted(sum(owed), 'message')} of topic {subscription.topic.name!r} (leased, "
                "ready, or waiting for a retry)"
            )

    def check_new_group(self, topic: TopicSpec, group: str, spec: SubscriptionSpec) -> None:
        """Refuse settings that a new group of a topic cannot have; the topic need not exist.

        Raises:
            InvalidRequest, InvalidFilter, ModeNotAllowed.
        """
        self._check_subscription(topic, group, spec)
        check_filter(spec.tags)
        filter_of(spec)

    def _check_subscription(self, topic: TopicSpec, group: str, spec: SubscriptionSpec) -> None:
        spec.check()
        for one in spec.assign:
            if one.queues[-1] >= topic.queue_count:
                raise InvalidRequest(
                    f"topic {topic.name!r} has {counted(topic.queue_count, 'queue')}, from 0 on: "
                    f"there is no queue {one.queues[-1]} to assign to {one.member}"
                )
        _check_broadcast(topic, group, spec)
        mode = self._views.catalog.modes[spec.mode]
        if mode.ordered_topics_only and not topic.ordered:
            raise ModeNotAllowed(
                f"topic {topic.name!r} is not ordered: mode {spec.mode.value} needs an ordered "
                "topic"
            )
        if not mode.filters and spec.tags.strip() not in {"", "*"}:
            raise InvalidRequest(
                f"group {group!r} keeps the order of topic {topic.name!r}, so it takes no tag "
                "filter: leave the tags out, or make a group with mode shared"
            )
        if not mode.filters and spec.filter.strip():
            raise InvalidRequest(
                f"group {group!r} keeps the order of topic {topic.name!r}, so it takes no header "
                "filter: leave the filter out, or make a group with mode shared"
            )

    def unsubscribe(self, now_us: int, topic_name: str, group: str) -> DoneReply:
        """Delete a group's subscription of a topic and everything that the group was owed.

        Raises:
            UnknownTopic, UnknownGroup.
        """
        subscription = self._views.catalog.subscription(topic_name, group)
        self._parking.dismiss(subscription)
        return self.record(
            now_us, control.Unsubscribed(subscription.group, subscription.topic.number)
        )

    def check_places(self, groups: int, queues: int) -> None:
        """Refuse more groups of a topic with so many queues than the broker has room for.

        Raises:
            Busy.
        """
        if groups * queues > self._limits.group_queues:
            raise Busy(
                f"{groups} groups of {queues} queues are {groups * queues} pairs; "
                f"`limits.group_queues` allows {self._limits.group_queues}"
            )

    # -- apps -------------------------------------------------------------------------------------

    def put_app(self, now_us: int, app: control.App) -> DoneReply:
        """Create an app, or change its token, grants or owner.

        Raises:
            InvalidName, InvalidRequest, Busy.
        """
        check_app(app)
        apps = self._views.catalog.apps
        if app.name not in apps and len(apps) >= self._limits.apps:
            raise Busy(f"there are {self._limits.apps} apps")
        return self.record(now_us, app)

    def delete_app(self, now_us: int, name: str) -> DoneReply:
        """Delete an app; the shell closes its sessions.

        Raises:
            UnknownApp.
        """
        if name not in self._views.catalog.apps:
            raise UnknownApp(f"no app {quoted(name)}")
        return self.record(now_us, control.AppDeleted(name))

    # -- time -------------------------------------------------------------------------------------

    def accept_clock(self, now_us: int, before_us: int, app: str = "") -> DoneReply:
        """Record that an operator accepted the wall clock, so that a restart keeps the time.

        Args:
            now_us: Broker time, which follows the wall clock already.
            before_us: Broker time before.
            app: App that requests it.
        """
        return self.record(now_us, control.ClockAccepted(before_us, app))


def _check_stays_unfiltered(
    rules: GroupMode, subscription: Subscription, spec: SubscriptionSpec
) -> None:
    """Refuse a mode that keeps an order if the group has a filter that the change leaves.

    Raises:
        InvalidRequest.
    """
    before, topic = subscription.spec, subscription.topic.spec
    possible = topic.ordered or not rules.ordered_topics_only
    if rules.filters or not possible or spec.mode is before.mode:
        return
    for kind, option, has, wants in (
        ("tag", "tags", before.tags, spec.tags),
        ("header", "filter", before.filter, spec.filter),
    ):
        if wants == has and has.strip() not in {"", "*"}:
            raise InvalidRequest(
                f"group {subscription.name!r} on topic {topic.name!r} has a {kind} "
                f"filter, and mode {spec.mode.value} takes no {kind} filter: remove the filter in "
                f"the same change (--{option} '' on the command line, {option}='' in code)"
            )


def _check_broadcast(topic: TopicSpec, group: str, spec: SubscriptionSpec) -> None:
    """Refuse a mode that does not fit: instances, and only these, have mode broadcast.

    Raises:
        ModeNotAllowed, InvalidRequest.
    """
    if spec.instance is None:
        if spec.mode is Mode.BROADCAST:
            raise ModeNotAllowed(
                f"group {group!r} cannot have mode broadcast, which only instances have: a "
                "consumer sets broadcast=True instead of a group"
            )
        if topic.broadcast:
            raise ModeNotAllowed(
                f"topic {topic.name!r} is a broadcast topic, so it has no groups such as "
                f"{group!r}: its consumers are instances, which name no group"
            )
    elif spec.mode is not Mode.BROADCAST:
        raise ModeNotAllowed(f"{group!r} is a broadcast instance: its mode cannot be changed")
    elif spec.expired is not Expired.DROP:
        raise InvalidRequest(
            f"{group!r} is a broadcast instance, which has no dead letters: messages that expire "
            "are dropped"
        )
    elif spec.retry.enabled:
        raise InvalidRequest(f"{group!r} is a broadcast instance, which has no retries")


def _check_instance_retry(group: str, has: SubscriptionSpec, spec: SubscriptionSpec) -> None:
    """Refuse another retry policy of a broadcast instance, whatever it says.

    Raises:
        InvalidRequest.
    """
    if has.instance is not None and spec.retry != has.retry:
        raise InvalidRequest(
            f"{group!r} is a broadcast instance, which has no retries and no dead letters: it "
            "takes no retry policy"
        )


def default_mode(topic: TopicSpec) -> Mode:
    """Return the mode of a group that states none."""
    return Mode.ORDERED if topic.ordered else Mode.SHARED
