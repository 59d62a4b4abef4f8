"""The open alarms against a short reference: a list of what was raised and not cleared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.catalog import alarms as module
from ternmq.broker.catalog.alarms import MOST_OPEN, AlarmKey, OpenAlarms
from ternmq.record.fact.control import Alarm

facts = st.lists(
    st.builds(
        Alarm,
        st.sampled_from(["clock", "held"]),
        st.text(max_size=3),
        st.sampled_from(["", "a/b/0", "a/b/1"]),
        st.booleans(),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(facts)
def test_what_is_open_is_what_was_raised_and_not_cleared(some: list[Alarm]) -> None:
    alarms = OpenAlarms()
    expected: dict[tuple[str, str], tuple[str, int]] = {}
    for at, one in enumerate(some, 1):
        alarms.apply_alarm(at, 100 + at, one)
        if one.raised:
            expected[one.name, one.subject] = one.text, one.since_us or 100 + at
        else:
            expected.pop((one.name, one.subject), None)
        assert alarms.changed == at
    found = {(key.name, key.subject): (one.text, one.since_us) for key, one in alarms.open.items()}
    assert found == expected
    assert list(found) == list(expected)


def test_at_the_cap_the_oldest_goes_and_is_counted() -> None:
    alarms = OpenAlarms()
    for at in range(MOST_OPEN + 3):
        alarms.apply_alarm(at, at, Alarm("held", "", f"t/g/{at}"))
    assert len(alarms.open) == MOST_OPEN
    assert next(iter(alarms.open)) == AlarmKey("held", "t/g/3")
    assert alarms.forgotten == 3
    alarms.finish()
    assert alarms.forgotten == 0
    assert module.MOST_OPEN == 1000  # docs/operate/alarms.md
