"""What is said to do about declarations that cannot be made."""

from __future__ import annotations

from ternmq.client.declaration.changes import Change, advice

MISSING = Change("conflict", "orders", "billing", "topic", "", "declared")
FEWER = Change("conflict", "mails", "", "queues", "5", "3")
MORE = Change("change", "mails", "", "retention", "1h", "2h")


def test_each_kind_of_conflict_has_its_advice() -> None:
    assert advice([MORE]) == ""
    assert "`ternmq topic create orders`" in advice([MISSING])
    assert "delete" not in advice([MISSING])
    assert "`ternmq topic delete mails`" in advice([FEWER])
    both = advice([MISSING, FEWER, MORE])
    assert both == f"{advice([MISSING])}. {advice([FEWER])}"
