"""What the coordinator says of a broker group, as lines and as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ternmq.cli.reach.coordinators import Cluster, known
from ternmq.cli.terminal import output
from ternmq.cli.terminal.output import Cell
from ternmq.client.forms import values
from ternmq.cluster.coordination.group import Presence
from ternmq.cluster.coordination.record import Leadership, Member, Progress, Reach, Writes
from ternmq.cluster.coordination.wishes import Copying, Failover, GroupSettings, Order
from ternmq.model.units import write_duration


@dataclass(frozen=True, slots=True)
class View:
    """A broker group, as one look found it.

    Attributes:
        group: Its name.
        record: The leadership record.
        present: The brokers of the group that run, by name.
        settings: What operators have set.
        order: The newest order.
        progress: How far a reign said that it is committed.
        at: When it was looked at, by the clock here.
    """

    group: str
    record: Leadership
    present: Mapping[str, Presence]
    settings: GroupSettings
    order: Order | None
    progress: Progress | None
    at: datetime

    def lives(self, member: Member) -> bool:
        """Return whether the process that a member is runs."""
        there = self.present.get(member.broker)
        return there is not None and member.incarnation in {0, there.incarnation}

    @property
    def others(self) -> list[str]:
        """The brokers that run and are no members, by name."""
        members = {one.broker for one in self.record.members if self.lives(one)}
        return sorted(self.present.keys() - members)


def clock() -> datetime:
    """Return the time of the clock here."""
    return datetime.fromtimestamp(time.time(), UTC)


async def look(cluster: Cluster) -> View:
    """Return what the coordinator says now.

    Raises:
        Failed: There is no such broker group, or the coordinator does not answer.
        BadRecord: Its record is not valid.
    """
    record = await cluster.record()
    group = cluster.group
    return View(
        group=cluster.name,
        record=record,
        present=known(await group.present()),
        settings=known(await group.settings()),
        order=known(await group.order()),
        progress=known(await group.progress()),
        at=clock(),
    )


def is_well(view: View) -> bool:
    """Return whether at least two copies count, all members run, and messages are taken."""
    members = view.record.members
    return (
        len(members) >= max(2, view.settings.copies)
        and all(view.lives(one) for one in members)
        and view.record.writes is Writes.OPEN
        and not begins(view)
    )


def _is_short(view: View) -> bool:
    """Return whether fewer copies are recorded than the setting ``copies`` needs."""
    return len(view.record.members) < view.settings.copies


def headline(view: View) -> str:
    """Return one line: all is well, or what is wrong."""
    record = view.record
    primary = record.primary
    if primary not in view.present:
        return _without_primary(view)
    if begins(view):
        return f"no primary yet: {primary} begins to lead; wait until it has recovered its journal"
    others = sorted([one.broker for one in record.members if one.broker != primary])
    gone = [one.broker for one in record.members if not view.lives(one)]
    if gone:
        parts = [f"{primary} is the primary; sends wait"]
        parts += [f"the process of {one} that counts as a copy does not run" for one in gone]
    elif others:
        words = {1: "two copies", 2: "three copies"}
        count = words.get(len(others), f"{len(others) + 1} copies")
        parts = [f"{count}: {', '.join([f'{primary} (primary)', *others])}"]
    else:
        why = f" ({record.why})" if record.why.startswith("without ") else ""
        parts = [f"one copy: {primary} (primary) is the only member{why}"]
        if not view.others:
            parts.append("no other broker runs")
    catching_up = [one for one in view.others if one not in {primary, *gone}]
    parts += [f"{one} is not a member" for one in catching_up]
    if record.writes is Writes.CLOSED:
        parts.append("new messages are refused until two copies exist")
    elif _is_short(view):
        parts.append(f"new messages are refused until {view.settings.copies} copies exist")
    return "; ".join(parts)


def begins(view: View) -> bool:
    """Return whether the primary runs, but has not begun its reign: it serves nobody yet."""
    record = view.record
    mine = [one for one in record.members if one.broker == record.primary]
    begun = record.floor is not None and record.floor.epoch == record.epoch
    return not begun or not all(view.lives(one) for one in mine)


def _without_primary(view: View) -> str:
    record = view.record
    heirs = [one.broker for one in record.members if view.lives(one) and one.broker in view.present]
    said = f"no primary: {record.primary} does not run"
    if not heirs:
        way = f"{said}, and no other copy has everything that was answered: start {record.primary}"
        return f"{way}{_by_loss(view)}"
    by_hand = view.settings.failover is Failover.OPERATOR
    if by_hand or view.settings.copy is Copying.ASYNCHRONOUS:
        return f"{said}, and `ternmq cluster promote {heirs[0]}` makes {heirs[0]} the primary"
    return f"{said}, and {heirs[0]} takes over within seconds"


def _by_loss(view: View) -> str:
    """Return which broker can lead if messages may be lost; the one that reaches furthest."""
    reaches = {name: view.present[name].reach for name in view.others}
    ends = {name: (one.epoch, one.end) for name, one in reaches.items() if one is not None}
    if not ends:
        return ""
    best = max(ends, key=lambda name: ends[name])
    return f"; or lose messages: `ternmq cluster promote {best} --accept-loss --dry-run` shows what"


def lines(view: View) -> list[tuple[str, Cell]]:
    """Return names and values, for people; the headline is not one of them."""
    record, settings = view.record, view.settings
    there = view.present.get(record.primary)
    since = ""
    if record.at_us:
        moment = values.of_us(record.at_us)
        ago = output.span(max(0.0, (view.at - moment).total_seconds()))
        since = f"{values.iso(moment)} ({ago} ago), "
    behind = settings.read_only_behind_us
    committed = "not said yet"
    if view.progress is not None:
        of = "" if view.progress.epoch == record.epoch else f", in epoch {view.progress.epoch}"
        committed = f"at least up to {view.progress.position:,}{of} (said every 10 s)"
    return [
        ("broker group", view.group),
        ("primary", f"{record.primary} at {there.address if there else 'no address'}"),
        ("epoch", f"{record.epoch}, version {record.version} of the record"),
        *[("member" if at == 0 else "", text) for at, text in enumerate(_members(view))],
        ("messages", _taken(view)),
        ("last change", f"{since}by {record.writer.broker}: {record.why}"),
        ("committed", committed),
        *_loss(view),
        ("failover", settings.failover.value),
        ("copy", settings.copy.value),
        ("read_only_behind", write_duration(behind) if behind else "off"),
        ("lease", write_duration(settings.lease_us)),
        ("silent", write_duration(settings.silent_us)),
        ("copies", str(settings.copies)),
        *[("runs" if at == 0 else "", text) for at, text in enumerate(_running(view))],
        *_ordered(view),
    ]


def _taken(view: View) -> str:
    if view.record.writes is not Writes.OPEN:
        return "refused (ReadOnly)"
    if not _is_short(view):
        return "taken"
    count = len(view.record.members)
    return f"refused (ReadOnly): {count} of {view.settings.copies} copies"


def _loss(view: View) -> list[tuple[str, Cell]]:
    record = view.record
    if record.cut_below is None or not record.cut_epoch:
        return []
    moment = values.of_us(record.cut_at_us)
    ago = output.span(max(0.0, (view.at - moment).total_seconds()))
    text = (
        f"accepted {values.iso(moment)} ({ago} ago): epoch {record.cut_epoch} began without what "
        f"other copies had from {record.cut_below:,} on"
    )
    return [("loss", text)]


def _members(view: View) -> list[str]:
    return [
        f"{one.broker}: runs" if view.lives(one) else f"{one.broker}: that process does not run"
        for one in view.record.members
    ]


def _running(view: View) -> list[str]:
    found = [
        f"{one.broker} at {one.address}, {one.software or 'unknown version'}"
        + ("" if name not in view.others else ", no member")
        + _reached(view, one)
        for name, one in sorted(view.present.items())
    ]
    return found or ["no broker"]


def _reached(view: View, one: Presence) -> str:
    """Return how far a copy reaches, where that matters: nobody leads."""
    if one.reach is None or view.record.primary in view.present:
        return ""
    return f", its copy reaches to {one.reach.end:,}"


def _ordered(view: View) -> list[tuple[str, Cell]]:
    order = view.order
    if order is None or order.epoch != view.record.epoch:
        return []
    return [("order", f"{order.change.value} to {order.broker}, not carried out yet")]


def document(view: View) -> dict[str, object]:
    """Return the view in the form of the JSON output."""
    record, settings, order = view.record, view.settings, view.order
    there = view.present.get(record.primary)
    return {
        "time": view.at,
        "well": is_well(view),
        "says": headline(view),
        "broker_group": view.group,
        "epoch": record.epoch,
        "version": record.version,
        "primary": record.primary,
        "address": there.address if there else None,
        "members": [
            {"broker": one.broker, "incarnation": f"{one.incarnation:016x}",
             "runs": view.lives(one)}
            for one in record.members
        ],
        "writes": record.writes.value,
        "since": values.of_us(record.at_us) if record.at_us else None,
        "why": record.why,
        "changed_by": record.writer.broker,
        "settings": settings_document(settings),
        "committed": None
        if view.progress is None
        else {"epoch": view.progress.epoch, "position": view.progress.position},
        "loss": None
        if record.cut_below is None or not record.cut_epoch
        else {
            "epoch": record.cut_epoch,
            "position": record.cut_below,
            "since": values.of_us(record.cut_at_us),
        },
        "brokers": [broker_document(one, view) for _, one in sorted(view.present.items())],
        "order": None
        if order is None or order.epoch != record.epoch
        else {"change": order.change.value, "broker": order.broker},
    }  # fmt: skip


def settings_document(settings: GroupSettings) -> dict[str, object]:
    """Return the settings of a broker group in the form of the JSON output."""
    return {
        "failover": settings.failover.value,
        "copy": settings.copy.value,
        "read_only_behind_s": settings.read_only_behind_us / 1e6,
        "lease_s": settings.lease_us / 1e6,
        "silent_s": settings.silent_us / 1e6,
        "copies": settings.copies,
    }


def broker_document(one: Presence, view: View | None) -> dict[str, object]:
    """Return a broker that runs in the form of the JSON output; without a view, of any group."""
    return {
        "broker": one.broker,
        "broker_group": one.group,
        "address": one.address,
        "tls": one.tls,
        "version": one.software,
        "incarnation": f"{one.incarnation:016x}",
        "role": role(one, view),
        "reach": reach_document(one.reach),
    }


def reach_document(reach: Reach | None) -> dict[str, int] | None:
    """Return how far a copy reaches in the form of the JSON output."""
    if reach is None:
        return None
    return {"epoch": reach.epoch, "end": reach.end, "committed": reach.committed}


def role(one: Presence, view: View | None) -> str:
    """Return what a broker that runs is: primary, member, or follower."""
    if view is None:
        return "unknown"
    if one.broker == view.record.primary:
        return "primary"
    return "follower" if one.broker in view.others else "member"
