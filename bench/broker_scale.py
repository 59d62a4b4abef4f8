"""What a broker process does where there is much: topics, groups, backlog. Run by ``broker.py``.

* ``hot-topic``: two brokers run at once, one with the hot topic alone, one with 40,000 topics
  beside it, each with a group and a message. They are measured in turn, pair by pair; who is not
  measured does nothing.
* ``groups-70``: what the broker's CPU is per delivery, the send's share included, with 70 groups
  and with one; and the bytes of both.
* ``cold-backlog``: broker and page cache are in a memory control group of 256 MB (it wants root,
  ``limited`` says so), so that of a backlog of 1 GiB three quarters can only come from the disk;
  the system is told to forget the rest before the group reads.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from broker_kit import BrokerProcess, broker_at, client, figures_of, ready, started
from control_group import control_group
from core_kit import MIB, Figures, Measurement, Settings, Target, folder
from core_machine import drop_caches

CLIENTS: Final = Path(__file__).with_name("broker_scale_clients.py")
TOPICS: Final = 40_000
GROUPS: Final = 70
PAIRS: Final = 3
LIMIT: Final = 256 * MIB
BACKLOG: Final = 4 * LIMIT

# ------------------------------------------------------------------------------------- many topics


def hot_topic(settings: Settings) -> Figures:
    """Measure one topic alone and beside 40,000; then kill that broker and start it again."""
    topics = settings.scaled(TOPICS, 300)
    with folder(settings) as path:
        with (
            broker_at(path / "alone") as alone,
            broker_at(path / "beside", kill=True) as beside,
        ):
            making = client(beside.url, "make_topics", CLIENTS, count=topics)
            found = _pairs(settings, alone, beside)
            resident, descriptors = beside.resident_mib(), beside.descriptors()
        cold = drop_caches()
        began = time.perf_counter()
        with broker_at(path / "beside", kill=True):
            start_s = time.perf_counter() - began
    return {
        **found,
        "resident_mib": resident,
        "descriptors": float(descriptors),
        "start_s": start_s,
        "start_cold": float(cold),
        **making,
    }


def _pairs(settings: Settings, alone: BrokerProcess, beside: BrokerProcess) -> Figures:
    seconds = settings.scaled(3, 1)
    bulk = settings.scaled(400_000, 20_000)
    speeds: dict[str, list[tuple[float, float]]] = {"sends": [], "send_many": [], "pull": []}
    for number in range(settings.scaled(PAIRS, 1)):
        order = (alone, beside) if number % 2 == 0 else (beside, alone)
        measured: dict[int, dict[str, float]] = {}
        for one in order:
            sent = client(one.url, "sends", connections=16, in_flight=16, seconds=float(seconds))
            many = client(one.url, "send_many", count=bulk, of=1000)
            pulled = client(one.url, "pull", count=bulk // 2, of=1000)
            measured[one.pid] = {
                "sends": sent["sends_per_s"],
                "send_many": many["messages_per_s"],
                "pull": pulled["messages_per_s"],
            }
        for name, pairs in speeds.items():
            pairs.append((measured[alone.pid][name], measured[beside.pid][name]))
    found: Figures = {}
    for name, pairs in speeds.items():
        found[f"{name}_share_of_alone"] = statistics.median([b / a for a, b in pairs])
        found[f"{name}_alone_per_s"] = statistics.median([a for a, _ in pairs])
        found[f"{name}_per_s"] = statistics.median([b for _, b in pairs])
    return found


# ------------------------------------------------------------------------------------- many groups


def groups(settings: Settings) -> Figures:
    """Let 70 groups read one topic, and one: singles in pulls of 32, batches in pulls of 500."""
    many = _read_by(settings, GROUPS, messages=settings.scaled(16_384, 1024), single=True)
    one = _read_by(settings, 1, messages=settings.scaled(65_536, 2048), single=True)
    bulk = _read_by(settings, GROUPS, messages=settings.scaled(64_000, 2000), single=False)
    return {
        "deliveries_per_s": bulk["deliveries_per_s"],
        "deliveries_per_s_pulls_of_32": many["deliveries_per_s"],
        "deliveries_per_s_one_group": one["deliveries_per_s"],
        "broker_cpu_against_one_group": many["cpu_us"] / one["cpu_us"],
        "broker_cpu_us_each": many["cpu_us"],
        "broker_cpu_us_each_one_group": one["cpu_us"],
        "broker_cpu_us_each_pulls_of_500": bulk["cpu_us"],
        "message_bytes": many["message_bytes"],
        "message_bytes_one_group": one["message_bytes"],
        "index_bytes": many["index_bytes"],
        "index_bytes_one_group": one["index_bytes"],
        "fact_bytes_per_message_and_group": many["fact_bytes"],
        "fact_bytes_one_group": one["fact_bytes"],
    }


def _read_by(settings: Settings, count: int, *, messages: int, single: bool) -> Figures:
    """Send messages, then let so many groups read and settle all of them."""
    of = 32 if single else 500
    with folder(settings) as path, broker_at(path / "data", given={"SEGMENT": "4MiB"}) as one:
        client(one.url, "make_groups", CLIENTS, count=count)
        begin, cpu = _journal_end(one), one.cpu_s()
        client(one.url, "send_singles" if single else "send_batches", CLIENTS, count=messages)
        sent = _journal_end(one)
        halves = [(0, count)] if count == 1 else [(0, count // 2), (count // 2, count)]
        with ExitStack() as stack:
            readers = [
                started(
                    one.url, "read_groups", CLIENTS, first=low, stop=high, of=of, messages=messages
                )
                for low, high in halves
            ]
            for reader in readers:
                stack.enter_context(reader)
            told = [figures_of(reader) for reader in readers]
        used = one.cpu_s() - cpu
        facts = _journal_end(one) - sent
        client(one.url, "fill", CLIENTS, size=8 * MIB)  # what is measured is indexed by segments
        index = _index_bytes(path)
    deliveries = messages * count
    seconds = max(one["ended"] for one in told) - min(one["began"] for one in told)
    return {
        "deliveries_per_s": deliveries / seconds,
        "cpu_us": used * 1e6 / deliveries,
        "message_bytes": (sent - begin) / messages,
        "fact_bytes": facts / deliveries,
        "index_bytes": index / messages,
    }


def _journal_end(one: BrokerProcess) -> float:
    return client(one.url, "journal_end", CLIENTS)["journal_end"]


def _index_bytes(path: Path) -> int:
    """Return the bytes of the index's files, when they change no more."""
    last = -1
    until = time.monotonic() + 20
    while time.monotonic() < until:
        now = sum(file.stat().st_size for file in path.rglob("*.idx"))
        if now == last and now:
            break
        last = now
        time.sleep(0.5)  # the broker makes them in the background; nothing here is timed
    return max(last, 0)


# ------------------------------------------------------------------------------------ cold backlog


def cold_backlog(settings: Settings) -> Figures:
    """Live sends alone, then beside a group that reads a cold backlog at full speed; in turn."""
    backlog = settings.scaled(BACKLOG, 24 * MIB)
    seconds = 2.0 if settings.quick else 4.0
    without: list[Figures] = []
    beside: list[Figures] = []
    reading: list[Figures] = []
    with _limited(settings) as (one, path, limited):
        client(one.url, "make_backlog", CLIENTS, size=backlog, groups=PAIRS)
        for number in range(settings.scaled(PAIRS, 1)):
            without.append(client(one.url, "live", CLIENTS, seconds=seconds))
            _forget(path)
            with started(
                one.url, "read_backlog", CLIENTS, group=number, seconds=seconds + 1.5
            ) as reader:
                ready(reader)
                beside.append(client(one.url, "live", CLIENTS, seconds=seconds))
                reading.append(figures_of(reader))
        peak = one.peak_mib()
    pairs = [(b["p99_ms"], a["p99_ms"]) for a, b in zip(without, beside, strict=True)]
    return {
        "p99_times_without": statistics.median([with_ / alone for with_, alone in pairs]),
        "p99_ms": statistics.median([with_ for with_, _ in pairs]),
        "p99_ms_without": statistics.median([alone for _, alone in pairs]),
        "p50_ms": statistics.median([one["p50_ms"] for one in beside]),
        "p50_ms_without": statistics.median([one["p50_ms"] for one in without]),
        "read_mb_per_s": statistics.median([one["read_mb_per_s"] for one in reading]),
        "read_all_the_time": min(one["busy_share"] for one in reading),
        "backlog_mib": backlog / MIB,
        "peak_mib": peak,
        "limited": float(limited),
    }


@contextmanager
def _limited(settings: Settings) -> Iterator[tuple[BrokerProcess, Path, bool]]:
    with folder(settings) as path, control_group(LIMIT) as group:
        prefix = [] if group is None else group.prefix
        with broker_at(path / "data", prefix=prefix, given={"SEGMENT": "64MiB"}) as one:
            yield one, path, group is not None


def _forget(path: Path) -> None:
    """Have the system forget what it holds of a folder's files, without being root."""
    os.sync()
    for file in path.rglob("*.seg"):
        fd = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


MEASUREMENTS: Final = (
    Measurement(
        "hot-topic",
        "a topic beside 40,000 others: its speed against a broker that has only it; a start",
        hot_topic,
        (
            Target("sends_share_of_alone", 0.9, at_least=True),
            Target("send_many_share_of_alone", 0.9, at_least=True),
            Target("pull_share_of_alone", 0.9, at_least=True),
            Target("resident_mib", 400.0),
            Target("descriptors", 200.0),
            Target("start_s", 5.0),
        ),
        {"topics": TOPICS, "pairs": PAIRS},
    ),
    Measurement(
        "groups-70",
        "70 groups read one topic; readers check every record and decode none",
        groups,
        (
            Target("deliveries_per_s", 600_000.0, at_least=True),
            Target("broker_cpu_against_one_group", 0.5),
            Target("fact_bytes_per_message_and_group", 8.0),
        ),
        {"groups": GROUPS, "body_bytes": 100, "pulls": [32, 500]},
    ),
    Measurement(
        "cold-backlog",
        "live sends of 1 KiB beside a group that reads a cold backlog of 4 x the memory limit",
        cold_backlog,
        (Target("p99_times_without", 3.0),),
        {"limit_mib": LIMIT // MIB, "backlog_mib": BACKLOG // MIB, "live_in_flight": 16,
         "pairs": PAIRS},
    ),
)  # fmt: skip
