"""The data of programs that pay in transactions, and the judge of what became of these.

A file for each transaction says how it was decided: by the program that did its work, or by a
checker, whoever is first. This is what a database does for programs that use one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import ternmq
import ternmq.sync
from tests.fault.processes import ROOT, environment, patience, wait_until

GROUP: Final = "payments"
ORDERS: Final = "unpaid"
PAID: Final = "paid"
MAIL: Final = "mail"
LATER: Final = "later"
COPIES: Final = {PAID: 1, MAIL: 2, LATER: 1}
"""How many messages a transaction sends to each topic."""


class Ledger:
    """Says which transactions are done; many processes use it.

    Args:
        folder: Where it is; made if missing.
    """

    def __init__(self, folder: Path) -> None:
        self._done = folder / "done"
        self._open = folder / "open"
        for one in (self._done, self._open):
            one.mkdir(parents=True, exist_ok=True)

    def write(self, query: str, decision: str) -> bool:
        """Write a decision; return whether it is the first."""
        part = self._done / f".{query}.{os.getpid()}"
        part.write_text(decision, encoding="utf-8")
        try:
            os.link(part, self._done / query)
        except FileExistsError:
            return False
        finally:
            part.unlink()
        return True

    def decided(self, query: str) -> ternmq.Decision:
        """Return how a transaction is decided; one whose work was not done is rolled back now."""
        self.write(query, "rollback")
        done = (self._done / query).read_text(encoding="utf-8")
        return ternmq.Decision.COMMIT if done == "commit" else ternmq.Decision.ROLLBACK

    def opened(self, query: str, id_: str) -> None:
        """Note the id of a transaction."""
        part = self._open / f".{query}"
        part.write_text(id_, encoding="utf-8")
        part.rename(self._open / query)

    def committed(self) -> set[str]:
        """Return the transactions whose work was done."""
        return {
            one.name
            for one in self._done.iterdir()
            if not one.name.startswith(".") and one.read_text(encoding="utf-8") == "commit"
        }

    def ids(self) -> dict[str, str]:
        """Return the ids of transactions that are known."""
        return {
            one.name: one.read_text(encoding="utf-8")
            for one in self._open.iterdir()
            if not one.name.startswith(".")
        }


class Crew:
    """Processes that pay; each that died is followed by another.

    Args:
        url: Of the broker, as they reach it.
        folder: Of their ledger.
        deaths: Transactions of a thousand in which one dies.
        count: How many there are at a time.
    """

    def __init__(self, url: str, folder: Path, deaths: int, count: int = 3) -> None:
        self.died = 0
        self._url = url
        self._folder = folder
        self._deaths = deaths
        self._next = 0
        self._running = [self._begin() for _ in range(count)]

    def _begin(self) -> subprocess.Popen[bytes]:
        self._next += 1
        given = (self._url, str(self._folder), str(self._next), str(self._deaths))
        return subprocess.Popen(
            [sys.executable, "-m", "tests.fault.server.payer", *given], cwd=ROOT, env=environment()
        )

    def tend(self) -> None:
        """Start others in the place of those that died."""
        for at, one in enumerate(self._running):
            if one.poll() is not None:
                assert one.returncode == -9, f"it did not die, it ended: {one.returncode}"
                self.died += 1
                self._running[at] = self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in self._running:
            one.kill()
            one.wait()


class Orders:
    """Orders to be paid, and the judge.

    Args:
        client: Of the broker; it comes back when the broker does.
        ledger: Of those who pay.
        count: How many orders there are.
    """

    def __init__(self, client: ternmq.sync.Client, ledger: Ledger, count: int) -> None:
        self._client = client
        self._ledger = ledger
        self._count = count

    def make(self) -> None:
        """Make topics and groups, and send the orders."""
        admin = self._client.admin
        for topic in (ORDERS, *COPIES):
            admin.create_topic(topic, queues=2)
            # Payers die often, which counts as an attempt: the default pauses grow to minutes.
            retry = ternmq.RetryPolicy(first=0.1, cap=1, attempts=1000)
            admin.create_group(topic, "pay" if topic == ORDERS else "g", retry=retry)
        admin.put_producer_group(GROUP, first=1, factor=1, cap=1, attempts=1000)
        self._client.send_many(ORDERS, [b"%d" % number for number in range(self._count)])

    def more(self, count: int) -> None:
        """Send so many more orders."""
        first, self._count = self._count, self._count + count
        self._client.send_many(ORDERS, [b"%d" % number for number in range(first, self._count)])

    def paid(self) -> int:
        """Return how many orders the group has settled."""
        with suppress(ternmq.TernMQError):
            queues = self._client.admin.group(ORDERS, "pay").queues
            return sum(one.floor for one in queues)
        return 0

    def over(self) -> bool:
        """Return whether all are paid, no transaction is undecided, and nothing is scheduled."""
        if self.paid() < self._count:
            return False
        with suppress(ternmq.TernMQError):
            undecided = self._client.admin.checked_transactions(limit=1)
            scheduled = self._client.admin.status().metrics["ternmq_scheduled_rows"]
            return not undecided and not scheduled
        return False

    def wait(self, tend: Callable[[], None], condition: Callable[[], bool] | None = None) -> None:
        """Wait until all is over, or for another condition; meanwhile ``tend`` is called."""

        def met() -> bool:
            tend()
            return self.over() if condition is None else condition()

        wait_until(met, "over", 60 * patience())

    def judge(self) -> int:
        """Compare what is there with the ledger; return the number of transactions.

        All or none of a transaction is there, once; every order is paid once; the decision that
        the broker tells is that of the ledger.
        """
        committed = self._ledger.committed()
        for topic, copies in COPIES.items():
            found = Counter(one.body for one in self._client.read(topic))
            assert set(found.values()) <= {copies}, f"{topic}: torn or twice"
            told = [body.split(b" ") for body in found]
            assert {query.decode() for _, query in told} == committed, topic
            assert sorted(int(order) for order, _ in told) == [*range(self._count)], topic
        assert self._pulled(PAID) == self._count
        ids = self._ledger.ids()
        for query, id_ in ids.items():
            wanted = ternmq.Decision.COMMIT if query in committed else ternmq.Decision.ROLLBACK
            assert self._client.transaction_outcome(id_) is wanted, f"{query} {id_}"
        return len(ids)

    def _pulled(self, topic: str) -> int:
        """Take all messages of a topic by its group; return how many there are."""
        seen: set[bytes] = set()
        until = time.monotonic() + 10 * patience()
        while len(seen) < self._count and time.monotonic() < until:
            deliveries = self._client.pull(topic, group="g", max_messages=100, wait=1)
            seen.update(one.body for one in deliveries)
            with suppress(ternmq.ConnectionLost):
                deliveries.ack()
        return len(seen)
