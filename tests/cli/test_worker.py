"""``ternmq worker`` as a process: what it says, how it ends, several of it, and its reload."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ternmq.sync
from ternmq.cli.terminal.exits import ExitCode
from ternmq.cli.worker.processes import _Supervisor
from ternmq.testing import broker
from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.cli.conftest import Processes
from tests.cli.workers import Start, begun

QUICK = """
import os, pathlib
import ternmq

client = ternmq.connect()

@client.handler("{topic}", group="g", concurrency=2)
async def quick(body: str) -> None:
    with pathlib.Path("done").open("a") as done:
        done.write(f"{{os.getpid()}} {{body}}\\n")
"""

SLOW = """
import pathlib, time
import ternmq

client = ternmq.connect()

@client.handler("{topic}", group="g")
def slow(body: str) -> None:
    pathlib.Path("begun").touch()
    time.sleep(3600)
"""

STUBBORN = """
import asyncio, pathlib
import ternmq

client = ternmq.connect()

@client.handler("{topic}", group="g")
async def stubborn(body: str) -> None:
    pathlib.Path("begun").touch()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue
"""

FOUR_AT_ONCE = """
import os, pathlib, time
import ternmq

client = ternmq.connect()

@client.handler("{topic}", group="g", concurrency=4)
def four_at_once(body: str) -> None:
    with pathlib.Path("begun").open("a") as begun:
        begun.write(f"{{os.getpid()}}\\n")
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""

TALKING = """
import logging
import ternmq

client = ternmq.connect()
logging.getLogger("shop-of-mine").info("imported")

@client.handler("{topic}", group="g")
async def talking(body: str) -> None:
    logging.getLogger("orders.billing").info("told of %s", body)
    logging.getLogger("orders.billing").debug("details of %s", body)
"""

IN_A_THREAD = """
import asyncio, pathlib, time
import ternmq

client = ternmq.connect()

@client.handler("{topic}", group="g")
async def in_a_thread(body: str) -> None:
    pathlib.Path("begun").touch()
    await asyncio.to_thread(time.sleep, 3600)
"""

BLOCKED = """
import pathlib, time
import ternmq

client = ternmq.connect()

@client.handler("{topic}", group="g")
async def blocked(body: str) -> None:
    pathlib.Path("begun").touch()
    time.sleep(3600)
"""

BLOCKING = SLOW.replace("import ternmq\n", "import ternmq.sync\n").replace(
    "ternmq.connect", "ternmq.sync.connect"
)

OF_A_BLOCKING_CLIENT = IN_A_THREAD.replace("import ternmq\n", "import ternmq.sync\n").replace(
    "ternmq.connect", "ternmq.sync.connect"
)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(*pids: int) -> None:
    wait_until(lambda: not any(alive(one) for one in pids), f"{pids} gone")


def test_what_it_says(start: Start, client: ternmq.sync.Client, topic: str) -> None:
    worker = start(QUICK)
    begun(worker)
    client.send(topic, "one")
    worker.has("done")
    assert worker.end() == 0
    lines = [line.split("ternmq: ", 1)[1] for line in worker.said.splitlines()]
    assert re.fullmatch(r"ternmq \S+, worker shop:client, process \d+", lines[0])
    version = ternmq.__version__  # the broker says its own; here they are the same
    assert lines[1].startswith(
        f"connected to broker ternmq (ternmq {version}) at {client.options.address}"
    )
    assert (
        f"handler quick: topic={topic} group=g mode=shared concurrency=2; "
        "retry: 1s x 2, cap 5m, jitter 20%, 16 attempts, then dead-letter"
    ) in lines
    assert lines[-1] == "stopped: no handler runs"
    stamps = [line.split(" ")[0] for line in worker.said.splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4}", s) for s in stamps)


def test_quiet(start: Start, client: ternmq.sync.Client, topic: str) -> None:
    client.send(topic, "one")
    worker = start(QUICK, "-q")
    worker.has("done")
    assert worker.end() == 0
    assert worker.said == ""


@pytest.mark.parametrize("code", [SLOW, STUBBORN, IN_A_THREAD, BLOCKING, OF_A_BLOCKING_CLIENT])
def test_handlers_that_do_not_end(
    start: Start, client: ternmq.sync.Client, topic: str, code: str
) -> None:
    client.send(topic, "one")
    worker = start(code, "--drain-timeout", "100ms")
    worker.has("begun")
    assert worker.end() == 0  # an hour before its handler
    assert "stopping: waiting up to 0.1 s for 1 handler call" in worker.said
    name = re.findall(r"def (\w+)\(", code)[0]
    named = rf"still running after 0.1 s: handler {name}, topic={topic} group=g id=\S+ offset=0/0,"
    assert re.search(named + r" since \d\d:\d\d:\d\d", worker.said), worker.said


LIFESPAN = """
@client.lifespan
async def lifespan():
    try:
        yield
    finally:
        raise RuntimeError("the pool was closed twice")
"""


@pytest.mark.parametrize(
    ("code", "status", "last"),
    [
        (IN_A_THREAD, 4, r"{time} ERROR    ternmq: no group 'g' on topic '{topic}'.*"),
        (OF_A_BLOCKING_CLIENT, 4, r"{time} ERROR    ternmq: no group 'g' on topic '{topic}'.*"),
        (
            IN_A_THREAD + LIFESPAN,
            1,
            r"{time} ERROR    ternmq: lifespan shop.lifespan failed: .*closed twice",
        ),
    ],
)
def test_an_error_ends_it_though_a_thread_does_not_end(
    start: Start, client: ternmq.sync.Client, topic: str, code: str, status: int, last: str
) -> None:
    client.send(topic, "one")
    worker = start(code, "--drain-timeout", "100ms")
    worker.has("begun")
    client.admin.delete_group(topic, "g")
    assert worker.process.wait(DEADLINE) == status
    said = worker.said.splitlines()
    time = r"\d{4}-\d\d-\d\dT[\d:.]+[+-]\d{4}"
    assert re.fullmatch(last.format(topic=re.escape(topic), time=time), said[-1]), worker.said
    assert "ended at once: something that a handler started is still running" in worker.said
    if LIFESPAN in code:  # the error that ended the run is told too
        assert "no group 'g' on topic" in worker.said


FAILING = {
    "sync": """
import ternmq, ternmq.sync

client = ternmq.sync.connect()

@client.lifespan
def db():
    {at_start}
    yield
    {at_end}

@client.handler("{topic}", group="g")
def handle(body: str):
    client.stop()
""",
    "async": """
import ternmq

client = ternmq.connect()

@client.lifespan
async def db():
    {at_start}
    yield
    {at_end}

@client.handler("{topic}", group="g")
async def handle(body: str):
    client.stop()
""",
}


@pytest.mark.parametrize("client_is", ["sync", "async"])
@pytest.mark.parametrize("at", ["start", "end"])
@pytest.mark.parametrize(
    ("raises", "said"),
    [
        (
            "raise ConnectionRefusedError(111, 'Connection refused')",
            "ConnectionRefusedError: [Errno 111] Connection refused",
        ),
        ("raise TimeoutError()", "TimeoutError"),
    ],
)
def test_a_lifespan_that_fails_is_named_with_its_line(
    start: Start,
    client: ternmq.sync.Client,
    topic: str,
    client_is: str,
    at: str,
    raises: str,
    said: str,
) -> None:
    client.send(topic, "one")
    code = FAILING[client_is].format(
        at_start=raises if at == "start" else "pass",
        at_end=raises if at == "end" else "pass",
        topic=topic,
    )
    worker = start(code)
    assert worker.process.wait(DEADLINE) == ExitCode.FAILED
    lines = worker.said.splitlines()
    assert lines[-1].endswith(f" ERROR    ternmq: lifespan shop.db failed: {said}")
    assert lines[-5] == "Traceback (most recent call last):"
    assert re.fullmatch(r'  File ".*shop.py", line \d+, in db', lines[-4])
    assert lines[-3].strip() == raises
    assert lines[-2] == said


@pytest.mark.parametrize("client_is", ["sync", "async"])
def test_a_lifespan_that_calls_exit_ends_the_worker_without_a_traceback(
    start: Start, topic: str, client_is: str
) -> None:
    code = FAILING[client_is].format(
        at_start="import sys; sys.exit('no database')", at_end="pass", topic=topic
    )
    worker = start(code)
    assert worker.process.wait(DEADLINE) == 1
    assert worker.said.splitlines()[-1] == "no database"
    assert "Traceback" not in worker.said


def test_an_error_of_the_broker_in_a_lifespan_keeps_its_status(start: Start, topic: str) -> None:
    code = FAILING["sync"].format(
        at_start="client.get('nowhere', 'some-id')", at_end="pass", topic=topic
    )
    worker = start(code)
    assert worker.process.wait(DEADLINE) == ExitCode.NOT_FOUND
    assert re.search(r"lifespan shop.db failed in .*shop.py, line 8:\n", worker.said), worker.said
    assert "no topic 'nowhere'" in worker.said.splitlines()[-1]
    assert "Traceback" not in worker.said


def test_each_process_tells_that_a_lifespan_failed(start: Start, topic: str) -> None:
    code = FAILING["async"].format(at_start="raise TimeoutError", at_end="pass", topic=topic)
    worker = start(code, "--processes", "2")
    worker.says("lifespan shop.db failed: TimeoutError", 2)
    worker.process.terminate()
    worker.process.wait(DEADLINE)


ELSEWHERE = """
import logging.config
logging.config.dictConfig({{
    "version": 1,
    "handlers": {{"file": {{"class": "logging.FileHandler", "filename": "own.log"}}}},
    "root": {{"handlers": ["file"], "level": "INFO"}},
}})
"""


@pytest.mark.parametrize("own_log", [False, True])
def test_what_it_gives_up_for_is_a_line_of_its_log(
    start: Start, processes: Processes, topic: str, *, own_log: bool
) -> None:
    """And a plain one where the application writes its log to another place."""
    with broker(settings={"create_topics": False}) as strict:
        processes.environment["TERNMQ_URL"] = strict.url
        worker = start((ELSEWHERE if own_log else "") + QUICK)
        assert worker.process.wait(DEADLINE) == ExitCode.NOT_FOUND
    last = worker.said.splitlines()[-1]
    said = (
        f"ternmq: there is no topic '{topic}': if the program declares it (ternmq.Topic), `ternmq "
        "apply shop:client` creates it; else `ternmq topic create` does; `ternmq topic list` shows "
        "the existing topics"
    )
    assert last.endswith(said)
    assert re.match(r"\d{4}-\d\d-\d\dT\S+ ERROR    ternmq: ", last) or own_log
    assert (last == said) == own_log


@pytest.mark.slow
def test_what_a_process_ended_with_comes_to_others(
    start: Start, client: ternmq.sync.Client, topic: str
) -> None:
    client.send(topic, "one")
    worker = start(SLOW, "--drain-timeout", "100ms")
    worker.has("begun")
    worker.process.send_signal(signal.SIGTERM)
    worker.says("stopped, but 1 handler call still runs: no other consumer gets the message before")
    (delivery,) = client.pull(topic, group="g", wait=DEADLINE)
    assert delivery.maybe_redelivered
    delivery.ack()


EXPORTING = """
import atexit, pathlib, time

@atexit.register
def export() -> None:
    pathlib.Path("exporting").touch()
    while not pathlib.Path("exported").exists():
        time.sleep(0.01)
"""


@pytest.mark.parametrize("code", [SLOW, BLOCKING])
def test_a_message_is_handed_back_after_all_else_that_its_process_does_at_its_end(
    start: Start, processes: Processes, client: ternmq.sync.Client, topic: str, code: str
) -> None:
    """Also after what was registered before TernMQ was imported, as by an agent for traces."""
    client.admin.create_topic(topic)
    client.admin.create_group(topic, "g", retry=ternmq.RetryPolicy(first=0.01))
    client.send(topic, "one")
    (processes.folder / "sitecustomize.py").write_text(EXPORTING)
    before = processes.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    processes.environment["PYTHONPATH"] = f"{processes.folder}{os.pathsep}{before}"
    worker = start(code, "--drain-timeout", "100ms")
    worker.has("begun")
    worker.process.send_signal(signal.SIGTERM)
    worker.has("exporting")
    assert sum(one.leased for one in client.admin.group(topic, "g").queues) == 1
    assert "still ran when its process ended" not in worker.said
    (worker.folder / "exported").touch()
    assert worker.process.wait(DEADLINE) == ExitCode.DONE
    assert "still ran when its process ended: attempt 1 of 16: it is retried" in worker.said
    (delivery,) = client.pull(topic, group="g", wait=DEADLINE)
    assert (delivery.attempt, delivery.last_reason) == (
        2,
        "the worker stopped while the handler ran",
    )
    delivery.ack()


@pytest.mark.parametrize("code", [SLOW, STUBBORN, BLOCKING])
@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_process_abandons_is_given_back_at_its_end_and_was_an_attempt(
    start: Start, client: ternmq.sync.Client, topic: str, code: str, at_once: bool
) -> None:
    """A message whose handler hangs must not come back for ever; nor is its session waited for."""
    client.admin.create_topic(topic)
    client.admin.create_group(topic, "g", retry=ternmq.RetryPolicy(first=0.01, attempts=2))
    client.send(topic, "one")
    for attempt in (1, 2):
        worker = start(code, "--drain-timeout", "1h" if at_once else "100ms")
        worker.has("begun")
        if at_once:
            worker.process.send_signal(signal.SIGTERM)
            worker.says("stopping: waiting up to 3600 s")
        assert worker.end() == (-15 if at_once else 0)
        fate = "retried by the retry policy" if attempt == 1 else "a dead letter now"
        said = rf"s\) still ran when its process ended: attempt {attempt} of 2: it is {fate}"
        assert re.search(said, worker.said), worker.said
        queue = client.admin.group(topic, "g").queues[0]
        assert queue.leased == 0  # nobody waits for the end of the session
        assert (queue.dead, queue.waiting + queue.ready) == ((0, 1) if attempt == 1 else (1, 0))
        (worker.folder / "begun").unlink()
    (dead,) = client.deadletters.browse(topic, "g")
    reason = "the worker stopped while the handler ran"
    assert [(one.attempt, one.reason) for one in dead.failures] == [(1, reason), (2, reason)]


@pytest.mark.parametrize("number", [1, 2])
def test_a_closed_terminal_drains(
    start: Start, client: ternmq.sync.Client, topic: str, number: int
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run behind nohup
    try:
        worker = start(FOUR_AT_ONCE, "--processes", number)
    finally:
        signal.signal(signal.SIGHUP, before)
    begun(worker, number)
    client.send_many(topic, [f"{n}" for n in range(4)])
    wait_until(
        lambda: (worker.folder / "begun").exists()
        and len((worker.folder / "begun").read_text().splitlines()) == 4, "all begun",
    )  # fmt: skip
    worker.process.send_signal(signal.SIGHUP)
    worker.says("stopping: waiting up to 30 s")
    worker.process.send_signal(signal.SIGHUP)  # of the kernel, after the shell's
    (worker.folder / "go").touch()
    assert worker.process.wait(DEADLINE) == 0
    assert "when told to end at once" not in worker.said
    queue = client.admin.group(topic, "g").queues[0]
    assert (queue.leased, queue.waiting, sum(one.floor for one in
            client.admin.group(topic, "g").queues)) == (0, 0, 4)  # fmt: skip


@pytest.mark.parametrize("number", [1, 2])
def test_a_hangup_that_is_ignored_stays_so(
    processes: Processes, client: ternmq.sync.Client, topic: str, number: int, start: Start
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        worker = start(QUICK, "--processes", number)
    finally:
        signal.signal(signal.SIGHUP, before)
    begun(worker, number)
    worker.process.send_signal(signal.SIGHUP)
    client.send(topic, "one")
    worker.has("done")
    assert "stopping" not in worker.said
    assert worker.end() == 0


@pytest.mark.parametrize("code", [SLOW, STUBBORN, BLOCKING])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -15), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once(
    start: Start, client: ternmq.sync.Client, topic: str, code: str, number: int, status: int
) -> None:
    client.send(topic, "one")
    worker = start(code, "--drain-timeout", "1h")
    worker.has("begun")
    worker.process.send_signal(number)
    worker.says("stopping: waiting up to 3600 s")
    assert worker.end(number) == status
    assert "still running when told to end at once" in worker.said
    assert "Traceback" not in worker.said


def test_a_second_signal_ends_a_loop_that_is_blocked(
    start: Start, client: ternmq.sync.Client, topic: str
) -> None:
    client.send(topic, "one")
    worker = start(BLOCKED)
    worker.has("begun")

    def ended() -> bool:  # two that come together are one
        worker.process.send_signal(signal.SIGTERM)
        return worker.process.poll() is not None

    wait_until(ended, "ended")
    assert worker.process.returncode == -15


def test_a_broker_that_is_lost_and_comes_back(
    processes: Processes, tmp_path: Path, start: Start, topic: str
) -> None:
    with BrokerProcess("dev", tmp_path / "own", segment="4MiB") as broker:
        processes.environment["TERNMQ_URL"] = broker.url
        worker = start(QUICK)
        begun(worker)
        broker.kill()
        worker.says("the connection to .* is lost: .*; connecting again")
        broker.start()
        worker.says(r"connected to .* again after \d+\.\d s")
        with ternmq.sync.connect(broker.url) as client:
            client.send(topic, "one")
        worker.has("done")
        assert worker.end() == 0


def test_a_broker_that_is_not_there_yet(processes: Processes, tmp_path: Path, start: Start) -> None:
    broker = BrokerProcess("dev", tmp_path / "own", segment="4MiB")
    processes.environment["TERNMQ_URL"] = broker.url
    worker = start(QUICK)
    worker.says("no broker at .* yet: waiting for it")
    try:
        broker.start()
        worker.says("connected to broker ")
        assert worker.end() == 0
    finally:
        broker.stop()


# -- several processes


def test_several_processes(start: Start, client: ternmq.sync.Client, topic: str) -> None:
    worker = start(QUICK, "--processes", 2)
    one, two = begun(worker, 2)
    client.send_many(topic, [str(number) for number in range(200)])
    wait_until(lambda: len((worker.folder / "done").read_text().splitlines()) == 200
               if (worker.folder / "done").exists() else False, "all handled")  # fmt: skip

    os.kill(one, signal.SIGKILL)
    worker.says(f"process {one} ended with signal 9: another process starts in 1 s")
    *_, three = begun(worker, 3)
    assert worker.end() == 0
    gone(one, two, three)
    assert worker.said.count("stopped: no handler runs") == 2
    assert f"[{three}] INFO" in worker.said


def test_a_process_that_ends_by_itself_is_not_started_again(start: Start, topic: str) -> None:
    worker = start(QUICK, "--processes", 2)
    one, two = begun(worker, 2)
    for left, process in ((1, one), (0, two)):
        os.kill(process, signal.SIGTERM)
        worker.says(
            rf"process {process} ended with status 0 \(client.stop\(\) or SIGTERM\), and no other "
            f"one starts: {left} of 2 left"
        )
    assert worker.process.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("option", "informed", "detailed"),
    [((), 1, 0), (("-v",), 1, 0), (("-vv",), 1, 1), (("-q",), 0, 0)],
)
def test_what_the_application_logs_is_shown(
    start: Start, client: ternmq.sync.Client, topic: str, option: tuple[str, ...], informed: int,
    detailed: int,
) -> None:  # fmt: skip
    client.send(topic, "one")
    worker = start(TALKING + "    client.stop()\n", *option)
    assert worker.process.wait(DEADLINE) == 0
    assert worker.said.count("shop-of-mine: imported") == informed
    assert worker.said.count("orders.billing: told of one") == informed
    assert worker.said.count("orders.billing: details of one") == detailed


@pytest.mark.parametrize("round_", range(3))
def test_no_process_holds_what_another_is_free_for(
    start: Start, client: ternmq.sync.Client, topic: str, round_: int
) -> None:
    """Twice four threads, eight messages at once: all begin while none has ended."""
    worker = start(FOUR_AT_ONCE, "--processes", 2)
    begun(worker, 2)
    members = lambda: len(client.admin.group(topic, "g").members) == 2  # noqa: E731
    wait_until(members, "both have joined")
    file = worker.folder / "begun"
    client.send_many(topic, [str(number) for number in range(8)])
    wait_until(lambda: file.exists() and len(file.read_text().split()) == 8, "all eight begin")
    assert sorted(Counter(file.read_text().split()).values()) == [4, 4]
    (worker.folder / "go").touch()
    assert worker.end() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_is_passed_on(
    start: Start, client: ternmq.sync.Client, topic: str, number: int, status: int
) -> None:
    client.send(topic, "one")
    worker = start(SLOW, "--processes", 2, "--drain-timeout", "1h")
    pids = begun(worker, 2)
    worker.has("begun")
    worker.process.send_signal(number)
    worker.says("stopping: waiting up to 3600 s")
    assert worker.end(number) == status
    gone(*pids)
    assert worker.said.count("still running when told to end at once") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("when", ["supervisor", "handler "])
def test_processes_that_are_stopped_while_they_start(start: Start, number: int, when: str) -> None:
    worker = start(QUICK, "--processes", 2)
    worker.says(when)
    assert worker.end(number) == 0
    assert "Traceback" not in worker.said


def test_processes_end_with_their_supervisor(start: Start) -> None:
    worker = start(QUICK, "--processes", 2)
    pids = begun(worker, 2)
    worker.process.kill()
    worker.process.wait(DEADLINE)
    gone(*pids)
    assert worker.said.count("stopped: no handler runs") == 2


def test_processes_that_are_through(start: Start, client: ternmq.sync.Client, topic: str) -> None:
    worker = start(QUICK + "    client.stop()\n", "--processes", 2)
    begun(worker, 2)
    client.send_many(topic, ["a"] * 2)
    wait_until(lambda: worker.said.count("stopped: ") >= 1, "one is through")
    client.send_many(topic, ["b"] * 20)
    assert worker.process.wait(DEADLINE) == 0


def test_a_command_that_is_wrong_is_not_begun_again(start: Start) -> None:
    worker = start("client = 7", "--processes", 2)
    assert worker.process.wait(DEADLINE) == 2
    assert "is of type int, not a client: name a variable of the module" in worker.said
    assert "another begins" not in worker.said


def test_a_group_that_is_not_as_declared_is_for_good(
    start: Start, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic)
    client.admin.create_group(topic, "g", start="latest")
    worker = start(QUICK.replace("concurrency=2", 'start="earliest"'), "--processes", 2)
    assert worker.process.wait(DEADLINE) == ExitCode.UNSOUND
    assert f"group g on {topic}: start latest -> earliest cannot be changed" in worker.said
    assert "another begins" not in worker.said


# -- reload


def test_a_process_that_is_started_while_all_ends_is_ended() -> None:
    async def supervise() -> int:
        supervisor = _Supervisor(2, None)
        numbers = itertools.count()

        async def start(number: int) -> asyncio.subprocess.Process:
            del number
            if next(numbers) == 0:
                code = f"raise SystemExit({int(ExitCode.USAGE)})"
            else:
                await supervisor._over.wait()  # by the other one
                code = "import sys; sys.stdin.read()"  # until a signal
            return await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, stdin=subprocess.PIPE
            )

        supervisor._start = start  # type: ignore[method-assign]
        return await asyncio.wait_for(supervisor.run(), DEADLINE)

    assert asyncio.run(supervise()) == ExitCode.USAGE


def test_processes_whose_module_is_no_python_are_not_started_again(processes: Processes) -> None:
    (processes.folder / "broken.py").write_text("this is no Python")
    process = processes.start("worker", "broken:client", "--processes", "2", stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == ExitCode.USAGE, err
    assert b"SyntaxError" in err


def test_it_begins_anew_when_a_file_changes(
    start: Start, client: ternmq.sync.Client, topic: str, processes: Processes
) -> None:
    worker = start(QUICK, "--reload")
    (first,) = begun(worker)
    code = (worker.folder / "shop.py").read_text()

    (worker.folder / "shop.py").write_text("this is no Python")
    worker.says("shop.py changed: restarting")
    gone(first)
    worker.says("SyntaxError")
    worker.says("ended with status 2: waiting for a change")

    (worker.folder / "new.py").write_text("")
    (worker.folder / "shop.py").write_text(code.replace("{body}", "changed {body}"))
    worker.says("(new|shop).py and 1 more changed: restarting")
    begun(worker, 2)
    client.send(topic, "one")
    worker.has("done")
    assert "changed one" in (worker.folder / "done").read_text()
    assert worker.end() == 0


def test_what_is_watched(tmp_path: Path) -> None:
    from ternmq.cli.worker import sources

    def write(*names: str) -> None:
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    write("shop.py", "shop/consumers.py", "shop/notes.txt", ".hidden/a.py", "venv/lib/b.py")
    write("venv/pyvenv.cfg", "shop/__pycache__/c.py")
    (tmp_path / "round.py").symlink_to("round.py")  # a look at it fails, and ends nothing
    known = sources.look(tmp_path)
    assert sorted(known) == ["shop.py", "shop/consumers.py"]
    assert sources.changed(known, sources.look(tmp_path)) == []
    (tmp_path / "shop.py").write_text("x = 1")
    (tmp_path / "shop/consumers.py").unlink()
    write("shop/new.py")
    changes = sources.changed(known, sources.look(tmp_path))
    assert changes == ["shop.py", "shop/consumers.py", "shop/new.py"]


def test_values(processes: Processes) -> None:
    for arguments, says in (
        (["--processes", "0"], "0 is not in the range"),
        (["--drain-timeout", "soon"], "soon"),
    ):
        ended: Any = processes.run("worker", "shop:client", *arguments, code=2)
        assert says in ended.err
