"""Scheduled messages of a client that outlives its broker, and the judge of what became of them.

One thread sends, cancels and consumes. What the broker answered is on record here, and what it
delivered must be the same: each scheduled message once, none that was cancelled, none before it was
due, in the order of due time and sending.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess
from tests.fault.processes import DEADLINE, wait_until

TOPIC: Final = "reminders"
GROUP: Final = "g"
FILLER: Final = "filler"
_STEP: Final = timedelta(milliseconds=50)
"""Due times are multiples of it, so that many messages share one."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> datetime:
    """Return the time of day."""
    return datetime.fromtimestamp(time.time(), UTC)


class Steady(BrokerProcess):
    """A broker that comes again at the same place, with its data in a folder of its own.

    Args:
        folder: For its log.
        data: Its folder.
        settings: As environment.
    """

    def __init__(self, folder: Path, data: Path, settings: Mapping[str, str]) -> None:
        super().__init__("dev", folder)
        self.settings = dict(settings)
        self._data = data

    @property
    def data(self) -> Path:
        """The broker's folder."""
        return self._data

    def freeze(self) -> None:
        """SIGSTOP it; return when every thread of it has come to rest, none in a system call."""
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task")
        os.kill(self.process.pid, signal.SIGSTOP)
        wait_until(
            lambda: all(
                (task / "stat").read_text().rsplit(")", 1)[1].split()[0] in "Tt"
                for task in tasks.iterdir()
            ),
            "stopped",
        )

    def thaw(self) -> None:
        """SIGCONT it."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)


class Frozen:
    """A ``Steady`` as ``Volume.cut`` wants it: what stops is frozen."""

    def __init__(self, broker: Steady) -> None:
        self.stop = broker.freeze
        self.kill = broker.kill


@dataclass(slots=True)
class Sent:
    """A message that the broker answered.

    Attributes:
        receipt: The answer.
        in_time: Whether the answer came before it was due, so it was surely scheduled.
        cancelled: ``yes``, ``no`` (it was too late, or was not tried).
    """

    receipt: ternmq.Receipt
    in_time: bool
    cancelled: str = "no"


class Delays:
    """What was scheduled, and the judge.

    Not thread-safe: one thread sends; ``judge`` is called when it has ended.

    Args:
        client: Of the broker; it comes back when the broker does.
        seed: Of the due times and the cancels.
    """

    def __init__(self, client: ternmq.sync.Client, seed: int = 1) -> None:
        self.sent: dict[int, Sent] = {}
        """By number, which is in the body; numbers are in the order of sending."""
        self.got: dict[int, ternmq.sync.Delivery] = {}
        """What the group received."""
        self.came: dict[int, datetime] = {}
        """When it came first, by the clock of this process."""
        self._client = client
        self._chance = random.Random(seed)
        self._next = 0

    def make(self) -> None:
        """Make the topics, of one queue each, and the group."""
        self._client.admin.create_topic(TOPIC, queues=1, retention=1)
        self._client.admin.create_group(TOPIC, GROUP)
        self._client.admin.create_topic(FILLER, retention=1, keep_until_consumed=False)

    @property
    def cancelled(self) -> int:
        """How many cancels were answered."""
        return sum(one.cancelled == "yes" for one in self.sent.values())

    def schedule(self, count: int, least_s: float, most_s: float, body: int = 0) -> None:
        """Send messages in one call, due at some time from ``least_s`` to ``most_s`` from now."""
        asked = now()
        numbers = range(self._next, self._next + count)
        self._next += count
        messages = []
        for number in numbers:
            due = asked + timedelta(seconds=self._chance.uniform(least_s, most_s))
            due = _EPOCH + ((due - _EPOCH) // _STEP + 1) * _STEP
            text = b"%d " % number
            messages.append(ternmq.Message(text + bytes(body), deliver_at=due))
        receipts = self._client.send_many(TOPIC, messages)
        answered = now()
        for number, receipt in zip(numbers, receipts, strict=True):
            assert (
                receipt.due_at is None or receipt.due_at == messages[number - numbers[0]].deliver_at
            )
            due_at = receipt.due_at
            self.sent[number] = Sent(receipt, due_at is not None and answered < due_at)

    def cancel(self, count: int) -> None:
        """Cancel some of the messages, chosen by chance."""
        for number in self._chance.sample(sorted(self.sent), min(count, len(self.sent))):
            one = self.sent[number]
            if one.receipt.due_at is None:
                continue
            try:
                self._client.cancel(one.receipt)
            except ternmq.AlreadyDelivered:
                assert one.cancelled == "no", f"{number} was cancelled and delivered"
                assert now() >= one.receipt.due_at, f"{number} was delivered before it was due"
            except ternmq.MessageNotFound:
                # Right if the segment that told of it is gone.
                pending = one.cancelled == "no" and now() < one.receipt.due_at
                assert not pending, f"{number} is pending, and a cancel does not find it"
            else:
                one.cancelled = "yes"

    def reached(self, count: int) -> bool:
        """Return whether so many messages were answered."""
        return len(self.sent) >= count

    def last_due(self) -> datetime:
        """Return when the last message is due."""
        return max(one.receipt.due_at for one in self.sent.values() if one.receipt.due_at)

    def over(self, seconds: float = 0.0) -> bool:
        """Return whether all messages have been due for so long."""
        return now() > self.last_due() + timedelta(seconds=seconds)

    @property
    def pending(self) -> int:
        """How many messages are scheduled."""
        return round(self._client.admin.status().metrics["ternmq_scheduled_rows"])

    def drained(self, seconds: float = DEADLINE) -> None:
        """Wait until no message is scheduled."""
        wait_until(lambda: self.pending == 0, "all delivered", seconds)

    def take(self, wait: float = 0.0) -> None:
        """Take what there is by the group, and ack it."""
        deliveries = self._client.pull(TOPIC, group=GROUP, max_messages=1000, wait=wait)
        came = now()
        for one in deliveries:
            number = int(one.body.split(b" ")[0])
            self.came.setdefault(number, came)
            assert one.offset is not None
            known = self.got.setdefault(number, one)
            # An ack whose answer was lost may be followed by a redelivery: of the same message.
            assert known.offset == one.offset, f"{number} was stored twice"
        with suppress(ternmq.ConnectionLost):  # whether the ack counts is not known
            deliveries.ack()

    def early(self, tolerance: timedelta) -> list[int]:
        """Return the messages that came before they were due by the clock of this process."""
        due = {number: one.due_at for number, one in self.got.items() if one.due_at is not None}
        return [number for number, at in due.items() if self.came[number] < at - tolerance]

    def judge(self, unreadable: frozenset[int] = frozenset()) -> int:
        """Take everything, and compare it with what was answered; return how many were stored.

        Args:
            unreadable: Numbers of messages whose bytes the broker could not read.
        """
        expected = {n for n, one in self.sent.items() if one.cancelled == "no"} - unreadable
        until = time.monotonic() + DEADLINE
        while self.got.keys() != expected and time.monotonic() < until:
            self.take(wait=1.0)
        self.take(wait=1.0)
        assert not (lost := sorted(expected - self.got.keys())), f"never delivered: {lost}"
        assert not (more := sorted(self.got.keys() - expected)), f"cancelled, but delivered: {more}"
        found = sorted(self.got.items(), key=lambda one: one[1].offset or 0)
        for _, one in found:
            assert one.due_at is None or one.stored_at >= one.due_at
        keys = [
            (one.due_at, number)
            for number, one in found
            if one.due_at is not None and self.sent[number].in_time
        ]
        assert keys
        assert all(a < b for a, b in pairwise(keys)), "not in the order of due time and sending"
        return len(found)


@contextmanager
def kept_up(
    delays: Delays, client: ternmq.sync.Client, *, filler: bool = False, most_s: float = 15.0
) -> Iterator[None]:
    """Schedule, cancel, consume, perhaps send other messages, in a thread during the block."""
    over = threading.Event()
    errors: list[Exception] = []

    def run() -> None:
        try:
            while not over.is_set():
                delays.schedule(20, 1.0, most_s, body=200)
                delays.cancel(2)
                delays.take()
                if filler:
                    outcomes = client.send_many(FILLER, [bytes(50_000)] * 10, return_errors=True)
                    refused = [one for one in outcomes if isinstance(one, ternmq.Failure)]
                    assert all(isinstance(one.error, ternmq.DiskFull) for one in refused), refused
                over.wait(0.05)
        except (ternmq.TernMQError, AssertionError) as error:
            errors.append(error)  # raised below

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]
