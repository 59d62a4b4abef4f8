"""The workloads: which topics, groups, clients and settings, drawn within bounds by the seed."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec

from ternmq.broker.start import Options
from ternmq.broker.upkeep.fulfilling import RECORD_WORK, ROW_WORK
from ternmq.journal.log.retention import RetentionSpec
from ternmq.model.specs import (
    Durability,
    Exhausted,
    Expired,
    Limits,
    Mode,
    ProducerGroupSpec,
    RetryPolicy,
    SubscriptionSpec,
    TopicSpec,
)
from ternmq.record.batch.batch import Compression
from tests.sim.consumers import Consumer, Returning, Straggler
from tests.sim.crowded import Others
from tests.sim.delays import DAY_US, Burst, Canceller, Delayer, Leaper
from tests.sim.expiring import Brief, Napper
from tests.sim.failed import Finder, Mover
from tests.sim.filling import OVERDUE_US, Filling
from tests.sim.filters import made, made_headers
from tests.sim.instance_clients import InstanceClient, Passer, Watcher
from tests.sim.levels import Ranked
from tests.sim.medium import Medium
from tests.sim.members import Joiner, MemberConsumer, Members, Switch
from tests.sim.numbers import Taker
from tests.sim.openers import APP, GROUP, Desk, Hasty, Keeper, Opener
from tests.sim.operators import Operator
from tests.sim.producers import Producer
from tests.sim.replays import Replayer
from tests.sim.switching import Switcher
from tests.sim.tape import Tape
from tests.sim.world import FAR_US, World
from tests.sim.writers import Writer

SMALL_LIMITS = Limits(
    session_grace_us=60_000,
    producer_idle_us=20_000_000,
    dedup_window_us=20_000_000,
    send_timeout_us=1_000_000,
    dead_letter_us=2_000_000,
    filter_scan_rows=40,
    filter_cursor_us=20_000,
    parked=30,
)
ROLLING_LIMITS = msgspec.structs.replace(
    SMALL_LIMITS, dedup_window_us=1_500_000, producer_idle_us=3_000_000, send_timeout_us=200_000
)
"""For workloads whose time passes so slowly that segments go."""


def options(segment: int, state: int, **more: object) -> Options:
    """Return options with small everything."""
    more.setdefault("limits", SMALL_LIMITS)
    more.setdefault("chunk_bytes", 700)
    return Options(
        segment_bytes=segment,
        reserve_bytes=segment,
        state_bytes=state,
        tail_bytes=2 * segment,
        look_every_us=5_000,
        **more,  # type: ignore[arg-type]
    )


def retry(attempts: int = 3, exhausted: Exhausted = Exhausted.DEAD_LETTER) -> RetryPolicy:
    """Return a quick policy."""
    return RetryPolicy(
        first_us=3_000, cap_us=30_000, attempts=attempts, jitter=0.3, exhausted=exhausted
    )


def tiny(seed: str) -> World:
    """One topic, one group, a few records: swept exhaustively."""
    world = World(seed, options(8192, 3000))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t"))
    broker.administration.subscribe(
        now, "t", "g", SubscriptionSpec(retry=retry(2), lease_us=15_000, window=8)
    )
    _client(world, Producer(world, "t", 11, rows=2, body=30))
    _client(world, Consumer(world, "t", "g", "c1", fail=0.4, vanish=0.1))
    return world


def shared(seed: str) -> World:
    """Retries, releases, dead letters, lease ends, sessions that end, operators."""
    world = World(seed, options(16384, 6000))
    world.patience = 0.5
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t", queues=2))
    for group in ("g", "h"):
        broker.administration.subscribe(
            now, "t", group, SubscriptionSpec(retry=retry(3), lease_us=25_000, window=12)
        )
    _client(world, Producer(world, "t", 11))
    _client(world, Producer(world, "t", 12, every_us=8000, compression=Compression.LZ4))
    for at in range(3):
        _client(world, Consumer(world, "t", "gh"[at % 2], f"c{at}", fail=0.35, vanish=0.1))
    _client(world, Operator(world, "t", "g", every_us=15_000, acts=(
        "reset", "skip", "retry_now", "delete", "pause", "pause", "policy", "grow", "commit",
        "commit")))  # fmt: skip
    return world


def rolls(seed: str) -> World:
    """Small segments: rolls, STATE sets, retention with MOVED rows, dead letters."""
    world = World(
        seed,
        options(8192, 4500, retention=RetentionSpec(max_bytes=3 * 8192), limits=ROLLING_LIMITS),
    )
    world.patience = 0.7
    _begin(world)
    broker, now = world.broker, world.now_us()
    slow = RetryPolicy(first_us=150_000, cap_us=2_000_000, attempts=3, factor=3.0)
    broker.administration.create_topic(now, TopicSpec(name="t", retention_us=800_000))
    broker.administration.create_topic(
        now, TopicSpec(name="u", retention_us=500_000, keep_until_consumed=False)
    )
    broker.administration.subscribe(
        now, "t", "g", SubscriptionSpec(retry=slow, lease_us=1_500_000, window=20)
    )
    broker.administration.subscribe(
        now, "u", "h", SubscriptionSpec(retry=slow, lease_us=1_000_000, window=20)
    )
    every = 40_000
    _client(world, Producer(world, "t", 11, rows=4, body=150, every_us=every, resend_us=300_000))
    shrunk = world.chance.choice(list(Compression))
    _client(
        world,
        Producer(world, "u", 12, every_us=3 * every, resend_us=300_000, compression=shrunk),
    )
    for at in range(2):
        _client(world, Consumer(world, "t", "g", f"c{at}", every_us=every // 2, most=12, fail=0.3))
    _client(world, Consumer(world, "u", "h", "d", every_us=2 * every, fail=0.3))
    # One that is always late, so that rows are pulled out of a segment that is about to go; a group
    # that stands still at times, and holds the segments; a queue that is empty most of the time;
    # spares that come too late.
    broker.administration.subscribe(
        now, "u", "late", SubscriptionSpec(retry=slow, lease_us=1_000_000, window=20)
    )
    _client(world, Consumer(world, "u", "late", "e", every_us=8 * every, most=3, fail=0.3))
    _client(world, Operator(world, "t", "g", every_us=10 * every, acts=("pause", "hold")))
    broker.administration.create_topic(
        now, TopicSpec(name="w", retention_us=1_000, keep_until_consumed=False)
    )
    once = Producer(world, "w", 13, rows=1, body=20, every_us=every, resend_us=300_000)
    once.left = 2
    _client(world, once)
    world.job_us = (50, 500, 3000, 3000, 8 * every)
    world.faults.slow = world.chance.choice((0.02, 0.3))  # looks at what is owed block, too
    return world


def emptied(seed: str) -> World:
    """Retention at work all the time; a group is owed much of what is to go, another one pulls out
    of the segment while it is emptied, and a third one, which was through, is given rows of it."""
    limits = msgspec.structs.replace(ROLLING_LIMITS, session_grace_us=1_000_000)
    world = World(
        seed,
        options(8192, 4000, retention=RetentionSpec(max_bytes=2 * 8192), limits=limits),
    )
    world.patience = 0.8
    _begin(world)
    broker, now = world.broker, world.now_us()
    slow = RetryPolicy(first_us=500_000, cap_us=3_000_000, attempts=3, factor=3.0)
    broker.administration.create_topic(
        now, TopicSpec(name="u", retention_us=1_000, keep_until_consumed=False)
    )
    for group, window in (("g", 16), ("late", 12), ("through", 40)):
        broker.administration.subscribe(
            now, "u", group, SubscriptionSpec(retry=slow, lease_us=2_000_000, window=window)
        )
    _client(world, Producer(world, "u", 12, every_us=60_000, body=500, resend_us=300_000))
    _client(world, Consumer(world, "u", "g", "c", every_us=40_000, fail=0.5, vanish=0.02))
    _client(
        world, Straggler(world, "u", "late", "d", every_us=12_000, most=2, settle=0.25, stay=True)
    )
    _client(
        world,
        Consumer(
            world, "u", "through", "e", every_us=30_000, most=40, fail=0.0, vanish=0.0, stay=True
        ),
    )
    for group in ("g", "through"):
        _client(world, Replayer(world, "u", group, every_us=20_000, acts=("doomed",)))
    world.sync_us = (300, 4000, 20_000, 60_000)
    world.job_us = (50, 500, 3000)
    world.faults.slow = 0.4
    return world


def aged(seed: str) -> World:
    """Rows are owed while segment after segment goes: their copies are copied again."""
    world = World(
        seed,
        options(8192, 4000, retention=RetentionSpec(max_bytes=2 * 8192), limits=ROLLING_LIMITS),
    )
    world.patience = 0.8
    _begin(world)
    broker, now = world.broker, world.now_us()
    slow = RetryPolicy(first_us=2_000_000, cap_us=20_000_000, attempts=4, factor=3.0)
    for name in ("t", "filler"):
        broker.administration.create_topic(
            now, TopicSpec(name=name, retention_us=1_000, keep_until_consumed=False)
        )
    broker.administration.subscribe(
        now, "t", "g", SubscriptionSpec(retry=slow, lease_us=5_000_000, window=200)
    )
    _client(world, Producer(world, "t", 11, every_us=400_000, resend_us=300_000))
    _client(world, Producer(world, "filler", 12, rows=1, every_us=250_000, body=4000))
    _client(
        world,
        Consumer(
            world,
            "t",
            "g",
            "c",
            every_us=150_000,
            most=50,
            fail=0.9,
            vanish=0.0,
            settle=0.9,
            stay=True,
        ),
    )
    _client(world, Replayer(world, "t", "g", every_us=250_000, acts=("doomed",)))
    world.sync_us = (300, 4000, 20_000)
    world.job_us = (50, 500, 3000)
    return world


def consumed(seed: str) -> World:
    """Nothing is owed: a segment goes as soon as two STATE sets stand behind it, often in the turn
    that ended the second."""
    limits = msgspec.structs.replace(ROLLING_LIMITS, session_grace_us=1_000_000)
    world = World(
        seed,
        options(8192, 3000, retention=RetentionSpec(max_bytes=2 * 8192), limits=limits),
    )
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t", retention_us=1_000))
    broker.administration.subscribe(now, "t", "g", SubscriptionSpec(lease_us=2_000_000, window=40))
    _client(world, Producer(world, "t", 11, every_us=60_000, body=500, resend_us=300_000))
    _client(
        world,
        Consumer(world, "t", "g", "c", every_us=6_000, most=20, fail=0.0, vanish=0.0, stay=True),
    )
    world.sync_us = (100, 300, 1000, 20_000)
    return world


def crowded(seed: str) -> World:
    """Others take so much of the volume that several segments go one after the other, with no new
    file between them; the broker is killed in the midst of it, most times."""
    limits = msgspec.structs.replace(ROLLING_LIMITS, session_grace_us=1_000_000)
    watermark = 0.25
    retention = RetentionSpec(watermark=watermark)
    world = World(seed, options(8192, 3000, retention=retention, limits=limits))
    world.patience = 0.5
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t"))
    broker.administration.subscribe(now, "t", "g", SubscriptionSpec(lease_us=2_000_000, window=40))
    _client(world, Producer(world, "t", 11, every_us=100_000, body=900, resend_us=300_000))
    _client(
        world,
        Consumer(world, "t", "g", "c", every_us=6_000, most=20, fail=0.0, vanish=0.0, stay=True),
    )
    others = Others(world, watermark=watermark, segments=6, every_us=20_000)
    _client(world, others)
    world.sync_us = (300, 4000, 20_000)
    return world


def filled(seed: str) -> World:
    """A small disk that is filled, drained, and filled again; no set is written as it grows."""
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=1_000_000)
    chance = random.Random(f"filled {seed}")
    retention = RetentionSpec(watermark=chance.choice((0.8, 1.0)))
    chosen = options(8192, 1 << 40, retention=retention, limits=limits)
    world = World(seed, replace(chosen, reserve_bytes=3 * 8192))
    world.faults.capacity = chance.randint(6, 9) * 8192 + (24 << 10)
    world.patience = 0.7
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(
        now, TopicSpec(name="t", retention_us=chance.choice((1_000, 3_600_000_000)))
    )
    broker.administration.subscribe(now, "t", "g", SubscriptionSpec(lease_us=2_000_000, window=60))
    producer = Producer(world, "t", 11, every_us=6_000, body=900, ids=chance.choice((0, 200)))
    _client(world, producer)
    _client(world, Filling(world, producer))
    _client(
        world,
        Consumer(world, "t", "g", "c", every_us=8_000, most=50, fail=0.0, vanish=0.0, stay=True),
    )
    return world


def returning(seed: str) -> World:
    """Leases that live over restarts; words on them that come late, after resets; some never."""
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=500_000)
    world = World(seed, options(16384, 4000, chunk_bytes=250, limits=limits))
    world.patience = 0.5
    world.overdue_us = 150_000
    _begin(world)
    broker, now = world.broker, world.now_us()
    for topic, lease in (("t", 100_000), ("u", 100_000), ("w", 20_000), ("x", 300_000)):
        broker.administration.create_topic(now, TopicSpec(name=topic))
        broker.administration.subscribe(
            now, topic, "g", SubscriptionSpec(retry=retry(3), lease_us=lease, window=40)
        )
    _client(world, Producer(world, "t", 11, every_us=6_000))
    _client(world, Producer(world, "u", 12, every_us=6_000))
    for topic, number in (("w", 13), ("x", 14)):
        few = Producer(world, topic, number, every_us=1_000)
        few.left = 4
        _client(world, few)
    for at in range(4):
        topic = "tu"[at % 2]
        _client(world, Returning(world, topic, "g", f"c{at}", vanish=0.02, settle=0.15, most=10))
    _client(world, Consumer(world, "w", "g", "d", vanish=0.0, settle=0.0, stay=True))
    _client(world, Consumer(world, "x", "g", "e", settle=0.02, extend=0.3, stay=True))
    _client(world, Operator(world, "t", "g", every_us=5_000, acts=("reset",), back=100))
    _client(world, Replayer(world, "u", "g", every_us=500, acts=("ahead",)))
    return world


def faulty(seed: str) -> World:
    """Syncs and writes that fail, a disk that is full for a while."""
    world = World(seed, options(8192, 5000))
    world.patience = 0.5
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t"))
    broker.administration.create_topic(now, TopicSpec(name="f", durability=Durability.FAST))
    broker.administration.subscribe(
        now, "t", "g", SubscriptionSpec(retry=retry(2), lease_us=25_000, window=12)
    )
    broker.administration.subscribe(
        now, "f", "g", SubscriptionSpec(retry=retry(2), lease_us=25_000, window=12)
    )
    _client(world, Producer(world, "t", 11, every_us=2000, body=120))
    _client(world, Producer(world, "f", 12))
    _client(world, Consumer(world, "t", "g", "c1", fail=0.3))
    _client(world, Consumer(world, "f", "g", "c2", fail=0.3))
    return world


def ordered(seed: str) -> World:
    """Order per key, held rows, several consumers."""
    world = World(seed, options(16384, 6000))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="o", ordered=True, queues=1))
    broker.administration.subscribe(now, "o", "g")
    broker.administration.change_subscription(
        now, "o", "g",
        SubscriptionSpec(mode=Mode.ORDERED, retry=retry(3), lease_us=25_000, window=20),
    )  # fmt: skip
    broker.administration.subscribe(
        now, "o", "h",
        SubscriptionSpec(
            mode=Mode.ORDERED, retry=retry(2, Exhausted.HOLD), lease_us=25_000, window=20
        ),
    )  # fmt: skip
    _client(world, Producer(world, "o", 11, keys=4))
    for at in range(4):
        _client(world, Consumer(world, "o", "gh"[at % 2], f"c{at}", fail=0.3, vanish=0.08))
    _client(world, Operator(world, "o", "h", every_us=12_000, acts=(
        "retry_now", "retry_now", "delete", "reset", "skip")))  # fmt: skip
    return world


def fast(seed: str) -> World:
    """A fast topic beside a normal one."""
    world = World(seed, options(16384, 6000))
    world.patience = 0.25
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="f", durability=Durability.FAST))
    broker.administration.create_topic(now, TopicSpec(name="t"))
    broker.administration.subscribe(
        now, "f", "g", SubscriptionSpec(retry=retry(2), lease_us=25_000)
    )
    broker.administration.subscribe(
        now, "t", "g", SubscriptionSpec(retry=retry(2), lease_us=25_000)
    )
    _client(world, Producer(world, "f", 11))
    _client(world, Producer(world, "t", 12))
    _client(world, Consumer(world, "f", "g", "c1", fail=0.2))
    _client(world, Consumer(world, "t", "g", "c2", fail=0.2))
    return world


def filtered(seed: str) -> World:
    """Groups with tag filters."""
    world = World(seed, options(16384, 6000))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t"))
    broker.administration.subscribe(
        now, "t", "g", SubscriptionSpec(tags="a", retry=retry(2), lease_us=25_000)
    )
    broker.administration.subscribe(
        now, "t", "h", SubscriptionSpec(tags="b || c", retry=retry(3), lease_us=25_000)
    )
    _client(world, Producer(world, "t", 11, rows=5, tags=("a", "b", "c", "d", "d", "", "")))
    _client(world, Consumer(world, "t", "g", "c1", fail=0.3))
    _client(world, Consumer(world, "t", "h", "c2", fail=0.3))
    return world


def filters(seed: str) -> World:
    """Groups with header filters, also beside tags; the filters change, and rows come again."""
    limits = msgspec.structs.replace(ROLLING_LIMITS, session_grace_us=500_000)
    world = World(seed, options(16384, 4000, limits=limits))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t"))
    plain = SubscriptionSpec(retry=retry(2), lease_us=25_000)
    for group, tags in (("g", ""), ("h", "a || b"), ("i", "")):
        filter_ = made(world.chance)
        spec = msgspec.structs.replace(plain, tags=tags, filter=filter_)
        broker.administration.subscribe(now, "t", group, spec)
        _client(world, Consumer(world, "t", group, f"c{group}", fail=0.3))
        _client(world, Replayer(
            world, "t", group, every_us=10_000 if group == "i" else 40_000,
            acts=("replay", "refilter"), back=40))  # fmt: skip
    for number, rows in ((11, 5), (12, 40)):
        _client(world, Producer(
            world, "t", number, rows=rows, tags=("a", "b", "c", ""), headers=made_headers,
            ids=200, every_us=1000 * rows))  # fmt: skip
    return world


def given_ids(seed: str) -> World:
    """Application ids that come again."""
    world = World(seed, options(16384, 5000))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t"))
    broker.administration.subscribe(
        now, "t", "g", SubscriptionSpec(retry=retry(2), lease_us=25_000)
    )
    _client(world, Producer(world, "t", 11, rows=4, ids=60))
    _client(world, Producer(world, "t", 12, rows=3, ids=60))
    _client(world, Consumer(world, "t", "g", "c1"))
    return world


def settings(seed: str) -> World:
    """Topics and groups that go and come again under the same name."""
    world = World(seed, options(16384, 4000))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    for topic in ("t", "u"):
        broker.administration.create_topic(now, TopicSpec(name=topic))
        for group in ("g", "h"):
            broker.administration.subscribe(
                now, topic, group, SubscriptionSpec(retry=retry(2), lease_us=20_000)
            )
    _client(world, Producer(world, "t", 11))
    _client(world, Producer(world, "u", 12))
    for at in range(4):
        _client(world, Consumer(world, "tu"[at % 2], "gh"[at // 2], f"c{at}", fail=0.3))
    for topic in ("t", "u"):
        _client(world, Operator(world, topic, "g", every_us=15_000, acts=(
            "recreate", "grow", "pause", "reset", "policy", "app", "app", "report", "commit",
            "hold", "hold")))  # fmt: skip
    return world


def replayed(seed: str) -> World:
    """Rows that were behind a group come again: while STATE sets are written and segments go, in
    shared, ordered and filtered groups, also of leases that are out."""
    limits = msgspec.structs.replace(
        ROLLING_LIMITS, session_grace_us=500_000, pull_bytes=900, replay_keyed_rows=60
    )
    world = World(
        seed,
        options(8192, 3500, retention=RetentionSpec(max_bytes=2 * 8192), limits=limits),
    )
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    slow = RetryPolicy(first_us=50_000, cap_us=400_000, attempts=2)
    plain = SubscriptionSpec(retry=slow, lease_us=400_000, window=20)
    broker.administration.create_topic(
        now, TopicSpec(name="t", retention_us=200_000, keep_until_consumed=False)
    )
    broker.administration.create_topic(
        now, TopicSpec(name="o", ordered=True, retention_us=200_000, keep_until_consumed=False)
    )
    # One attempt, so that dead letters are many, and some of them apart from each other.
    once = RetryPolicy(first_us=50_000, cap_us=400_000, attempts=1)
    broker.administration.subscribe(now, "t", "g", msgspec.structs.replace(plain, retry=once))
    broker.administration.subscribe(now, "t", "f", msgspec.structs.replace(plain, tags="a || b"))
    broker.administration.subscribe(
        now, "o", "g", msgspec.structs.replace(plain, mode=Mode.ORDERED)
    )
    every = 30_000
    _client(world, Producer(
        world, "t", 11, rows=4, body=100, every_us=2 * every, tags=("a", "b", "c")))  # fmt: skip
    _client(world, Producer(world, "o", 12, rows=4, body=100, every_us=2 * every, keys=3))
    for group in "gf":
        _client(world, Consumer(
            world, "t", group, f"c{group}", every_us=every, fail=0.3, vanish=0.05))  # fmt: skip
        _client(world, Replayer(world, "t", group, every_us=4 * every, acts=_AGAIN, back=40))
    for at in range(2):
        _client(world, Consumer(
            world, "o", "g", f"o{at}", every_us=every, fail=0.3, vanish=0.05))  # fmt: skip
    _client(world, Replayer(world, "o", "g", every_us=2 * every, acts=_AGAIN, back=20))
    for topic in "to":
        _client(world, Operator(
            world, topic, "g", every_us=5 * every, acts=("skip", "skip", "reset"), back=10
        ))  # fmt: skip
    return world


_AGAIN = ("replay", "replay", "redrive")


def failures(seed: str) -> World:
    """Failed rows are looked for, and retried, deleted, redriven and moved to another topic, piece
    by piece, while segments go and the broker dies."""
    limits = msgspec.structs.replace(ROLLING_LIMITS, session_grace_us=500_000, pull_bytes=900)
    world = World(
        seed,
        options(8192, 3500, retention=RetentionSpec(max_bytes=2 * 8192), limits=limits),
    )
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    for topic, ordered in (("t", False), ("o", True), ("m", False)):
        broker.administration.create_topic(
            now, TopicSpec(name=topic, ordered=ordered, retention_us=200_000)
        )
    slow = RetryPolicy(first_us=100_000, cap_us=600_000, attempts=2)
    plain = SubscriptionSpec(retry=slow, lease_us=400_000, window=20)
    broker.administration.subscribe(now, "t", "g", plain)
    held = msgspec.structs.replace(slow, attempts=1, exhausted=Exhausted.HOLD)
    broker.administration.subscribe(
        now, "o", "g", msgspec.structs.replace(plain, mode=Mode.ORDERED, retry=held)
    )
    every = 30_000
    _client(world, Producer(world, "t", 11, rows=4, body=100, every_us=2 * every))
    _client(world, Producer(world, "o", 12, rows=2, body=100, every_us=4 * every, keys=4))
    _client(world, Consumer(world, "t", "g", "c", every_us=every, fail=0.7, vanish=0.05))
    _client(world, Consumer(world, "o", "g", "o", every_us=every, fail=0.5, vanish=0.05))
    acts = ("find", "find", "find", "redrive_many", "redrive_many", "retry_many", "delete_many")
    for topic in "to":
        _client(world, Finder(world, topic, "g", every_us=2 * every, acts=acts))
    _client(world, Mover(world, "m", 13, source="t", group="g", every_us=3 * every))
    return world


def transactions(seed: str) -> World:
    """Writers that prepare, commit, abort and repeat, beside sends and several groups."""
    limits = msgspec.structs.replace(
        SMALL_LIMITS, transaction_us=120_000, decisions=6, decision_us=300_000
    )
    world = World(seed, options(16384, 4000, limits=limits, chunk_bytes=300))
    world.patience = 0.5
    world.pace = (0, 0, 0, 1)  # decisions come while a set is written
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t", queues=2))
    broker.administration.create_topic(now, TopicSpec(name="o", ordered=True))
    broker.administration.subscribe(
        now, "t", "g", SubscriptionSpec(retry=retry(3), lease_us=25_000, window=20)
    )
    broker.administration.subscribe(now, "o", "h")
    from ternmq.model.specs import Mode

    broker.administration.change_subscription(
        now, "o", "h",
        SubscriptionSpec(mode=Mode.ORDERED, retry=retry(3), lease_us=25_000, window=20),
    )  # fmt: skip
    _client(world, Producer(world, "t", 11, every_us=6000))
    _client(world, Producer(world, "o", 12, every_us=9000, keys=3))
    _client(world, Writer(world, ("t",), "v", 21, every_us=2000, due=0.3))
    _client(world, Writer(world, ("t",), "w", 22, every_us=2000, parts=5, leave=0.25))
    _client(world, Writer(world, ("o",), "x", 23, every_us=2000, keys=3, due=0.2))
    for at in range(2):
        _client(world, Consumer(world, "t", "g", f"c{at}", fail=0.3, vanish=0.08))
    _client(world, Consumer(world, "o", "h", "d", fail=0.3))
    return world


def old_rows(seed: str) -> World:
    """Prepared rows whose segments go: long transactions, small segments, retention at work."""
    limits = msgspec.structs.replace(
        ROLLING_LIMITS, session_grace_us=1_000_000, transaction_us=2_500_000, decisions=6
    )
    world = World(
        seed,
        options(8192, 4000, retention=RetentionSpec(max_bytes=3 * 8192), limits=limits),
    )
    world.patience = 0.8
    _begin(world)
    broker, now = world.broker, world.now_us()
    slow = RetryPolicy(first_us=500_000, cap_us=3_000_000, attempts=3, factor=3.0)
    broker.administration.create_topic(now, TopicSpec(name="t", retention_us=300_000))
    broker.administration.create_topic(
        now, TopicSpec(name="u", retention_us=1_000, keep_until_consumed=False)
    )
    for topic in ("t", "u"):
        broker.administration.subscribe(
            now, topic, "g", SubscriptionSpec(retry=slow, lease_us=2_000_000, window=20)
        )
    _client(world, Producer(world, "t", 11, every_us=60_000, body=200, resend_us=300_000))
    _client(world, Producer(world, "u", 12, every_us=60_000, body=300, resend_us=300_000))
    for number, (name, topics, dawdle) in enumerate(
        (("w", ("t", "u"), 0.85), ("v", ("u",), 0.9), ("x", ("t",), 0.5))
    ):
        _client(
            world,
            Writer(
                world, topics, name, 21 + number, every_us=60_000, parts=3, body=300, leave=0.03,
                dawdle=dawdle, due=0.2, delays_us=(-5_000, 300_000, 3_000_000, 20_000_000),
            ),
        )  # fmt: skip
    for topic in ("t", "u"):
        _client(
            world, Consumer(world, topic, "g", f"c{topic}", every_us=25_000, most=12, fail=0.25)
        )
    world.sync_us = (300, 4000, 20_000)
    world.faults.slow = world.chance.choice((0.02, 0.3))
    return world


def pinned(seed: str) -> World:
    """Segments that would go at once, but for the rows of long transactions in them."""
    limits = msgspec.structs.replace(
        ROLLING_LIMITS, session_grace_us=1_000_000, transaction_us=4_000_000, decisions=6
    )
    world = World(
        seed,
        options(8192, 3000, retention=RetentionSpec(max_bytes=3 * 8192), limits=limits),
    )
    _begin(world)
    broker, now = world.broker, world.now_us()
    slow = RetryPolicy(first_us=800_000, cap_us=3_000_000, attempts=3, factor=3.0)
    broker.administration.create_topic(now, TopicSpec(name="t", retention_us=1_000))
    broker.administration.create_topic(
        now, TopicSpec(name="u", retention_us=1_000, keep_until_consumed=False)
    )
    broker.administration.subscribe(
        now, "t", "g", SubscriptionSpec(retry=slow, lease_us=2_000_000, window=40)
    )
    for topic, number in (("t", 11), ("u", 12)):
        # Soon, or its segment may be gone.
        _client(world, Producer(world, topic, number, every_us=40_000, body=300, resend_us=60_000))
    for number, (name, dawdle) in enumerate((("w", 0.94), ("v", 0.8), ("x", 0.5))):
        _client(
            world,
            Writer(
                world, ("t", "u"), name, 21 + number, every_us=40_000, parts=2, body=100,
                leave=0.02, dawdle=dawdle,
            ),
        )  # fmt: skip
    _client(
        world,
        Consumer(world, "t", "g", "c", every_us=6_000, most=20, fail=0.15, vanish=0.0, stay=True),
    )
    world.sync_us = (100, 300, 1000, 20_000)
    return world


def _scheduling(world: World) -> None:
    """Let time pass by days between two reigns, and wall clocks be far off."""
    world.accepts = True
    world.down_us = (1_000, 200_000, 3_600_000_000, DAY_US, 45 * DAY_US)
    jumps = (3_600_000_000, DAY_US)
    world.start_jumps_us = (*jumps, *[-jump for jump in jumps], FAR_US, FAR_US)
    world.wall_jumps_us = (0, *jumps, *[-jump for jump in jumps], 3_000_000, -4_000_000)


def delayed(seed: str) -> World:
    """Due times from now to in 400 days, on several topics, one of them ordered; the broker stands
    still and is down for long; topics with pending rows go."""
    limits = msgspec.structs.replace(SMALL_LIMITS, scheduled_rows=150)
    world = World(seed, options(16384, 4000, limits=limits, chunk_bytes=400))
    world.patience = 0.6
    _begin(world)
    _scheduling(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t", queues=3))
    # A pull that finds nothing in one ordered queue, and has to wait for a read in the next one,
    # may have parked rows of the first.
    world.faults.slow = world.chance.choice((0.0, 0.02, 0.5))
    queues = 1 if world.faults.slow else 2
    broker.administration.create_topic(now, TopicSpec(name="o", ordered=True, queues=queues))
    broker.administration.create_topic(now, TopicSpec(name="u"))
    plain = SubscriptionSpec(retry=retry(3), lease_us=25_000, window=20)
    for topic in "tu":
        broker.administration.subscribe(now, topic, "g", plain)
    broker.administration.subscribe(now, "o", "g")
    broker.administration.change_subscription(
        now, "o", "g", msgspec.structs.replace(plain, mode=Mode.ORDERED)
    )
    _client(world, Delayer(world, "t", 11, every_us=6_000, wishes=0.4))
    _client(world, Delayer(world, "o", 12, every_us=9_000, keys=4))
    _client(world, Delayer(world, "u", 13, every_us=9_000, ids=40, plain=0.3))
    for at, topic in enumerate("tou"):
        _client(world, Consumer(world, topic, "g", f"c{at}", every_us=5_000, fail=0.2, most=12))
    _client(world, Operator(world, "u", "g", every_us=60_000, acts=("recreate", "grow", "pause")))
    _client(world, Leaper(world, every_us=60_000))
    return world


def cancels(seed: str) -> World:
    """Scheduled rows are cancelled: before they are due, then, after it, twice, by id."""
    world = World(seed, options(16384, 3500, chunk_bytes=300))
    world.patience = 0.5
    _begin(world)
    _scheduling(world)
    broker, now = world.broker, world.now_us()
    plain = SubscriptionSpec(retry=retry(2), lease_us=25_000, window=20)
    for topic in "tu":
        broker.administration.create_topic(now, TopicSpec(name=topic, queues=2))
        broker.administration.subscribe(now, topic, "g", plain)
    first = Delayer(world, "t", 11, every_us=6_000, rows=4)
    second = Delayer(world, "u", 12, every_us=8_000, ids=60, plain=0.2)
    for client in (first, second):
        _client(world, client)
    for _ in range(2):
        _client(world, Canceller(world, (first, second), every_us=5_000))
    for at, topic in enumerate("tu"):
        _client(world, Consumer(world, topic, "g", f"c{at}", every_us=6_000, most=12))
    _client(world, Operator(world, "u", "g", every_us=150_000, acts=("recreate",)))
    _client(world, Leaper(world, every_us=150_000))
    world.faults.slow = world.chance.choice((0.02, 0.5))
    return world


def burst(seed: str) -> World:
    """Thousands of rows of several topics that come due at one moment."""
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=1_000_000)
    world = World(seed, options(131072, 100_000, limits=limits, chunk_bytes=20_000))
    world.patience = 0.5
    world.backlog_us = 30_000_000
    # Seven records or more: else most of a reign is one row after the other.
    world.work_a_turn = max(world.work_a_turn, 7 * (RECORD_WORK + ROW_WORK))
    _begin(world)
    _scheduling(world)
    broker, now = world.broker, world.now_us()
    for at, topic in enumerate("tuv"):
        broker.administration.create_topic(now, TopicSpec(name=topic, queues=1 + at))
        broker.administration.subscribe(
            now, topic, "g", SubscriptionSpec(lease_us=2_000_000, window=20)
        )
        client = Burst(world, topic, 11 + at, rows=100, body=20, every_us=25_000)
        client.left = 12
        _client(world, client)
        _client(world, Consumer(
            world, topic, "g", f"c{at}", every_us=20_000, most=20, fail=0.0, vanish=0.0, stay=True
        ))  # fmt: skip
    _client(world, Leaper(world, every_us=200_000))
    world.faults.slow = world.chance.choice((0.02, 0.3))
    return world


def due_copies(seed: str) -> World:
    """Small segments that go while rows in them are pending: their copies are delivered, cancelled,
    and copied again."""
    limits = msgspec.structs.replace(
        ROLLING_LIMITS, session_grace_us=1_000_000, dedup_window_us=2_000_000
    )
    world = World(
        seed,
        options(8192, 4000, retention=RetentionSpec(max_bytes=3 * 8192), limits=limits),
    )
    world.patience = 0.8
    # At times the loop is so busy that segments go while rows in them have come due.
    world.tick_late_us = world.chance.choice(((), (500, 4_000_000, 4_000_000, 4_000_000)))
    world.overdue_us = 12_000_000
    _begin(world)
    _scheduling(world)
    broker, now = world.broker, world.now_us()
    for topic in ("t", "u", "filler"):
        broker.administration.create_topic(
            now, TopicSpec(name=topic, retention_us=1_000, keep_until_consumed=False)
        )
    for topic in "tu":
        broker.administration.subscribe(
            now, topic, "g", SubscriptionSpec(lease_us=2_000_000, window=40)
        )
    first = Delayer(world, "t", 11, every_us=250_000, rows=4, soon=0.2, resend_us=300_000)
    second = Delayer(world, "u", 12, every_us=250_000, rows=4, soon=0.2, ids=80, resend_us=300_000)
    for client in (first, second):
        client.soon_us = 4_000_000
        client.past = 0.2
        _client(world, client)
    _client(world, Canceller(world, (first, second), every_us=200_000))
    _client(world, Producer(world, "filler", 13, rows=1, every_us=150_000, body=4000))
    for at, topic in enumerate("tu"):
        _client(world, Consumer(
            world, topic, "g", f"c{at}", every_us=60_000, most=20, fail=0.1, vanish=0.0, stay=True
        ))  # fmt: skip
    _client(world, Operator(world, "u", "g", every_us=4_000_000, acts=("recreate",)))
    _client(world, Leaper(world, every_us=3_000_000))
    world.sync_us = (300, 4000, 20_000)
    world.job_us = (50, 500, 3000)
    world.faults.slow = world.chance.choice((0.02, 0.3))
    return world


def due_filled(seed: str) -> World:
    """A small disk that is filled with scheduled rows; they come due and are consumed, and it is
    filled again."""
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=1_000_000)
    chance = random.Random(f"due_filled {seed}")
    retention = RetentionSpec(watermark=chance.choice((0.8, 1.0)))
    chosen = options(8192, 1 << 40, retention=retention, limits=limits)
    world = World(seed, replace(chosen, reserve_bytes=3 * 8192))
    world.faults.capacity = chance.randint(6, 9) * 8192 + (24 << 10)
    world.patience = 0.7
    world.backlog_us = OVERDUE_US
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t", retention_us=1_000))
    broker.administration.subscribe(now, "t", "g", SubscriptionSpec(lease_us=2_000_000, window=60))
    producer = Delayer(world, "t", 11, every_us=6_000, body=900, soon=1.0, plain=0.1)
    producer.soon_us = chance.choice((100_000, 1_000_000, 5_000_000))
    producer.past = 0.4
    _client(world, producer)
    _client(world, Filling(world, producer))
    _client(
        world,
        Consumer(world, "t", "g", "c", every_us=8_000, most=50, fail=0.0, vanish=0.0, stay=True),
    )
    return world


def checked(seed: str) -> World:
    """Transactions with check-back: rows, settles, moves and due rows in them; decided, forgotten,
    checked, given up, by changing policies."""
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=1_500_000)
    world = World(seed, options(16384, 5000, limits=limits, chunk_bytes=400))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    plain = SubscriptionSpec(retry=retry(3), lease_us=2_500_000, window=30)
    broker.administration.create_topic(now, TopicSpec(name="t", queues=2))
    broker.administration.create_topic(now, TopicSpec(name="o", ordered=True))
    broker.administration.create_topic(now, TopicSpec(name="u", queues=2))
    for topic in "tu":
        broker.administration.subscribe(now, topic, "g", plain)
    broker.administration.subscribe(now, "o", "g")
    broker.administration.change_subscription(
        now, "o", "g", msgspec.structs.replace(plain, mode=Mode.ORDERED)
    )
    _checks(world)
    desk = Desk(world)
    _client(world, desk)
    _client(world, Producer(world, "t", 11, every_us=150_000))
    _client(world, Producer(world, "o", 12, every_us=200_000, keys=3))
    for at, topic in enumerate("oto"):
        _client(world, Opener(
            world, desk, topic, "g", f"x{at}", 21 + at, targets=("t", "o", "u"), keys=topic == "o",
            every_us=60_000, offers=at < 2, answers=world.chance.choice((0.3, 0.9)),
        ))  # fmt: skip
    for at, topic in enumerate("ou"):
        _client(world, Consumer(world, topic, "g", f"c{at}", every_us=80_000, most=8, fail=0.2))
    _client(world, Operator(
        world, "t", "g", every_us=1_500_000, acts=("reset", "pause", "commit", "grow", "policy")
    ))  # fmt: skip
    _client(world, Operator(world, "u", "g", every_us=4_000_000, acts=("recreate",)))
    _client(world, Replayer(world, "t", "g", every_us=2_000_000, acts=_AGAIN, back=20))
    world.faults.slow = world.chance.choice((0.0, 0.02, 0.3))
    return world


def parked(seed: str) -> World:
    """Small segments that go while transactions are undecided: prepared rows are copied, and copied
    again; what is parked is taken up, or decided long after."""
    limits = msgspec.structs.replace(ROLLING_LIMITS, session_grace_us=1_500_000)
    world = World(
        seed,
        options(8192, 4000, retention=RetentionSpec(max_bytes=4 * 8192), limits=limits),
    )
    world.patience = 0.8
    world.overdue_us = 2_000_000
    _begin(world)
    broker, now = world.broker, world.now_us()
    for topic in ("t", "u", "filler"):
        broker.administration.create_topic(
            now, TopicSpec(name=topic, retention_us=1_000, keep_until_consumed=topic == "t")
        )
    for topic in "tu":
        broker.administration.subscribe(
            now, topic, "g", SubscriptionSpec(retry=retry(3), lease_us=3_000_000, window=40)
        )
    _checks(world)
    desk = Desk(world)
    _client(world, desk)
    _client(world, Producer(world, "t", 11, every_us=400_000, resend_us=300_000))
    _client(world, Producer(world, "filler", 13, rows=1, every_us=250_000, body=4000))
    for at in range(2):
        _client(world, Opener(
            world, desk, "t", "g", f"x{at}", 21 + at, targets=("t", "u"), forget=0.7,
            every_us=90_000, answers=world.chance.choice((0.0, 0.3)),
        ))  # fmt: skip
    for at, topic in enumerate("ut"):
        _client(world, Straggler(
            world, topic, "g", f"d{at}", every_us=20_000, most=4, settle=0.1, stay=True
        ))  # fmt: skip
    _client(world, Consumer(world, "u", "g", "c", every_us=200_000, most=20, stay=True))
    _client(world, Hasty(world, desk, every_us=10_000))
    world.sync_us = (300, 4000, 20_000)
    world.job_us = (50, 500, 3000)
    world.faults.slow = world.chance.choice((0.02, 0.3))
    return world


def keyed(seed: str) -> World:
    """Rows of few keys, some of them settled in transactions and some not, by several consumers."""
    return _keyed(seed, keys=2, every_us=4_000, lease_us=60_000)


def overtaken(seed: str) -> World:
    """The same, but a client has two transactions at a time: of the rows of a lease, it settles the
    later ones in one of them, the earlier ones in the other, and commits the later ones first."""
    return _keyed(seed, keys=3, every_us=3_000, lease_us=150_000, changes=0.3)


def _keyed(seed: str, *, keys: int, every_us: int, lease_us: int, changes: float = 0.0) -> World:
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=60_000)
    world = World(seed, options(16384, 5000, limits=limits, chunk_bytes=400))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="o", ordered=True))
    broker.administration.create_topic(now, TopicSpec(name="t"))
    exhausted = world.chance.choice((Exhausted.DEAD_LETTER, Exhausted.HOLD))
    broker.administration.subscribe(now, "o", "g")
    broker.administration.change_subscription(
        now, "o", "g",
        SubscriptionSpec(
            mode=Mode.ORDERED, retry=retry(3, exhausted), lease_us=lease_us, window=24
        ),
    )  # fmt: skip
    broker.checking.put_group(now, APP, ProducerGroupSpec(name=GROUP, without_checker=True))
    desk = Desk(world)
    _client(world, desk)
    _client(world, Producer(world, "o", 11, every_us=every_us, keys=keys))
    for at in range(3):
        _client(world, Opener(
            world, desk, "o", "g", f"x{at}", 21 + at, targets=("t", "o"), keys=True,
            every_us=3_000, offers=False, forget=0.02, most=10, steps=(1, 2, 3, 4), parts=(0, 0, 1),
            changes=changes, fail=world.chance.choice((0.1, 0.6)),
        ))  # fmt: skip
    _client(
        world, Operator(world, "o", "g", every_us=20_000, acts=("retry_now", "delete", "reset"))
    )
    return world


def _checks(world: World) -> None:
    """Questions so soon and so few that most reigns see the end of some."""
    quick = ProducerGroupSpec(
        name=GROUP, first_us=1_000_000, cap_us=2_500_000, attempts=2, give_up_us=9_000_000
    )
    soon = msgspec.structs.replace(quick, attempts=6, give_up_us=3_000_000)
    world.broker.checking.put_group(world.now_us(), APP, quick)
    _client(world, Keeper(world, (quick, quick, soon), every_us=1_500_000))


def lanes(seed: str) -> World:
    """Topics with levels: sent, due later, in transactions, failed and tried again; more is sent
    than is pulled, so that levels wait for each other."""
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=200_000)
    world = World(seed, options(16384, 5000, limits=limits, chunk_bytes=400))
    world.patience = 0.7
    _begin(world)
    broker, now = world.broker, world.now_us()
    levels = world.chance.choice((2, 3, 3, 8))
    broker.administration.create_topic(now, TopicSpec(name="t", levels=levels, queues=2))
    broker.administration.create_topic(now, TopicSpec(name="u", levels=3))
    for topic in "tu":
        window = world.chance.choice((4, 40))
        plain = SubscriptionSpec(retry=retry(3), lease_us=60_000, window=window)
        broker.administration.subscribe(now, topic, "g", plain)
    _client(world, Ranked(world, "t", 11, every_us=3_000, rows=5, plain=0.8, wishes=0.2))
    _client(world, Ranked(world, "u", 12, every_us=4_000, rows=5, plain=0.9, high=0.7))
    _client(world, Writer(world, ("t", "u"), "w", 13, every_us=9_000, due=0.3))
    desk = Desk(world)
    _client(world, desk)
    _checks(world)
    _client(world, Opener(
        world, desk, "u", "g", "x", 21, targets=("t", "u"), every_us=20_000, offers=True,
    ))  # fmt: skip
    for at, topic in enumerate("ttuu"):
        _client(world, Consumer(
            world, topic, "g", f"c{at}", every_us=1_000, most=1 + at % 2, fail=0.15, vanish=0.02,
        ))  # fmt: skip
    _client(world, Operator(world, "t", "g", every_us=80_000, acts=(
        "reset", "skip", "grow", "pause", "commit", "retry_now")))  # fmt: skip
    _client(world, Replayer(world, "u", "g", every_us=100_000, acts=_AGAIN, back=20))
    world.faults.slow = world.chance.choice((0.0, 0.02, 0.3))
    return world


def locked(seed: str) -> World:
    """Queues that are locked: rows fail, come again, are held, are replayed, and are settled in
    transactions; one at most holds rows of a queue."""
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=60_000)
    world = World(seed, options(16384, 5000, limits=limits, chunk_bytes=400))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t", queues=2))
    broker.administration.create_topic(now, TopicSpec(name="u"))
    spec = SubscriptionSpec(mode=Mode.QUEUE_LOCK, retry=retry(3), lease_us=40_000, window=20)
    held = msgspec.structs.replace(spec, retry=retry(2, Exhausted.HOLD))
    broker.administration.subscribe(now, "t", "g", spec)
    broker.administration.subscribe(now, "t", "h", held)
    broker.administration.subscribe(
        now, "u", "g", world.chance.choice((spec, msgspec.structs.replace(held, lease_us=90_000)))
    )
    broker.checking.put_group(now, APP, ProducerGroupSpec(name=GROUP, without_checker=True))
    desk = Desk(world)
    _client(world, desk)
    _client(world, Producer(world, "t", 11, every_us=4_000))
    _client(world, Producer(world, "u", 12, every_us=6_000))
    for at in range(4):
        _client(world, Consumer(world, "t", "gh"[at % 2], f"c{at}", fail=0.3, vanish=0.08))
    for at in range(2):
        _client(world, Opener(
            world, desk, "u", "g", f"x{at}", 21 + at, targets=("t", "u"), keys=True,
            every_us=3_000, offers=False, forget=0.02, most=10, steps=(1, 2, 3, 4), parts=(0, 0, 1),
            changes=world.chance.choice((0.0, 0.3)), fail=world.chance.choice((0.1, 0.6)),
        ))  # fmt: skip
    _client(world, Operator(world, "t", "h", every_us=12_000, acts=(
        "retry_now", "retry_now", "delete", "reset", "skip")))  # fmt: skip
    _client(
        world, Operator(world, "u", "g", every_us=20_000, acts=("retry_now", "delete", "reset"))
    )
    for group in "gh":
        _client(world, Replayer(world, "t", group, every_us=25_000, acts=_AGAIN, back=20))
    return world


def switching(seed: str) -> World:
    """Groups whose mode is changed again and again; rows fail, wait, are parked, held, replayed and
    settled in transactions meanwhile. Clients are switched off, and have limits."""
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=60_000)
    world = World(seed, options(16384, 5000, limits=limits, chunk_bytes=400))
    world.patience = 0.2  # a set takes long: the mode changes while it is written
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="o", ordered=True))
    broker.administration.create_topic(now, TopicSpec(name="t"))
    spec = SubscriptionSpec(mode=Mode.ORDERED, retry=retry(3), lease_us=30_000, window=20)
    held = msgspec.structs.replace(spec, retry=retry(2, Exhausted.HOLD))
    broker.administration.subscribe(now, "o", "g", spec)
    broker.administration.subscribe(now, "o", "h", held)
    broker.administration.subscribe(
        now, "t", "g", msgspec.structs.replace(held, mode=Mode.QUEUE_LOCK)
    )
    broker.checking.put_group(now, APP, ProducerGroupSpec(name=GROUP, without_checker=True))
    desk = Desk(world)
    _client(world, desk)
    _client(world, Brief(world, "o", 11, keys=3, every_us=5_000, brief=0.3, plain=1.0))
    _client(world, Producer(world, "t", 12, every_us=8_000))
    for at in range(4):
        _client(world, Consumer(
            world, "o", "gh"[at % 2], f"c{at}", fail=0.15, vanish=0.05, every_us=1_500,
        ))  # fmt: skip
    for at in range(2):
        _client(world, Opener(
            world, desk, "t", "g", f"x{at}", 21 + at, targets=("t",), every_us=4_000, offers=False,
            forget=0.02, most=6, steps=(1, 2, 3), parts=(0, 0, 1), fail=0.2,
        ))  # fmt: skip
    _client(world, Consumer(world, "t", "g", "c4", fail=0.2, vanish=0.05))
    _client(world, Switcher(world, "o", "g", every_us=8_000))
    _client(world, Switcher(world, "o", "h", every_us=12_000))
    _client(world, Switcher(world, "t", "g", every_us=15_000))
    broker.administration.create_topic(now, TopicSpec(name="m", queues=2))
    broker.administration.subscribe(
        now, "m", "g", SubscriptionSpec(retry=retry(3), lease_us=30_000, window=20)
    )
    _client(world, Producer(world, "m", 13, every_us=8_000))
    for at in range(2):
        _client(world, Joiner(world, "m", "g", f"m{at}", fail=0.15, vanish=0.05))
    _client(world, Switcher(world, "m", "g", every_us=10_000, members=True))
    acts = ("retry_now", "retry_now", "delete", "delete", "reset", "skip")
    _client(world, Operator(world, "o", "h", every_us=12_000, acts=acts))
    _client(world, Operator(world, "t", "g", every_us=20_000, acts=acts))
    _client(world, Replayer(world, "o", "g", every_us=60_000, acts=_AGAIN, back=12))
    _client(world, Replayer(world, "t", "g", every_us=40_000, acts=_AGAIN, back=20))
    return world


def expiring(seed: str) -> World:
    """Rows that expire, by themselves or by their topic: of shared, filtered and ordered groups,
    due later, in transactions; a group that drops them, one that nobody pulls, a small store."""
    # With a small store, nothing else may fill it: no message fails, and few are leased.
    small = random.Random(seed).random() < 0.5
    failures, fail, window = (40, 0.0, 4) if small else (5_000_000, 0.3, 20)
    limits = msgspec.structs.replace(SMALL_LIMITS, failures=failures)
    world = World(seed, options(16384, 5000, limits=limits, chunk_bytes=400))
    world.patience = 0.7
    _begin(world)
    broker, now = world.broker, world.now_us()
    # A pull that records expired rows of one queue, and has to wait for a read in the next one,
    # has changed something.
    world.faults.slow = world.chance.choice((0.0, 0.02, 0.3))
    queues = 1 if world.faults.slow else 2
    create, subscribe = broker.administration.create_topic, broker.administration.subscribe
    create(now, TopicSpec(name="t", queues=queues))
    create(now, TopicSpec(name="u", expires_us=world.chance.choice((40_000, 400_000))))
    create(now, TopicSpec(name="o", ordered=True))
    old = msgspec.structs.replace(retry(3), expires_us=50_000)
    plain = SubscriptionSpec(retry=retry(3), lease_us=25_000, window=window)
    subscribe(now, "t", "g", plain)
    subscribe(now, "t", "red", msgspec.structs.replace(plain, tags="red"))
    subscribe(now, "t", "alone", plain)
    if small:  # its store is the first one that is nearly full
        crowd = TopicSpec(name="v", expires_us=20_000)
        create(now, crowd)
        subscribe(now, "v", "alone", plain)
        _client(world, Brief(world, "v", 15, every_us=2_000, rows=8, brief=0.0, plain=1.0))
    subscribe(now, "u", "g", msgspec.structs.replace(plain, expired=Expired.DROP))
    subscribe(now, "u", "old", msgspec.structs.replace(plain, retry=old))
    subscribe(now, "o", "g", msgspec.structs.replace(plain, mode=Mode.ORDERED))
    create(now, TopicSpec(name="x"))  # its messages come by transactions only
    subscribe(now, "x", "g", plain)
    _client(world, Brief(world, "t", 11, every_us=5_000, tags=("red", "blue"), plain=0.8))
    _client(world, Brief(world, "u", 12, every_us=9_000, brief=0.2, plain=0.9))
    _client(world, Brief(world, "o", 13, every_us=9_000, keys=3, plain=0.9))
    _client(world, Writer(world, ("t", "u", "x", "x"), "w", 14, every_us=8_000, brief=0.6))
    groups = (("t", "g"), ("t", "red"), ("u", "g"), ("u", "old"), ("x", "g"))
    for at, (topic, group) in enumerate(groups):
        _client(world, Consumer(
            world, topic, group, f"c{at}", every_us=6_000, most=1 + 5 * (at % 2), fail=fail,
            vanish=fail / 6,
        ))  # fmt: skip
    for at in range(2):
        _client(world, Consumer(world, "o", "g", f"o{at}", every_us=5_000, most=4, fail=fail))
    _client(world, Replayer(world, "t", "g", every_us=60_000, acts=_AGAIN, back=20))
    _client(world, Operator(world, "t", "g", every_us=60_000, acts=("reset", "pause", "retry_now")))
    _client(world, Napper(world, every_us=300_000))
    return world


def owned(seed: str) -> World:
    """Queues that belong to members, who come, leave, vanish and join again; rows fail and come
    again. In one of four runs, one member owns all queues."""
    limits = msgspec.structs.replace(SMALL_LIMITS, session_grace_us=60_000)
    world = World(seed, options(16384, 5000, limits=limits, chunk_bytes=400))
    world.patience = 0.6
    _begin(world)
    broker, now = world.broker, world.now_us()
    mode = world.chance.choice((Mode.OWNED, Mode.OWNED, Mode.OWNED, Mode.EXCLUSIVE))
    levels = world.chance.choice((1, 1, 2))
    broker.administration.create_topic(now, TopicSpec(name="t", queues=4 // levels, levels=levels))
    broker.administration.create_topic(now, TopicSpec(name="u", queues=3))
    spec = SubscriptionSpec(mode=mode, retry=retry(3), lease_us=40_000, window=20)
    broker.administration.subscribe(now, "t", "g", spec)
    broker.administration.subscribe(now, "u", "g", msgspec.structs.replace(spec, mode=Mode.OWNED))
    first, second = Members(world, "t", "g", 4, mode), Members(world, "u", "g", 3, Mode.OWNED)
    first.restarted()
    second.restarted()
    _client(world, Producer(world, "t", 11, every_us=4_000))
    _client(world, Producer(world, "u", 12, every_us=5_000))
    for at in range(6):
        members = second if at % 3 == 2 else first
        _client(world, MemberConsumer(world, members, f"c{at}", fail=0.2, vanish=0.12))
    _client(world, Switch(world, first, every_us=60_000))
    _client(world, Operator(world, "t", "g", every_us=15_000, acts=(
        "retry_now", "delete", "reset", "skip")))  # fmt: skip
    return world


def broadcast(seed: str) -> World:
    """Broadcast instances that come and go while segments are removed: clients that share a name,
    come back or stay away, and those without a name."""
    limits = msgspec.structs.replace(ROLLING_LIMITS, instance_kept_us=1_500_000)
    world = World(
        seed, options(8192, 4500, retention=RetentionSpec(max_bytes=3 * 8192), limits=limits)
    )
    world.patience = 0.7
    _begin(world)
    broker, now = world.broker, world.now_us()
    settings = TopicSpec(name="t", queues=2, retention_us=400_000, broadcast=True)
    broker.administration.create_topic(now, settings)
    _client(world, Producer(world, "t", 11, rows=4, body=120, every_us=30_000, resend_us=300_000))
    rivals: dict[str, str] = {}
    for at, instance in enumerate(("a", "a", "a", "b", "", "")):
        _client(world, InstanceClient(world, "t", f"c{at}", instance, rivals=rivals))
    _client(world, Passer(world, "t", every_us=500_000))
    _client(world, Watcher(world, "t"))
    return world


def numbered(seed: str) -> World:
    """Blocks of numbers and reserves, of topics that come and go, while segments are removed."""
    world = World(
        seed,
        options(8192, 2500, retention=RetentionSpec(max_bytes=3 * 8192), limits=ROLLING_LIMITS),
    )
    world.patience = 0.7
    _begin(world)
    broker, now = world.broker, world.now_us()
    broker.administration.create_topic(now, TopicSpec(name="t", retention_us=300_000))
    broker.administration.create_topic(
        now, TopicSpec(name="f", durability=Durability.FAST, retention_us=300_000)
    )
    plain = SubscriptionSpec(retry=retry(2), lease_us=200_000, window=20)
    for topic in "tf":
        broker.administration.subscribe(now, topic, "g", plain)
        _client(world, Consumer(world, topic, "g", f"c{topic}", every_us=30_000, most=20))
        _client(world, Taker(world, (topic,), every_us=15_000))
        _client(world, Operator(world, topic, "g", every_us=150_000, acts=("recreate",)))
    _client(world, Taker(world, ("t", "f"), every_us=10_000))
    _client(world, Producer(world, "t", 11, rows=3, body=120, every_us=60_000, resend_us=300_000))
    return world


def copied(seed: str) -> World:
    """Another workload, on a broker whose journal has a second copy that acknowledges late.

    The world sees it by the name of the kind.
    """
    return KINDS[random.Random(f"{seed} what").choice(_COPIED)](seed)


def copied_checked(seed: str) -> World:
    """``copied``, with transactions that are asked about."""
    return KINDS[random.Random(f"{seed} what").choice(("checked", "parked"))](seed)


def copied_rolls(seed: str) -> World:
    """``copied``, with segments that go."""
    return KINDS[random.Random(f"{seed} what").choice(("rolls", "consumed", "crowded"))](seed)


_COPIED = (
    "shared", "ordered", "fast", "filtered", "given_ids", "transactions", "keyed", "delayed",
    "cancels", "locked", "owned", "broadcast", "settings", "numbered", "failures", "switching",
    "tiny",
)  # fmt: skip
KINDS = {
    "copied": copied,
    "copied_checked": copied_checked,
    "copied_rolls": copied_rolls,
    "broadcast": broadcast,
    "numbered": numbered,
    "lanes": lanes,
    "locked": locked,
    "owned": owned,
    "expiring": expiring,
    "switching": switching,
    "checked": checked,
    "parked": parked,
    "keyed": keyed,
    "overtaken": overtaken,
    "due_filled": due_filled,
    "delayed": delayed,
    "cancels": cancels,
    "burst": burst,
    "due_copies": due_copies,
    "pinned": pinned,
    "transactions": transactions,
    "old_rows": old_rows,
    "tiny": tiny,
    "shared": shared,
    "rolls": rolls,
    "emptied": emptied,
    "aged": aged,
    "consumed": consumed,
    "crowded": crowded,
    "filled": filled,
    "returning": returning,
    "ordered": ordered,
    "faulty": faulty,
    "fast": fast,
    "filtered": filtered,
    "filters": filters,
    "given_ids": given_ids,
    "settings": settings,
    "replayed": replayed,
    "failures": failures,
}


def _begin(world: World) -> None:
    world.begin(Medium(), Tape(world.options.segment_bytes))


def _client(world: World, client: object) -> None:
    client.restarted() if hasattr(client, "restarted") else client._again()  # type: ignore[attr-defined]
    del world
