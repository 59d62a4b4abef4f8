"""The line between an application and its database is bad: PostgreSQL, MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
import sqlalchemy as sa

from tests.black_box.wire import Wire
from tests.fault.reliable import checks, shop
from tests.fault.reliable.crew import MemberProcess
from tests.fault.reliable.place import Place, place
from tests.fault.reliable.tools import wait_until
from tests.killable_databases import SERVED, Servers

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.row("J1", "K5")]

BOTH: Final = pytest.mark.parametrize("kind", SERVED)
LEASE_S: Final = 2.0


@contextmanager
def wire_to(here: Place) -> Iterator[tuple[Wire, str]]:
    """Yield a line to a database, and the URL by which one reaches it so."""
    url = sa.make_url(here.url)
    assert url.port is not None
    with Wire(url.port) as wire:
        port = int(wire.url.rpartition(":")[2])
        yield wire, url.set(port=port).render_as_string(hide_password=False)


@contextmanager
def opened(
    kind: str, servers: Servers, broker, forks, tmp_path
) -> Iterator[tuple[Place, Wire, str]]:
    """Make a database, and a line to it."""
    with (
        place(kind, servers, broker, forks, tmp_path / "crew", lease_s=LEASE_S) as here,
        wire_to(here) as (wire, url),
    ):
        yield here, wire, url


def written(here: Place, more: int) -> None:
    """Wait until so many more transactions are committed, as far as the members know."""
    before = len(here.crew.lines("committed"))
    wait_until(
        lambda: len(here.crew.lines("committed")) >= before + more, "the application goes on"
    )


def writer(here: Place, url: str, name: str = "w1") -> MemberProcess:
    """Start a process that writes orders until it is told to end."""
    return here.crew.start(
        name, count=10**9, threads=2, compensate=False, pause_s=0.01, rolled_back=0.1, held=0.5,
        hold_s=0.2, database=url,
    )  # fmt: skip


@pytest.mark.timeout(180)
@BOTH
def test_answers_of_the_database_are_lost(kind, servers, broker, forks, tmp_path):
    """The commit took place, and the application never learns it: its message is sent."""
    with opened(kind, servers, broker, forks, tmp_path) as (here, wire, url):
        here.crew.start("c1", database=url)
        one = writer(here, url)
        written(here, 20)

        def lost() -> bool:
            """Lose answers once; return whether that of a commit was among all that were lost."""
            thrown = wire.thrown_bytes
            wire.deaf = True
            wait_until(lambda: wire.thrown_bytes > thrown, "inconclusive: an answer is lost")
            wire.deaf = False
            cut_and_wait(wire)
            written(here, 5)
            unknown = {line["id"] for line in here.crew.lines("unknown")}
            return bool(unknown & set(shop.committed(here.engine)))

        wait_until(lost, "inconclusive: the answer to a commit was lost")
        one.end()
        verdict = here.judge()
        here.crew.end()
    assert verdict.unknown > 0
    assert verdict.rolled_back > 0


@pytest.mark.timeout(180)
@BOTH
def test_the_line_to_the_database_is_cut(kind, servers, broker, forks, tmp_path):
    """Whatever was under way is there whole, or not at all."""
    with opened(kind, servers, broker, forks, tmp_path) as (here, wire, url):
        here.crew.start("c1", database=url)
        one = writer(here, url)
        for _ in range(8):
            written(here, 5)
            cut_and_wait(wire)
        written(here, 20)
        one.end()
        verdict = here.judge()
        here.crew.end()
    assert verdict.unknown > 0, "inconclusive: a transaction was cut"


@pytest.mark.timeout(180)
@BOTH
def test_the_database_is_far_away(kind, servers, broker, forks, tmp_path):
    """Each of its answers comes 50 ms late: nobody fails, and such a leader does the work."""
    with opened(kind, servers, broker, forks, tmp_path) as (here, wire, url):
        wire.delay_s = 0.05
        leader = here.crew.start("c1", database=url)
        wait_until(lambda: checks.leader(here.engine) == leader.pid, "it leads", pause=0.05)
        one = writer(here, url)
        carried = wire.down_bytes
        written(here, 30)
        assert wire.down_bytes > carried + 2000, "inconclusive: answers come late"
        one.end()
        verdict = here.judge()
        assert leader.end()["resent"] > 0
    assert verdict.unknown == 0, "the application noticed nothing"


@pytest.mark.timeout(180)
@BOTH
def test_the_line_of_the_leader_stands_still_and_goes_on(kind, servers, broker, forks, tmp_path):
    """Another one leads meanwhile; what the first had under way arrives after its lease."""
    with opened(kind, servers, broker, forks, tmp_path) as (here, wire, url):
        first = here.crew.start("c1", database=url)
        wait_until(lambda: checks.leader(here.engine) == first.pid, "it leads", pause=0.05)
        second = here.crew.start("c2")
        one = writer(here, here.url)
        written(here, 20)
        wire.frozen = True
        wait_until(lambda: checks.leader(here.engine) == second.pid, "the other leads", pause=0.05)
        written(here, 20)
        wire.frozen = False
        written(here, 20)
        one.end()
        verdict = here.judge()
        here.crew.end()
    assert verdict.unknown == 0, "the application noticed nothing"


@pytest.mark.timeout(180)
@BOTH
def test_the_line_of_the_leader_is_half_open(kind, servers, broker, forks, tmp_path):
    """Its connections carry nothing and never end: another one leads. It works again after that."""
    with opened(kind, servers, broker, forks, tmp_path) as (here, wire, url):
        first = here.crew.start("c1", database=url)
        wait_until(lambda: checks.leader(here.engine) == first.pid, "it leads", pause=0.05)
        second = here.crew.start("c2")
        one = writer(here, here.url)
        written(here, 20)
        assert wire.strand() > 0, "inconclusive: it has connections"
        wait_until(lambda: checks.leader(here.engine) == second.pid, "the other leads", pause=0.05)
        written(here, 20)
        wait_until(lambda: shop.rows_left(here.engine) < 50, "rows are sent", pause=0.05)
        wire.cut()  # somebody tells it at last
        second.kill()
        wait_until(lambda: checks.leader(here.engine) == first.pid, "it leads again", pause=0.05)
        written(here, 20)
        one.end()
        verdict = here.judge()
        here.crew.end()
    assert verdict.unknown == 0, "the application noticed nothing"


@pytest.mark.timeout(180)
def test_an_application_that_is_alone_finds_a_half_open_line(servers, broker, forks, tmp_path):
    """With the timeout of its driver in the URL: the outbox has it, too, and connects anew."""
    with opened("mariadb", servers, broker, forks, tmp_path) as (here, wire, url):
        patient = sa.make_url(url).update_query_dict({"read_timeout": "3"})
        one = here.crew.start(
            "w1", count=10**9, pause_s=0.01, rolled_back=0.1,
            database=patient.render_as_string(hide_password=False),
        )  # fmt: skip
        written(here, 20)
        made = wire.connections
        assert wire.strand() >= 2, "inconclusive: application and outbox have connections"
        written(here, 20)
        assert wire.connections > made
        one.end()
        here.crew.start("c1")  # direct: what the stranded ones had locked is free by now
        here.judge()
        here.crew.end()


def cut_and_wait(wire: Wire) -> None:
    """Cut all connections; wait until somebody has come again."""
    made = wire.connections
    wire.cut()
    wait_until(lambda: wire.connections > made, "they connect again")
