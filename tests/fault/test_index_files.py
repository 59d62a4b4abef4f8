"""Every file of the index deleted, cut, flipped, swapped: the same answers, and rebuilt (DUR-8).

The index is a cache of the journal. Its files come from a real worker; they are damaged on copies
in memory, and once all are deleted under a real one.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.store import lookup
from tests.fault.messages import LEDGER, ORDERS, TOPICS, has_application_id, identity_of
from tests.fault.processes import Verdicts, Worker, run
from tests.fault.verify import Drainer

pytestmark = [pytest.mark.fault, pytest.mark.slow]

FLIPS = 18
TRIES = 12
ROWS = 100
QUESTIONS = {"rows", "state", "id", "offset", "application", "time", "key", "moved"}
Answers = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """A data folder, and what it says undamaged."""

    folder: Path
    history: Path
    image: dict[str, bytes]
    answers: Answers

    def names(self) -> list[str]:
        return [name for name in sorted(self.image) if name.startswith("index/")]

    def lacks(self) -> list[str]:
        """Return which of what is to be damaged and asked for is not there."""
        names = self.names()
        asked = {text.split()[0] for text in self.answers}
        lacking = [] if sum(name.endswith(".idx") for name in names) >= 3 else ["sealed runs"]
        lacking += [] if any(name.endswith(".part") for name in names) else ["a part run"]
        if not any(place[0] == LEDGER for place, _, _ in self.answers["rows"]):
            lacking.append("an ordered topic")
        lacking += [] if len(self.answers["rows"]) > ROWS else ["rows that are left"]
        return lacking + sorted(QUESTIONS - asked)


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Kept:
    """A folder that has everything. What a kill leaves is a matter of chance: again if it lacks."""
    folder = tmp_path_factory.mktemp("index")
    data, record = folder / "data", folder / "history"
    lacking: list[str] = []
    for number in range(TRIES):
        with Worker(
            data,
            record,
            seed=number,
            messages=10**9,
            segment=64 << 10,
            reserve=64 << 10,
            state=24 << 10,
            journal=320 << 10,
            remember=2,
            speed=60,
        ) as worker:
            worker.answered(900 if not number else 60)
            worker.kill()
        image = {
            f"{part}/{path.name}": path.read_bytes()
            for part in ("journal", "index")
            for path in sorted((data / part).iterdir())
        }
        found = Kept(data, record, image, answers_of(Drainer(MemoryDisk(image))))
        lacking = found.lacks()
        if not lacking:
            return found
    pytest.fail(f"after {TRIES} kills the folder still lacks {lacking}")


def answers_of(drainer: Drainer) -> Answers:
    """Return all content and what every kind of look-up says."""
    shell, broker = drainer.shell, drainer.broker
    index, store = broker.index, broker.store
    rows = list(drainer.stored())
    answers: Answers = {
        "rows": [(place, row.body, row.ordering_key) for place, row in rows],
        "state": sorted(
            (
                key,
                held.cursor,
                held.failures.waiting_rows,
                held.failures.dead_rows,
                held.leased_rows,
            )
            for key, held in broker.views.progress.items()
        ),
    }
    numbers = {name: topic.number for name, topic in broker.views.catalog.by_name.items()}
    for at, ((name, queue, offset), row) in enumerate(rows):
        if at % 7:
            continue
        identity = identity_of(row.body)
        assert identity is not None
        topic = numbers[name]
        found = shell.ask(lookup.by_message_id, index, store, *identity)
        answers[f"id {identity}"] = found
        answers[f"offset {name} {queue} {offset}"] = shell.ask(
            lookup.by_offset, index, store, topic, queue, offset
        )
        if has_application_id(name, identity):
            answers[f"application id {identity}"] = shell.ask(
                lookup.by_application_id, index, store, topic, f"{identity[0]}-{identity[1]}"
            )
        if found is not None:
            answers[f"time {name} {found.time_us}"] = shell.ask(
                lookup.offset_at_time, index, store, topic, queue, found.time_us
            )
    for number in range(0, 50, 5):
        answers[f"key {number}"] = shell.ask(
            lookup.by_key, index, store, numbers[ORDERS], f"1-{number}"
        )
    for place, position in moved_rows(drainer):
        answers[f"moved {place}"] = position
    return answers


def moved_rows(drainer: Drainer) -> Iterator[tuple[tuple[str, int, int], object]]:
    """Yield where rows stand that were copied forward."""
    broker = drainer.broker
    for name in TOPICS:
        topic = broker.views.catalog.topic(name)
        for queue in topic.queues:
            for offset in range(queue.first):
                found = drainer.shell.ask(broker.index.moved, topic.number, queue.number, offset)
                if found is not None:
                    yield (name, queue.number, offset), found


def test_the_folder_has_all_that_is_damaged_here(kept):
    assert not kept.lacks()
    assert {text.split()[0] for text in kept.answers} == QUESTIONS


def damages(kept: Kept, name: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield a damaged folder, and what was done to it."""
    image, data = kept.image, kept.image[name]
    rest = {one: held for one, held in image.items() if one != name}
    yield "deleted", rest
    for size in sorted({0, 1, 64, len(data) // 2, max(0, len(data) - 1)}):
        yield f"cut to {size}", {**rest, name: data[:size]}
    yield "longer", {**rest, name: data + b"\0" * 512}
    if not data:  # killed between the creation of the file and its first write
        return
    yield "zeros", {**rest, name: bytes(len(data))}
    yield "noise", {**rest, name: random.Random(1).randbytes(len(data))}
    chance = random.Random(name)
    bits = [8 * at for at in range(0, 192, 16)]
    bits += [chance.randrange(8 * len(data)) for _ in range(FLIPS - len(bits))]
    for bit in bits:
        flipped = bytearray(data)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        yield f"bit {bit} flipped", {**rest, name: bytes(flipped)}
    for other in kept.names():
        if other != name:
            yield f"swapped with {other}", {**image, name: image[other], other: data}
            break
    other = kept.names()[-1]
    if other != name:
        yield f"replaced by {other}", {**rest, name: image[other]}


@pytest.mark.timeout(300)
def test_every_damage_to_every_file(kept):
    """Not one answer differs; a deleted or refused file is written again."""
    count = 0
    for name in kept.names():
        for what, image in damages(kept, name):
            count += 1
            drainer = Drainer(MemoryDisk(image))
            answers = answers_of(drainer)
            wrong = [text for text, said in kept.answers.items() if answers.get(text) != said]
            assert answers.keys() == kept.answers.keys(), (name, what)
            assert not wrong, (name, what, wrong[:5])
    assert count > 100


def sealed(kept: Kept) -> set[str]:
    """Return the run files of whole segments that the journal still has."""
    there = {name.removeprefix("journal/").removesuffix(".seg") for name in kept.image}
    return {name for name in kept.names() if name[6:-4] in there and name.endswith(".idx")}


def test_a_damaged_index_is_built_again(kept):
    """After the background jobs every sealed segment has its file, equal to a rebuild."""
    rebuilt = Drainer(
        MemoryDisk({name: data for name, data in kept.image.items() if "journal/" in name})
    )
    chance = random.Random(3)
    for name in kept.names():
        for what, image in chance.sample(list(damages(kept, name)), 5):
            disk = MemoryDisk(image)
            drainer = Drainer(disk)
            drainer.commit()
            upkeep = drainer.shell.upkeep
            upkeep.step(drainer.now_us, lambda: True)
            drainer.commit()
            while (job := upkeep.next_job()) is not None:
                job.run()
                upkeep.finished(job, None)
            assert drainer.broker.index.coverage.equal(rebuilt.broker.index.coverage) is None, (
                name,
                what,
            )
            assert sealed(kept) <= {f"index/{one}" for one in disk.names("index")}, (name, what)


def copied(folder: Path, to: Path) -> Path:
    """Return a copy: a folder that was verified is drained."""
    shutil.copytree(folder, to)
    return to


@pytest.mark.row("C5")
def test_a_broker_without_its_index_files(kept, tmp_path, verdicts: Verdicts):
    """Delete all index files under a real broker: the same messages at the same positions."""
    data, record = tmp_path / "data", tmp_path / "history"
    shutil.copy(kept.history, record)
    shutil.rmtree(copied(kept.folder, data) / "index")
    verdict = verdicts.sound(copied(data, tmp_path / "without"), record)
    other = verdicts.sound(copied(kept.folder, tmp_path / "with"), record)
    for field in ("left", "drained", "dead", "removed"):
        assert verdict[field] == other[field]
    assert verdict["left"] > ROWS
    worker = run(data, record, messages=300, seed=5)
    assert worker.code == 0, worker.log
    verdicts.sound(data, record)
    assert list((data / "index").iterdir())
