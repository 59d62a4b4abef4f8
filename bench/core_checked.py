"""What a transaction with check-back costs in the core: prepare a row, settle one, commit."""

from __future__ import annotations

from collections import deque
from typing import Final

from core_kit import (
    MIB,
    Figures,
    Measurement,
    Producer,
    Rig,
    Settings,
    Stopwatch,
    Target,
    folder,
    freeze,
    thaw,
)

from ternmq.broker.start import Options
from ternmq.model.specs import SubscriptionSpec
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle, TransactionPrepare

_APP: Final = "bench"
_GROUP: Final = "order-service"
_FROM: Final = "orders"
_TO: Final = "payments"
_OPTIONS: Final = Options(segment_bytes=64 * MIB, reserve_bytes=16 * MIB)
_BLOCK: Final = 250
_SINGLES: Final = 20_000
_UNDECIDED: Final = 9_000
_STATE_MIB: Final = 512
_OPENER: Final = 7
"""Producer id of the client that names the transactions."""


def _one_by_one(settings: Settings, *, settles: bool) -> Figures:
    """Send one message of 1 KiB in each transaction, and commit it."""
    count = settings.scaled(_SINGLES, 500) // _BLOCK * _BLOCK
    body = bytes(range(256)) * 4
    source, target = Producer(_FROM, 8), Producer(_TO, 9)
    batches = [target.single(body) for _ in range(count)]
    watches = {name: Stopwatch() for name in ("prepare_us", "settle_us", "commit_us")}
    with folder(settings) as path:
        rig = Rig(path, _OPTIONS)
        rig.topic(_FROM, ["g"])
        rig.topic(_TO)
        rig.join()
        checking = rig.broker.checking
        checking.offered(rig.now_us, _APP, rig.session, [_GROUP])
        for _ in range(0, count if settles else 0, _BLOCK):
            rig.broker.send(rig.now_us, _FROM, source.many([b"order"] * _BLOCK))
        rig.turn()
        freeze()
        for first in range(0, count, _BLOCK):
            some = range(first, first + _BLOCK)
            numbers: list[int] = []
            watches["prepare_us"].start()
            for at in some:
                asked = TransactionPrepare(_TO, None, _OPENER, at, _GROUP, "", 0, 0, batches[at])
                reply = checking.prepare(rig.now_us, _APP, rig.session, asked)
                numbers.append(reply.transaction)
            watches["prepare_us"].stop(_BLOCK)
            rig.turn()
            if settles:
                _settle(rig, first, numbers, watches["settle_us"])
            watches["commit_us"].start()
            for number in numbers:
                checking.decide(rig.now_us, _APP, number, commit=True)
            watches["commit_us"].stop(_BLOCK)
            rig.turn()
        stored = rig.broker.views.catalog.topic(_TO).queues[0].next
        if stored != count or rig.broker.views.checked.by_number:
            raise RuntimeError(f"{stored} of {count} messages were committed")
        rig.close()
        thaw()
    return {name: watch.each_us() for name, watch in watches.items() if watch.count}


def _settle(rig: Rig, first: int, numbers: list[int], watch: Stopwatch) -> None:
    """Pull as many messages as there are transactions, and settle one in each."""
    pulled = rig.broker.pull(rig.now_us, rig.session, _FROM, "g", len(numbers), queue=0)
    if pulled is None or pulled.runs[0][0] != first:
        raise RuntimeError(f"the message at {first} was not delivered")
    watch.start()
    for at, number in enumerate(numbers, first):
        asked = Settle(_FROM, "g", 0, pulled.epoch, pulled.lease, Outcome.DONE, ((at, at + 1),))
        rig.broker.checking.settle(rig.now_us, _APP, rig.session, number, asked)
    watch.stop(len(numbers))
    rig.turn()


def sending(settings: Settings) -> Figures:
    """Send one message in each transaction."""
    figures = _one_by_one(settings, settles=False)
    return figures | {"prepare_and_commit_us": figures["prepare_us"] + figures["commit_us"]}


def moving(settings: Settings) -> Figures:
    """Send one message in each transaction, which settles another one."""
    return _one_by_one(settings, settles=True)


def state_share(settings: Settings) -> Figures:
    """Commit transactions while 9,000 others are undecided, and weigh what STATE takes.

    Each sends one message of 1 KiB and settles another, and is committed when 9,000 others were
    opened after it.
    """
    undecided = settings.scaled(_UNDECIDED, _BLOCK)
    size = settings.scaled(_STATE_MIB, 4) * MIB
    body = bytes(range(256)) * 4
    source, target = Producer(_FROM, 8), Producer(_TO, 9)
    options = _OPTIONS if not settings.quick else Options(segment_bytes=MIB, state_bytes=MIB)
    with folder(settings) as path:
        rig = Rig(path, options, sync=False)
        rig.topic(_FROM, ["g"], spec=SubscriptionSpec(window=60_000))
        rig.topic(_TO)
        rig.join()
        checking = rig.broker.checking
        checking.offered(rig.now_us, _APP, rig.session, [_GROUP])
        first, waiting = 0, deque[int]()
        watch = Stopwatch()
        freeze()
        while rig.broker.journal.end < size:
            rig.broker.send(rig.now_us, _FROM, source.many([body] * _BLOCK))
            rig.turn()
            numbers = [
                checking.prepare(
                    rig.now_us,
                    _APP,
                    rig.session,
                    TransactionPrepare(
                        _TO, None, _OPENER, first + at, _GROUP, "", 0, 0, target.single(body)
                    ),
                ).transaction
                for at in range(_BLOCK)
            ]
            rig.turn()
            _settle(rig, first, numbers, watch)
            first += _BLOCK
            waiting += numbers
            while len(waiting) > undecided:
                checking.decide(rig.now_us, _APP, waiting.popleft(), commit=True)
            rig.turn()
        thaw()
        writer, journal = rig.broker.writer, rig.broker.journal
        figures: Figures = {
            "transactions": first,
            "undecided": len(rig.broker.views.checked.by_number),
            "journal_mib": journal.end / MIB,
            "state_sets": writer.sets_written - 1,
            "state_share": writer.bytes_written / journal.end,
        }
        rig.close()
    return figures


_OF: Final[dict[str, object]] = {
    "block": _BLOCK, "body_bytes": 1024, "transactions": _SINGLES,
}  # fmt: skip
MEASUREMENTS: Final = (
    Measurement(
        "transaction-single",
        "a transaction that sends one message of 1 KiB: prepare, commit",
        sending,
        (Target("prepare_and_commit_us", 25.0),),
        _OF,
    ),
    Measurement(
        "transaction-settle",
        "a transaction that sends a message of 1 KiB and settles another: prepare, settle, commit",
        moving,
        (),
        _OF,
    ),
    Measurement(
        "transaction-state",
        "what STATE takes of the journal while 9,000 transactions are undecided",
        state_share,
        (Target("state_share", 0.05),),
        {"block": _BLOCK, "body_bytes": 1024, "undecided": _UNDECIDED, "journal_mib": _STATE_MIB},
    ),
)
