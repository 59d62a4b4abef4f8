"""The expensive checks, for a sample of the images: use the broker that came up until all is done.

Index equal to a rebuild; every kept row readable with the content that was sent; batches that are
stored are recognised; every group drained to the end, each owed row coming exactly once (the
reference refuses anything else); a clean stop, and a start from it with the same state.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from ternmq.broker.gate.replies import DecideReply, DoneReply, Reply
from ternmq.broker.operation.broadcasting import InstanceAsked, shown_instance
from ternmq.journal.index.feed import add_record
from ternmq.journal.index.index import Index
from ternmq.journal.log.scan import scan
from ternmq.model.errors import (
    Busy,
    DiskFull,
    JournalFull,
    ResendTooOld,
    TernMQError,
    TransactionDecided,
)
from ternmq.record.batch.batch import Batch
from ternmq.record.fact import messages, moved
from ternmq.record.fact.control import FLAG_CLEAN
from ternmq.record.fact.facts import Outcome
from ternmq.record.fact.header import HEADER_BYTES, Kind
from ternmq.wire.bodies import Settle
from tests.sim.checks import Known, check_report, start
from tests.sim.consumers import check_content
from tests.sim.delays import DAY_US, answered_cancel
from tests.sim.disk import ImageDisk
from tests.sim.history import Stored, Tried, kept_from
from tests.sim.medium import Medium
from tests.sim.numbers import check_numbers
from tests.sim.portrait import difference, portrait
from tests.sim.reference import DEAD, HELD, LEASED, WAITING, RefSubscription
from tests.sim.scheduled import PENDING
from tests.sim.tape import Tape, Violation
from tests.sim.world import Reign, World

ROUNDS = 12_000
IDLE_ROUNDS: Final = 300
"""In so many rounds some of what is due becomes messages."""
NEAR_DEADLINE = 0.2
"""Share of the rounds without progress, while rows wait to be tried again, behind which a pull
comes shortly before a deadline."""
NEAR_US = 10_000
"""How long before it at most."""
SOON_US = 1_000
"""A deadline that is not farther off is just waited for."""
FAILED = 0.2
"""Share of the leases in a drain that fail, so that their rows come again once they are due."""
FAILED_MOST = (0, 0, 2)
"""How many may fail in a drain, one of these."""


def use(
    reign: Reign, known: Known, files: Mapping[str, bytes], end: int, chance: random.Random
) -> World:
    """Start a broker on an image whose records end at ``end``, and use it to the end.

    Raises:
        Violation: see the module.
    """
    world = World(f"deep{chance.getrandbits(60)}", reign.options)
    world.patience = 1.0
    world.wall_offset_us = known.wall_us
    world.history.tried = reign.tried
    world.history.asked = reign.asked
    world.history.named = reign.named
    world.history.cancels = reign.cancels
    world.history.openings = reign.openings
    world.history.fates = {message: told for message, told in reign.fates.items() if told[1] <= end}
    world.history.numbers = reign.numbers.up_to(end)
    fast_forward = chance.choice((0, 0, 100_000, 3_600_000_000))
    if any(record.kind == Kind.SCHEDULED for record in known.tape.records):
        fast_forward = chance.choice((fast_forward, DAY_US, 45 * DAY_US))
    world.monotonic_us = fast_forward
    world.begin(Medium(dict(files)), known.tape.prefix(end), reign)
    check_index(world)
    check_rows(world)
    check_resends(world, chance)
    check_numbers(world)
    check_decisions(world, end)
    decide_all(world, chance)
    check_cancels(world, chance)
    drain(world, chance)
    while wait_for_due(world, chance):
        drain(world, chance)
    check_sessions(world)
    check_index(world)
    stop(world)
    return world


def check_index(world: World) -> None:
    """The index is equal to one rebuilt from the journal."""
    broker = world.broker
    journal = broker.journal
    journal.flush()
    built = Index(world.disk, segment_size=journal.segment_size, start=journal.first)
    for record in scan(world.disk, journal.first, segment_size=journal.segment_size):
        add_record(built, record)
    different = broker.index.coverage.equal(built.coverage)
    if different is not None:
        raise Violation(f"the index is not equal to a rebuild: {different}")


def check_rows(world: World) -> None:
    """Every row that is kept can be read, and is what was sent."""
    broker = world.broker
    for number, topic in world.reference.topics.items():
        for queue, rows in enumerate(topic.queues):
            first = kept_from(rows, broker.journal.first)
            view = broker.views.catalog.topics[number].queues[queue]
            if view.next != len(rows) or view.first != first:
                raise Violation(
                    f"queue {number}/{queue} keeps {view.first} to {view.next}, "
                    f"not {first} to {len(rows)}"
                )
            offset = first
            while offset < len(rows):
                places = world.ask(
                    lambda: broker.index.locate(number, queue, offset, len(rows), 2000)  # noqa: B023
                )
                if not places.positions or places.stop <= offset:
                    raise Violation(f"offset {offset} of {number}/{queue} is not in the index")
                for at, position in enumerate(places.positions):
                    record = world.ask(lambda: broker.store.at_place(places, at))  # noqa: B023
                    stored = messages.of_record(record)
                    for one in range(max(offset, stored.first_offset), places.stop):
                        if one >= stored.first_offset + stored.count:
                            break
                        if not _holds(stored, one, rows[one]) or rows[one].home != position:
                            raise Violation(f"offset {one} of {number}/{queue} is another message")
                offset = places.stop
    for key, group in world.reference.groups.items():
        for offset in group.rows:
            check_owed(world, key, offset)


def _holds(record: messages.Messages, offset: int, row: Stored) -> bool:
    """Return whether a record holds a row that has an offset in it."""
    if record.fulfils is None:
        return row.tried.batch == record.batch
    at = offset - record.first_offset
    batch = Batch(record.batch)
    sequence = row.tried.first_sequence + row.at
    return batch.first_sequence + at == sequence and batch.row(at) == row.row()


def check_owed(world: World, key: tuple[int, int, int], offset: int) -> None:
    """A row that some group is owed is kept somewhere."""
    broker = world.broker
    _, number, queue = key
    rows = world.reference.topics[number].queues[queue]
    stored = rows[offset]
    if offset >= kept_from(rows, broker.journal.first):
        return
    place = world.ask(lambda: broker.index.moved(number, queue, offset))
    if place is None:
        raise Violation(f"group {key}: {offset} is owed and kept nowhere")
    record = world.ask(lambda: broker.store.at(place.position))
    if record[13] != Kind.MOVED:
        raise Violation(f"group {key}: {offset} is said to be moved to {place.position}")
    piece, row = moved.unpack(record[HEADER_BYTES:]).row(place.row)
    if Batch(piece.batch).row(row) != stored.row():
        raise Violation(f"group {key}: {offset} was moved with other content")
    if piece.time_us != stored.time_us:
        raise Violation(f"group {key}: {offset} was moved with another time")


def decide_all(world: World, chance: random.Random) -> None:
    """Every undecided transaction with check-back can be decided, once; every decision is known."""
    opened = world.reference.opened
    for number in sorted(world.broker.views.checked.by_number):
        one = opened.open[number]
        commit = chance.random() < 0.6
        opened.asked[one.fact.producer, one.fact.batch_id].decisions.add((commit, 0))
        reply = _decide(world, number, commit=commit)
        if isinstance(reply, Busy | DiskFull):
            return
        if isinstance(reply, TernMQError) or reply.repeated:
            raise Violation(f"transaction {number} is undecided; it was answered {reply!r}")
        world.end_turn()
        world.reached("deep decision")
    for number, known in opened.decided.items():
        if known.position < world.broker.journal.first:
            continue
        again = _decide(world, number, commit=known.committed)
        if isinstance(again, TernMQError) or (again.rows, again.repeated) != (known.rows, True):
            raise Violation(f"transaction {number} is decided; it was answered {again!r}")
        other = _decide(world, number, commit=not known.committed)
        if not isinstance(other, TransactionDecided):
            raise Violation(f"transaction {number} was decided twice: {other!r}")
        world.reached("deep decision repeated")


def _decide(world: World, number: int, *, commit: bool) -> DecideReply | TernMQError:
    return world.command(
        lambda: world.broker.checking.decide(world.now_us(), "sim", number, commit=commit)
    )


def check_resends(world: World, chance: random.Random) -> None:
    """Batches that are stored, within the window, are recognised: the first receipt again."""
    limits = world.options.limits
    now = world.now_us()
    known = list(world.reference.stored.items())
    for batch, position in chance.sample(known, min(8, len(known))):
        tried = world.reference.tried[batch]
        topic = world.reference.topics.get(tried.topic_number)
        if topic is None:
            continue
        current = world.broker.views.catalog.by_name.get(tried.topic)
        if current is None or current.number != tried.topic_number:
            continue
        if tried.opened is not None:
            continue
        if tried.transaction is not None:
            _prepare_again(world, tried, position)
            continue
        if now - tried.time_us > min(limits.dedup_window_us, limits.producer_idle_us) - 2_000_000:
            continue
        reply = world.command(
            lambda: world.broker.send(now, tried.topic, batch, tried.queue)  # noqa: B023
        )
        if isinstance(reply, TernMQError):
            raise Violation(f"a resend was refused: {reply!r}")
        if not reply.duplicate:
            raise Violation(f"the batch at {position} was sent again and is stored twice")
        if scheduled := world.reference.scheduled.by_record.get(position):
            told = (reply.scheduled, reply.first_offset, reply.count)
            if told != (True, None, len(scheduled)) and position >= world.broker.journal.first:
                raise Violation(f"{len(scheduled)} rows were scheduled, a resend is told {told}")
            world.reached("deep resend of a scheduled batch")
            continue
        # Of what retention removed the place may be forgotten; that it was stored is not.
        if reply.first_offset is not None or position >= world.broker.journal.first:
            rows = topic.queues[reply.queue]
            first = next(at for at, row in enumerate(rows) if row.position == position)
            if reply.first_offset not in (None, first):
                raise Violation(f"a resend got offset {reply.first_offset}, the first was {first}")
        if reply.position > world.broker.journal.end:
            raise Violation("a duplicate's receipt rests on what is not there")
        world.reached("deep resend")


def _prepare_again(world: World, tried: Tried, position: int) -> None:
    """A batch that was prepared, within the window, is recognised: the first id again."""
    assert tried.transaction is not None
    limits = world.options.limits
    now = world.now_us()
    if now - tried.time_us > min(limits.dedup_window_us, limits.producer_idle_us) - 2_000_000:
        return
    writer, batch_id, part = tried.transaction
    reply = world.command(
        lambda: world.broker.prepare(now, "sim", tried.topic, tried.batch, writer, batch_id, part)
    )
    if isinstance(reply, ResendTooOld) and position < world.broker.journal.first:
        return
    if isinstance(reply, TernMQError):
        raise Violation(f"a batch prepared again was refused: {reply!r}")
    if not reply.duplicate or reply.prepared != position:
        raise Violation(f"the batch at {position} was prepared again as {reply.prepared}")
    world.reached("deep prepare again")


def check_cancels(world: World, chance: random.Random) -> None:
    """What is pending can be cancelled; what was delivered cannot; what was cancelled still is."""
    known = world.reference.scheduled.by_message
    for message in chance.sample(sorted(known), min(8, len(known))):
        topic = world.reference.topics.get(message[0])
        if topic is None:
            continue
        world.history.cancels.add((topic.spec.name, *message[1:]))
        now = world.now_us()
        reply = world.command(
            partial(world.broker.cancel_scheduled, now, topic.spec.name, *message[1:])
        )
        if isinstance(reply, Busy | DiskFull):
            world.run(5)
            continue
        answered_cancel(world, [known[message]], reply)
        world.reached("deep cancel")
        world.end_turn()


def wait_for_due(world: World, chance: random.Random) -> bool:
    """Let time pass until some of the rows that are pending have come due, if any are.

    Raises:
        Violation: they do not become messages.
    """
    scheduled = world.reference.scheduled
    keys = sorted(row.key for row in scheduled.rows.values() if row.fate == PENDING)
    if not keys:
        return False
    due_us = chance.choice((keys[0], keys[len(keys) // 2], keys[-1]))[0]
    if due_us > world.now_us():
        world.leap(due_us - world.now_us() + chance.choice((0, 0, 1, 1000)))
        world.reached("deep wait for what is due")
    idle, left = 0, scheduled.pending
    while idle < IDLE_ROUNDS:
        world.end_turn()
        world.run(1)
        if not any(
            row is not None and row.due_us <= due_us
            for row in map(scheduled.first_due, world.reference.topics)
        ):
            return True
        idle = idle + 1 if scheduled.pending == left else 0
        left = scheduled.pending
    raise Violation(f"rows that came due at {due_us} are pending: it is {world.now_us()}")


def check_decisions(world: World, end: int) -> None:
    """What is committed is told so, and stays; what was answered is committed."""
    broker, decided = world.broker, world.reference.decided
    newest: dict[str, int] = {}
    for writer, batch_id in decided.committed:
        newest[writer] = max(newest.get(writer, 0), batch_id)
    for name, asked in world.history.named.items():
        told = asked.told is not None and asked.end <= end
        if told and name not in decided.committed:
            raise Violation(f"{name} was answered committed, and is not")
    for writer, batch_id in newest.items():
        fact = decided.committed[writer, batch_id]
        now = world.now_us()
        if decided.heard_us[writer] < now - world.options.limits.writer_idle_us:
            continue  # it is forgotten: the broker was down for longer
        again = partial(broker.commit_transaction, now, "sim", writer, batch_id, (), fact.digest)
        reply = world.command(again)
        if isinstance(reply, TernMQError) or not reply.repeated or reply.rows != fact.rows:
            raise Violation(f"batch {batch_id} of {writer} is committed; a repeat: {reply!r}")
        gone = world.command(partial(broker.abort_transaction, now, "sim", writer, batch_id))
        if not isinstance(gone, TransactionDecided):
            raise Violation(f"batch {batch_id} of {writer} is committed; an abort: {gone!r}")
        world.reached("deep commit repeated")
    counts = {number: len(batches) for number, batches in decided.open.items() if batches}
    ours = {one.number: one.count for one in broker.views.undecided.by_number.values()}
    if counts != ours:
        raise Violation(f"undecided are {ours}, should be {counts}")


def drain(world: World, chance: random.Random) -> None:
    """Consume everything that any group is owed."""
    session = _join(world)
    _open_groups(world)
    failures = chance.choice(FAILED_MOST)
    for _ in range(ROUNDS):
        progress = False
        for number, topic in list(world.reference.topics.items()):
            for group in list(topic.subscriptions):
                one = topic.subscriptions.get(group)
                if one is None or not _joined(world, session, topic.spec.name, one):
                    continue
                name = one.name
                most = chance.randint(1, 40)
                fails = failures > 0 and chance.random() < FAILED
                outcome = Outcome.RETRY if fails else Outcome.DONE
                found = _consume(world, session, number, topic.spec.name, name, most, outcome)
                progress |= found
                failures -= found and fails
        world.reached("deep drain round")
        if not progress and _waiting(world) and chance.random() < NEAR_DEADLINE:
            _wait_for_deadline(world, chance)
        if world.events and (not progress or chance.random() < 0.5):
            world.run(1)
        if not progress:
            if not _owed(world):
                return
            _open_groups(world)
    raise Violation(f"not drained: {_owed(world)}")


def _joined(world: World, session: int, topic: str, one: RefSubscription) -> bool:
    """Be the instance, if the group is one with a name; return whether to consume it.

    One without a name goes with its session.
    """
    has = one.spec.instance
    if has is None or has.session == session:
        return True
    if not has.named:
        return False
    name = shown_instance(one.name)
    broker = world.broker
    reply = world.command(
        lambda: broker.broadcasting.join(world.now_us(), session, topic, name, InstanceAsked())
    )
    if isinstance(reply, TernMQError) and not isinstance(reply, JournalFull):
        raise Violation(f"instance {name} cannot be joined: {reply!r}")
    world.reached("deep join of an instance")
    return not isinstance(reply, TernMQError)


def _waiting(world: World) -> bool:
    """Return whether rows wait to be tried again."""
    groups = world.reference.groups.values()
    return any(row.state == WAITING for group in groups for row in group.rows.values())


def _wait_for_deadline(world: World, chance: random.Random) -> None:
    """Have it asked again shortly before something comes due, not only when it has."""
    deadline_us = world.broker.next_deadline_us()
    left_us = 0 if deadline_us is None else deadline_us - world.now_us()
    if left_us > SOON_US:
        world.after(left_us - 1 - chance.randrange(min(NEAR_US, left_us)), lambda: None)


def _consume(
    world: World,
    session: int,
    number: int,
    topic: str,
    group: str,
    most: int,
    outcome: Outcome,
) -> bool:
    """Pull once and settle what comes; return whether there may be more."""
    broker = world.broker
    found = broker.views.catalog.subscription(topic, group)
    if found.owners is not None and session not in found.owners.members:
        broker.membership.join(world.now_us(), session, found)
        world.reached("deep join of a group with members")
    reply = world.command(lambda: broker.pull(world.now_us(), session, topic, group, most))
    if isinstance(reply, JournalFull):
        world.reached("journal full for a moment")
        world.run(5)
        return True
    if isinstance(reply, TernMQError):
        raise Violation(f"a pull was refused: {reply!r}")
    if reply is None:
        return False
    offsets = [one for start, stop, _, _ in reply.runs for one in range(start, stop)]
    rows = world.reference.topics[number].queues[reply.queue]
    # As a shell does, at once: with the turn's end their segment may go.
    check_content(world, reply, [rows[offset] for offset in offsets])
    world.end_turn()
    lease = (reply.queue, reply.epoch, reply.lease)
    asked = Settle(topic, group, *lease, outcome, reason="no")
    for _ in range(20):
        settled = world.command(lambda: broker.settle(world.now_us(), session, asked))
        if not isinstance(settled, JournalFull):
            break
        world.run(5)
    else:
        raise Violation("a settle finds the journal full for ever")
    if isinstance(settled, TernMQError):
        raise Violation(f"a settle was refused: {settled!r}")
    world.end_turn()
    return True


def check_sessions(world: World) -> None:
    """Sessions that nobody resumed go when their grace is over."""
    names: set[str] = set()
    for _ in range(300):
        names = {joined.client for joined in world.reference.sessions.values()}
        if names <= {"drain"}:
            return
        world.run(1)
    raise Violation(f"sessions that nobody resumed are still there: {sorted(names)}")


def _join(world: World) -> int:
    reply = world.command(lambda: world.broker.clients.join(world.now_us(), "sim", "drain"))
    for _ in range(20):
        if not isinstance(reply, JournalFull):
            break
        world.run(5)
        reply = world.command(lambda: world.broker.clients.join(world.now_us(), "sim", "drain"))
    if isinstance(reply, TernMQError) or not isinstance(reply.value, int):
        raise Violation(f"a join was refused: {reply!r}")
    return reply.value


def _open_groups(world: World) -> None:
    """Resume what is paused, let go what is held."""
    broker = world.broker
    for topic in world.reference.topics.values():
        for subscription in topic.subscriptions.values():
            if subscription.spec.paused:
                spec = msgspec.structs.replace(subscription.spec, paused=False)
                broker.administration.change_subscription(
                    world.now_us(), topic.spec.name, subscription.name, spec
                )
    for key, group in world.reference.groups.items():
        held = [offset for offset, row in group.rows.items() if row.state == HELD]
        if held:
            topic = world.reference.topics[key[1]]
            name = topic.subscriptions[key[0]].name
            broker.operating.retry_now(world.now_us(), topic.spec.name, name, key[2], held)
    world.end_turn()


def _owed(world: World) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for key, group in world.reference.groups.items():
        topic = world.reference.topics[key[1]]
        has = topic.subscriptions[key[0]].spec.instance
        if has is not None and not has.named:
            continue  # it goes with its session
        for offset, row in group.rows.items():
            if row.state in (LEASED, WAITING, HELD) or row.state != DEAD:
                found.append((key, offset, row.state))
        subscription = topic.subscriptions[key[0]]
        rows = topic.queues[key[2]]
        for offset in range(group.cursor, len(rows)):
            if offset in group.ahead or offset < kept_from(rows, world.broker.journal.first):
                continue
            if not subscription.filtered or subscription.passes(rows[offset].row()):
                found.append((key, offset, "unread"))
    return found


def stop(world: World) -> None:
    """A clean stop, and a start from it: nothing is different."""
    broker = world.broker
    for _ in range(50):
        world.run(6)
        if world._syncing is not None:
            continue
        try:
            broker.close(world.now_us())
        except JournalFull:
            continue
        break
    else:
        raise Violation("it does not stop")
    now = world.now_us()
    different = difference(portrait(world.shadow, now), portrait(broker.views, now))
    if different is not None:
        raise Violation(f"the live views differ from replay: {different}")
    tape: Tape = world.reign.tape
    medium = world.reign.medium.clone()
    for op in world.disk.log:
        medium.feed(op)
    files = medium.image(medium.none())
    end = tape.valid_end(files, 0 if broker.journal.first == 0 else broker.journal.first, tape.end)
    if end != tape.end:
        raise Violation(f"a clean stop left records up to {end} durable of {tape.end}")
    known = Known(
        tape, world.reign.portraits, world.reign.suspects, world.options, known_wall(world)
    )
    again = start(ImageDisk(files), known, world.chance)
    last = tape.records[-1]  # in a full journal the stop leaves no MARK, and is not clean
    if last.kind == Kind.MARK and last.flags & FLAG_CLEAN and not again.report.clean:
        raise Violation("a clean stop is not seen as one")
    check_report(known, again, len(tape.records), end)
    now = max(now, again.broker.views.last_time_us)  # by which producers may be idle
    different = difference(portrait(again.broker.views, now), portrait(world.shadow, now))
    if different is not None:
        raise Violation(f"after a clean stop: {different}")


def known_wall(world: World) -> int:
    """Return the wall clock of a world."""
    return world.monotonic_us + world.wall_offset_us


def answered(reply: Reply) -> bool:
    """Return whether a reply says that something was done."""
    return isinstance(reply, DoneReply)
