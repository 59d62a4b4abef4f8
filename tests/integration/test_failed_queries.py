"""Failed messages by state, time, attempts, key and id; what is done to those that are found."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ternmq
from ternmq import FailedQuery
from ternmq.testing import InProcessBroker, broker
from tests.integration.client_shapes import API, AsyncAPI

pytestmark = pytest.mark.row("G12")

LATER = ternmq.RetryPolicy(first=3600, cap=3600, jitter=0, attempts=10)


async def failed(api, url, *, queues=1, mode=None):
    """Return a client, the receipts of nine messages, and two moments between their failures.

    Of each key a, b, c, in this order: the first waits, the second waits and was tried twice, the
    third is dead.
    """
    client = await api.connect(url)
    await client.admin.create_topic("orders", queues=queues)
    await client.admin.create_group("orders", "g", retry=LATER)
    receipts = [
        await client.send("orders", {"n": n}, key="abc"[n // 3], id=f"own-{n}", queue=n % queues)
        for n in range(9)
    ]
    moments = []
    got: dict[int, ternmq.Delivery] = {}
    while len(got) < 9:
        for delivery in await client.pull("orders", group="g", wait=5):
            got[delivery.value["n"]] = delivery
    for n in range(9):
        delivery = got[n]
        if n % 3 == 2:
            await delivery.reject(f"rejected {n}")
        else:
            await delivery.retry(reason=f"failed {n}")
        if n % 3 == 1:
            place = receipts[n].queue, receipts[n].offset
            await client.deadletters.retry("orders", "g", [place[1]], queue=place[0])
            (again,) = await client.pull("orders", group="g", wait=5)
            await again.retry(reason=f"failed {n} again")
        if n in (2, 5):
            moments.append(await between(client, receipts[n]))
    return client, receipts, moments


async def between(client, receipt):
    """Return a moment after the last failure and before any later one."""
    found = await client.deadletters.get("orders", "g", receipt.offset, queue=receipt.queue)
    return found.failures[-1].time + timedelta(microseconds=1)


async def numbers(client, query=None, **how):
    return [
        one.message.value["n"]
        async for one in client.deadletters.matching("orders", "g", query, **how)
    ]


@pytest.mark.parametrize("queues", [1, 2])
async def test_each_part_of_a_query_selects(api: API, real: InProcessBroker, queues: int) -> None:
    client, receipts, (first, second) = await failed(api, real.url, queues=queues)
    for query, expected in (
        (None, range(9)),
        (FailedQuery(), range(9)),
        (FailedQuery(states=["dead"]), [2, 5, 8]),
        (FailedQuery(states=["waiting"]), [0, 1, 3, 4, 6, 7]),
        (FailedQuery(states=["waiting", "dead"]), range(9)),
        (FailedQuery(states=["held"]), []),
        (FailedQuery(attempts=2), [1, 4, 7]),
        (FailedQuery(attempts=3), []),
        (FailedQuery(since=first), [3, 4, 5, 6, 7, 8]),
        (FailedQuery(until=first), [0, 1, 2]),
        (FailedQuery(since=first, until=second), [3, 4, 5]),
        (FailedQuery(since=first, until=second, states=["dead"]), [5]),
        (FailedQuery(since=second, attempts=2), [7]),
        (FailedQuery(key="b"), [3, 4, 5]),
        (FailedQuery(key="b", states=["waiting"]), [3, 4]),
        (FailedQuery(key="b", since=second), []),
        (FailedQuery(key="nobody"), []),
        (FailedQuery(id="own-4"), [4]),
        (FailedQuery(id=receipts[4].id), [4]),
        (FailedQuery(id=receipts[4].id, states=["dead"]), []),
        (FailedQuery(id="own-99"), []),
    ):
        assert sorted(await numbers(client, query)) == list(expected), query
        newest = await numbers(client, query, newest_first=True)
        assert newest == sorted(expected, reverse=True), query
        counts = await client.deadletters.count("orders", "g", query)
        assert counts.total == len(list(expected)), query
    counts = await client.deadletters.count("orders", "g")
    assert (counts.waiting, counts.held, counts.dead) == (6, 0, 3)
    assert await numbers(client, newest_first=True, limit=2) == [8, 7]
    assert len(await numbers(client, limit=2)) == 2
    if queues == 2:
        assert sorted(await numbers(client, queue=1)) == [1, 3, 5, 7]
        assert (await client.deadletters.count("orders", "g", queue=1)).total == 4
    (one,) = [
        one async for one in client.deadletters.matching("orders", "g", FailedQuery(id="own-7"))
    ]
    assert (one.state, one.attempts, one.reason) == ("waiting", 2, "failed 7 again")
    await client.close()


async def test_held_messages_are_told_apart(api: API, real: InProcessBroker) -> None:
    client = await api.connect(real.url)
    await client.admin.create_topic("orders", ordered=True)
    await client.admin.create_group(
        "orders", "g", retry=ternmq.RetryPolicy(attempts=1, exhausted=ternmq.Exhausted.HOLD)
    )
    await client.send("orders", {"n": 0}, ordering_key="a")
    (delivery,) = await client.pull("orders", group="g", wait=5)
    await delivery.retry(reason="stuck")
    counts = await client.deadletters.count("orders", "g")
    assert (counts.waiting, counts.held, counts.dead) == (0, 1, 0)
    (one,) = [
        one
        async for one in client.deadletters.matching("orders", "g", FailedQuery(states=["held"]))
    ]
    assert (one.state, one.held, one.when, one.reason) == ("held", True, None, "stuck")
    assert await numbers(client, FailedQuery(states=["waiting"])) == []
    failed_at = one.failures[-1].time
    assert await numbers(client, FailedQuery(since=failed_at)) == [0]
    assert await numbers(client, FailedQuery(until=failed_at)) == []
    told = await client.deadletters.retry_matching("orders", "g", FailedQuery(states=["held"]))
    assert [(row.queue, row.offset, row.done) for row in told] == [(0, 0, True)]
    (again,) = await client.pull("orders", group="g", wait=5)
    await again.ack()
    await client.close()


async def test_what_is_found_is_retried_or_deleted(api: API, real: InProcessBroker) -> None:
    client, _, (first, _) = await failed(api, real.url, queues=2)
    letters = client.deadletters
    late = FailedQuery(since=first, attempts=2)
    told = await letters.retry_matching("orders", "g", late, dry_run=True)
    assert [row.done for row in told] == [True, True]
    assert sorted(await numbers(client)) == list(range(9))
    told = await letters.retry_matching("orders", "g", late, rate=100)
    assert len({(row.queue, row.offset) for row in told}) == 2
    again = [one for _ in range(2) for one in await client.pull("orders", group="g", wait=5)]
    assert sorted(one.value["n"] for one in again) == [4, 7]
    for one in again:
        await one.ack()

    told = await letters.delete_matching("orders", "g", FailedQuery(states=["dead"]), dry_run=True)
    assert len(told) == 3
    assert all(row.done for row in told)
    assert len(await numbers(client, FailedQuery(states=["dead"]))) == 3
    told = await letters.delete_matching("orders", "g", FailedQuery(states=["dead"], key="a"))
    assert [row.done for row in told] == [True]
    assert sorted(await numbers(client)) == [0, 1, 3, 5, 6, 8]
    await letters.delete_matching("orders", "g", FailedQuery())
    assert await numbers(client) == []
    assert await letters.delete_matching("orders", "g", FailedQuery()) == []
    await client.close()


async def test_what_is_found_is_redriven_to_its_group(api: API, real: InProcessBroker) -> None:
    client, _, (first, second) = await failed(api, real.url, queues=2)
    letters = client.deadletters
    query = FailedQuery(since=first, until=second)
    told = await letters.redrive_matching("orders", "g", query, dry_run=True)
    assert [row.done for row in told] == [True]
    assert sorted(await numbers(client, FailedQuery(states=["dead"]))) == [2, 5, 8]
    told = await letters.redrive_matching("orders", "g", query)
    assert [(row.done, row.receipt) for row in told] == [(True, None)]
    assert sorted(await numbers(client, FailedQuery(states=["dead"]))) == [2, 8]
    (again,) = await client.pull("orders", group="g", wait=5)
    assert (again.value["n"], again.attempt, again.last_reason) == (5, 1, "rejected 5")
    assert again.maybe_redelivered
    await again.ack()
    await client.close()


async def test_dead_letters_go_to_another_topic_once(api: API, real: InProcessBroker) -> None:
    client, receipts, _ = await failed(api, real.url, queues=2)
    letters = client.deadletters
    await client.admin.create_topic("repair")
    told = await letters.redrive("orders", "g", to="repair", dry_run=True)
    assert [(row.done, row.receipt) for row in told] == [(True, None)] * 3
    with pytest.raises(ternmq.MessageNotFound):
        await client.get("repair", offset=0)

    told = await letters.redrive("orders", "g", [receipts[5].offset], queue=1, to="repair")
    ((done, receipt),) = [(row.done, row.receipt) for row in told]
    assert done
    assert (receipt.topic, receipt.duplicate) == ("repair", False)
    found = await client.get("repair", offset=receipt.offset)
    assert (found.value, found.key) == ({"n": 5}, "b")
    assert dict(found.headers) == {"ternmq-redriven": f"orders/g/1/{receipts[5].offset}"}
    assert found.application_id.startswith(f"dl:orders:g:1:{receipts[5].offset}:")
    assert sorted(await numbers(client, FailedQuery(states=["dead"]))) == [2, 8]

    # A message that is no dead letter, and one that waits.
    told = await letters.redrive(
        "orders", "g", [receipts[5].offset, receipts[1].offset], queue=1, to="repair"
    )
    assert [row.done for row in told] == [False, False]

    told = await letters.redrive_matching("orders", "g", FailedQuery(key="c"), to="repair")
    assert [row.done for row in told] == [True]
    told = await letters.redrive("orders", "g", to="repair", rate=1000)
    assert [row.done for row in told] == [True]
    assert (await letters.count("orders", "g")).dead == 0
    assert (await letters.count("orders", "g")).waiting == 6
    await client.close()


async def test_a_redrive_that_was_cut_off_sends_nothing_twice(
    api: API, real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program dies behind the send, before the dead letters are deleted."""
    client, _, _ = await failed(api, real.url, queues=2)
    await client.admin.create_topic("repair")
    with monkeypatch.context() as cut:
        _without_deletes(cut)
        told = await client.deadletters.redrive("orders", "g", to="repair")
        assert [row.receipt.duplicate for row in told] == [False] * 3
    assert (await client.deadletters.count("orders", "g")).dead == 3
    await client.close()

    client = await api.connect(real.url)
    told = await client.deadletters.redrive("orders", "g", to="repair")
    assert [(row.done, row.receipt.duplicate) for row in told] == [(True, True)] * 3
    assert (await client.deadletters.count("orders", "g")).dead == 0
    assert (await client.admin.topic("repair")).queues[0].next == 3
    await client.close()


async def test_a_redrive_to_another_topic_passes_by_the_middlewares_of_sends(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header that differs at each call would make the repeated message another one."""
    client, _, _ = await failed(AsyncAPI(), real.url)
    await client.admin.create_topic("repair")
    calls: list[str] = []

    def number(outbound: ternmq.Outbound) -> Iterator[None]:
        calls.append(outbound.topic)
        outbound.message.body = b"closed"
        outbound.message.headers = {**outbound.message.headers, "call": str(len(calls))}
        yield

    client.send_middleware(number)
    await client.send("repair", b"open")
    assert calls == ["repair"]
    with monkeypatch.context() as cut:
        _without_deletes(cut)
        await client.deadletters.redrive("orders", "g", to="repair")
    told = await client.deadletters.redrive("orders", "g", to="repair")
    assert [(row.done, row.receipt.duplicate) for row in told] == [(True, True)] * 3
    found = await client.get("repair", offset=told[0].receipt.offset)
    assert set(found.headers) == {"ternmq-redriven"}
    assert found.value == {"n": 2}
    assert calls == ["repair"]
    await client.close()


async def test_another_death_is_another_message(
    api: API, real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, _ = await failed(api, real.url)
    await client.admin.create_topic("repair")
    only = FailedQuery(id="own-5")
    with monkeypatch.context() as cut:
        _without_deletes(cut)
        await client.deadletters.redrive_matching("orders", "g", only, to="repair")
    await client.deadletters.redrive_matching("orders", "g", only)
    (again,) = await client.pull("orders", group="g", wait=5)
    await again.reject("again")
    (told,) = await client.deadletters.redrive_matching("orders", "g", only, to="repair")
    assert not told.receipt.duplicate
    assert (await client.admin.topic("repair")).queues[0].next == 2
    await client.close()


def _without_deletes(patch: pytest.MonkeyPatch) -> None:
    from ternmq.client.admin.deadletters import DeadLetters

    async def lost(self: object, asked: object) -> list[int]:
        return []

    patch.setattr(DeadLetters, "_missing", lost)


async def test_a_letter_that_is_gone_when_it_is_to_be_deleted_is_reported(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody hands it to its group between the send and the delete: it may be processed twice."""
    from ternmq.client.admin.deadletters import DeadLetters

    client, receipts, _ = await failed(AsyncAPI(), real.url)
    other = await AsyncAPI().connect(real.url)
    await client.admin.create_topic("repair")
    missing = DeadLetters._missing

    async def later(self: DeadLetters, asked: Any) -> list[int]:
        await other.deadletters.redrive("orders", "g", [receipts[5].offset])
        return await missing(self, asked)

    with monkeypatch.context() as between:
        between.setattr(DeadLetters, "_missing", later)
        told = await client.deadletters.redrive("orders", "g", to="repair")
    assert {row.offset: (row.done, row.gone) for row in told} == {
        receipts[2].offset: (True, False),
        receipts[5].offset: (True, True),
        receipts[8].offset: (True, False),
    }
    assert all(row.receipt is not None for row in told)
    assert (await client.deadletters.count("orders", "g")).dead == 0
    await other.close()
    await client.close()


async def dead(client: Any, *keys: str) -> None:
    """Make a topic with a dead letter for each ordering key; an empty one is none."""
    await client.admin.create_topic("orders")
    await client.admin.change_topic("orders", ignore_ordering_keys=True)
    await client.admin.create_group("orders", "g")
    for key in keys:
        await client.send("orders", "of " + key, ordering_key=key)
    for delivery in await client.pull("orders", group="g", max_messages=len(keys), wait=5):
        await delivery.reject("no")


@pytest.mark.parametrize("keys", [["", ""], ["a", "b"], ["", "a"]])
@pytest.mark.parametrize("ordered", [False, True])
async def test_what_does_not_fit_the_other_topic_stays_and_says_why(
    api: API, real: InProcessBroker, keys: list[str], ordered: bool
) -> None:
    """In one way, whether some of the messages fit or none; a dry run says the same."""
    client = await api.connect(real.url)
    letters = client.deadletters
    await dead(client, *keys)
    await client.admin.create_topic("other", ordered=ordered)
    fits = [bool(key) == ordered for key in keys]
    wrong = ternmq.OrderingKeyRequired if ordered else ternmq.TopicNotOrdered
    hint = "not ordered" if ordered else "topic set other --ignore-ordering-keys"
    for dry_run in (True, False):
        for call in (
            lambda **more: letters.redrive("orders", "g", range(len(keys)), **more),
            lambda **more: letters.redrive("orders", "g", **more),
            lambda **more: letters.redrive_matching("orders", "g", FailedQuery(), **more),
        ):
            told = await call(to="other", dry_run=dry_run)
            if len(told) == len(keys) and [row.done for row in told] == fits:
                assert [row.error is None for row in told] == fits
            else:  # what fits was moved by the call before
                assert not dry_run
                assert not any(row.done for row in told)
            errors = [row.error for row in told if row.error is not None]
            assert len(errors) == fits.count(False)
            for error in errors:
                assert isinstance(error, wrong)
                assert hint in str(error)
                assert "without an ordering key" not in str(error)
    assert (await letters.count("orders", "g")).dead == fits.count(False)
    queues = (await client.admin.topic("other")).queues
    assert sum(queue.next for queue in queues) == fits.count(True)
    await client.close()


async def test_a_topic_that_ignores_ordering_keys_takes_all(
    api: API, real: InProcessBroker
) -> None:
    client = await api.connect(real.url)
    await dead(client, "", "a")
    await client.admin.create_topic("repair", ignore_ordering_keys=True)
    for dry_run in (True, False):
        told = await client.deadletters.redrive("orders", "g", to="repair", dry_run=dry_run)
        assert [(row.done, row.error) for row in told] == [(True, None)] * 2
    await client.close()


async def test_another_topic_that_does_not_exist_is_refused_before_anything_is_done(
    api: API,
) -> None:
    with broker(manual=False, settings={"create_topics": False}) as strict:
        client = await api.connect(strict.url)
        letters = client.deadletters
        await dead(client, "", "a")
        for dry_run in (True, False):
            for call in (
                lambda **more: letters.redrive("orders", "g", [0, 1], **more),
                lambda **more: letters.redrive("orders", "g", **more),
                lambda **more: letters.redrive_matching("orders", "g", FailedQuery(), **more),
            ):
                with pytest.raises(ternmq.UnknownTopic, match="no topic 'nowhere'"):
                    await call(to="nowhere", dry_run=dry_run)
        assert (await letters.count("orders", "g")).dead == 2
        await client.close()


async def test_a_dry_run_does_not_make_the_other_topic(api: API, real: InProcessBroker) -> None:
    client = await api.connect(real.url)
    await dead(client, "")
    (told,) = await client.deadletters.redrive("orders", "g", to="repair", dry_run=True)
    assert told.done
    assert [topic.spec.name for topic in await client.admin.topics()] == ["orders"]
    (told,) = await client.deadletters.redrive("orders", "g", to="repair")
    assert (told.done, told.receipt.topic) == (True, "repair")
    await client.close()


async def test_a_dry_run_says_that_the_header_of_a_redrive_does_not_fit(
    api: API, real: InProcessBroker
) -> None:
    client = await api.connect(real.url)
    await client.admin.create_topic("orders")
    await client.admin.create_group("orders", "g", retry=ternmq.RetryPolicy(attempts=1))
    names = [f"h{number:02}" for number in range(13)]
    headers = dict.fromkeys(names, "x" * 60_000)
    left = 786_432 - sum(len(name) + len(value) for name, value in headers.items()) - 4
    await client.send("orders", b"1", headers={**headers, "last": "x" * left})
    await (await client.pull("orders", group="g", wait=10)).reject()
    for dry_run in (True, False):
        (told,) = await client.deadletters.redrive("orders", "g", to="repair", dry_run=dry_run)
        assert not told.done
        assert "at most 786432 are allowed" in str(told.error)
    assert (await client.deadletters.count("orders", "g")).dead == 1
    await client.close()


async def test_no_right_on_the_other_topic_is_said_of_each_message(
    api: API, real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that the topic's settings do not show: as that of each message, too."""
    from ternmq.client.admin.redriving import redrive_to

    client = await api.connect(real.url)
    await dead(client, "", "")
    refused = ternmq.Forbidden("no right")

    async def send(topic: str, messages: Any) -> list[Exception]:
        return [refused] * len(messages)

    monkeypatch.setattr(
        "ternmq.client.admin.deadletters.redrive_to",
        lambda *args, **more: redrive_to(*args, **{**more, "send": send}),
    )
    told = await client.deadletters.redrive("orders", "g", to="repair")
    assert [(row.done, row.error) for row in told] == [(False, refused)] * 2
    await client.close()


async def test_an_id_of_long_names_fits(api: API, real: InProcessBroker) -> None:
    client = await api.connect(real.url)
    topic, group = "t" * 100, "g" * 100
    await client.admin.create_topic(topic)
    await client.admin.create_group(topic, group)
    await client.send(topic, {"n": 0})
    (delivery,) = await client.pull(topic, group=group, wait=5)
    await delivery.reject("no")
    (told,) = await client.deadletters.redrive(topic, group, to="repair")
    assert told.receipt.application_id.startswith("dl:")
    await client.close()


def wrong(value: object) -> Any:
    """Return a value as an argument that must be of another type."""
    return value


async def test_wrong_queries_are_refused(api: API, real: InProcessBroker) -> None:
    client = await api.connect(real.url)
    await client.admin.create_topic("orders")
    await client.admin.create_group("orders", "g")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    letters = client.deadletters

    async def find(query, **how):
        return [one async for one in letters.matching("orders", "g", query, **how)]

    for refused, said in (
        (lambda: find(FailedQuery(states=wrong(["dread"]))), "states are waiting, held, dead"),
        (lambda: find(FailedQuery(states=wrong("dead"))), "states are a list"),
        (lambda: find(FailedQuery(since=now, until=now)), "since must be before until"),
        (lambda: find(FailedQuery(since=datetime(2026, 1, 1))), "time zone"),  # noqa: DTZ001
        (lambda: find(FailedQuery(attempts=-1)), "attempts"),
        (lambda: find(FailedQuery(attempts=2**64)), "attempts"),
        (lambda: find(FailedQuery(key="a", id="b")), "not both"),
        (lambda: find(FailedQuery(id="")), "id is empty"),
        (lambda: find(FailedQuery(id="x" * 200)), "id"),
        (lambda: find("dead"), "a query is a FailedQuery"),
        (lambda: find(None, newest_first=True, limit=1001), "at most 1,000"),
        (lambda: find(None, limit=0), "limit"),
        (lambda: letters.count("orders", "g", {"states": ["dead"]}), "a query is a FailedQuery"),
        (
            lambda: letters.retry_matching("orders", "g", FailedQuery(states=["dead"])),
            "waiting or held, not dead",
        ),
        (
            lambda: letters.redrive_matching("orders", "g", FailedQuery(states=["held"])),
            "dead, not held",
        ),
        (
            lambda: letters.delete_matching("orders", "g", FailedQuery(), rate=0),
            "rate is the number",
        ),
        (lambda: letters.retry_matching("orders", "g", wrong(None)), "a query is a FailedQuery"),
        (lambda: letters.delete_matching("orders", "g", wrong(None)), "a query is a FailedQuery"),
        (lambda: letters.redrive_matching("orders", "g", wrong(None)), "a query is a FailedQuery"),
        *[
            (lambda act=act: act("orders", "g", FailedQuery(), dry_run="no"), "dry_run is True or")
            for act in (letters.retry_matching, letters.delete_matching, letters.redrive_matching)
        ],
        (lambda: letters.redrive("orders", "g", dry_run=wrong("no")), "dry_run is True or"),
        (
            lambda: letters.redrive("orders", "g", [0], to="other", dry_run=wrong(None)),
            "dry_run is True or",
        ),
    ):
        with pytest.raises(ternmq.InvalidRequest, match=said):
            await refused()
    with pytest.raises(ternmq.UnknownGroup):
        await letters.count("orders", "nobody")
    with pytest.raises(ternmq.UnknownTopic):
        await letters.count("nothing", "g")
    with pytest.raises(ternmq.UnknownQueue):
        await letters.count("orders", "g", queue=7)
    await client.close()
