"""One request and one answer of every command, one push of every kind: what the tests turn over."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ternmq.model.errors import Busy, FrameTooLarge
from ternmq.model.specs import Mode, Start, SubscriptionSpec, TopicSpec
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import Command

TIME_US: Final = 1_700_000_000_000_001
TOPIC, GROUP = "orders", "billing"
BATCH: Final = encode(
    [Row(b"hello", "order-7", "", "paid")],
    topic_seed=topic_seed(TOPIC),
    producer_id=0x0123_4567_89AB_CDEF,
    first_sequence=1000,
    born_us=TIME_US,
)
RECORDS: Final = bytes(range(96))
"""Stands for records: nobody on the wire looks into them."""

SEND = bodies.Send(TOPIC, 3, BATCH)
SEND_ANY = bodies.Send(TOPIC, None, BATCH)
RECEIPT = bodies.Receipt(77, 2, 3, 1, False, False, ())
RECEIPT_OTHERS = bodies.Receipt(
    None, 2, 3, 0, True, True,
    (bodies.ReceiptRow(4, 12, False), bodies.ReceiptRow(5, None, True)),
)  # fmt: skip
RECEIPT_QUEUES = bodies.Receipt(
    7, 2, 3, 1, False, False,
    (bodies.ReceiptRow(4, 12, False, 4095), bodies.ReceiptRow(5, 13, False, 0)),
)  # fmt: skip
RECEIPT_SCHEDULED = bodies.Receipt(None, 2, 0, 1, False, False, (), scheduled=True)
RECEIPT_CANCELLED = bodies.Receipt(
    None, 2, 0, 1, False, False,
    (bodies.ReceiptRow(1, None, True, cancelled=True),), scheduled=True,
)  # fmt: skip
CLIENT_AWAY = control.ClientInfo(
    session=13, app="shop", client="9c01b1c0", address="127.0.0.1:50001",
    library="ternmq-python 0.1", pid=4712, connected=False, since_us=TIME_US,
    away_since_us=TIME_US + 1,
)  # fmt: skip
PREPARE = bodies.Prepare(TOPIC, 3, "stream-7 ü", 2**64 - 1, "3/0", BATCH)
PREPARE_ANY = bodies.Prepare(TOPIC, None, "w", 0, "", BATCH)
PREPARED = bodies.Prepared(1 << 40, 2, 3, 1, True)
TRANSACTION_PREPARE = bodies.TransactionPrepare(
    TOPIC, 3, 2**64 - 1, 41, "order-service", "order-7 ü", 0x1F3, 30_000_000, BATCH
)
TRANSACTION_OPEN = bodies.TransactionPrepare("", None, 1, 2, "order-service", "", 0, 0, b"")
TRANSACTION_PREPARED = bodies.TransactionPrepared(0x1F3, 2, 3, 1, True)
TRANSACTION_SETTLE = bodies.TransactionSettle(
    0x1F3, TOPIC, GROUP, 3, 1, 9, 1, ((77, 79), (90, 91)), 5_000_000, "kaputt: ü"
)
TRANSACTION_READ = bodies.TransactionRead(0x1F3, 4096, 1_048_576)
TRANSACTION_ROWS = bodies.TransactionRows(8192, ((2, TOPIC), (5, "stock")), RECORDS)
PULL = bodies.Pull(TOPIC, GROUP, None, 256, 1_048_576, 30_000)
RUNS = (bodies.Run(77, 3, 1, 1), bodies.Run(90, 1, 2, 5))
FAILURES = (bodies.LastFailure(90, 1, 0, "kaputt: ü"),)
DELIVERY = bodies.Delivery(2, 3, 1, 9, TIME_US + 30, TIME_US, 4096, RUNS, FAILURES, RECORDS)
DELIVERED_ANEW = DELIVERY._replace(
    runs=(bodies.Run(77, 3, 1, 2), bodies.Run(90, 1, 1, 1)), failures=(), anew=1
)
DELIVERED_FIRST = DELIVERY._replace(runs=RUNS[:1], failures=())
NOTHING_CAME = bodies.Delivery(2, 3, 1, 0, 0, TIME_US, 0, (), (), b"")
SETTLE = bodies.Settle(TOPIC, GROUP, 3, 1, 9, 1, ((77, 79), (90, 91)), 5_000_000, "kaputt: ü")
SETTLE_ALL = bodies.Settle(TOPIC, GROUP, 3, 1, 9, 0, (), None, "")
SETTLED = bodies.Settled(3, ((90, 91),))
EXTEND = bodies.Extend(TOPIC, GROUP, 3, 1, 9, 30_000_000)
READ = bodies.Read(TOPIC, 3, 77, 100, 0, 1000)
ROWS = bodies.Rows(2, 3, 77, 80, 5, 91, RECORDS)
JOURNAL_READ = bodies.JournalRead(1 << 31, 1_048_576, 1000, without_bodies=True)
RECORDS_READ = bodies.Records(
    1 << 31, (1 << 31) + 4096, 1 << 30, (1 << 31) + 8192, expired=False, records=RECORDS
)
RECORDS_EXPIRED = bodies.Records(8, 8, 1 << 30, 1 << 31, expired=True, records=b"")

BYTES = bodies.Bytes(1 << 31, 7, RECORDS)
MARKS = bodies.Marks(7, (1 << 31) + 96, 1 << 31, (1 << 31) - 8, 1 << 20, TIME_US, 90_000_000, 3000)
ACK = bodies.Ack(7, 0xFEDC_BA98_7654_3210, 1 << 31, (1 << 31) - 8, (1 << 31) - 16, 90_000_000, 3000)


def pack_bytes(sent: bodies.Bytes) -> bytes:
    """Return the body of a BYTES."""
    return bodies.bytes_head(sent.position, sent.epoch, sent.inflated) + sent.records


def pack_delivery(delivery: bodies.Delivery) -> bytes:
    """Return the body of the answer to a PULL."""
    head = bodies.delivery_head(
        *delivery[:7],
        [(run.start, run.start + run.rows, run.attempt, run.deliveries) for run in delivery.runs],
        bodies.pack_failures(delivery.failures),
        delivery.anew,
    )
    return head + delivery.records


def pack_prepared(prepared: bodies.Prepared) -> bytes:
    """Return the body of the answer to a PREPARE."""
    return bodies.pack_prepared(*prepared[:4], duplicate=prepared.duplicate)


def pack_transaction_prepared(prepared: bodies.TransactionPrepared) -> bytes:
    """Return the body of the answer to a TRANSACTION_PREPARE."""
    return bodies.pack_transaction_prepared(*prepared[:4], duplicate=prepared.duplicate)


def pack_transaction_rows(rows: bodies.TransactionRows) -> bytes:
    """Return the body of the answer to a TRANSACTION_READ."""
    return bodies.transaction_rows_head(rows.next, rows.topics) + rows.records


def pack_rows(rows: bodies.Rows) -> bytes:
    """Return the body of the answer to a READ."""
    return bodies.rows_head(*rows[:6]) + rows.records


def pack_records(found: bodies.Records) -> bytes:
    """Return the body of the answer to a JOURNAL_READ."""
    return bodies.records_head(*found[:4], expired=found.expired) + found.records


class Example(NamedTuple):
    """What one command asks and is answered."""

    request: bytes
    answer: bytes


_SPEC = SubscriptionSpec(mode=Mode.ORDERED, tags="paid || refunded", lease_us=45_000_000)
_FOUND = control.FoundMessage(
    topic=TOPIC, queue=3, offset=77, stored_us=TIME_US, row=0, batch=BATCH
)
_FAILED = control.FailedMessage(
    queue=3,
    offset=77,
    attempts=2,
    deliveries=3,
    when_us=TIME_US,
    held=False,
    failures=[
        control.FailureInfo(
            time_us=TIME_US, session=4, attempt=2, outcome="retry", cause="consumer", reason="why"
        )
    ],
    message=_FOUND,
)
_NOTHING = control.Nothing()
JOINED = control.GroupJoined(created=True, spec=_SPEC, queues=4)
JOIN_FILTERED = control.GroupJoin(
    topic=TOPIC, group=GROUP, tags="paid", filter="region = 'eu' AND amount >= 100"
)

HELLO: Final = control.Hello(
    app="shop",
    token="t0ken",
    client="5f2b1c0de9a84711",
    session=0,
    library="ternmq-python 0.1",
    pid=4711,
    language="python 3.12",
)
WELCOME: Final = control.Welcome(
    version=1,
    broker="warehouse-7",
    session=12,
    resumed=False,
    epoch=3,
    now_us=TIME_US,
    heartbeat_us=10_000_000,
    frame_bytes=5_242_880,
    body_bytes=4_194_304,
    pull_messages=10_000,
    pull_bytes=8_388_608,
    send_timeout_us=10_000_000,
)

STRUCTS: Final[dict[Command, tuple[msgspec.Struct, msgspec.Struct]]] = {
    Command.HELLO: (
        HELLO,
        WELCOME,
    ),
    Command.REPORT: (
        control.Report(
            topic=TOPIC,
            producer=0x0123_4567_89AB_CDEF,
            entries=[
                control.ReportEntry(
                    bucket_us=600_000_000,
                    sent=12,
                    given_up=1,
                    first=5,
                    stop=19,
                    closed=True,
                    left_out=2,
                    runs=[control.SequenceRun(first=7, stop=8)],
                )
            ],
        ),
        _NOTHING,
    ),
    Command.TOPIC_CREATE: (
        control.TopicCreate(topic=TOPIC, spec=TopicSpec(name=TOPIC, queues=4)),
        _NOTHING,
    ),
    Command.TOPIC_CHANGE: (
        control.TopicChange(topic=TOPIC, spec=TopicSpec(name=TOPIC, queues=8)),
        _NOTHING,
    ),
    Command.TOPIC_DELETE: (control.TopicDelete(topic=TOPIC), _NOTHING),
    Command.TOPIC_LIST: (
        control.TopicList(names=[TOPIC], limit=10),
        control.Topics(
            topics=[
                control.TopicInfo(
                    number=2,
                    spec=TopicSpec(name=TOPIC),
                    queues=[control.QueueInfo(first=5, next=91)],
                    groups=[GROUP],
                )
            ],
            more=True,
        ),
    ),
    Command.GROUP_JOIN: (
        control.GroupJoin(topic=TOPIC, group=GROUP, tags="paid", mode=Mode.ORDERED),
        JOINED,
    ),
    Command.GROUP_LEAVE: (control.GroupLeave(topic=TOPIC, group=GROUP), _NOTHING),
    Command.GROUP_CHANGE: (
        control.GroupChange(topic=TOPIC, group=GROUP, spec=_SPEC),
        _NOTHING,
    ),
    Command.GROUP_DELETE: (control.GroupDelete(topic=TOPIC, group=GROUP), _NOTHING),
    Command.GROUP_LIST: (
        control.GroupList(topic=TOPIC),
        control.Groups(
            groups=[
                control.GroupInfo(
                    topic=TOPIC,
                    group=GROUP,
                    spec=_SPEC,
                    queues=[
                        control.GroupQueueInfo(
                            cursor=80,
                            floor=70,
                            end=91,
                            leased=2,
                            ready=1,
                            waiting=3,
                            dead=4,
                            intervals=9,
                        )
                    ],
                    members=["5f2b1c0de9a84711"],
                )
            ]
        ),
    ),
    Command.GROUP_RESET: (
        control.GroupReset(topic=TOPIC, group=GROUP, to=Start.EARLIEST, dry_run=True),
        control.ResetDone(queues=[control.ResetQueue(queue=0, offset=5, unread=86, forgotten=10)]),
    ),
    Command.GROUP_SKIP: (
        control.GroupSkip(topic=TOPIC, group=GROUP, queue=3, offset=80),
        _NOTHING,
    ),
    Command.GROUP_COMMIT: (
        control.GroupCommit(
            topic=TOPIC, group="spark.archive", places=[control.GroupPlace(queue=3, offset=80)]
        ),
        control.GroupCommitted(places=[control.GroupPlace(queue=3, offset=91)], created=True),
    ),
    Command.GROUP_REPLAY: (
        control.GroupReplay(
            topic=TOPIC, group=GROUP, spans=[control.ReplaySpan(queue=3, start=70, stop=80)]
        ),
        control.GroupReplayed(
            queues=[control.ReplayedQueue(queue=3, again=5, unread=2, expired=1)],
            rest=[control.ReplaySpan(queue=3, start=78, stop=80)],
        ),
    ),
    Command.FIND: (
        control.Find(topic=TOPIC, key="order-7", limit=5),
        control.FoundPage(found=[_FOUND], next="77"),
    ),
    Command.OFFSET_AT: (
        control.OffsetAt(topic=TOPIC, queue=3, time_us=TIME_US),
        control.OffsetFound(offset=77),
    ),
    Command.FAILED_LIST: (
        control.FailedList(topic=TOPIC, group=GROUP, dead=True, queue=3),
        control.FailedPage(rows=[_FAILED]),
    ),
    Command.FAILED_RETRY: (
        control.FailedRetry(topic=TOPIC, group=GROUP, queue=3, offsets=[77, 90]),
        control.FailedDone(done=1, missing=[90]),
    ),
    Command.FAILED_DELETE: (
        control.FailedDelete(topic=TOPIC, group=GROUP, queue=3, offsets=[77]),
        control.FailedDone(done=1, missing=[]),
    ),
    Command.FAILED_REDRIVE: (
        control.FailedRedrive(topic=TOPIC, group=GROUP, queue=3, offsets=[77, 90], dry_run=True),
        control.FailedRedriven(done=[77], missing=[90]),
    ),
    Command.FAILED_QUERY: (
        control.FailedQuery(
            topic=TOPIC,
            group=GROUP,
            queue=3,
            select=control.FailedSelect(states=["dead"], since_us=TIME_US, attempts=3),
            newest=True,
            limit=2,
        ),
        control.FailedFound(
            offsets=[90, 77],
            failed_us=[TIME_US + 5, TIME_US],
            counts=control.FailedCounts(dead=7),
            next="1023",
        ),
    ),
    Command.CLIENT_LIST: (
        control.ClientList(),
        control.Clients(
            clients=[
                control.ClientInfo(
                    session=12,
                    app="shop",
                    client="5f2b1c0de9a84711",
                    address="127.0.0.1:50000",
                    library="ternmq-python 0.1",
                    pid=4711,
                    connected=True,
                    since_us=TIME_US,
                    language="python 3.12",
                    topics=[TOPIC],
                )
            ]
        ),
    ),
    Command.STATUS: (
        control.StatusAsk(),
        control.Status(
            broker="warehouse-7",
            version="0.1",
            epoch=3,
            now_us=TIME_US,
            uptime_us=60_000_000,
            metrics={"sends": 12.0},
            disk_free_bytes=10**12,
            disk_total_bytes=2 * 10**12,
            journal_first=1 << 30,
            journal_end=(1 << 31) + 4096,
            journal_durable=1 << 31,
            sent_a_second=1500.5,
            delivered_a_second=3000.0,
        ),
    ),
    Command.CLOCK_ACCEPT: (
        control.ClockAccept(),
        control.ClockAccepted(before_us=TIME_US, now_us=TIME_US + 3_600_000_000),
    ),
    Command.ROUTES: (
        control.RoutesAsk(topics=[TOPIC]),
        control.Routes(
            cluster="shop",
            generation=12,
            group="main",
            groups=[
                control.BrokerGroupRoute(
                    name="main",
                    set="east",
                    state="down",
                    writes="closed",
                    journal=2**63 + 7,
                    epoch=7,
                    version=41,
                    primary="a",
                    brokers=[
                        control.BrokerRoute(
                            name="a",
                            addresses=["a.example.com:7117", "[2001:db8::7]:7117"],
                            role="primary",
                            zone="hall 1",
                            tls=True,
                        ),
                        control.BrokerRoute(name="b", addresses=["b:7117"], role="member"),
                        control.BrokerRoute(name="c"),
                    ],
                )
            ],
            topics=[
                control.TopicRoute(
                    name=TOPIC,
                    queues=[
                        control.QueueRoute(number=0, group="main"),
                        control.QueueRoute(number=1, group="more", state="closed"),
                    ],
                )
            ],
            settings={"linger": "5ms"},
        ),
    ),
    Command.APP_PUT: (
        control.AppPut(
            app="shop",
            grants=[
                control.GrantInfo(right="produce", topic="orders*"),
                control.GrantInfo(right="consume", topic="orders", group="secret", deny=True),
            ],
            owner="team shop",
            new_token=True,
        ),
        control.AppToken(token="n3w"),
    ),
    Command.KEEP: (control.Keep(leases=[control.KeptLease(epoch=3, lease=17)]), _NOTHING),
    Command.APP_DELETE: (control.AppDelete(app="shop"), _NOTHING),
    Command.APP_LIST: (
        control.AppList(),
        control.Apps(
            apps=[
                control.AppInfo(
                    app="shop", owner="team shop", grants=[control.GrantInfo(right="produce")]
                )
            ]
        ),
    ),
    Command.RIGHTS_CHECK: (
        control.RightsCheck(
            questions=[
                control.RightsQuestion(command=30, topic="orders"),
                control.RightsQuestion(command=40, topic="orders", group="mail"),
                control.RightsQuestion(command=72),
            ]
        ),
        control.RightsChecked(
            refusals=["", "app 'shop' has no grant to consume topic 'orders'", ""]
        ),
    ),
    Command.TRANSACTION_COMMIT: (
        control.TransactionCommit(
            writer="stream-7 ü", batch_id=41, ids=[1 << 40, 4096], digest=2**64 - 1
        ),
        control.TransactionDone(rows=7, repeated=True),
    ),
    Command.TRANSACTION_ABORT: (
        control.TransactionAbort(writer="stream-7 ü", batch_id=41),
        control.TransactionDone(),
    ),
    Command.TRANSACTION_LIST: (
        control.TransactionList(writer="stream-7 ü", limit=5),
        control.Transactions(
            undecided=[
                control.TransactionInfo(
                    writer="stream-7 ü",
                    batch_id=41,
                    app="shop",
                    topics=[TOPIC],
                    batches=2,
                    rows=7,
                    bytes=640,
                    opened_us=TIME_US,
                    expires_us=TIME_US + 3_600_000_000,
                )
            ],
            writers=[
                control.WriterInfo(
                    writer="stream-7 ü",
                    app="shop",
                    last_us=TIME_US,
                    highest=40,
                    digest=2**64 - 2,
                    rows=9,
                    decisions=3,
                )
            ],
            more=True,
        ),
    ),
    Command.TRANSACTION_MOVE: (
        control.TransactionMove(transaction=0x1F3, topic=TOPIC, group=GROUP, queue=3, offset=80),
        _NOTHING,
    ),
    Command.TRANSACTION_DECIDE: (
        control.TransactionDecide(producer=2**64 - 1, counter=41, commit=True, attempt=2),
        control.TransactionDone(rows=7, repeated=True, transaction=0x1F3),
    ),
    Command.TRANSACTION_SHOW: (
        control.TransactionShow(transaction=0x1F3),
        control.CheckedTransaction(
            transaction=0x1F3,
            state="parked",
            app="shop",
            group="order-service",
            query_id="order-7 ü",
            time_us=TIME_US,
            attempt=2,
            next_us=TIME_US + 90_000_000,
            topics=[TOPIC, "stock"],
            rows=7,
            due_rows=1,
            bytes=640,
            settled_rows=2,
            moves=1,
        ),
    ),
    Command.CHECKER_OFFER: (control.CheckerOffer(groups=["order-service"]), _NOTHING),
    Command.PRODUCER_GROUP_PUT: (
        control.ProducerGroupPut(
            group="order-service", app="shop", first_us=30_000_000, attempts=5, then="roll-back"
        ),
        _NOTHING,
    ),
    Command.PRODUCER_GROUP_LIST: (
        control.ProducerGroupList(limit=10),
        control.ProducerGroups(
            groups=[
                control.ProducerGroupInfo(
                    group="order-service",
                    app="shop",
                    first_us=30_000_000,
                    factor=1.5,
                    cap_us=600_000_000,
                    jitter=0.1,
                    attempts=5,
                    give_up_us=86_400_000_000,
                    then="roll-back",
                    checkers=2,
                    undecided=3,
                )
            ],
            next="order-service",
        ),
    ),
    Command.PRODUCER_GROUP_DELETE: (control.ProducerGroupDelete(group="order-service"), _NOTHING),
    Command.TRANSACTION_CHECK_AGAIN: (control.TransactionCheckAgain(transaction=0x1F3), _NOTHING),
    Command.QUEUE_RANGES: (
        control.QueueRanges(
            topics=[
                control.RangesAsk(
                    topic=TOPIC,
                    time_us=TIME_US,
                    starts=[control.RangeStart(queue=0, offset=7, max_bytes=65_536)],
                ),
                control.RangesAsk(topic="gone"),
            ]
        ),
        control.RangesFound(
            topics=[
                control.TopicRanges(
                    topic=TOPIC,
                    number=2,
                    queues=[
                        control.QueueRange(
                            first=5,
                            next=91,
                            at=80,
                            start=7,
                            stop=60,
                            stop_bytes=65_000,
                            bytes=99_000,
                        )
                    ],
                ),
                control.TopicRanges(topic="gone", number=0, queues=[]),
            ],
            now_us=TIME_US,
        ),
    ),
    Command.HOLD_PUT: (
        control.HoldPut(name="spark.archive", position=1 << 31, note="archive", back=True),
        control.HoldPlaced(position=1 << 31, oldest=1 << 30),
    ),
    Command.HOLD_DELETE: (control.HoldDelete(name="spark.archive"), _NOTHING),
    Command.HOLD_LIST: (
        control.HoldList(),
        control.Holds(
            holds=[
                control.HoldInfo(
                    name="spark.archive",
                    position=1 << 31,
                    note="archive",
                    app="pipeline",
                    created_us=TIME_US - 60_000_000,
                    moved_us=TIME_US,
                    lag_bytes=4096,
                    blocking=True,
                )
            ],
            oldest=1 << 30,
            durable=(1 << 31) + 4096,
            now_us=TIME_US,
        ),
    ),
    Command.JOURNAL_CATALOG: (
        control.JournalCatalog(position=1 << 31, after="t2", limit=3),
        control.JournalNames(
            as_of=(1 << 31) + 4096,
            oldest=1 << 30,
            topics=[control.TopicName(number=3, name=TOPIC, gone=(1 << 31) + 8)],
            groups=[control.GroupName(number=7, topic=3, name=GROUP)],
            sessions=[
                control.SessionName(
                    number=12, app="shop", client="5f2b1c0d", address="127.0.0.1:50000"
                )
            ],
            apps=["shop"],
            next="ashop",
        ),
    ),
    Command.NUMBERS_TAKE: (
        control.NumbersTake(topic=TOPIC, count=1_000_000, reserve=True),
        control.NumbersTaken(
            first=2_000_001,
            count=1_000_000,
            reserve_first=(1 << 62) + (7 << 40),
            reserve_count=1 << 40,
        ),
    ),
    Command.SCHEDULE_CANCEL: (
        control.ScheduleCancel(topic=TOPIC, id="0123456789abcdef:3e8"),
        _NOTHING,
    ),
    Command.SCHEDULE_LIST: (
        control.ScheduleList(
            topic=TOPIC, since_us=TIME_US, until_us=TIME_US + 60_000_000, limit=5, after="77"
        ),
        control.ScheduledPage(
            messages=[
                control.ScheduledInfo(
                    id="0123456789abcdef:3e8",
                    due_us=TIME_US + 30_000_000,
                    stored_us=TIME_US,
                    application_id="order-7",
                    key="order-7",
                    ordering_key="seven",
                    queue=3,
                )
            ],
            next="82",
        ),
    ),
    Command.SCHEDULE_HOURS: (
        control.ScheduleHours(topic=TOPIC, limit=5, after="472222"),
        control.ScheduledHours(
            hours=[control.ScheduledHour(hour_us=472_223 * 3_600_000_000, messages=9)],
            next="472223",
        ),
    ),
    Command.ALARM_LIST: (
        control.AlarmList(),
        control.Alarms(
            alarms=[
                control.AlarmInfo(
                    name="held",
                    subject="orders/billing/3",
                    text="a message failed for good",
                    since_us=TIME_US - 60_000_000,
                )
            ],
            now_us=TIME_US,
        ),
    ),
    Command.ALARM_CLEAR: (
        control.AlarmClear(name="held", subject="orders/billing/3"),
        control.AlarmCleared(cleared=True),
    ),
}
"""(request, answer) of every command that is msgpack."""

EXAMPLES: Final[dict[Command, Example]] = {
    **{
        command: Example(control.encode(request), control.encode(answer))
        for command, (request, answer) in STRUCTS.items()
    },
    Command.PING: Example(b"", bodies.pack_pong(TIME_US)),
    Command.BYE: Example(b"", b""),
    Command.CANCEL: Example(bodies.pack_cancel(7), b""),
    Command.SEND: Example(bodies.pack_send(*SEND), bodies.pack_receipt(RECEIPT)),
    Command.PREPARE: Example(bodies.pack_prepare(PREPARE), pack_prepared(PREPARED)),
    Command.PULL: Example(bodies.pack_pull(PULL), pack_delivery(DELIVERY)),
    Command.SETTLE: Example(bodies.pack_settle(SETTLE), bodies.pack_settled(*SETTLED)),
    Command.EXTEND: Example(
        bodies.pack_extend(EXTEND), bodies.pack_extended(TIME_US + 30_000_000, TIME_US)
    ),
    Command.READ: Example(bodies.pack_read(READ), pack_rows(ROWS)),
    Command.JOURNAL_READ: Example(
        bodies.pack_journal_read(JOURNAL_READ), pack_records(RECORDS_READ)
    ),
    Command.TRANSACTION_PREPARE: Example(
        bodies.pack_transaction_prepare(TRANSACTION_PREPARE),
        pack_transaction_prepared(TRANSACTION_PREPARED),
    ),
    Command.TRANSACTION_READ: Example(
        bodies.pack_transaction_read(TRANSACTION_READ), pack_transaction_rows(TRANSACTION_ROWS)
    ),
    Command.TRANSACTION_SETTLE: Example(bodies.pack_transaction_settle(TRANSACTION_SETTLE), b""),
}

PUSHES: Final[dict[Command, msgspec.Struct]] = {
    Command.DRAIN: control.Drain(back_us=5_000_000),
    Command.TOPIC_CHANGED: control.TopicChanged(topic=TOPIC, gone=True),
    Command.GROUP_CHANGED: control.GroupChanged(topic=TOPIC, group=GROUP),
    Command.TRANSACTION_CHECK: control.TransactionCheck(
        transaction=0x1F3,
        group="order-service",
        query_id="order-7 ü",
        attempt=2,
        opened_us=TIME_US,
        topics=[TOPIC, "stock"],
        rows=7,
        bytes=640,
    ),
    Command.CLOCK_MOVED: control.ClockMoved(now_us=TIME_US),
    Command.QUEUES_ASSIGNED: control.QueuesAssigned(topic=TOPIC, group=GROUP, queues=[0, 1, 4]),
    Command.ROUTES_CHANGED: control.RoutesChanged(
        routes=control.Routes(group="main", groups=[control.BrokerGroupRoute(name="main")])
    ),
    Command.BEHIND: control.Behind(behind_us=1_250_000),
}

FOLLOW: Final = control.Follow(
    token="of-the-cluster",
    group="orders",
    journal=0xA1B2_C3D4_E5F6_0718,
    broker="b",
    incarnation=0xFEDC_BA98_7654_3210,
    told=6,
    end=(1 << 31) - 8,
    checkpoints=[
        control.Checkpoint((1 << 31) - 128, 6, 0x0123_4567),
        control.Checkpoint(1 << 20, 1, 2**32 - 1),
    ],
    software="ternmq 0.1",
)
FOLLOWED: Final = control.Followed(
    version=2,
    broker="a",
    journal=0xA1B2_C3D4_E5F6_0718,
    epoch=7,
    record_version=1,
    segment_bytes=1 << 20,
    first=1 << 20,
    end=(1 << 31) + 96,
    matched=(1 << 31) - 128,
    start=(1 << 31) - 8,
    lease_us=3_000_000,
    silent_us=2_000_000,
    now_us=89_000_000,
    software="ternmq 0.1",
)
RESIGN: Final = control.Resign(epoch=7, why="the disk does not respond", to="b")
SEGMENT_READ: Final = control.SegmentRead(
    token="of-the-cluster",
    group="orders",
    journal=0xA1B2_C3D4_E5F6_0718,
    broker="b",
    position=(1 << 31) - 8,
    most_bytes=1 << 16,
)
STREAM: Final[dict[Command, tuple[int, bytes]]] = {
    Command.FOLLOW: (0, control.encode(FOLLOW)),
    Command.BYTES: (frames.PUSH, pack_bytes(BYTES)),
    Command.MARKS: (frames.PUSH, bodies.pack_marks(MARKS)),
    Command.ACK: (frames.ONE_WAY, bodies.pack_ack(ACK)),
    Command.RESIGN: (frames.PUSH, control.encode(RESIGN)),
    Command.SEGMENT_READ: (0, control.encode(SEGMENT_READ)),
}
"""Flags and body of each frame of a stream."""
FOLLOWED_1: Final = msgspec.structs.replace(FOLLOWED, version=1)
MARKS_1: Final = MARKS._replace(lease_ms=0)
ACK_1: Final = ACK._replace(promise_ms=0)
STREAM_1: Final[dict[Command, tuple[int, bytes]]] = {
    **STREAM,
    Command.FOLLOW: (0, control.encode(msgspec.structs.replace(FOLLOW, versions=(1,)))),
    Command.MARKS: (frames.PUSH, bodies.pack_marks(MARKS_1)),
    Command.ACK: (frames.ONE_WAY, bodies.pack_ack(ACK_1)),
}
"""As before, in version 1 of the stream."""

REFUSED: Final = Busy("the memory for requests is used up")
FAREWELL: Final = FrameTooLarge("a frame of 99 bytes, at most 16 may come")
