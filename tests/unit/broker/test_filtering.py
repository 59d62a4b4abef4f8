"""Groups with filters: no false positive, progress over other rows, changed filters."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from ternmq.broker.catalog.filter import mask_of
from ternmq.broker.query.messages import Queries
from ternmq.model.errors import InvalidFilter, InvalidRequest
from ternmq.model.specs import Limits, Mode, SubscriptionSpec
from ternmq.record.batch.batch import Row
from ternmq.record.fact import control
from ternmq.record.fact.facts import Outcome
from tests.sim import filters
from tests.unit.broker.kit import SECOND, World, attempts, explore, offsets


def start(world: World, tags: str, **settings: object) -> int:
    world.topic("t")
    world.group("t", "g", tags=tags, **settings)
    return world.join()


def tagged(world: World, tags: str, commit: bool = True) -> None:
    """Send one batch, a row for each letter; a space is a row without tag."""
    rows = [
        Row(body=b"%d %d" % (len(world.sent), at), tag=tag.strip()) for at, tag in enumerate(tags)
    ]
    world.send("t", rows, commit=commit)


def collision(tag: str) -> str:
    number = 0
    while mask_of([f"x{number}"]) != mask_of([tag]):
        number += 1
    return f"x{number}"


def test_only_what_matches_is_delivered_and_progress_goes_on() -> None:
    def scenario(world: World) -> None:
        session = start(world, "a || c")
        for batch in ("ab", "b", "cab", " ", "bbb", "aaa", "c"):
            tagged(world, batch)
        pulled = world.pull(session, "t", "g", 4)
        assert pulled is not None
        assert offsets(pulled) == [0, 3, 4, 10]
        rest = world.pull(session, "t", "g", 32)
        assert rest is not None
        assert offsets(rest) == [11, 12, 13]
        world.settle(session, "t", "g", pulled)
        world.settle(session, "t", "g", rest)
        progress = world.progress("t", "g")
        assert (progress.cursor, progress.floor(), progress.intervals()) == (14, 14, 1)

    explore(scenario)


def test_rows_that_a_filter_passed_over_are_not_unread() -> None:
    def scenario(world: World) -> None:
        session = start(world, "a")
        tagged(world, "abb")
        pulled = world.pull(session, "t", "g", 4)
        assert pulled is not None
        world.settle(session, "t", "g", pulled)
        tagged(world, "bb")
        assert world.pull(session, "t", "g", 4) is None
        assert world.progress("t", "g").cursor < 5, "not recorded yet: there is time"
        assert Queries(world.broker.ledger).status("t", "g", 0).lag == 0

    explore(scenario)


def test_tags_that_share_a_bit_are_never_delivered_by_accident() -> None:
    other = collision("paid")

    def scenario(world: World) -> None:
        session = start(world, "paid")
        world.send("t", [Row(body=b"%d" % at, tag=other) for at in range(5)])
        world.send("t", [Row(body=b"x", tag=other), Row(body=b"y", tag="paid")])
        world.send("t", [Row(body=b"z", tag=other)])
        assert world.drain(session, "t", "g") == [6]

    explore(scenario)


def test_progress_over_rows_that_do_not_match_is_recorded_now_and_then() -> None:
    limits = Limits(filter_scan_rows=10)

    def scenario(world: World) -> None:
        session = start(world, "a")
        tagged(world, "bbb")
        assert world.pull(session, "t", "g") is None
        progress = world.progress("t", "g")
        end = world.broker.journal.end
        assert world.pull(session, "t", "g") is None
        assert (progress.cursor, progress.scan) == (0, 3)
        if world.state_from is None:
            assert world.broker.journal.end == end
        world.pass_time(SECOND)
        progress = world.progress("t", "g")
        assert progress.cursor == 3, "though nobody pulls any more"
        assert world.pull(session, "t", "g") is None
        assert progress.cursor == 3
        for _ in range(5):
            tagged(world, "bbb")
        for _ in range(3):
            world.pull(session, "t", "g")
        assert progress.cursor >= 13
        tagged(world, "a")
        assert offsets(world.pull(session, "t", "g")) == [18]

    explore(scenario, limits)


@pytest.mark.parametrize("waits", [False, True])
def test_a_pull_of_one_row_finds_what_is_due_among_rows_that_do_not_match(waits: bool) -> None:
    def scenario(world: World) -> None:
        session = start(world, "a")
        tagged(world, "aaab")
        pulled = world.pull(session, "t", "g")
        assert pulled is not None
        how = Outcome.RETRY if waits else Outcome.RELEASED
        world.settle(session, "t", "g", pulled, how)
        world.pass_time(SECOND)
        for row in (0, 1, 2):  # whoever's turn it is
            tagged(world, "b")
            assert offsets(world.pull(session, "t", "g", 1)) == [row]
        assert world.pull(session, "t", "g", 1) is None

    explore(scenario)


def test_a_filter_that_changes_judges_everything_that_was_not_handed_out() -> None:
    def scenario(world: World) -> None:
        session = start(world, "a")
        tagged(world, "bcb")
        assert world.pull(session, "t", "g") is None
        world.change("t", "g", tags="b")
        assert offsets(world.pull(session, "t", "g", 1)) == [0]
        world.change("t", "g", tags="")
        assert offsets(world.pull(session, "t", "g")) == [2]  # of row 1 that pull has disposed

    explore(scenario)


def test_failures_come_again_whatever_the_filter_says_by_then() -> None:
    def scenario(world: World) -> None:
        session = start(world, "a")
        tagged(world, "aba")
        pulled = world.pull(session, "t", "g")
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no")
        world.change("t", "g", tags="b")
        tagged(world, "ab")
        world.pass_time(SECOND)
        again = world.pull(session, "t", "g")
        assert again is not None
        assert attempts(again) == {0: (2, 2), 2: (2, 2), 4: (1, 1)}

    explore(scenario)


def test_parts_of_batches_under_limits_of_rows_and_bytes() -> None:
    def scenario(world: World) -> None:
        session = start(world, "a", window=3)
        tagged(world, "abaabaaa")
        tagged(world, "baaa")
        got: list[int] = []
        for rows in (1, 2, 3, 1, 2, 3, 3, 3):
            pulled = world.pull(session, "t", "g", rows)
            if pulled is not None:
                got += offsets(pulled)
                world.settle(session, "t", "g", pulled)
        assert got == [0, 2, 3, 5, 6, 7, 9, 10, 11]
        for _ in range(3):
            world.send("t", [Row(body=bytes(1000), tag="a"), Row(body=bytes(500), tag="b")])
        first = world.pull(session, "t", "g", 3, max_bytes=10)
        second = world.pull(session, "t", "g", 3, max_bytes=2000)
        assert (offsets(first), offsets(second)) == ([12], [14])

    explore(scenario)


def test_filters_against_a_plain_list() -> None:
    def scenario(world: World) -> None:
        chance = random.Random(3)
        session = start(world, "a || d", lease_us=SECOND)
        tags: list[str] = []
        got: list[int] = []
        for _ in range(60):
            if chance.random() < 0.5:
                some = "".join(chance.choice("abcd ") for _ in range(chance.randint(1, 6)))
                tags += some
                tagged(world, some, commit=chance.random() < 0.7)
            else:
                pulled = world.pull(session, "t", "g", chance.randint(1, 5))
                if pulled is not None:
                    got += offsets(pulled)
                    world.settle(session, "t", "g", pulled)
        world.commit()
        for _ in range(80):  # a scan goes on from pull to pull
            got += world.drain(session, "t", "g", 3)
        assert got == [at for at, tag in enumerate(tags) if tag in "ad"]

    explore(scenario, Limits(filter_scan_rows=4), paces=((1, 1), (2, 3)), step=7)


@pytest.mark.parametrize("tags", ["a b", "||", "a ||"])
def test_filters_that_make_no_sense_are_refused(tags: str) -> None:
    world = World()
    world.topic("t")
    with pytest.raises(InvalidRequest):
        world.group("t", "g", tags=tags)
    world.group("t", "g")
    with pytest.raises(InvalidRequest):
        world.change("t", "g", tags=tags)


def test_a_group_keeps_a_filter_that_earlier_versions_took() -> None:
    world = World()
    world.topic("t")
    old = control.Subscribed(7, "old", 1, SubscriptionSpec(tags="a|b"), [0])
    world.run(lambda: world.broker.administration.record(world.now, old))
    world.commit()
    world.restart()
    administration = world.broker.administration
    paused = SubscriptionSpec(tags="a|b", paused=True)
    world.run(lambda: administration.change_subscription(world.now, "t", "old", paused))
    for tags, says in (
        ("b|c", "not a tag filter"),
        ("a || *", "not a tag filter"),
        ("x" * 4097, "tags has 4097 characters, at most 4096 are allowed"),
    ):
        wrong = SubscriptionSpec(tags=tags)
        with pytest.raises(InvalidRequest, match=says):
            administration.change_subscription(world.now, "t", "old", wrong)
        with pytest.raises(InvalidRequest, match=says):
            administration.subscribe(world.now, "t", "new", wrong)


# ---------------------------------------------------------------------------------------- headers


def numbered(world: World, values: Sequence[str | None], tags: str = "") -> None:
    """Send one batch, a row for each value of the header n; None: without it."""
    rows = [
        Row(
            body=b"%d %d" % (len(world.sent), at),
            headers={} if value is None else {"n": value},
            tag=tags[at] if tags else "",
        )
        for at, value in enumerate(values)
    ]
    world.send("t", rows)


def test_only_true_is_delivered_unknown_is_passed_over() -> None:
    def scenario(world: World) -> None:
        session = start(world, "", filter="n <> 5")
        numbered(world, ["5", None, "x", "6"])
        numbered(world, [None])
        numbered(world, ["7", "5"])
        assert world.drain(session, "t", "g") == [3, 5]
        progress = world.progress("t", "g")
        assert (progress.cursor, progress.floor()) == (7, 7)

    explore(scenario)


def test_tags_and_headers_must_both_hold() -> None:
    def scenario(world: World) -> None:
        session = start(world, "a || c", filter="n >= 2")
        numbered(world, ["1", "2", "3", "2"], "abca")
        numbered(world, ["9", "9"], "bb")
        numbered(world, ["0", "9"], "ac")
        assert world.drain(session, "t", "g") == [2, 3, 7]

    explore(scenario)


def test_a_header_filter_without_tags_reads_batches_without_tags() -> None:
    def scenario(world: World) -> None:
        session = start(world, "", filter="n = 1 OR $tag = 'a'")
        numbered(world, ["1", "2"])
        numbered(world, ["2", "2"], "ab")
        assert world.drain(session, "t", "g") == [0, 2]

    explore(scenario)


def test_a_header_filter_that_changes_judges_what_the_one_before_passed_over() -> None:
    def scenario(world: World) -> None:
        session = start(world, "", filter="n = 1")
        numbered(world, ["2", "3", None])
        assert world.pull(session, "t", "g") is None
        world.change("t", "g", filter="n IS NULL")
        assert offsets(world.pull(session, "t", "g")) == [2]
        world.change("t", "g", filter="")
        numbered(world, ["4"])
        assert offsets(world.pull(session, "t", "g")) == [3]

    explore(scenario)


@pytest.mark.parametrize("room", [1, 7, 500])
def test_small_pulls_of_large_batches(room: int) -> None:
    world = World(limits=Limits(filter_scan_rows=100))
    session = start(world, "", filter="n < 5", window=5000)
    numbered(world, [str(at % 50) for at in range(1000)])
    numbered(world, ["50"] * 400 + ["0"])
    got: list[int] = []
    for _ in range(1500):
        pulled = world.pull(session, "t", "g", room)
        if pulled is not None:
            got += offsets(pulled)
            world.settle(session, "t", "g", pulled)
    assert got == [at for at in range(1000) if at % 50 < 5] + [1400]


def test_a_pull_judges_as_many_rows_as_its_budget_allows() -> None:
    """Also where headers are so long that few rows cost much."""
    world = World(limits=Limits(filter_scan_rows=400))
    session = start(world, "", filter="n = '1' OR n CONTAINS 'zz'")
    numbered(world, [str(at) * 30 for at in range(2, 502)])
    assert world.pull(session, "t", "g") is None
    assert world.progress("t", "g").scan == 100, "a row costs four"
    for _ in range(4):
        world.pull(session, "t", "g")
    progress = world.progress("t", "g")
    assert max(progress.cursor, progress.scan) == 500
    numbered(world, [str(at) + "x" * 5000 for at in range(40)])
    world.pull(session, "t", "g")
    progress = world.progress("t", "g")
    assert 500 < max(progress.cursor, progress.scan) < 540
    for _ in range(40):
        world.pull(session, "t", "g")
    progress = world.progress("t", "g")
    assert max(progress.cursor, progress.scan) == 540


@pytest.mark.parametrize("seed", range(4))
def test_header_filters_against_the_second_evaluator(seed: int) -> None:
    def scenario(world: World) -> None:
        chance = random.Random(seed)
        texts = [filters.made(chance) for _ in range(3)]
        session = start(world, "", filter=texts[0], lease_us=SECOND)
        for at, text in enumerate(texts[1:]):
            world.group("t", f"h{at}", filter=text, lease_us=SECOND)
        rows: list[Row] = []
        got: dict[str, list[int]] = {"g": [], "h0": [], "h1": []}
        for _ in range(50):
            if chance.random() < 0.5:
                some = [
                    Row(
                        b"%d %d" % (len(rows), at),
                        headers=filters.made_headers(chance),
                        tag=chance.choice(["", "eu"]),
                    )
                    for at in range(chance.randint(1, 30))
                ]
                rows += some
                world.send("t", some)
            else:
                group = chance.choice(list(got))
                pulled = world.pull(session, "t", group, chance.randint(1, 5))
                if pulled is not None:
                    got[group] += offsets(pulled)
                    world.settle(session, "t", group, pulled)
        for group, text in zip(got, texts, strict=True):
            for _ in range(80):
                got[group] += world.drain(session, "t", group, 3)
            tree = filters.read(text)
            expected = [at for at, row in enumerate(rows) if filters.truth(tree, row) is True]
            assert got[group] == expected, text

    explore(scenario, Limits(filter_scan_rows=40), paces=((1, 1), (2, 3)), step=17)


def test_header_filters_that_are_refused() -> None:
    world = World()
    world.topic("t")
    world.topic("o", ordered=True)
    for wrong in ("n =", "(" * 10_000, "x" * (1 << 20)):
        with pytest.raises(InvalidFilter, match="column"):
            world.group("t", "g", filter=wrong)
    with pytest.raises(InvalidRequest, match="keeps the order of topic 'o', so it takes no header"):
        world.group("o", "g", mode=Mode.ORDERED, filter="n = 1")
    world.group("o", "g", mode=Mode.ORDERED, filter="  ")
    world.group("t", "g", filter="n = 1")
    end = world.broker.journal.end
    for wrong in ("n =", "n = 1 AND"):
        with pytest.raises(InvalidFilter, match="column"):
            world.change("t", "g", filter=wrong)
    with pytest.raises(InvalidRequest):
        world.change("o", "g", filter="n = 1")
    assert world.broker.journal.end == end
    assert "h" not in world.broker.views.catalog.by_name["t"].by_group


def test_a_filter_by_priority_on_a_topic_with_levels() -> None:
    world = World()
    world.topic("p", levels=3)
    world.group("p", "g", filter="$priority >= 1 AND n < 5")
    session = world.join()
    for priority in (0, 1, 2):
        rows = [Row(b"%d %d" % (priority, at), headers={"n": str(at)}, priority=priority)
                for at in range(3, 7)]  # fmt: skip
        world.send("p", rows)
    got: list[tuple[int, int]] = []
    while (pulled := world.pull(session, "p", "g", 1)) is not None:
        got += [(pulled.queue, offset) for offset in offsets(pulled)]
        world.settle(session, "p", "g", pulled)
    assert got == [(2, 0), (2, 1), (1, 0), (1, 1)]


def test_a_header_filter_is_kept_over_a_restart() -> None:
    world = World()
    session = start(world, "", filter="n = 1")
    numbered(world, ["1", "2"])
    world.restart()
    assert world.broker.views.catalog.by_name["t"].by_group["g"].spec.filter == "n = 1"
    assert world.drain(session, "t", "g") == [0]
