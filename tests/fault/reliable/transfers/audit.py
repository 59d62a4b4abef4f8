"""The verdict on the transfers, from outside: nothing of the component is asked.

* the transfers that were asked for are those that were debited, credited and confirmed, each once:
  as multisets, in the tables and in the topics from their first message;
* the sum of all accounts is what it was, and each account is what its debits and credits make it;
* of what a process rolled back, nothing is anywhere;
* what a process saw committed is there;
* a message is of the transaction whose row is there; of each source, they are in order;
* no row is left in the outbox, and no message waits for an ack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import sqlalchemy as sa

import ternmq
import ternmq.sync
from tests.fault.reliable import shop
from tests.fault.reliable.checks import EMPTY_S
from tests.fault.reliable.crew import Crew
from tests.fault.reliable.tools import wait_until
from tests.fault.reliable.transfers import bank
from tests.fault.reliable.transfers.bank import ALL, ASK, CLEARING, DEBIT, STAGES, Transfer


@dataclass(slots=True, frozen=True)
class Verdict:
    """What was found.

    Attributes:
        asked: Transfers that were asked for; as many were debited, credited and confirmed.
        rolled_back: Transactions that processes rolled back.
        unknown: Transactions of which the teller does not know.
        cents: That were moved.
    """

    asked: int
    rolled_back: int
    unknown: int
    cents: int

    def counts(self) -> dict[str, int]:
        """Return it as figures to keep."""
        return asdict(self)


def wait_until_done(
    client: ternmq.sync.Client, engine: sa.Engine, topic: str, *, seconds: float = EMPTY_S
) -> None:
    """Wait until every transfer has gone through all stages, and nothing is under way."""
    asked = bank.count(engine, ASK)

    def confirmed() -> bool:
        return bank.count(engine, STAGES[-1]) >= asked

    wait_until(confirmed, f"{asked} transfers are confirmed", seconds, pause=0.1)
    wait_until(lambda: shop.rows_left(engine) == 0, "the outbox is empty", seconds, pause=0.05)
    wait_until(lambda: _open(client, topic) == 0, "all messages are acked", seconds, pause=0.1)


def _open(client: ternmq.sync.Client, topic: str) -> int:
    """Return how many messages are not acked."""
    groups = [client.admin.group(f"{topic}-{one.takes}", one.name) for one in STAGES]
    return sum(one.end - one.floor + one.waiting for group in groups for one in group.queues)


def judge(
    client: ternmq.sync.Client, engine: sa.Engine, topic: str, crew: Crew, *, accounts: int
) -> Verdict:
    """Return the verdict once all is done; fails if something is wrong."""
    undone = {line["token"] for line in crew.lines("rolled back")}
    said = {line["token"] for line in crew.lines("committed")}
    asked = bank.rows(engine, ASK)
    expected = Counter(one.what for one in asked)
    assert set(expected.values()) == {1}
    assert len({one.id for one in asked}) == len(asked)
    tokens: set[str] = set()
    for stage in ALL:
        found = bank.rows(engine, stage)
        _same(f"table {stage.sends}", expected, found)
        own = {one.id: one.token for one in found}
        tokens |= set(own.values())
        sent = _first_copies(client, f"{topic}-{stage.sends}")
        _same(f"topic {stage.sends}", expected, sent)
        wrong = [one for one in sent if one.token != own[one.id]]
        assert not wrong, f"{stage.sends}: sent by transactions that are not there: {wrong[:3]}"
        if stage is DEBIT:
            _in_order(sent)
    assert not undone & tokens, f"rolled back, and there: {sorted(undone & tokens)[:5]}"
    assert said <= tokens, f"the database forgot {sorted(said - tokens)[:5]}"
    _balanced(engine, asked, accounts)
    return Verdict(
        len(asked), len(undone), len(crew.lines("unknown")), sum(one.cents for one in asked)
    )


def _same(
    name: str, expected: Counter[tuple[str, str, str, int]], found: Iterable[Transfer]
) -> None:
    counted = Counter(one.what for one in found)
    lost, more = expected - counted, counted - expected
    assert not lost, f"{name}: {lost.total()} of {expected.total()} lost: {list(lost)[:3]}"
    assert not more, f"{name}: {more.total()} too many: {list(more)[:3]}"


def _first_copies(client: ternmq.sync.Client, topic: str) -> list[Transfer]:
    """Return the messages of a topic; fails if one is stored twice within the broker's window."""
    stored = list(client.read(topic))
    ids = [one.application_id for one in stored]
    assert all(ids), f"{topic}: sent past the outbox"
    assert len(set(ids)) == len(ids), f"{topic}: {len(ids) - len(set(ids))} are stored twice"
    return [one.decode(Transfer) for one in stored]


def _in_order(sent: Iterable[Transfer]) -> None:
    """Fail unless the messages of each source count its debits, from 1 on."""
    last: Counter[str] = Counter()
    for one in sent:
        assert one.version == last[one.source] + 1, (
            f"{one.source}: {one.version} comes after {last[one.source]}"
        )
        last[one.source] += 1


def _balanced(engine: sa.Engine, asked: Iterable[Transfer], accounts: int) -> None:
    """Fail unless each account is what the transfers make it."""
    cents = Counter(dict.fromkeys(bank.names(accounts), bank.START_CENTS))
    debits: Counter[str] = Counter()
    for one in asked:
        cents[one.source] -= one.cents
        cents[one.target] += one.cents
        debits[one.source] += 1
    expected = {name: (cents[name], debits[name]) for name in bank.names(accounts)}
    assert bank.accounts(engine) == {**expected, CLEARING: (0, 0)}
    assert bank.total(engine) == accounts * bank.START_CENTS
