"""Consumers of a load: pull, write down, settle."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ternmq.model.errors import LeaseExpired, RefusedError
from ternmq.record.batch.batch import Batch
from ternmq.record.fact import messages as stored
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.fault.messages import LEDGER, identity_of
from tests.fault.server.client import Client, LostError
from tests.fault.server.desk import Desk

_LENGTH: Final = struct.Struct("<8xI4xQ")
"""Of a record: length, position."""
PULL_WAIT_MS: Final = 500
AGAIN_S: Final = 0.05
"""Who is refused waits so long."""


@dataclass(slots=True)
class Held:
    """Rows of a lease that are in hand."""

    queue: int
    epoch: int
    lease: int
    now_us: int
    attempts: dict[int, int]
    keys: dict[int, str]


class Consumer:
    """Pulls for one group, settles what comes."""

    def __init__(self, desk: Desk, client: Client, topic: str, group: str) -> None:
        self._desk = desk
        self._client = client
        self._topic = topic
        self._group = group
        self._held: Held | None = None
        client.kept = self._kept
        client.lost_session = self._forget

    def _kept(self) -> list[tuple[int, int]]:
        held = self._held
        return [] if held is None else [(held.epoch, held.lease)]

    def _forget(self) -> None:
        self._held = None

    async def run(self) -> None:
        """Consume until cancelled."""
        desk, client = self._desk, self._client
        asked = bodies.Pull(self._topic, self._group, None, desk.plan.pull, 0, PULL_WAIT_MS)
        body = bodies.pack_pull(asked)
        while True:
            try:
                delivery = bodies.unpack_delivery(await client.ask(Command.PULL, body))
            except LostError:
                continue
            except RefusedError:
                await asyncio.sleep(AGAIN_S)
                continue
            if not delivery.lease:
                continue
            held = self._held = self._take(delivery)
            if desk.plan.handle_s:
                await asyncio.sleep(desk.plan.handle_s)
            while held.attempts and self._held is held:
                await self._settle(held)
            self._held = None

    def _take(self, delivery: bodies.Delivery) -> Held:
        """Write down what came."""
        mine = {
            offset: (run.attempt, run.deliveries)
            for run in delivery.runs
            for offset in range(run.start, run.start + run.rows)
        }
        lines, keys = [], {}
        at = 0
        data = delivery.records
        while at < len(data):
            length, position = _LENGTH.unpack_from(data, at)
            record = stored.of_record(data[at : at + length])
            at += length
            batch = Batch(record.batch)
            for offset in range(record.first_offset, record.first_offset + record.count):
                if offset in mine:
                    row = batch.row(record.row_of(offset))
                    suspect = position < delivery.suspect_below
                    keys[offset] = row.ordering_key
                    lines.append(
                        (offset, *mine[offset], identity_of(row.body), suspect, row.ordering_key)
                    )
        assert keys.keys() == mine.keys(), "rows of a pull are missing in its records"
        self._desk.counts.delivered += len(mine)
        self._desk.write(
            "out",
            T=self._topic,
            g=self._group,
            q=delivery.queue,
            e=delivery.epoch,
            l=delivery.lease,
            s=self._client.session,
            until=delivery.lease_until_us,
            rows=lines,
            t=delivery.now_us,
        )
        attempts = {offset: attempt for offset, (attempt, _) in sorted(mine.items())}
        return Held(delivery.queue, delivery.epoch, delivery.lease, delivery.now_us, attempts, keys)

    def _choose(self, held: Held) -> tuple[Outcome, list[int]]:
        chance = self._desk.chance
        offsets = list(held.attempts)
        if not self._desk.plan.faults:
            return Outcome.DONE, offsets
        roll = chance.random()
        if roll < 0.8:
            count = len(offsets) if roll < 0.5 else chance.randint(1, len(offsets))
            return Outcome.DONE, offsets[:count]
        outcome = Outcome.RETRY if roll < 0.93 else Outcome.DEAD
        return (Outcome.RELEASED if roll > 0.97 else outcome), offsets[:1]

    async def _settle(self, held: Held) -> None:
        outcome, offsets = self._choose(held)
        desk = self._desk
        number = desk.next_settle()
        fields: dict[str, Any] = {
            "n": number, "T": self._topic, "g": self._group, "q": held.queue,
        }  # fmt: skip
        desk.write(
            "settle",
            rows=offsets,
            o=outcome.name,
            e=held.epoch,
            l=held.lease,
            t=held.now_us,
            **fields,
        )
        body = bodies.pack_settle(
            bodies.Settle(
                self._topic,
                self._group,
                held.queue,
                held.epoch,
                held.lease,
                int(outcome),
                _spans(offsets),
                None,
                "" if outcome is Outcome.DONE else f"because of {number}",
            )
        )
        try:
            answer = bodies.unpack_settled(await self._client.ask(Command.SETTLE, body))
        except LostError:
            return  # again, on the next connection, if the lease is still there
        except LeaseExpired:
            desk.write("expired", **fields)
            held.attempts.clear()
            return
        except RefusedError:
            desk.write("expired", **fields)
            await asyncio.sleep(AGAIN_S)
            return
        refused = {one for start, stop in answer.refused for one in range(start, stop)}
        taken = [offset for offset in offsets if offset not in refused]
        desk.counts.settled += len(taken)
        desk.write(
            "settled",
            runs=[(one, one + 1, held.attempts[one], 0) for one in taken],
            **fields,
        )
        for offset in offsets:
            del held.attempts[offset]
        if self._topic == LEDGER and outcome in (Outcome.RETRY, Outcome.RELEASED):
            gone = {held.keys[offset] for offset in offsets}  # with the rest of their keys
            for offset in [one for one in held.attempts if held.keys[one] in gone]:
                del held.attempts[offset]


def _spans(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    spans: list[tuple[int, int]] = []
    for offset in offsets:
        if spans and spans[-1][1] == offset:
            spans[-1] = (spans[-1][0], offset + 1)
        else:
            spans.append((offset, offset + 1))
    return tuple(spans)
