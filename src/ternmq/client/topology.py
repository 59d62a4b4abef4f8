"""Declared topics and groups, compared with those of a broker.

``plan`` compares and changes nothing; ``apply`` makes the changes. A setting that is not stated is
left unchanged; a new topic or group gets the broker's default. What cannot be changed (fewer
queues, the order or the levels of a topic, the start of a group) is a conflict, and then nothing is
changed.

Nothing is ever deleted: topics and groups that are not declared are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from shlex import quote
from typing import Final

import msgspec

from ternmq.client.admin.admin import Admin
from ternmq.client.content.validation import limit_us, seconds_us
from ternmq.client.declaration.changes import TOPIC_MISSING, Change, advice
from ternmq.client.declaration.contradictions import contradiction
from ternmq.client.declaration.policy import RetryPolicy
from ternmq.client.declaration.source import Source
from ternmq.client.declaration.topic import Topic, spec_of
from ternmq.client.handler.declarations import Declarations
from ternmq.model.errors import (
    Forbidden,
    TernMQError,
    TopicExists,
    TopologyMismatch,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.model.header_filter import same_header_filter
from ternmq.model.policies import write_retry
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.model.tag_filter import same_filter
from ternmq.model.units import write_duration
from ternmq.model.words import verb
from ternmq.wire.commands import Command
from ternmq.wire.control import RightsQuestion

log: Final = logging.getLogger("ternmq")

_TRIES: Final = 3
"""Number of plans made when another client makes the same topics at the same time."""


class Topology:
    """The declarations of a client, for comparison with a broker. Made by ``client.topology``.

    Args:
        declared: Topics and handlers.
    """

    def __init__(self, declared: Declarations) -> None:
        self._declared = declared

    @property
    def topics(self) -> list[Topic]:
        """The declared topics, with all their stated settings."""
        return list(self._declared.topics.values())

    @property
    def is_empty(self) -> bool:
        """Whether neither a topic nor a handler is declared."""
        return not self._declared.topics and not self._declared.sources

    async def plan(self, admin: Admin) -> list[Change]:
        """Return the differences, topics first. Changes nothing.

        A topic that the app has no right on looks as if it did not exist.
        """
        # A send in another task may declare a topic while the broker is asked: it is not compared.
        topics = dict(self._declared.topics)
        # A broadcast instance is joined when its process runs; nothing is made ahead of that.
        sources = [one for one in self._declared.sources if not one.broadcast]
        names = dict.fromkeys([*topics, *[source.topic for source in sources]])
        there = {one.spec.name: one.spec for one in await admin.topics(names)} if names else {}
        found: list[Change] = []
        firsts: dict[str, Source] = {}
        for name, topic in topics.items():
            found += _topic_changes(topic, there.get(name))
        for source in sources:
            missing = source.topic not in topics and source.topic not in there
            if missing and not admin.redeclaring.makes_topics:
                found.append(
                    Change("conflict", source.topic, source.group, TOPIC_MISSING, "", "declared")
                )
                continue
            groups = await admin.groups(source.topic, source.group) if source.topic in there else []
            has = groups[0].spec if groups else None
            first = firsts.setdefault(source.topic, source)
            wrong = contradiction(
                source, topics.get(source.topic), there.get(source.topic), has, first
            )
            found += _group_changes(source, has, wrong)
        return found

    async def apply(
        self,
        admin: Admin,
        only: Callable[[Change], bool] = lambda _: True,
        *,
        again: bool = False,
        modes: bool = True,
        told: Callable[[Change], None] = lambda _: None,
    ) -> list[Change]:
        """Bring topics and groups to their declared settings, durably; return the changes.

        The client of ``admin`` repeats it, while it lives, at a broker that lost its data (such as
        ``ternmq dev``, which keeps none).

        Args:
            admin: Admin of a client whose app may manage what is declared.
            only: Selects the differences to consider.
            again: It was applied to the broker before: a topic that is not declared existed then,
                and is created again at its first use.
            modes: Whether the mode of an existing group is changed; else one that differs is a
                conflict.
            told: Called with each change when it is made; changes made before an error remain.

        Raises:
            TopologyMismatch: Something cannot be changed, or this app may not; the text names each
                difference. Nothing was changed, unless the text lists it.
        """
        admin.redeclaring.keep(id(self._declared.topics), _Applied(self, admin, only))
        done: list[Change] = []
        for _ in range(_TRIES):
            anew = admin.redeclaring.anew
            changes = [
                one if modes else _mode_kept(one)
                for one in await self.plan(admin)
                if only(one) and not (again and one.setting == TOPIC_MISSING)
            ]
            if any(one.action == "conflict" for one in changes):
                mismatch = TopologyMismatch(_impossible(changes))
                mismatch.hint = advice(changes)
                raise mismatch
            if not changes:
                return done
            refusals = await self.refusals(admin, changes)
            if refusals:
                before = _made_before(done) or " Nothing was changed:"
                # A right to manage, which they suggest, is more than a worker needs.
                lacks = ". ".join([one.partition("; `ternmq app set")[0] for one in refusals])
                said = f"{_undone(changes, admin.app)}.{before} {lacks}"
                mismatch = TopologyMismatch(said)
                mismatch.hint = await self._remedy(admin, changes) + mismatch.hint
                raise mismatch from Forbidden(". ".join(refusals))

            def made(one: Change) -> None:
                done.append(one)
                told(one)

            try:
                await self._make(admin, changes, made)
            except Forbidden as error:  # the app's rights changed meanwhile, or the broker is old
                left = _undone([one for one in changes if one not in done], admin.app)
                said = f"{left}.{_made_before(done)} {error.args[0]}"
                raise TopologyMismatch(said) from error
            except TopicExists:  # another client made it: compare it again
                continue
            except TernMQError as error:
                missing = isinstance(error, UnknownTopic | UnknownGroup)
                if missing and anew != admin.redeclaring.anew:
                    continue  # the broker that had it lost its data
                if done:
                    error.add_note(_made_before(done).strip())
                raise
            return done
        raise TopologyMismatch("other programs change the same topics at the same time")

    async def settle(self, admin: Admin) -> None:
        """Bring existing topics and groups to their declared settings, before handlers begin.

        Missing groups are created when they are joined, and so are topics that are not declared.
        The mode of a group stays: an operator may have changed it, and an older program that starts
        must not change it back.

        Raises:
            TopologyMismatch: As ``apply``.
        """
        declared = self._declared
        if not declared.topics and not any(one.settings_stated for one in declared.sources):
            return
        for change in await self.apply(admin, _when_it_runs, modes=False):
            log.info("%s", change)

    async def refusals(self, admin: Admin, changes: Sequence[Change]) -> list[str] | None:
        """Return the refusals that the app would get for missing rights to make changes.

        Returns:
            None: The broker is too old to report them.
        """
        told = await admin.refusals(
            RightsQuestion(command=command, topic=one.topic, group=one.group)
            for one in changes
            for command in (_command(one), _MANAGES if one.group else _command(one))
        )
        if told is None:
            return None
        # The right to consume also allows making a group; it is not the one to recommend to an app
        # that consumes nothing. The right to manage a topic includes its groups.
        refused = [
            (change, told[2 * at + 1] or told[2 * at])
            for at, change in enumerate(changes)
            if told[2 * at]
        ]
        topics = {change.topic for change, _ in refused if not change.group}
        return list(
            dict.fromkeys(
                said for change, said in refused if not change.group or change.topic not in topics
            )
        )

    async def _remedy(self, admin: Admin, changes: Sequence[Change]) -> str:
        """Return what to do about topics that may look missing for want of a right; else ""."""
        missing = [one.topic for one in changes if one.action == "create" and not one.group]
        if not missing:
            return ""
        lacking = await self.lacking(admin, missing)
        hidden = {grant.split(":")[1] for grant in lacking}.intersection(missing)
        if not hidden:
            return ""  # they do not exist
        there = verb(len(hidden), "the topic exists", "these topics exist")
        return f"if {there}, {with_grants(admin.app, lacking)} is enough; otherwise "

    async def lacking(self, admin: Admin, topics: Iterable[str] = ()) -> list[str]:
        """Return the grants that the app lacks, to consume for every handler.

        Args:
            admin: Admin of a client of the app.
            topics: Declared topics that must be seen too: one that no handler consumes needs
                ``produce``.
        """
        asked: dict[str, RightsQuestion] = {}

        def ask(command: Command, topic: str, group: str = "") -> None:
            grant = f"consume:{topic}:{group}" if group else f"produce:{topic}"
            asked[grant] = RightsQuestion(command=command, topic=topic, group=group)

        groups: dict[str, list[str]] = {}
        for one in self._declared.sources:
            groups.setdefault(one.topic, []).append(one.group)
        for topic in dict.fromkeys([*topics, *groups]):
            for group in groups.get(topic, ()):
                ask(Command.PULL, topic, group)
            if topic not in groups:
                ask(Command.SEND, topic)
        refusals = await admin.refusals(asked.values()) if asked else []
        return [grant for grant, said in zip(asked, refusals or (), strict=False) if said]

    async def _make(
        self, admin: Admin, changes: Sequence[Change], made: Callable[[Change], None]
    ) -> None:
        for topic in dict.fromkeys([one.topic for one in changes if not one.group]):
            wanted = self._declared.topics[topic]
            of_topic = [one for one in changes if one.topic == topic and not one.group]
            if any(one.action == "create" for one in of_topic):
                spec = spec_of(wanted)
                await admin.create_topic(
                    topic,
                    queues=spec.queues,
                    ordered=spec.ordered,
                    durability=spec.durability,
                    retention=timedelta(microseconds=spec.retention_us),
                    keep_until_consumed=spec.keep_until_consumed,
                    ignore_ordering_keys=spec.ignore_ordering_keys,
                    levels=spec.levels,
                    broadcast=spec.broadcast,
                    expires_after=timedelta(microseconds=spec.expires_us),
                )
            else:
                await admin.change_topic(
                    topic,
                    queues=wanted.queues,
                    durability=wanted.durability,
                    retention=wanted.retention,
                    keep_until_consumed=wanted.keep_until_consumed,
                    ignore_ordering_keys=wanted.ignore_ordering_keys,
                    expires_after=wanted.expires_after,
                )
            for one in of_topic:
                made(one)
        for one in changes:
            if one.group and one.action == "create":
                await admin.join_group(self._source(one.topic, one.group))
                made(one)
        differing = [one for one in changes if one.group and one.action == "change"]
        for (topic, group), of_group in _by_group(differing).items():
            source = self._source(topic, group)
            settings = {one.setting for one in of_group}
            await admin.change_group(
                topic,
                group,
                tags=source.tags if "tags" in settings else None,
                filter=source.filter if "filter" in settings else None,
                mode=source.mode if "mode" in settings else None,
                retry=None if source.retry is None else RetryPolicy.of(source.retry),
                lease=None if source.lease_us is None else timedelta(microseconds=source.lease_us),
            )
            for one in of_group:
                made(one)

    def _source(self, topic: str, group: str) -> Source:
        return next(
            one for one in self._declared.sources if (one.topic, one.group) == (topic, group)
        )


def _by_group(changes: Sequence[Change]) -> dict[tuple[str, str], list[Change]]:
    """Return the changes of each group."""
    found: dict[tuple[str, str], list[Change]] = {}
    for one in changes:
        found.setdefault((one.topic, one.group), []).append(one)
    return found


def with_grants(app: str, grants: Iterable[str]) -> str:
    """Return the command that gives an app grants, as in a hint."""
    given = " ".join([f"--grant {quote(grant)}" for grant in grants])
    return f"`ternmq app set {app} {given}`"


_MANAGES: Final = Command.GROUP_CHANGE
"""A command that only the right to manage allows."""


def _command(change: Change) -> Command:
    """Return the command that makes a change."""
    if change.group:
        return Command.GROUP_JOIN if change.action == "create" else Command.GROUP_CHANGE
    return Command.TOPIC_CREATE if change.action == "create" else Command.TOPIC_CHANGE


def _when_it_runs(change: Change) -> bool:
    """Return whether a starting worker must make a change; joining a group does the others."""
    return not change.group or bool(change.setting and change.setting != TOPIC_MISSING)


def _mode_kept(change: Change) -> Change:
    """Return a change; that of a mode as a conflict."""
    if change.setting != "mode" or change.action != "change":
        return change
    return replace(
        change,
        action="conflict",
        remedy=f"declare the mode that the group has, or change it for all its consumers: "
        f"`ternmq group set {change.topic} {change.group} --mode {change.wants}`",
    )


@dataclass(frozen=True, slots=True)
class _Applied:
    """What a client applied, as ``redeclaring.Declared``."""

    topology: Topology
    admin: Admin
    only: Callable[[Change], bool]

    def specs(self) -> Iterable[TopicSpec]:
        return [spec_of(topic) for topic in self.topology.topics]

    async def again(self) -> None:
        for change in await self.topology.apply(self.admin, self.only, again=True):
            log.info("%s", change)


def _topic_changes(topic: Topic, has: TopicSpec | None) -> list[Change]:
    stated = _stated_of_topic(topic)
    if has is None:
        return [Change("create", topic.name, "", "", "", _all(stated))]
    now = _stated_of_topic(
        Topic(
            topic.name,
            queues=has.queues,
            ordered=has.ordered,
            durability=has.durability,
            retention=timedelta(microseconds=has.retention_us),
            keep_until_consumed=has.keep_until_consumed,
            ignore_ordering_keys=has.ignore_ordering_keys,
            levels=has.levels,
            broadcast=has.broadcast,
            expires_after=timedelta(microseconds=has.expires_us),
        )
    )
    found = []
    for setting, wants in stated.items():
        if wants == now[setting]:
            continue
        fixed = setting in {"ordered", "levels", "broadcast"} or (
            setting == "queues" and (has.ordered or (topic.queues or 0) < has.queues)
        )
        fixed = fixed or (setting == "ignore_ordering_keys" and has.ordered)
        action = "conflict" if fixed else "change"
        found.append(Change(action, topic.name, "", setting, now[setting], wants))
    return found


def _stated_of_topic(topic: Topic) -> dict[str, str]:
    """Return the stated settings of a topic, as written on a terminal."""
    told: dict[str, str] = {}
    if topic.queues is not None:
        told["queues"] = str(topic.queues)
    if topic.ordered is not None:
        told["ordered"] = "yes" if topic.ordered else "no"
    if topic.durability is not None:
        told["durability"] = topic.durability.value
    if topic.retention is not None:
        told["retention"] = write_duration(seconds_us("retention", topic.retention))
    if topic.keep_until_consumed is not None:
        told["keep_until_consumed"] = "yes" if topic.keep_until_consumed else "no"
    if topic.ignore_ordering_keys is not None:
        told["ignore_ordering_keys"] = "yes" if topic.ignore_ordering_keys else "no"
    if topic.levels is not None:
        told["levels"] = str(topic.levels)
    if topic.broadcast is not None:
        told["broadcast"] = "yes" if topic.broadcast else "no"
    if topic.expires_after is not None:
        lives = limit_us("expires_after", topic.expires_after)
        told["expires_after"] = write_duration(lives) if lives else "never"
    return told


def _group_changes(
    source: Source, has: SubscriptionSpec | None, wrong: Change | None
) -> list[Change]:
    """Return the differences of a group; a contradiction replaces the change that it forbids."""
    if wrong is not None:
        found = _group_changes(source, has, None)
        return [*[one for one in found if one.setting not in {"", wrong.setting}], wrong]
    retry = source.retry
    if retry is not None and has is not None:  # as the mode of the group lets it apply
        retry = msgspec.structs.replace(has, retry=retry).policy
    tags = source.tags
    if tags is not None and has is not None and same_filter(tags, has.tags):
        tags = has.tags  # the same, written in another way
    wanted = source.filter
    if wanted is not None and has is not None and same_header_filter(wanted, has.filter):
        wanted = has.filter
    stated = _stated_of_group(
        tags,
        None if source.mode is None else source.mode.value,
        None if source.start is None else source.start.value,
        None if retry is None else write_retry(retry),
        None if source.lease_us is None else write_duration(source.lease_us),
        wanted,
    )
    if has is None:
        return [Change("create", source.topic, source.group, "", "", _all(stated))]
    now = _stated_of_group(
        has.tags, has.mode.value, has.start.value, write_retry(has.policy),
        write_duration(has.lease_us), has.filter,
    )  # fmt: skip
    return [
        Change(
            "conflict" if setting == "start" else "change",
            source.topic, source.group, setting, now[setting], wants,
        )
        for setting, wants in stated.items()
        if wants != now[setting]
    ]  # fmt: skip


def _stated_of_group(
    tags: str | None,
    mode: str | None,
    start: str | None,
    retry: str | None,
    lease: str | None,
    wanted: str | None,
) -> dict[str, str]:
    told = {
        "tags": None if tags is None else repr(tags),
        "filter": None if wanted is None else repr(wanted),
        "mode": mode, "start": start, "retry": retry, "lease": lease,
    }  # fmt: skip
    return {setting: value for setting, value in told.items() if value is not None}


def _all(stated: dict[str, str]) -> str:
    return ", ".join(f"{setting} {value}" for setting, value in stated.items())


def _made_before(done: Sequence[Change]) -> str:
    """Return a text of what was made before an error; empty if nothing was."""
    return f" Made before: {'; '.join(map(str, done))}." if done else ""


def _impossible(changes: Sequence[Change]) -> str:
    """Return a text of the changes that cannot be made, and of those left out because of them."""
    conflicts = [one for one in changes if one.action == "conflict"]
    others = [one.told("would be created") for one in changes if one.action != "conflict"]
    said = "; ".join([str(one) for one in conflicts])
    if not others:
        return f"{said}. Nothing was changed"
    return f"{said}. Nothing was changed. Possible, but not made either: {'; '.join(others)}"


def _undone(changes: Sequence[Change], app: str) -> str:
    """Return a text of changes not made. A topic that an app has no right on looks missing."""
    who = f"app {app!r}" if app else "this app"
    missing = f"it does not exist, or {who} has no right on it"
    return "; ".join(one.told(f"{missing}; declared" if one.wants else missing) for one in changes)
