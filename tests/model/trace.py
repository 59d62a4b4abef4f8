"""A trace for people: the steps, and what each of them changes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explore import Found
from tests.model.names import entry_text, letter, member_text, members_text
from tests.model.run import Run
from tests.model.state import Member, Node, Record, State


def lines(run: Run, found: Found) -> Iterator[str]:
    """Yield a trace: each step, and below it the parts of the state that it changes."""
    yield "     at the beginning"
    before = _parts(run.start())
    yield from (f"         {text}" for text in before)
    for number, step in enumerate(found.trace, 1):
        yield f"{number:4} {step.text}"
        after = _parts(step.state)
        yield from (f"         {new}" for old, new in zip(before, after, strict=True) if new != old)
        before = after
    yield f"     {found.text}"


def _parts(state: State) -> list[str]:
    return [
        *(_node(broker, node) for broker, node in enumerate(state.nodes)),
        f"register  {_record(state.record)}",
        "under way " + (", ".join(sorted(_record(one.record) for one in state.swaps)) or "no swap"),
        "answered  "
        + (
            ", ".join(f"{entry_text(one)} at {place}" for place, one in sorted(state.answered))
            or "-"
        ),
    ]


def _node(broker: int, node: Node) -> str:
    texts = [_role(broker, node), _journal(node)]
    if node.acks:
        acks = sorted((member_text(member), length) for member, length in node.acks)
        texts.append("acknowledged: " + ", ".join(f"{name} {length}" for name, length in acks))
    if node.ack is not None:
        leader = node.ack.leader
        texts.append(f"ack of {node.ack.length} to {letter(leader.broker)} under way")
    if node.mark:
        texts.append(f"committed up to {node.mark}")
    return f"{member_text(Member(broker, node.life)):<9} " + "; ".join(texts)


def _role(broker: int, node: Node) -> str:
    if node.role == "serves":
        known = node.reign()
        asked = f", asks for {members_text(node.swap.members)}" if node.swap is not None else ""
        return f"leads epoch {known.epoch} with {members_text(known.members)}{asked}"
    if node.role == "stands" and node.swap is not None:
        return f"stands for epoch {node.swap.epoch}"
    if node.follows is not None:
        return f"follows {letter(node.follows.broker)} in epoch {node.follows.epoch}"
    return "follows nobody"


def _journal(node: Node) -> str:
    """Return the entries; those behind the bar are not synced."""
    synced = " ".join(entry_text(one) for one in node.log[: node.synced])
    rest = " ".join(entry_text(one) for one in node.log[node.synced :])
    return f"[{synced} | {rest}]" if rest else f"[{synced}]"


def _record(record: Record) -> str:
    leader = member_text(Member(record.primary, record.life))
    return (
        f"version {record.version}: epoch {record.epoch} of {leader}, "
        f"members {members_text(record.members)}"
    )
