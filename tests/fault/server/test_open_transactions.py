"""More open transactions than there may be: the rest is refused, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.others import Others
from tests.fault.processes import patience, wait_until
from tests.fault.server.delays import Steady
from tests.fault.server.tools import LONG, SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

CAP = 20_000 if LONG else 500
"""Open transactions that a broker has; 20,000 is the default."""
SHARE = CAP - CAP // 10
"""What one app may have of them."""
OPENED = 5 * CAP // 2
AT_ONCE = 1000 if LONG else 250
GROUP = "orders"


class AbandonedError(Exception):
    """The block ends without a decision."""


def abandon() -> None:
    raise AbandonedError


async def open_many(url: str, numbers: range, patience_s: float) -> tuple[list[str], Counter[str]]:
    """Open transactions with a message each, and leave them to the checkers.

    Args:
        url: Of the broker.
        numbers: Of the transactions.
        patience_s: Time after which a refusal is told.

    Returns:
        The ids of those that were opened, and the errors of the others.
    """
    ids: list[str] = []
    errors: Counter[str] = Counter()
    left = iter(numbers)
    async with ternmq.connect(url, timeout=patience_s) as client:

        async def work() -> None:
            for number in left:
                tx = client.transaction(GROUP, query_id=str(number), on_error="check")
                try:
                    async with tx:
                        await tx.send("t", b"%d" % number)
                        abandon()
                except AbandonedError:
                    ids.append(tx.id)
                except ternmq.TernMQError as error:
                    errors[type(error).__name__] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
    return ids, errors


@pytest.mark.timeout(1800)
@pytest.mark.row("J0a")
def test_far_more_than_there_may_be(tmp_path: Path) -> None:
    """Each of the rest gets one named error, and leaves nothing; those that are open are kept."""
    settings = {**SMALL, "limits_open_transactions": str(CAP)}
    with Steady(tmp_path, tmp_path / "data", settings) as broker:
        with ternmq.sync.connect(broker.url) as client:
            client.admin.create_topic("t")
            client.admin.put_producer_group(GROUP, first=3600, cap=3600, without_checker=True)
        others = Others(broker.url)
        with others:
            ids, errors = asyncio.run(open_many(broker.url, range(SHARE), 300 * patience()))
            assert (len(set(ids)), errors) == (SHARE, {})
            before = others.done
            more, errors = asyncio.run(open_many(broker.url, range(SHARE, OPENED), 3 * patience()))
            wait_until(lambda: others.done > before, "others go on")
        # A refused request is sent again until its time is over. On a busy machine there may be no
        # answer to the last try: then it is not known whether it was opened. None was.
        print(errors)
        assert not more
        assert errors["Busy"] > 0
        assert errors["Busy"] + errors["ConnectionLost"] == errors.total() == OPENED - SHARE
        broker.restart(kill=True)
        with ternmq.sync.connect(broker.url) as client:
            known = {one.id for one in client.admin.checked_transactions(group=GROUP, limit=SHARE)}
            assert known == set(ids), "after the start: those that were answered, and no other"
            assert list(client.read("t")) == []
            for one in ids[::2]:
                assert client.admin.resolve_transaction(one, commit=True)
            assert len(list(client.read("t"))) == len(ids[::2])
        decided = len(ids[::2])
        again, _ = asyncio.run(open_many(broker.url, range(decided), 300 * patience()))
        assert len(again) == decided, "there is room again"
